//! A cache's part on one memory node: the partial list, its lock, and the barn.
//!
//! ```text
//!   list (list_lock)   head ⇄ slab ⇄ slab ⇄ ... ⇄ tail        partial and a few empty slabs
//!   barn               full sheaves, empty sheaves
//! ```
//!
//! Takers take from the head; a slab that becomes partial by a free goes to the tail (docs:
//! linux-policies 4.7). The list runs through the descriptors' `next` and `prev`.
//!
//! Invariants
//! - `node.list-counted`: `nr_partial` is the length of the list.
//! - `node.slabs-counted`: `slabs` is the number of the cache's live slabs on this node.
//! - `node.flag-tells`: a slab has `flag::ON_LIST` exactly while it is on the list.

use super::barn::Barn;
use crate::base::Pfn;
use crate::page::stack::PageStack;
use crate::page::{Memmap, PageList, flag};
use crate::platform::{Lock, LockKind, Platform, RawLock};
use crate::sync::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// The doubly linked list of slabs, under the list lock.
#[derive(Debug)]
pub struct PartialList(PageList);

/// Which end of the partial list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Where takers take.
    Head,
    /// Where frees add.
    Tail,
}

/// A cache's structures on one node, in this order: the barn has a line of its own, the list the next.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Node {
    /// Full and empty sheaves.
    pub barn: Barn,
    list: Lock<PartialList>,
    pub(super) nr_partial: AtomicU32,
    /// Slabs of the cache on this node, full ones included.
    pub slabs: AtomicU32,
    /// Slabs that wait for a holder of the lock (`lists.rs`).
    pub(super) orphans: PageStack,
    /// Visits of the list by frees.
    pub flushes: AtomicU64,
    /// The same when the barn's limit last grew.
    pub flushes_seen: AtomicU64,
}

impl Node {
    /// A node without slabs.
    #[must_use]
    pub fn new() -> Self {
        Self {
            list: Lock::new(LockKind::List, PartialList::EMPTY),
            nr_partial: AtomicU32::new(0),
            orphans: PageStack::new(),
            slabs: AtomicU32::new(0),
            flushes: AtomicU64::new(0),
            flushes_seen: AtomicU64::new(0),
            barn: Barn::new(),
        }
    }

    /// The partial list behind its lock.
    #[inline]
    #[must_use]
    pub fn list(&self) -> &Lock<PartialList> {
        &self.list
    }

    /// First slab of the list: for looks at a heap that rests.
    #[must_use]
    pub fn first_partial<P: Platform>(&self) -> Pfn {
        self.list.lock::<P>().map_or(Pfn::NONE, |list| list.head())
    }

    /// The list lock without its data.
    #[must_use]
    pub fn raw_lock(&self) -> &RawLock {
        self.list.raw()
    }

    /// Length of the partial list; exact only under the lock.
    #[inline]
    #[must_use]
    pub fn nr_partial(&self) -> u32 {
        self.nr_partial.load(Relaxed)
    }

    /// Whether slabs wait for a holder of the lock.
    #[inline]
    #[must_use]
    pub fn has_orphans(&self) -> bool {
        !self.orphans.is_empty()
    }

    /// Whether there is nothing to take from the list; racy without the lock.
    #[inline]
    #[must_use]
    pub fn looks_bare(&self) -> bool {
        self.nr_partial() == 0 && !self.has_orphans()
    }

    /// The address of the line with the list's lock, head and counts, for the seam's `touch`.
    #[inline]
    #[must_use]
    pub fn address(&self) -> *const u8 {
        core::ptr::from_ref(&self.list).cast()
    }
}

impl Default for Node {
    fn default() -> Self {
        Self::new()
    }
}

impl PartialList {
    /// No slabs.
    pub const EMPTY: Self = Self(PageList::new());

    /// Puts a slab on this list; counting is the caller's.
    pub fn insert(&mut self, map: &Memmap, pfn: Pfn, end: End) {
        let slab = map.descriptor(pfn);
        debug_assert!(!slab.has(flag::ON_LIST), "node.flag-tells");
        match end {
            End::Head => self.0.push_head(map, pfn),
            End::Tail => self.0.push_tail(map, pfn),
        }
        slab.mark(flag::ON_LIST, true);
    }

    /// Takes a slab off this list; counting is the caller's.
    pub fn remove(&mut self, map: &Memmap, pfn: Pfn) {
        let slab = map.descriptor(pfn);
        debug_assert!(slab.has(flag::ON_LIST), "node.flag-tells");
        self.0.remove(map, pfn);
        slab.mark(flag::ON_LIST, false);
    }

    /// The slab at that end.
    #[inline]
    #[must_use]
    pub fn at(&self, end: End) -> Pfn {
        match end {
            End::Head => self.0.head(),
            End::Tail => self.0.tail(),
        }
    }

    /// The slab takers take first.
    #[inline]
    #[must_use]
    pub fn head(&self) -> Pfn {
        self.0.head()
    }
}
