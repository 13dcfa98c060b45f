//! Start-up entropy.

use crate::sys;

/// Eight bytes of entropy: from the kernel's generator, else mixed from the auxiliary vector's
/// random bytes (the C library takes its stack canary from those, so they never leave unmixed).
pub fn seed() -> u64 {
    let mut bytes = [0; 8];
    // SAFETY: the buffer is writable for its length.
    let got = unsafe {
        sys::call(
            libc::SYS_getrandom,
            [
                bytes.as_mut_ptr() as usize,
                bytes.len(),
                libc::GRND_NONBLOCK as usize,
                0,
                0,
                0,
            ],
        )
    };
    if got == 8 {
        return u64::from_ne_bytes(bytes);
    }
    // SAFETY: reads the auxiliary vector.
    let random = unsafe { libc::getauxval(libc::AT_RANDOM) } as usize;
    let mut word = crate::clock::now();
    if random != 0 {
        let source = core::ptr::with_exposed_provenance::<[u64; 2]>(random);
        // SAFETY: AT_RANDOM is the address of sixteen random bytes, of no stated alignment.
        let [a, b] = unsafe { source.read_unaligned() };
        word ^= a.rotate_left(23) ^ b;
    }
    mix(word)
}

/// A one-way enough mixer: every input bit reaches every output bit (the finaliser of splitmix64).
const fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    #[test]
    fn two_seeds_differ() {
        assert_ne!(super::seed(), super::seed());
    }
}
