//! Address space: given up where it is limited, and mapped again when it is needed.
//!
//! ```text
//!   start            frontier     committed                                       end
//!     │ used     ┆ gone │ used │ idle │   reserved, where nothing limits address space │
//!     │          ┆      │      │      │   claimed, where something does                │
//! ```
//!
//! A system counts a reservation like any mapping. So under a limit a heap reserves nothing: it claims
//! a range where nobody else is likely to map, and maps what it needs. One that reserved before a limit
//! was set gives up what is not committed. Before a request is refused the data of idle blocks is
//! unmapped, for a huge block, a thread's stack or a library to have its room; they are mapped again
//! before the frontier moves (ADR 0025).
//!
//! Locking: the zone's. Address space that has no memory is unmapped under it: there are no pages to
//! take out, and a fork must not find it half done.

use super::allocator::PageAllocator;
use super::memmap::{Ground, Memmap};
use super::pageset::Pagesets;
use super::zone::{Zone, ZoneCore};
use crate::base::{Order, PageCount, Pfn};
use crate::platform::{NotMapped, Platform};

/// Blocks tried before the frontier moves instead, where somebody else's memory lies in the first.
const TRIES: usize = 8;

/// Blocks unmapped in one lock section.
const UNMAPPED_PER_SECTION: usize = 64;

impl<P: Pagesets> PageAllocator<P> {
    /// A limit was lowered: gives up all address space without memory.
    ///
    /// Pages in use stay where they are. A zone whose lock is out of reach keeps its part.
    #[cold]
    #[inline(never)]
    pub fn fit_address_space(&self) {
        self.make_room();
    }

    /// Gives up all address space without memory; `false` if there is none, or if nothing limits
    /// address space.
    #[cold]
    #[inline(never)]
    pub fn make_room(&self) -> bool {
        if P::address_space_left().is_none() {
            return false;
        }
        let map = self.memmap();
        let mut any = false;
        for zone in self.zones() {
            any |= zone.give_up_reserve(map);
        }
        if any {
            map.give_up_rest::<P>();
        }
        any
    }

    /// Unmaps the data of all idle blocks, so that others may use the addresses, or the memory that a
    /// system sets aside for whatever is mapped. Answers how many pages.
    #[cold]
    #[inline(never)]
    pub fn unmap_idle(&self) -> PageCount {
        PageCount(
            self.zones()
                .map(|zone| zone.unmap_idle(self.memmap()))
                .sum(),
        )
    }

    /// Whether a page's data is not mapped: what lies at its address is somebody else's.
    #[must_use]
    pub fn is_gone(&self, pfn: Pfn) -> bool {
        self.memmap().whole().is_gone(pfn)
    }
}

impl<P: Platform> Zone<P> {
    /// Gives up what is reserved and has no memory yet; whether there was any.
    fn give_up_reserve(&self, map: &Memmap) -> bool {
        let Some(mut core) = self.lock(map) else {
            return false;
        };
        if core.ground == Ground::Claimed || core.committed == self.end() {
            return false;
        }
        core.ground = Ground::Claimed;
        // SAFETY: what lies beyond was never committed, and the lock is held.
        unsafe { map.give_up::<P>(core.described, core.committed, self.end()) };
        true
    }

    fn unmap_idle(&self, map: &Memmap) -> usize {
        let mut pages = 0;
        let mut from = self.start();
        while let Some(mut core) = self.lock(map) {
            self.raise_frontier(&mut core, map);
            let Some((first, stretch)) = idle_stretch(&core, map, from) else {
                break;
            };
            let bytes = stretch.bytes(map.page_size());
            // SAFETY: free blocks of which nothing is resident; the lock is held.
            if !unsafe { P::unmap(map.address(first), bytes) } {
                break;
            }
            each_block(first, stretch, |pfn| core.areas.idle_to_gone(map, pfn));
            from = first.plus(stretch);
            pages += stretch.0;
        }
        pages
    }

    /// Makes committed blocks that were never used idle.
    fn raise_frontier(&self, core: &mut ZoneCore, map: &Memmap) {
        while core.areas.frontier() < core.committed && self.advance(core, map) {}
    }

    /// Maps a block again whose data was unmapped; `false` if there is none that can be.
    #[cold]
    #[inline(never)]
    pub(super) fn map_again(&self, core: &mut ZoneCore, map: &Memmap) -> bool {
        let mut from = self.start();
        for _ in 0..TRIES {
            let Some(pfn) = map.whole().gone.first(from, core.areas.frontier()) else {
                return false;
            };
            let end = pfn.plus(Order::MAX.pages());
            match map.commit_data::<P>(pfn, end, Ground::Claimed) {
                Ok(()) => {
                    core.areas.gone_to_idle(map, pfn);
                    return true;
                }
                Err(NotMapped::Taken) => from = end,
                Err(NotMapped::Refused) => return false,
            }
        }
        false
    }
}

/// The first neighbouring idle blocks from `from` on.
fn idle_stretch(core: &ZoneCore, map: &Memmap, from: Pfn) -> Option<(Pfn, PageCount)> {
    let (idle, block) = (map.whole().idle, Order::MAX.pages());
    let first = idle.first(from, core.areas.frontier())?;
    let mut end = first.plus(block);
    let longest = first.plus(PageCount(UNMAPPED_PER_SECTION * block.0));
    while end < core.areas.frontier().min(longest) && idle.has(end) {
        end = end.plus(block);
    }
    Some((first, PageCount((end.0 - first.0) as usize)))
}

fn each_block(first: Pfn, pages: PageCount, mut visit: impl FnMut(Pfn)) {
    let block = Order::MAX.pages().0;
    (0..pages.0)
        .step_by(block)
        .for_each(|at| visit(first.plus(PageCount(at))));
}

#[cfg(test)]
#[path = "span_tests.rs"]
mod tests;
