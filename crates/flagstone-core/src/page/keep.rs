//! How much free memory a zone keeps resident, and how that bound learns.
//!
//! ```text
//!   bound = min(most, max(min, in use × share / 1024, raised))
//!   raised: doubled when a quarter of what was given back within a second was wanted again;
//!           falls by an eighth each second; at most max and the peak in use
//!   after a deep fall of the heap, until memory is wanted again, at most a part of what is in use
//! ```
//!
//! Locking: the zone's. Plain arithmetic; nothing here gives memory back (`release`).
#![forbid(unsafe_code)]

use super::config::Retention;
use crate::base::PageSize;

/// Nanoseconds in which memory given back and wanted again counts as a mistake.
///
/// Why a second: pages wanted again later cost one fault per second at most. Doubling learns from
/// slower cycles and keeps more for them.
const REGRET_NS: u64 = 1_000_000_000;

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
    raised: usize,
    fallen: bool,
    peak: usize,
    released: usize,
    reused: usize,
    window: u64,
}

impl Keep {
    /// The state before anything happened.
    pub(super) fn new(rule: &Retention, page_size: PageSize) -> Self {
        Self {
            min: rule.min_bytes >> page_size.shift(),
            share: rule.share,
            max: rule.max_bytes >> page_size.shift(),
            most: usize::MAX,
            raised: 0,
            fallen: false,
            peak: 0,
            released: 0,
            reused: 0,
            window: 0,
        }
    }

    /// Free pages that may stay resident while `in_use` pages are in use.
    #[inline]
    pub(super) fn bound(&self, in_use: usize) -> usize {
        let wanted = self.min.max(in_use * self.share / 1024).max(self.raised);
        if self.fallen {
            return wanted.min(self.most).min(fallen_bound(self.min, in_use));
        }
        wanted.min(self.most)
    }

    /// The heap fell deep: little stays until memory is wanted again.
    pub(super) fn note_fall(&mut self) {
        self.fallen = true;
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
        if now.saturating_sub(self.window) > REGRET_NS {
            self.released = 0;
            self.reused = 0;
        }
        self.window = now;
        self.released += pages;
    }

    /// Notes that pages which were not resident are wanted. `now` is asked only if it matters.
    #[inline]
    pub(super) fn note_reused(&mut self, pages: usize, now: impl FnOnce() -> u64) {
        if self.released != 0 {
            self.regret(pages, now());
        }
    }

    #[cold]
    fn regret(&mut self, pages: usize, now: u64) {
        if now.saturating_sub(self.window) > REGRET_NS {
            self.released = 0;
            self.reused = 0;
            return;
        }
        self.reused += pages;
        if self.reused >= self.released.div_ceil(4) {
            let most = self.max.min(self.peak);
            if !self.fallen {
                self.raised = (self.raised.max(self.min) * 2).min(most);
            }
            self.fallen = false;
            self.released = 0;
            self.reused = 0;
        }
    }

    /// A second passed while `in_use` pages were in use.
    pub(super) fn decay(&mut self, in_use: usize) {
        self.raised -= self.raised.div_ceil(8);
        self.peak = in_use.max(self.peak - self.peak / 8);
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
        keep.note_fall();
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
        for (at, bound) in [(REGRET_NS / 2, 8 * MIB), (2 * REGRET_NS, MIB)] {
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
}
