//! A list of free blocks, linked through the descriptors of their head pages.
//!
//! ```text
//!   head ─► block ⇄ block ⇄ block ◄─ tail        next and prev are pfns in the descriptors
//! ```
//!
//! Invariants
//! - `list.linked`: `next` and `prev` of neighbours name each other; the ends name no page.
//!
//! Locking: the owner's (a zone or a pageset). Everything is a handful of plain stores.

use super::descriptor::Descriptor;
use super::memmap::Memmap;
use crate::base::Pfn;
use crate::sync::Ordering::Relaxed;

/// A doubly linked list of blocks, newest at the head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageList {
    head: Pfn,
    tail: Pfn,
}

const _: () = assert!(
    size_of::<PageList>() == 8,
    "thirteen lists and the tuning state fit a pageset of 256 bytes"
);

impl PageList {
    /// An empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            head: Pfn::NONE,
            tail: Pfn::NONE,
        }
    }

    /// Whether nothing is on the list.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        !self.head.is_some()
    }

    /// The newest block, or `Pfn::NONE`.
    #[inline]
    #[must_use]
    pub const fn head(&self) -> Pfn {
        self.head
    }

    /// The oldest block, or `Pfn::NONE`.
    #[inline]
    #[must_use]
    pub const fn tail(&self) -> Pfn {
        self.tail
    }

    /// The blocks from the newest on. A block's link is read before the block is handed out.
    pub(crate) fn iter(self, map: &Memmap) -> impl Iterator<Item = Pfn> {
        let known = |pfn: Pfn| Some(pfn).filter(|pfn| pfn.is_some());
        core::iter::successors(known(self.head), move |&pfn| {
            known(Pfn(map.descriptor(pfn).next.load(Relaxed)))
        })
    }

    /// Adds a block at the head, from where the next allocation takes.
    #[inline]
    pub fn push_head(&mut self, map: &Memmap, pfn: Pfn) {
        let page = map.descriptor(pfn);
        page.next.store(self.head.0, Relaxed);
        page.prev.store(Pfn::NONE.0, Relaxed);
        if self.head.is_some() {
            map.descriptor(self.head).prev.store(pfn.0, Relaxed);
        } else {
            self.tail = pfn;
        }
        self.head = pfn;
    }

    /// Adds a block at the tail.
    #[inline]
    pub fn push_tail(&mut self, map: &Memmap, pfn: Pfn) {
        let page = map.descriptor(pfn);
        page.prev.store(self.tail.0, Relaxed);
        page.next.store(Pfn::NONE.0, Relaxed);
        if self.tail.is_some() {
            map.descriptor(self.tail).next.store(pfn.0, Relaxed);
        } else {
            self.head = pfn;
        }
        self.tail = pfn;
    }

    /// Takes a block out of the list it is on; answers its neighbours, whose links changed.
    #[inline]
    pub fn remove(&mut self, map: &Memmap, pfn: Pfn) -> [Pfn; 2] {
        let page: &Descriptor = map.descriptor(pfn);
        let next = Pfn(page.next.load(Relaxed));
        let prev = Pfn(page.prev.load(Relaxed));
        if prev.is_some() {
            map.descriptor(prev).next.store(next.0, Relaxed);
        } else {
            debug_assert_eq!(self.head, pfn);
            self.head = next;
        }
        if next.is_some() {
            map.descriptor(next).prev.store(prev.0, Relaxed);
        } else {
            debug_assert_eq!(self.tail, pfn);
            self.tail = prev;
        }
        [prev, next]
    }

    /// Takes the newest block.
    #[inline]
    pub fn pop_head(&mut self, map: &Memmap) -> Option<Pfn> {
        let pfn = Some(self.head).filter(|pfn| pfn.is_some())?;
        self.remove(map, pfn);
        Some(pfn)
    }

    /// Takes the oldest block.
    #[inline]
    pub fn pop_tail(&mut self, map: &Memmap) -> Option<Pfn> {
        let pfn = Some(self.tail).filter(|pfn| pfn.is_some())?;
        self.remove(map, pfn);
        Some(pfn)
    }
}

impl Default for PageList {
    fn default() -> Self {
        Self::new()
    }
}
