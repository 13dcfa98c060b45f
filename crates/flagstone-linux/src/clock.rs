//! Coarse monotonic time.

/// Monotonic nanoseconds with the resolution of the kernel's tick (1 to 10 ms): a read of the
/// vDSO page, no system call.
pub fn now() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is writable. The call cannot fail for this clock (Linux 2.6.32).
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    #[test]
    fn time_does_not_run_backwards() {
        let first = super::now();
        assert!(first > 0);
        assert!(super::now() >= first);
    }
}
