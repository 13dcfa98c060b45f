//! Giving free memory back to the system.
//!
//! ```text
//!   lock   take the largest resident blocks, oldest first, onto the parked list
//!   unlock                    decommit them, neighbours as one extent, in few calls
//!   lock   put them back as released blocks, merging
//! ```
//!
//! Long blocks that are wholly given back lose their descriptors too: a peak of 2 GiB would otherwise
//! leave 32 MiB of them behind. Those of the largest order become whole blocks (`whole.rs`).
//!
//! No thread of ours: whoever frees the page too many does it, and brings the zone down to three
//! quarters of its bound, so that the next call is some megabytes away. One giver per zone at a
//! time; others go on without waiting.
//!
//! Invariants
//! - `zone.parked`: blocks being given back are on the parked list, so that the child of a fork
//!   finds them although the giver is gone.

use super::buddy::Taken;
use super::descriptor::PageKind;
use super::extents::Extents;
use super::memmap::Memmap;
use super::zone::{Zone, ZoneCore};
use crate::base::{Order, PageCount, Pfn};
use crate::platform::{Access, Line, Platform, Work};
use crate::sync::Ordering::Relaxed;

/// Blocks given back per lock section. Why 64: half a KiB of stack; one section takes about as
/// long as one decommit call.
const BLOCKS_PER_ROUND: usize = 64;

/// The blocks of one round.
struct Round {
    blocks: [(Pfn, u32); BLOCKS_PER_ROUND],
    len: usize,
    resident: usize,
}

impl<P: Platform> Zone<P> {
    /// Gives back what is above the bound, or after a fall above the floor, down to three quarters of
    /// it.
    #[cold]
    pub(super) fn release_excess(&self, map: &Memmap) -> usize {
        self.release_to(map, |zone, core| {
            let (resident, live, now) = (core.areas.resident(), zone.live(core), P::now());
            match core.keep.is_excess(map.budget(), resident, live, || now) {
                true => core.keep.target(map.budget(), live, now),
                false => usize::MAX,
            }
        })
    }

    /// Lowers the bound after a deep fall, and gives back what is above it then.
    pub(super) fn note_fall(&self, map: &Memmap) {
        if let Some(mut core) = self.lock(map) {
            core.keep.note_fall();
        }
        self.release_excess(map);
    }

    /// Gives back resident free pages until at most `keep` are left; answers how many.
    pub(super) fn release_down_to(&self, map: &Memmap, keep: usize) -> usize {
        self.release_to(map, |_, _| keep)
    }

    fn release_to(&self, map: &Memmap, target: impl Fn(&Self, &mut ZoneCore) -> usize) -> usize {
        let mut goal = usize::MAX;
        let mut given_back = 0;
        while let Some(mut round) = self.park(map, &target, &mut goal) {
            round.decommit::<P>(map);
            given_back += round.resident;
            if !self.unpark(map, &round) {
                return given_back;
            }
        }
        while let Some(mut round) = self.park_dense(map) {
            round.decommit_descriptors::<P>(map);
            if !self.unpark_bare(map, &round) {
                break;
            }
        }
        given_back
    }

    /// Takes whole released blocks with resident descriptors; `None` if there are none or another
    /// giver is at work.
    fn park_dense(&self, map: &Memmap) -> Option<Round> {
        let mut core = self.lock(map)?;
        if self.others_give(&mut core, map) {
            return None;
        }
        let mut round = Round::NONE;
        while round.len < BLOCKS_PER_ROUND {
            let Some(taken) = core.areas.take_dense::<P>(map) else {
                break;
            };
            if taken.order == Order::MAX {
                round.add_whole::<P>(&mut core, map, taken.pfn);
            } else {
                round.add::<P>(&mut core, map, taken);
            }
        }
        (round.len > 0).then_some(round)
    }

    /// Whether another giver is at work; takes over from one that had to leave its blocks.
    fn others_give(&self, core: &mut ZoneCore, map: &Memmap) -> bool {
        if core.releasing && self.shared.left_parked.swap(false, Relaxed) {
            Self::put_back_parked(self.start(), core, map);
        }
        core.releasing
    }

    /// Puts the blocks of a round back without descriptors; `false` on top of the lock's holder.
    fn unpark_bare(&self, map: &Memmap, round: &Round) -> bool {
        let Some(mut core) = self.lock(map) else {
            self.shared.left_parked.store(true, Relaxed);
            return false;
        };
        for &(pfn, pages) in &round.blocks[..round.len] {
            core.parked_pages -= pages as usize;
            if pages as usize == Order::MAX.pages().0 {
                map.whole().parked.clear(pfn);
                core.areas.put_idle(map, pfn);
                continue;
            }
            core.parked.remove(map, pfn);
            let order = map.descriptor(pfn).order();
            core.areas.put_bare::<P>(map, pfn, order);
        }
        core.releasing = false;
        let _ = self.publish_free(&mut core, map);
        true
    }

    /// Takes blocks out of the free areas until no more than the goal is left; `None` if that is
    /// so already or another giver is at work.
    fn park(
        &self,
        map: &Memmap,
        target: &impl Fn(&Self, &mut ZoneCore) -> usize,
        goal: &mut usize,
    ) -> Option<Round> {
        let mut core = self.lock(map)?;
        // The first round sets the goal; later ones only lower it as less memory is in use.
        *goal = (*goal).min(target(self, &mut core));
        if self.others_give(&mut core, map) || core.areas.resident() <= *goal {
            return None;
        }
        let mut round = Round::NONE;
        while round.len < BLOCKS_PER_ROUND && core.areas.resident() > *goal {
            let Some(taken) = core.areas.take_largest_resident::<P>(map) else {
                break;
            };
            round.resident += map.resident().count(taken.pfn, taken.order.pages());
            round.add::<P>(&mut core, map, taken);
        }
        Some(round)
    }

    /// Puts the blocks of a round back as released ones; `false` on top of the lock's holder.
    fn unpark(&self, map: &Memmap, round: &Round) -> bool {
        let Some(mut core) = self.lock(map) else {
            // A signal handler that would wait in a circle: the next giver does it.
            self.shared.left_parked.store(true, Relaxed);
            return false;
        };
        for &(pfn, pages) in &round.blocks[..round.len] {
            let pages = PageCount(pages as usize);
            core.parked.remove(map, pfn);
            core.parked_pages -= pages.0;
            map.resident().clear(pfn, pages);
            core.areas.free_range::<P>(map, pfn, pages);
        }
        core.releasing = false;
        core.counters.released_pages += round.resident as u64;
        core.counters.release_calls += 1;
        core.keep.note_released(round.resident);
        let _ = self.publish_free(&mut core, map);
        true
    }

    /// Puts back what a giver that no longer exists had parked: in the child of a fork. The giver may
    /// be the caller itself, who forks in a signal handler: then it will go on.
    pub(super) fn recover_parked(&self, map: &Memmap) {
        let Some(mut core) = self.lock(map) else {
            return;
        };
        if core.releasing && core.giver != P::token() {
            Self::put_back_parked(self.start(), &mut core, map);
            let _ = self.publish_free(&mut core, map);
        }
    }

    fn put_back_parked(start: Pfn, core: &mut ZoneCore, map: &Memmap) {
        while let Some(pfn) = core.parked.pop_head(map) {
            let pages = map.descriptor(pfn).order().pages();
            core.parked_pages -= pages.0;
            // What was resident may not be any more: calling it resident is safe.
            core.areas.free_range::<P>(map, pfn, pages);
        }
        let mut from = start;
        while let Some(pfn) = map.whole().parked.first(from, core.areas.frontier()) {
            from = pfn.plus(Order::MAX.pages());
            map.whole().parked.clear(pfn);
            core.parked_pages -= Order::MAX.pages().0;
            core.areas.put_idle(map, pfn);
        }
        core.releasing = false;
    }
}

impl Round {
    const NONE: Self = Self {
        blocks: [(Pfn::NONE, 0); BLOCKS_PER_ROUND],
        len: 0,
        resident: 0,
    };

    /// Parks a block in this round.
    fn add<P: Platform>(&mut self, core: &mut ZoneCore, map: &Memmap, taken: Taken) {
        map.descriptor(taken.pfn).set_kind(PageKind::Parked);
        core.parked.push_head(map, taken.pfn);
        self.note::<P>(core, taken.pfn, taken.order.pages());
    }

    /// Parks a block of the largest order by its bit, so that not even its head's descriptor is needed.
    fn add_whole<P: Platform>(&mut self, core: &mut ZoneCore, map: &Memmap, pfn: Pfn) {
        map.descriptor(pfn).set_kind(PageKind::Unused);
        map.whole().parked.set(pfn);
        self.note::<P>(core, pfn, Order::MAX.pages());
    }

    fn note<P: Platform>(&mut self, core: &mut ZoneCore, pfn: Pfn, pages: PageCount) {
        core.parked_pages += pages.0;
        core.releasing = true;
        core.giver = P::token();
        self.blocks[self.len] = (pfn, pages.0 as u32);
        self.len += 1;
    }

    /// Gives the blocks' descriptors back, but for the heads' of blocks on lists; those of neighbours of
    /// the largest order in one call.
    fn decommit_descriptors<P: Platform>(&mut self, map: &Memmap) {
        let whole = Order::MAX.pages().0 as u32;
        let mut extents = Extents::<P>::default();
        self.each_stretch(
            |pages| pages == whole,
            |first, pages| {
                if let Some((start, bytes)) = map.idle_descriptors(first, PageCount(pages)) {
                    // SAFETY: whole committed pages of descriptors of parked blocks that no list
                    // needs: nobody reads them under a lock, and without one zeroes mean a free page.
                    unsafe { extents.push(start, bytes) };
                }
            },
        );
    }

    /// Calls `visit` with every stretch of neighbours that `joins` lets join, by their length.
    fn each_stretch(&mut self, joins: impl Fn(u32) -> bool, mut visit: impl FnMut(Pfn, usize)) {
        let blocks = &mut self.blocks[..self.len];
        blocks.sort_unstable_by_key(|&(pfn, _)| pfn.0);
        let mut at = 0;
        while at < blocks.len() {
            let (first, mut pages) = blocks[at];
            let joining = joins(pages);
            at += 1;
            while joining
                && at < blocks.len()
                && blocks[at].0.0 == first.0 + pages
                && joins(blocks[at].1)
            {
                pages += blocks[at].1;
                at += 1;
            }
            visit(first, pages as usize);
        }
    }

    /// Gives the blocks' memory back, neighbours in one call.
    fn decommit<P: Platform>(&mut self, map: &Memmap) {
        let mut extents = Extents::<P>::default();
        self.each_stretch(
            |_| true,
            |first, pages| {
                let page = map.descriptor(first);
                P::touch(Line::Page, (&raw const *page).cast(), Access::Read);
                P::work(Work::Pages(pages as u32));
                let bytes = PageCount(pages).bytes(map.page_size());
                // SAFETY: whole committed pages of free blocks that only this round holds.
                unsafe { extents.push(map.address(first), bytes) };
            },
        );
    }
}

#[cfg(test)]
#[path = "release_tests.rs"]
mod tests;
