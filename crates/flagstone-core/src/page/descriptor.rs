//! The descriptor of a page: what the allocator knows about it, apart from its data.
//!
//! ```text
//!   32 bytes per page
//!   [ state u64 | next u32 | prev u32 | spare u32 | cache u16 | fresh u16 |       heads   24 bytes
//!   [ links of free objects: 24 × u8                                      |       tails
//!                                   pages u32 | kind u8 | order u8 | node u8 | flags u8 ]  8 bytes
//!
//!   packed   [ 0 | 1 ][ 2 | 3 ][ ...     two to a cache line, links in tails
//!   lines    [ 0 | 32 more bytes ][ 1 | 32 more bytes ][ ...     a line each, links behind
//! ```
//!
//! Links are the free list of objects of at least a sixteenth of a page, so the allocator does
//! not touch the memory of larger free objects at all, and their pages can be given back while
//! their slab stays (ADR 0003). How descriptors lie is the policy's choice ([`Spacing`]): the
//! kernels' `struct page` has a line of its own, and so have the pages of their policies.
//!
//! | kind   | who owns it                     | fields in use                              |
//! |--------|---------------------------------|--------------------------------------------|
//! | `Unused` | nobody, beyond the zone's frontier | none                                  |
//! | `Buddy` | its zone's free areas           | order, flags, next, prev                   |
//! | `Pageset` | a per-CPU pageset             | order, next, prev                          |
//! | `Parked` | its zone, for a moment         | spare (pages), next                        |
//! | `Slab` | a cache                          | all but those of links (head page)         |
//! | `Run`  | a large block, or a caller       | pages (head page only)                     |
//! | `Tail` | the block's head page            | pages: distance back to the head; links    |
//!
//! Inner pages of free blocks are `Tail` or `Unused` with stale contents: a tail belongs to the
//! head it names only if that head is a slab or run and long enough to reach it.
//!
//! Invariants
//! - `page.one-owner`: a page is in exactly one of the states above.
//! - `page.node`: the head of a slab or run names the node of the zone it lies in.
//! - `page.head-known`: from any page of a slab or run its head is found by `pages` of a tail.

use crate::base::{NodeId, Order};
use crate::policy::Policy;
use crate::sync::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Objects of at least a page divided by this have their links outside, where there is room.
pub const OBJECTS_PER_PAGE_MAX: usize = 16;

/// How descriptors lie in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spacing {
    /// One behind the other, two to a cache line: half the memory, and the links of a slab lie in
    /// the descriptors of its tails.
    Packed,
    /// A cache line each, as in the kernels: behind each descriptor there is room for links, or
    /// for a slab's lock.
    Lines,
}

impl Spacing {
    /// A policy's choice.
    #[must_use]
    pub fn of(policy: &Policy) -> Self {
        if policy.packs_descriptors() {
            Self::Packed
        } else {
            Self::Lines
        }
    }

    /// Binary logarithm of the bytes from one descriptor to the next.
    #[inline]
    #[must_use]
    pub const fn shift(self) -> u32 {
        match self {
            Self::Packed => DESCRIPTOR_BYTES.trailing_zeros(),
            Self::Lines => DESCRIPTOR_BYTES.trailing_zeros() + 1,
        }
    }

    /// Bytes from one descriptor to the next.
    #[inline]
    #[must_use]
    pub const fn bytes(self) -> usize {
        1 << self.shift()
    }

    /// How many links a slab of `pages` pages has room for; they are bytes.
    #[must_use]
    pub const fn links_room(self, pages: usize) -> usize {
        match self {
            Self::Packed => (pages - 1) * TAIL_LINKS,
            Self::Lines => pages * DESCRIPTOR_BYTES,
        }
    }

    /// Where link `index` lies, in bytes behind the head's descriptor.
    #[inline]
    #[must_use]
    pub const fn link_offset(self, index: usize) -> usize {
        match self {
            Self::Packed => index / TAIL_LINKS * self.bytes() + index % TAIL_LINKS,
            Self::Lines => index / DESCRIPTOR_BYTES * self.bytes() + index % DESCRIPTOR_BYTES,
        }
    }
}

const DESCRIPTOR_BYTES: usize = size_of::<Descriptor>();

/// Bytes of a tail's descriptor that say nothing about the page.
const TAIL_LINKS: usize = core::mem::offset_of!(Descriptor, pages);

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
#[repr(C, align(32))]
#[derive(Debug)]
pub struct Descriptor {
    /// Slabs: freelist head, objects in use, objects, frozen; one word for compare-and-swap.
    pub state: AtomicU64,
    /// Next page of the list this page is on (under that list's lock).
    pub next: AtomicU32,
    /// Previous page of the list this page is on.
    pub prev: AtomicU32,
    /// Runs: bytes the caller asked for, in units of the owner's choice. Slabs: pages given back
    /// where links lie outside the objects, otherwise the slab's generation.
    pub spare: AtomicU32,
    /// Slabs: the cache.
    pub cache: AtomicU16,
    /// Slabs: objects never handed out yet start at this index.
    pub fresh: AtomicU16,
    /// Heads: pages whose tails name this head, which is the length of slabs and runs. Tails:
    /// pages back to the head.
    pub pages: AtomicU32,
    kind: AtomicU8,
    order: AtomicU8,
    node: AtomicU8,
    /// Bits of [`flag`].
    pub flags: AtomicU8,
}

const _: () = assert!(
    size_of::<Descriptor>() == 32 && TAIL_LINKS == 24,
    "a descriptor is half a cache line, and a tail needs a quarter of it"
);

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
