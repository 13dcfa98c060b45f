//! System calls that leave `errno` alone.
//!
//! `malloc` and `free` may set `errno` only when they fail, and run before thread-local storage
//! of the C library is certain to exist; so the kernel is asked directly. A result in
//! `-4095..0` is an error number, negated.

/// Performs system call `number` with up to six arguments.
///
/// # Safety
/// 1. The arguments are what the system call asks for.
#[cfg(target_arch = "x86_64")]
#[inline]
pub unsafe fn call(number: libc::c_long, arguments: [usize; 6]) -> isize {
    let result: isize;
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: obligation 1; the instruction changes only rax, rcx, r11 and what the call states.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Performs system call `number` with up to six arguments.
///
/// # Safety
/// 1. The arguments are what the system call asks for.
#[cfg(target_arch = "aarch64")]
#[inline]
pub unsafe fn call(number: libc::c_long, arguments: [usize; 6]) -> isize {
    let result: isize;
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: obligation 1; the instruction changes only x0 and what the call states.
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a => result,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            options(nostack),
        );
    }
    result
}

/// Performs system call `number` through the C library, keeping `errno` as it was.
///
/// # Safety
/// 1. The arguments are what the system call asks for.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub unsafe fn call(number: libc::c_long, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the C library's errno of this thread is readable.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { errno.read() };
    // SAFETY: obligation 1.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) } as isize;
    if result != -1 {
        return result;
    }
    // SAFETY: as above.
    let error = unsafe { errno.read() };
    // SAFETY: as above.
    unsafe { errno.write(before) };
    -(error as isize)
}

/// Whether `result` is error `error`.
#[inline]
pub const fn is_error(result: isize, error: i32) -> bool {
    result == -(error as isize)
}

/// Opens a file for reading; `path` ends with a zero byte.
pub fn open(path: &[u8]) -> Option<i32> {
    debug_assert_eq!(path.last(), Some(&0));
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
    let directory = libc::AT_FDCWD as isize as usize;
    // SAFETY: `path` is a zero-terminated string that lives during the call.
    let fd = unsafe {
        call(
            libc::SYS_openat,
            [directory, path.as_ptr() as usize, flags, 0, 0, 0],
        )
    };
    (fd >= 0).then_some(fd as i32)
}

/// Reads into `buffer`; bytes read, zero at the end or on an error.
pub fn read(fd: i32, buffer: &mut [u8]) -> usize {
    loop {
        // SAFETY: the buffer is writable for its length.
        let got = unsafe {
            call(
                libc::SYS_read,
                [
                    fd as usize,
                    buffer.as_mut_ptr() as usize,
                    buffer.len(),
                    0,
                    0,
                    0,
                ],
            )
        };
        if !is_error(got, libc::EINTR) {
            return usize::try_from(got).unwrap_or(0);
        }
    }
}

/// Closes a descriptor that [`open`] gave.
pub fn close(fd: i32) {
    // SAFETY: closing has no memory effects.
    unsafe { call(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]) };
}

/// Reads into `buffer` from an offset of the file, whose own position stays; bytes read, zero at the end or on an error.
#[must_use]
pub fn read_at(fd: i32, buffer: &mut [u8], offset: usize) -> usize {
    let (start, len) = (buffer.as_mut_ptr() as usize, buffer.len());
    // SAFETY: the buffer is writable for its length.
    let got = unsafe { call(libc::SYS_pread64, [fd as usize, start, len, offset, 0, 0]) };
    usize::try_from(got).unwrap_or(0)
}

/// The file once more under the first free number from `least` on, closed at `exec`.
#[must_use]
pub fn duplicate_from(fd: i32, least: i32) -> Option<i32> {
    let words = [
        fd as usize,
        libc::F_DUPFD_CLOEXEC as usize,
        least as usize,
        0,
        0,
        0,
    ];
    // SAFETY: has no memory effects.
    let fd = unsafe { call(libc::SYS_fcntl, words) };
    (fd >= 0).then_some(fd as i32)
}
