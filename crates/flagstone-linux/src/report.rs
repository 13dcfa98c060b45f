//! Reports without allocation: one line on standard error, and the end of the program.

use crate::sys;
use flagstone_core::platform::Fault;

/// Writes `parts` to standard error by one system call, so that lines of two threads stay whole.
pub fn write_line(parts: &[&[u8]]) {
    /// Parts one line may have.
    const PARTS: usize = 12;
    let mut vectors = [libc::iovec {
        iov_base: core::ptr::null_mut(),
        iov_len: 0,
    }; PARTS];
    let count = parts.len().min(PARTS);
    for (vector, part) in vectors.iter_mut().zip(parts) {
        vector.iov_base = part.as_ptr().cast_mut().cast();
        vector.iov_len = part.len();
    }
    // SAFETY: the vectors name readable memory that lives during the call.
    unsafe {
        sys::call(
            libc::SYS_writev,
            [
                libc::STDERR_FILENO as usize,
                vectors.as_ptr() as usize,
                count,
                0,
                0,
                0,
            ],
        )
    };
}

/// Reports `fault` as `flagstone: <sentence> (address 0x..)` and ends the program by SIGABRT,
/// blocked or not.
pub fn fatal(fault: Fault, address: *const u8) -> ! {
    ignore_closed_pipes();
    let mut digits = [0; 16];
    write_line(&[
        b"flagstone: ",
        fault.sentence().as_bytes(),
        b" (address 0x",
        hex(address.addr(), &mut digits),
        b")\n",
    ]);
    // SAFETY: abort unblocks SIGABRT, raises it, and raises it again with the default action.
    unsafe { libc::abort() }
}

/// Blocks SIGPIPE: the exit status must tell of the fault, not of the reader that went away.
fn ignore_closed_pipes() {
    let mask: u64 = 1 << (libc::SIGPIPE - 1);
    // SAFETY: the kernel reads an eight-byte mask and writes none back.
    unsafe {
        sys::call(
            libc::SYS_rt_sigprocmask,
            [
                libc::SIG_BLOCK as usize,
                (&raw const mask) as usize,
                0,
                8,
                0,
                0,
            ],
        )
    };
}

fn hex(value: usize, digits: &mut [u8; 16]) -> &[u8] {
    let mut rest = value;
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b"0123456789abcdef"[rest & 15];
        rest >>= 4;
        if rest == 0 {
            return &digits[start..];
        }
    }
}

/// Reports one line: `flagstone: <line>`.
pub fn warn(line: &str) {
    write_line(&[b"flagstone: ", line.as_bytes(), b"\n"]);
}

#[cfg(test)]
mod tests {
    use super::hex;

    #[test]
    fn addresses_are_printed_without_leading_zeros() {
        assert_eq!(hex(0, &mut [0; 16]), b"0");
        assert_eq!(hex(0x7fff_dead_beef, &mut [0; 16]), b"7fffdeadbeef");
        assert_eq!(hex(usize::MAX, &mut [0; 16]), &[b'f'; 16]);
    }
}
