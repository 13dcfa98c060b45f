//! Frees that come at the wrong moment: from a signal handler on top of the zone lock's holder.
//!
//! ```text
//!   deferred ─► block ─► block ─► ∅        pushed by handlers, taken whole by the next holder (stack.rs)
//! ```
#![forbid(unsafe_code)]

use super::descriptor::PageKind;
use super::memmap::Memmap;
use super::stack::PageStack;
use crate::base::{PageCount, Pfn};
use crate::sync::Ordering::Relaxed;

/// The blocks of a zone that wait for the next holder of its lock.
#[derive(Debug)]
pub(crate) struct Deferred(PageStack);

impl Deferred {
    pub(super) fn new() -> Self {
        Self(PageStack::new())
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Leaves a block of `pages` pages that its owner gave up.
    #[cold]
    pub(super) fn push(&self, map: &Memmap, pfn: Pfn, pages: PageCount) {
        let page = map.descriptor(pfn);
        page.set_kind(PageKind::Parked);
        page.spare.store(pages.0 as u32, Relaxed);
        self.0.push(|pfn| &map.descriptor(pfn).next, pfn);
    }

    /// Takes all of them, with their lengths.
    pub(super) fn take(&self, map: &Memmap) -> impl Iterator<Item = (Pfn, PageCount)> {
        let pages = |pfn| PageCount(map.descriptor(pfn).spare.load(Relaxed) as usize);
        let blocks = self.0.take(|pfn| &map.descriptor(pfn).next);
        blocks.map(move |pfn| (pfn, pages(pfn)))
    }

    /// The heads of those that wait, for `verify`.
    pub(crate) fn heads(&self, map: &Memmap) -> impl Iterator<Item = Pfn> {
        self.0.iter(|pfn| &map.descriptor(pfn).next)
    }
}
