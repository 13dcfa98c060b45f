//! How many objects of each slab are cached: free, but in a sheaf or a barn.
//!
//! A slab all of whose objects outside it are cached serves nobody, yet it cannot be given back: the
//! cached objects pin it. A survey counts those objects first, slab by slab, so that its walk can
//! tell such slabs from fragmented ones.

use super::residency::Scratch;
use crate::base::Pfn;
use crate::page::PageAllocator;
use crate::slab::Engines;
use core::ptr::NonNull;

/// One count for each page below the last frontier; that of a slab's first page counts.
pub(super) struct Cached<P: Engines> {
    counts: Scratch<P>,
    pages: usize,
}

impl<P: Engines> Cached<P> {
    /// All zero; `None` without memory for the counts.
    pub(super) fn new(pages: &PageAllocator<P>) -> Option<Self> {
        let count = pages.used_spans().map(|(_, end)| end.index()).max()?;
        let counts = Scratch::new(count * size_of::<u16>())?;
        Some(Self {
            counts,
            pages: count,
        })
    }

    fn cell(&self, head: Pfn) -> Option<NonNull<u16>> {
        let index = head.index();
        // SAFETY: the memory has a count for every page below `pages`.
        (index < self.pages).then(|| unsafe { self.counts.memory().cast::<u16>().add(index) })
    }

    /// Counts one cached object, at an address that may be stale.
    pub(super) fn note(&mut self, pages: &PageAllocator<P>, object: NonNull<u8>) {
        let head = pages
            .pfn_of(object.as_ptr())
            .and_then(|pfn| pages.head_of(pfn));
        if let Some(cell) = head.and_then(|head| self.cell(head)) {
            // SAFETY: inside this value's own memory, which starts as zeroes.
            unsafe { cell.write(cell.read().saturating_add(1)) };
        }
    }

    /// Cached objects of the slab that `head` heads.
    pub(super) fn of(&self, head: Pfn) -> u32 {
        // SAFETY: as in `note`.
        self.cell(head)
            .map_or(0, |cell| u32::from(unsafe { cell.read() }))
    }
}
