//! Giving up address space: what a program may map became less than what was reserved for it.
//!
//! ```text
//!   start            frontier     committed         new end                       end
//!     │ used            │            │ kept             │ given up: data,           │
//!     │                 │            │                  │ descriptors, page map     │
//! ```
//!
//! A system counts a reservation like any mapping. Under a limit lowered at run time below what the
//! heap reserved, the program could map nothing any more: no thread's stack, no library, no file.
//!
//! Locking: the zone's.

use super::allocator::PageAllocator;
use super::memmap::Memmap;
use super::zone::Zone;
use crate::base::{Order, PageCount, Pfn};
use crate::platform::Platform;

/// What the heap keeps of the address space a lowered limit leaves, in quarters. Blocks that need more
/// of the rest take it later ([`PageAllocator::make_room`]); the program's own mappings cannot.
const KEPT_QUARTERS: isize = 3;

impl<P: Platform> PageAllocator<P> {
    /// A limit was lowered: gives up address space without memory, so that a quarter of what the
    /// program may still map is left to others.
    ///
    /// Pages in use stay where they are. What was given up does not come back. A zone whose lock is
    /// out of reach keeps its part.
    #[cold]
    #[inline(never)]
    pub fn fit_address_space(&self) {
        self.keep(|room| Some(room * KEPT_QUARTERS / 4));
    }

    /// Gives up so much that `bytes` can be mapped; `false` if there is not so much, or if nothing
    /// limits address space.
    #[cold]
    #[inline(never)]
    pub fn make_room(&self, bytes: usize) -> bool {
        let Ok(bytes) = isize::try_from(bytes) else {
            return false;
        };
        self.keep(|room| Some(room - bytes).filter(|kept| *kept >= 0))
    }

    /// Gives up address space without memory but for what `part` says of the room: of the bytes that
    /// could be mapped if all of it were given up. Every zone keeps the same part of its own. Whether
    /// anything was given up.
    fn keep(&self, part: impl FnOnce(isize) -> Option<isize>) -> bool {
        let Some(left) = P::address_space_left() else {
            return false;
        };
        let map = self.memmap();
        let unused: usize = self.zones().map(|zone| zone.unused(map)).sum();
        let bytes = map.span_of(unused);
        let Some(kept) = part(left + bytes as isize) else {
            return false;
        };
        let kept = usize::try_from(kept).unwrap_or(0);
        if kept >= bytes {
            return false;
        }
        let kept = kept / map.span_of(8) * 8;
        let zones = self.zones().count();
        let mut any = false;
        for (index, zone) in self.zones().enumerate() {
            let own = zone.unused(map) as u64 * kept as u64 / unused as u64;
            any |= zone.give_up_span(map, PageCount(own as usize), index == zones - 1);
        }
        any
    }
}

impl<P: Platform> Zone<P> {
    /// Pages of the span that have no memory yet; none for a caller on top of the lock's holder.
    fn unused(&self, map: &Memmap) -> usize {
        let core = self.lock(map);
        core.map_or(0, |core| self.end().index() - core.committed.index())
    }

    /// Gives up all but `keep` of the pages that have no memory yet; whether there were any.
    fn give_up_span(&self, map: &Memmap, keep: PageCount, last: bool) -> bool {
        let Some(core) = self.lock(map) else {
            return false;
        };
        let block = Order::MAX.pages().0;
        let end = (core.committed.index() + keep.0) / block * block;
        let end = end.max(core.committed.index());
        let old = self.end();
        if end >= old.index() {
            return false;
        }
        let end = Pfn(end as u32);
        self.set_end(end);
        // SAFETY: pages from `end` to `old` are beyond `committed`, so nobody ever knew them, and
        // nobody will: `end` bounds what is committed, and the lock is held.
        unsafe { map.give_up::<P>(end, old, last) };
        true
    }
}

#[cfg(all(test, not(loom)))]
#[path = "span_tests.rs"]
mod tests;
