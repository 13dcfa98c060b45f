//! The descriptor of a page: what the allocator knows about it, apart from its data.
//!
//! ```text
//!   one 64-byte line per page
//!   [ state u64 | next u32 | prev u32 | pages u32 | cache u16 | fresh u16 | kind u8 | order u8 |
//!     node u8 | flags u8 | spare u32 ]                                             32 bytes
//!   [ links: 16 × u16 ]                                                            32 bytes
//! ```
//!
//! `links` hold the free list of objects that start in this page when the objects are at least
//! a sixteenth of a page: two such objects never start in the same sixteenth. So the allocator
//! does not touch the memory of larger free objects at all, and their pages can be given back
//! while their slab stays (ADR 0003).
//!
//! | kind   | who owns it                     | fields in use                              |
//! |--------|---------------------------------|--------------------------------------------|
//! | `Unused` | nobody, beyond the zone's frontier | none                                  |
//! | `Buddy` | its zone's free areas           | order, flags, next, prev                   |
//! | `Pageset` | a per-CPU pageset             | order, next, prev                          |
//! | `Parked` | its zone, for a moment         | spare (pages), next                        |
//! | `Slab` | a cache                          | all of them (head page only)               |
//! | `Run`  | a large block, or a caller       | pages (head page only)                     |
//! | `Tail` | the block's head page            | pages: distance back to the head           |
//!
//! Inner pages of free blocks are `Tail` or `Unused` with stale contents: a tail belongs to the
//! head it names only if that head is a slab or run and long enough to reach it.
//!
//! Invariants
//! - `page.one-owner`: a page is in exactly one of the states above.
//! - `page.node`: the head of a slab or run names the node of the zone it lies in.
//! - `page.head-known`: from any page of a slab or run its head is found by `pages` of a tail.

use crate::base::{NodeId, Order};
use crate::platform::RawLock;
use core::cell::Cell;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// Links per descriptor: a page is divided into this many parts.
pub const LINKS_PER_PAGE: usize = 16;

/// Who owns a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum PageKind {
    /// Beyond the frontier of its zone: never used yet. Zeroed descriptors mean this.
    Unused = 0,
    /// Head of a free block in a zone's free area.
    Buddy = 1,
    /// Head of a free block in a per-CPU pageset.
    Pageset = 2,
    /// Head of a slab.
    Slab = 3,
    /// Head of a run handed out whole: a large block or the allocator's own data.
    Run = 4,
    /// Any other page of a block.
    Tail = 5,
    /// Head of a block between two owners: its memory is being given back, or it was freed by a
    /// signal handler on top of the zone lock's holder and waits for the next holder.
    Parked = 6,
}

/// Bits of [`Descriptor::flags`].
pub mod flag {
    /// The block's memory was given back (or never touched): it reads as zero and is not resident.
    pub const RELEASED: u8 = 1 << 0;
    /// The slab is on its node's partial list.
    pub const ON_LIST: u8 = 1 << 1;
    /// Some free objects' pages of this slab were given back.
    pub const HOLES: u8 = 1 << 2;
    /// A run that holds the allocator's own data.
    pub const OWN: u8 = 1 << 3;
    /// A free block of the largest order whose descriptors, but for the first ones, are not
    /// resident.
    pub const BARE: u8 = 1 << 4;
}

/// One page's descriptor: see the module's picture. All-zero is a valid, unused page.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Descriptor {
    /// Slabs: freelist head, objects in use, objects, frozen; one word for compare-and-swap.
    pub state: AtomicU64,
    /// Next page of the list this page is on (under that list's lock).
    pub next: AtomicU32,
    /// Previous page of the list this page is on.
    pub prev: AtomicU32,
    /// Heads: pages whose tails name this head, which is the length of slabs and runs. Tails:
    /// pages back to the head.
    pub pages: AtomicU32,
    /// Slabs: the cache.
    pub cache: AtomicU16,
    /// Slabs: objects never handed out yet start at this index.
    pub fresh: AtomicU16,
    kind: AtomicU8,
    order: AtomicU8,
    node: AtomicU8,
    /// Bits of [`flag`].
    pub flags: AtomicU8,
    /// Runs: bytes the caller asked for, in units of the owner's choice.
    pub spare: AtomicU32,
    /// Free links of the objects that start in this page's sixteenths.
    pub links: [AtomicU16; LINKS_PER_PAGE],
    // Not shared: keeps the type from being moved between pages by accident.
    _pinned: Cell<()>,
}

const _: () = assert!(
    size_of::<Descriptor>() == 64,
    "a descriptor is exactly one cache line"
);

#[cfg(not(loom))]
const _: () = assert!(
    size_of::<RawLock>() <= size_of::<[AtomicU16; LINKS_PER_PAGE]>()
        && core::mem::offset_of!(Descriptor, links) % align_of::<RawLock>() == 0,
    "a slab's lock fits where the links are"
);

// SAFETY: every field is an atomic; who may change which field when is stated by `page.one-owner`
// and by the lock of the list the page is on.
unsafe impl Sync for Descriptor {}

use crate::sync::Ordering::Relaxed;

impl Descriptor {
    /// Who owns the page.
    #[inline]
    #[must_use]
    pub fn kind(&self) -> PageKind {
        match self.kind.load(Relaxed) {
            1 => PageKind::Buddy,
            2 => PageKind::Pageset,
            3 => PageKind::Slab,
            4 => PageKind::Run,
            5 => PageKind::Tail,
            6 => PageKind::Parked,
            _ => PageKind::Unused,
        }
    }

    /// Hands the page to another owner.
    #[inline]
    pub fn set_kind(&self, kind: PageKind) {
        self.kind.store(kind as u8, Relaxed);
    }

    /// The block's order (heads only).
    #[inline]
    #[must_use]
    pub fn order(&self) -> Order {
        Order::new(u32::from(self.order.load(Relaxed))).unwrap_or(Order::ZERO)
    }

    /// Records the block's order.
    #[inline]
    pub fn set_order(&self, order: Order) {
        self.order.store(order.get() as u8, Relaxed);
    }

    /// The memory node the page belongs to.
    #[inline]
    #[must_use]
    pub fn node(&self) -> NodeId {
        NodeId(self.node.load(Relaxed))
    }

    /// Records the memory node.
    #[inline]
    pub fn set_node(&self, node: NodeId) {
        self.node.store(node.0, Relaxed);
    }

    /// The lock of a slab whose links are not here: it lies in the words of `links`, so that it
    /// shares the slab's line, as the kernels of 2007 had it (docs: linux-policies 4.1).
    ///
    /// # Safety
    /// 1. [`Descriptor::make_slab_lock`] was called since the page became this slab's head, and
    ///    nothing uses `links`.
    #[inline]
    #[must_use]
    pub unsafe fn slab_lock(&self) -> &RawLock {
        let words = self.links.as_ptr().cast::<RawLock>();
        // SAFETY: obligation 1; size and alignment are checked below, and atomics may be
        // changed through a shared reference.
        unsafe { &*words }
    }

    /// Puts a lock into the words of `links`.
    ///
    /// # Safety
    /// 1. The caller owns the page, and nothing uses `links`.
    pub unsafe fn make_slab_lock(&self, lock: RawLock) {
        let words = self.links.as_ptr().cast_mut().cast::<RawLock>();
        // SAFETY: obligation 1; as in `slab_lock`.
        unsafe { words.write(lock) };
    }

    /// Whether all of `bits` are set.
    #[inline]
    #[must_use]
    pub fn has(&self, bits: u8) -> bool {
        self.flags.load(Relaxed) & bits == bits
    }

    /// Sets or clears `bits`. The owner only: not atomic against another writer.
    #[inline]
    pub fn mark(&self, bits: u8, on: bool) {
        let now = self.flags.load(Relaxed);
        self.flags
            .store(if on { now | bits } else { now & !bits }, Relaxed);
    }
}
