//! Giving free memory back to the system.
//!
//! ```text
//!   lock   take the largest resident blocks, oldest first, onto the parked list
//!   unlock                    decommit them, neighbours in one call
//!   lock   put them back as released blocks, merging
//! ```
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
use super::memmap::Memmap;
use super::zone::{Zone, ZoneCore};
use crate::base::{PageCount, Pfn};
use crate::platform::{Access, Line, Platform, Work};

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
    /// Gives back what is above the bound, down to three quarters of it.
    #[cold]
    pub(super) fn release_excess(&self, map: &Memmap) -> usize {
        self.release_to(map, |zone, core| {
            let bound = core.keep.bound(zone.used(core));
            if core.areas.resident() > bound {
                bound - bound / 4
            } else {
                usize::MAX
            }
        })
    }

    /// A second passed: lets the bound fall, and gives back what is above it then.
    pub(super) fn decay_bound(&self, map: &Memmap) {
        let Some(mut core) = self.lock(map) else {
            return;
        };
        let in_use = self.used(&core);
        core.keep.decay(in_use);
        let excess = self.publish_free(&mut core);
        drop(core);
        if excess {
            self.release_excess(map);
        }
    }

    /// Gives back resident free pages until at most `keep` are left; answers how many.
    pub(super) fn release_down_to(&self, map: &Memmap, keep: usize) -> usize {
        self.release_to(map, |_, _| keep)
    }

    fn release_to(&self, map: &Memmap, target: impl Fn(&Self, &ZoneCore) -> usize) -> usize {
        let mut goal = usize::MAX;
        let mut given_back = 0;
        while let Some(mut round) = self.park(map, &target, &mut goal) {
            round.decommit::<P>(map);
            given_back += round.resident;
            if !self.unpark(map, &round) {
                break;
            }
        }
        given_back
    }

    /// Takes blocks out of the free areas until no more than the goal is left; `None` if that is
    /// so already or another giver is at work.
    fn park(
        &self,
        map: &Memmap,
        target: &impl Fn(&Self, &ZoneCore) -> usize,
        goal: &mut usize,
    ) -> Option<Round> {
        let mut core = self.lock(map)?;
        // The first round sets the goal; later ones only lower it as less memory is in use.
        *goal = (*goal).min(target(self, &core));
        if core.releasing || core.areas.resident() <= *goal {
            return None;
        }
        core.releasing = true;
        let mut round = Round {
            blocks: [(Pfn::NONE, 0); BLOCKS_PER_ROUND],
            len: 0,
            resident: 0,
        };
        while round.len < BLOCKS_PER_ROUND && core.areas.resident() > *goal {
            let Some(Taken { pfn, order, .. }) = core.areas.take_largest_resident::<P>(map) else {
                break;
            };
            round.resident += map.resident().count(pfn, order.pages());
            map.descriptor(pfn).set_kind(PageKind::Parked);
            core.parked.push_head(map, pfn);
            core.parked_pages += order.pages().0;
            round.blocks[round.len] = (pfn, order.pages().0 as u32);
            round.len += 1;
        }
        Some(round)
    }

    /// Puts the blocks of a round back as released ones; `false` on top of the lock's holder.
    fn unpark(&self, map: &Memmap, round: &Round) -> bool {
        let Some(mut core) = self.lock(map) else {
            // The holder cannot be below us: we took the lock before. Leave the blocks parked.
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
        core.keep.note_released(round.resident, P::now());
        let _ = self.publish_free(&mut core);
        true
    }

    /// Puts back what a giver that no longer exists had parked: in the child of a fork.
    pub(super) fn recover_parked(&self, map: &Memmap) {
        let Some(mut core) = self.lock(map) else {
            return;
        };
        while let Some(pfn) = core.parked.pop_head(map) {
            let pages = map.descriptor(pfn).order().pages();
            core.parked_pages -= pages.0;
            // Resident or not is unknown: calling it resident is safe.
            map.resident().set(pfn, pages);
            core.areas.free_range::<P>(map, pfn, pages);
        }
        core.releasing = false;
        let _ = self.publish_free(&mut core);
    }
}

impl Round {
    /// Gives the blocks' memory back, neighbours in one call.
    fn decommit<P: Platform>(&mut self, map: &Memmap) {
        let blocks = &mut self.blocks[..self.len];
        blocks.sort_unstable_by_key(|&(pfn, _)| pfn.0);
        let mut at = 0;
        while at < blocks.len() {
            let (first, mut pages) = blocks[at];
            at += 1;
            while at < blocks.len() && blocks[at].0.0 == first.0 + pages {
                pages += blocks[at].1;
                at += 1;
            }
            P::touch(
                Line::Page,
                (&raw const *map.descriptor(first)).cast(),
                Access::Read,
            );
            P::work(Work::Pages(pages));
            let bytes = PageCount(pages as usize).bytes(map.page_size());
            // SAFETY: whole committed pages of free blocks that only this round holds.
            unsafe { P::decommit(map.address(first), bytes) };
        }
    }
}

#[cfg(all(test, not(loom)))]
#[path = "release_tests.rs"]
mod tests;
