//! How much free memory a zone keeps resident.
//!
//! ```text
//!   bound = min(most, max(min, in use × share / 1024, what regret raised))
//!   after a deep fall of the heap that is no swing, until memory is wanted again, at most a part
//!   of what is in use
//!   regret (policy/regret.rs): with what is in use at most 9/8 of the peak, of a wide swing no more
//!   than is in use; after one mistake at most max, while the program swings at most a store of the
//!   process's memory
//! ```
//!
//! Locking: the zone's. Plain arithmetic; nothing here gives memory back (`release`).
#![forbid(unsafe_code)]

use super::config::Retention;
use crate::base::PageSize;
use crate::policy::{Reach, Regret, eighths_off, swing_room};

/// What stays of free pages while a heap that needs `in_use` pages falls.
///
/// Why a 64th: a fall is followed by more frees, not by allocations; at a 32nd and less the bound
/// is a visible part of what is left after frees at random. An eighth of the usual least amount
/// keeps small heaps from giving back page by page.
fn fallen_bound(min: usize, in_use: usize) -> usize {
    (in_use / 64).max(min / 8)
}

/// The bound of one zone, in pages.
#[derive(Debug)]
pub(super) struct Keep {
    min: usize,
    share: usize,
    max: usize,
    most: usize,
    fallen: bool,
    peak: usize,
    shift: u32,
    regret: Regret,
}

impl Keep {
    /// The state before anything happened.
    pub(super) fn new(rule: &Retention, page_size: PageSize) -> Self {
        Self {
            min: rule.min_bytes >> page_size.shift(),
            share: rule.share,
            max: rule.max_bytes >> page_size.shift(),
            most: usize::MAX,
            fallen: false,
            peak: 0,
            shift: page_size.shift(),
            regret: Regret::new(),
        }
    }

    /// Free pages that may stay resident while `in_use` pages are in use.
    #[inline]
    pub(super) fn bound(&self, in_use: usize) -> usize {
        // With what is in use about as much as was in use lately: caches keep a part of a swing too.
        let swing = swing_room(self.peak << self.shift, in_use << self.shift);
        let raised = self.regret.raised().min(swing) >> self.shift;
        let wanted = self.min.max(in_use * self.share / 1024).max(raised);
        if self.fallen {
            return wanted.min(self.most).min(fallen_bound(self.min, in_use));
        }
        wanted.min(self.most)
    }

    /// The heap fell deep: little stays until memory is wanted again, unless it swings.
    pub(super) fn note_fall(&mut self, now: u64) {
        self.fallen = !self.regret.swings(now);
    }

    /// From now on no more than `most` pages stay, whatever the rule says.
    pub(super) fn set_most(&mut self, most: usize) {
        self.most = most;
    }

    /// Notes how many pages are in use.
    #[inline]
    pub(super) fn note_use(&mut self, in_use: usize) {
        if in_use > self.peak {
            self.peak = in_use;
            self.fallen = false;
        }
    }

    /// Notes that pages were given back.
    pub(super) fn note_released(&mut self, pages: usize, now: u64) {
        self.regret.give(pages << self.shift, now);
    }

    /// Notes that pages which were not resident are wanted. `now` is asked only if it matters.
    #[inline]
    pub(super) fn note_reused(&mut self, pages: usize, now: impl FnOnce() -> u64) {
        if self.regret.gave() && self.regret.want(pages << self.shift, self.reach(), now()) {
            self.fallen = false;
        }
    }

    fn reach(&self) -> Reach {
        // Before the means are known, no more than after one mistake.
        let most = if self.most == usize::MAX {
            self.max
        } else {
            self.most.max(self.max)
        };
        Reach {
            floor: self.min << self.shift,
            once: self.max << self.shift,
            swing: most << self.shift,
        }
    }

    /// A second or more passed, and `in_use` pages are in use.
    pub(super) fn decay(&mut self, in_use: usize, now: u64) {
        self.regret.decay(now);
        self.peak = in_use.max(eighths_off(self.peak, 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: Retention = Retention {
        min_bytes: 8 << 20,
        share: 64,
        max_bytes: 16 << 20,
    };
    const MIB: usize = (1 << 20) / 4096;

    fn fallen() -> Keep {
        let mut keep = Keep::new(&RULE, PageSize::K4);
        keep.note_use(1024 * MIB);
        keep.note_fall(0);
        keep
    }

    #[test]
    fn after_a_fall_little_stays_and_less_the_less_is_in_use() {
        let keep = fallen();
        let bounds = [512, 128, 10].map(|mib| keep.bound(mib * MIB) / MIB);
        assert_eq!(bounds, [8, 2, 1]);
    }

    #[test]
    fn memory_wanted_again_at_once_ends_the_fall_but_later_it_does_not() {
        for (at, bound) in [(1_000_000, 16 * MIB), (5_000_000_000, MIB)] {
            let mut keep = fallen();
            keep.note_released(100, 0);
            keep.note_reused(25, || at);
            assert_eq!(keep.bound(64 * MIB), bound, "wanted after {at} ns");
        }
    }

    #[test]
    fn a_new_peak_ends_the_fall() {
        let mut keep = fallen();
        keep.note_use(1025 * MIB);
        assert_eq!(keep.bound(64 * MIB), 8 * MIB);
    }

    fn swing(keep: &mut Keep, at: u64) {
        keep.note_use(72 * MIB);
        keep.note_fall(at);
        keep.note_released(56 * MIB, at);
        keep.note_reused(56 * MIB, || at);
    }

    #[test]
    fn a_zone_that_swings_keeps_its_swing_within_the_store() {
        for (store, repeated) in [
            (usize::MAX, [16, 16]),
            (48 * MIB, [48, 48]),
            (512 * MIB, [61, 61]),
        ] {
            let mut keep = Keep::new(&RULE, PageSize::K4);
            keep.set_most(store);
            let bounds = [1, 2, 3].map(|at| {
                swing(&mut keep, at);
                keep.note_fall(at);
                keep.bound(20 * MIB) / MIB
            });
            assert_eq!(bounds[0], 1, "one fall");
            assert_eq!(
                bounds[1..],
                repeated,
                "store {store}, at most 9/8 of the peak"
            );
        }
    }
}
