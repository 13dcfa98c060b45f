//! Falls of the heap: when is it so much smaller that what it keeps should shrink too?
//!
//! ```text
//!   bytes in use   ╱╲      peak
//!                 ╱  ╲
//!                ╱    ╲ ◄─ a fall: some eighths below the peak, and at least so many bytes
//!               ╱      ╲╱  grown again soon: regret (policy/regret.rs) raises the fewest bytes
//!                          of the next fall, while the program swings above its swing
//! ```
//!
//! Plain arithmetic; what a fall leads to is upkeep's.
#![forbid(unsafe_code)]

use crate::policy::{Reach, Regret, SWING_MAX};
use crate::sync::Ordering::Relaxed;
use core::sync::atomic::AtomicUsize;

/// A fall of fewer bytes is none: what could be given back is small then. What regret raises
/// reaches from here.
const REACH: Reach = Reach {
    floor: 4 << 20,
    once: 8 << 20,
    swing: SWING_MAX,
};

/// What is remembered of one kind of fall. Racy on purpose.
#[derive(Debug, Default)]
pub(super) struct Falls {
    /// The most bytes in use since the last fall.
    peak: AtomicUsize,
    regret: Regret,
}

impl Falls {
    /// Notes that `used` bytes are in use; answers whether that is a fall by `eighths` of the
    /// peak. `now` is asked only if it matters.
    pub(super) fn follow(&self, used: usize, eighths: usize, now: impl FnOnce() -> u64) -> bool {
        let peak = self.peak.load(Relaxed);
        if used > peak {
            self.peak.store(used, Relaxed);
            if self.regret.gave() {
                self.regret.want(used - peak, REACH, now());
            }
            return false;
        }
        let fall = peak - used;
        if fall < REACH.floor || fall < peak / 8 * eighths {
            return false;
        }
        let now = now();
        self.regret.decay(now);
        if fall < self.regret.raised() {
            return false;
        }
        self.regret.give(fall, now);
        self.peak.store(used, Relaxed);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::REGRET_NS;

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
    fn a_heap_that_swings_falls_again_only_when_it_falls_deeper_or_after_a_pause() {
        let falls = Falls::default();
        let swing = |low: usize, at: u64| {
            falls.follow(80 * MIB, 4, || at);
            falls.follow(low * MIB, 4, || at)
        };
        assert!(swing(30, 0));
        assert!(swing(30, 1), "50 MiB of 8");
        assert!(!swing(30, 2), "50 MiB of 58");
        assert!(swing(20, 3), "60 MiB of 58");
        assert!(!swing(20, 4), "60 MiB of the most");
        assert!(swing(15, 5), "wider than any swing that is kept");
        assert!(swing(20, 5 * REGRET_NS), "what was learnt fell");
    }
}
