//! Falls of the heap: when is it so much smaller that what it keeps should shrink too?
//!
//! ```text
//!   bytes in use   ╱╲      peak
//!                 ╱  ╲
//!                ╱    ╲ ◄─ a fall: some eighths below the peak, and at least so many bytes
//!               ╱      ╲╱  half-way back within a second: it was a swing, and the next
//!                          fall must be twice as many bytes
//! ```
//!
//! Plain arithmetic; what a fall leads to is upkeep's.
#![forbid(unsafe_code)]

use crate::sync::Ordering::Relaxed;
use core::sync::atomic::{AtomicU64, AtomicUsize};

/// A fall of fewer bytes is none: what could be given back is small then.
const BYTES_MIN: usize = 4 << 20;
/// The largest fall ever asked for, however many were swings.
const BYTES_MAX: usize = 1 << 30;
/// Nanoseconds within which growing back makes a fall a swing.
const SWING_NS: u64 = 1_000_000_000;

/// What is remembered of one kind of fall. Bytes in use, all of them; racy on purpose.
#[derive(Debug, Default)]
pub(super) struct Falls {
    /// The most since the last fall.
    peak: AtomicUsize,
    /// Half-way back to the peak before that; zero once it was reached.
    back: AtomicUsize,
    /// When that was.
    at: AtomicU64,
    /// The fewest bytes of the next fall; zero is [`BYTES_MIN`].
    least: AtomicUsize,
}

impl Falls {
    /// Notes that `used` bytes are in use; answers whether that is a fall by `eighths` of the
    /// peak. `now` is asked only if it matters.
    pub(super) fn follow(&self, used: usize, eighths: usize, now: impl FnOnce() -> u64) -> bool {
        let peak = self.peak.load(Relaxed);
        let least = self.least.load(Relaxed).max(BYTES_MIN);
        if used > peak {
            self.peak.store(used, Relaxed);
            let back = self.back.load(Relaxed);
            if back != 0 && used > back {
                self.back.store(0, Relaxed);
                if now().saturating_sub(self.at.load(Relaxed)) < SWING_NS {
                    self.least.store((least * 2).min(BYTES_MAX), Relaxed);
                }
            }
            return false;
        }
        let fall = peak - used;
        if fall < least || fall < peak / 8 * eighths {
            return false;
        }
        self.back.store(used + fall / 2, Relaxed);
        self.at.store(now(), Relaxed);
        self.peak.store(used, Relaxed);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn a_heap_that_shrinks_steadily_falls_again_and_again() {
        let falls = Falls::default();
        let found = (10..=100)
            .rev()
            .filter(|mib| falls.follow(mib * MIB, 1, || 0))
            .count();
        // 87, 76, 66, 57, 49, 42, 36, 31, and then by 4 MiB each: 27, 23, 19, 15, 11.
        assert_eq!(found, 13);
    }

    #[test]
    fn small_falls_are_none() {
        let falls = Falls::default();
        assert!(!falls.follow(7 * MIB, 4, || 0));
        assert!(!falls.follow(4 * MIB, 4, || 0));
        assert!(falls.follow(3 * MIB, 4, || 0));
    }

    #[test]
    fn a_swing_must_be_twice_as_deep_to_count_again() {
        let falls = Falls::default();
        let swing = |low: usize, at: u64| {
            falls.follow(100 * MIB, 4, || at);
            falls.follow(low * MIB, 4, || at)
        };
        assert!(swing(45, 0));
        assert!(swing(45, SWING_NS / 2), "55 MiB of 8");
        assert!(swing(45, SWING_NS / 2), "55 MiB of 16");
        assert!(swing(45, SWING_NS / 2), "55 MiB of 32");
        assert!(!swing(45, SWING_NS / 2), "55 MiB of 64");
        assert!(swing(30, SWING_NS / 2), "70 MiB of 64");
        assert!(swing(30, 3 * SWING_NS), "growing back slowly is no swing");
    }
}
