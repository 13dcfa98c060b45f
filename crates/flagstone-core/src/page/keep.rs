//! How much free memory a zone keeps resident: the bound, a fall's floor, or as much as lately.
//!
//! Locking: the zone's. Plain arithmetic; nothing here gives memory back (`release`).
#![forbid(unsafe_code)]

use super::budget::Budget;
use crate::base::PageSize;
use crate::policy::Lately;

/// What a zone remembers of its falls and of what it gave back, in pages.
#[derive(Debug)]
pub(super) struct Keep {
    shift: u32,
    /// The heap fell deep, and did not grow since.
    fallen: bool,
    /// The fewest pages in use since that fall.
    low: usize,
    /// Given back and not wanted again yet.
    given: usize,
    /// Pages in use in the last seconds, and just now.
    lately: Lately,
    just_now: Lately,
}

impl Keep {
    /// The state before anything happened.
    pub(super) const fn new(page_size: PageSize) -> Self {
        Self {
            shift: page_size.shift(),
            fallen: false,
            low: 0,
            given: 0,
            lately: Lately::SECONDS,
            just_now: Lately::JUST_NOW,
        }
    }

    /// Free pages that may stay resident while `in_use` pages are in use.
    #[inline]
    pub(super) fn bound(&self, budget: &Budget, in_use: usize) -> usize {
        budget.room_for_pages(in_use << self.shift) >> self.shift
    }

    fn floor(&self, budget: &Budget, in_use: usize) -> usize {
        budget.floor(in_use << self.shift) >> self.shift
    }

    /// Whether some of `resident` free pages should go back. `now` is asked only if it matters.
    #[inline]
    pub(super) fn is_excess(
        &mut self,
        budget: &Budget,
        resident: usize,
        in_use: usize,
        now: impl FnOnce() -> u64,
    ) -> bool {
        let least = match self.fallen {
            true => self.floor(budget, in_use),
            false => self.bound(budget, in_use),
        };
        resident > least && resident > self.most(budget, in_use, now())
    }

    /// Free pages that giving back leaves: some less than would start it, so that the next time is
    /// some megabytes away.
    pub(super) fn target(&mut self, budget: &Budget, in_use: usize, now: u64) -> usize {
        let most = self.most(budget, in_use, now);
        most - most / 4
    }

    /// Free pages that may stay at `now`.
    fn most(&mut self, budget: &Budget, in_use: usize, now: u64) -> usize {
        // More than was in use: what is free does not always fit what is asked for.
        let lately = (self.lately.most(now) / 4 * 5).saturating_sub(in_use) << self.shift;
        let just_now = (self.just_now.most(now) / 8 * 9).saturating_sub(in_use) << self.shift;
        let stays = budget.unpaid(lately, just_now, in_use << self.shift, now) >> self.shift;
        match self.fallen && stays == 0 && budget.affords(now) {
            true => self.floor(budget, in_use),
            false => self.bound(budget, in_use).max(stays),
        }
    }

    /// The heap fell deep.
    pub(super) fn note_fall(&mut self) {
        self.fallen = true;
        self.low = usize::MAX;
    }

    /// Notes how many pages are in use: the fall is over once they are more by the floor than at the least.
    #[inline]
    pub(super) fn note_use(&mut self, budget: &Budget, in_use: usize) {
        self.low = self.low.min(in_use);
        self.lately.note(in_use);
        self.just_now.note(in_use);
        if self.fallen && in_use - self.low > self.floor(budget, self.low) {
            self.fallen = false;
        }
    }

    /// Notes that pages were given back.
    pub(super) fn note_released(&mut self, pages: usize) {
        self.given += pages;
    }

    /// Notes that pages which were not resident are wanted, and charges those that were given back.
    #[inline]
    pub(super) fn note_reused(&mut self, budget: &Budget, pages: usize, now: impl FnOnce() -> u64) {
        let again = pages.min(self.given);
        if again == 0 {
            return;
        }
        self.given -= again;
        budget.charge_pages(again, now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::Retention;
    use crate::sync::Ordering::Relaxed;

    const RULE: Retention = Retention {
        min_bytes: 16 << 20,
        share: 64,
    };
    const MIB: usize = (1 << 20) / 4096;

    fn fallen() -> Keep {
        let mut keep = Keep::new(PageSize::K4);
        keep.note_fall();
        keep
    }

    #[test]
    fn after_a_fall_little_stays_and_less_the_less_is_in_use() {
        let (mut keep, budget) = (fallen(), Budget::new(&RULE));
        for (in_use, floor) in [(512, 8), (128, 2), (64, 1)] {
            assert!(!keep.is_excess(&budget, floor * MIB, in_use * MIB, || 0));
            assert!(keep.is_excess(&budget, floor * MIB + 1, in_use * MIB, || 0));
        }
    }

    #[test]
    fn what_is_wanted_again_is_charged() {
        let (mut keep, budget) = (fallen(), Budget::new(&RULE));
        keep.note_released(100 * MIB);
        keep.note_reused(&budget, MIB, || 0);
        assert!(!budget.affords(1), "a debt");
        assert!(!keep.is_excess(&budget, 8 * MIB, 10 * MIB, || 1));
        assert!(keep.is_excess(&budget, 8 * MIB, 10 * MIB, || 1_000_000_000));
        assert!(keep.is_excess(&budget, 16 * MIB + 1, 10 * MIB, || 1));
    }

    #[test]
    fn what_was_in_use_lately_stays_once_giving_back_has_cost_too_much() {
        let (mut keep, budget) = (Keep::new(PageSize::K4), Budget::new(&RULE));
        keep.note_use(&budget, 80 * MIB);
        keep.note_released(1000 * MIB);
        keep.note_reused(&budget, 500 * MIB, || 0);
        assert!(keep.is_excess(&budget, 17 * MIB, 10 * MIB, || 0), "credit");
        keep.note_reused(&budget, 490 * MIB, || 0);
        assert!(!keep.is_excess(&budget, 90 * MIB, 10 * MIB, || 0));
        assert!(keep.is_excess(&budget, 90 * MIB + 1, 10 * MIB, || 0));
        assert_eq!(keep.target(&budget, 30 * MIB, 0), 70 * MIB / 4 * 3);
        budget.most.store((60 * MIB) << 12, Relaxed);
        assert!(keep.is_excess(&budget, 70 * MIB, 10 * MIB, || 0), "many");
        budget.most.store(usize::MAX, Relaxed);
        assert!(
            keep.is_excess(&budget, 17 * MIB, 10 * MIB, || 25_000_000_000),
            "paid"
        );
    }

    #[test]
    fn while_something_is_owed_what_was_in_use_just_now_stays_up_to_half_of_what_is_in_use() {
        const MS: u64 = 1_000_000;
        let (mut keep, budget) = (Keep::new(PageSize::K4), Budget::new(&RULE));
        keep.note_use(&budget, 320 * MIB);
        keep.note_released(20 * MIB);
        keep.note_reused(&budget, 8 * MIB, || 0);
        for (in_use, stays) in [(320, 40), (240, 112), (208, 96), (36, 16), (0, 16)] {
            assert!(!keep.is_excess(&budget, stays * MIB, in_use * MIB, || 0));
            assert!(keep.is_excess(&budget, stays * MIB + 1, in_use * MIB, || 0));
        }
        keep.note_use(&budget, 240 * MIB);
        let excess = |keep: &mut Keep, at| keep.is_excess(&budget, 30 * MIB + 1, 240 * MIB, || at);
        assert!(!excess(&mut keep, 50 * MS), "in use just now");
        assert!(!excess(&mut keep, 100 * MS), "the last time");
        assert!(excess(&mut keep, 101 * MS), "still owed, but long ago");
        assert!(!budget.affords(101 * MS));
    }

    #[test]
    fn memory_that_was_never_given_back_costs_nothing() {
        let (mut keep, budget) = (fallen(), Budget::new(&RULE));
        keep.note_reused(&budget, 100 * MIB, || 0);
        assert!(budget.affords(0));
    }

    #[test]
    fn a_heap_that_grows_by_the_floor_ends_the_fall() {
        let (mut keep, budget) = (fallen(), Budget::new(&RULE));
        for in_use in [100, 20, 21] {
            keep.note_use(&budget, in_use * MIB);
            assert!(keep.is_excess(&budget, 8 * MIB, in_use * MIB, || 0));
        }
        keep.note_use(&budget, 21 * MIB + 1);
        assert!(!keep.is_excess(&budget, 8 * MIB, 21 * MIB, || 0));
    }

    #[test]
    fn what_is_parked_above_leaves_less_room_for_pages_and_the_floor_at_least() {
        let (keep, budget) = (Keep::new(PageSize::K4), Budget::new(&RULE));
        budget.park(3 << 20);
        assert_eq!(keep.bound(&budget, 10 * MIB), 13 * MIB);
        budget.park(30 << 20);
        assert_eq!(keep.bound(&budget, 10 * MIB), MIB);
        budget.unpark(33 << 20);
        assert_eq!(keep.bound(&budget, 10 * MIB), 16 * MIB);
    }
}
