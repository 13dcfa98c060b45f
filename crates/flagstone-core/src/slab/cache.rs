//! A cache: objects of one size, and everything the allocator decided about them.
//!
//! ```text
//!   name · object_size · geometry · engine knobs        written once, at creation
//!   sheaf target · barn bytes · miss counts             moved by the slow paths
//!   nodes: [partial list + barn] for each memory node   node.rs
//! ```
//!
//! Not here: the walk of an allocation or a free (`cpu_sheaf.rs`, `refill.rs`, `flush.rs`), and
//! how sheaves and barns grow (`sizing.rs`).

use super::geometry::Geometry;
use super::sparse::Sparse;
use super::tallies::{SheafSizing, Visits};
use crate::base::CacheId;
use crate::policy::Engine;
use crate::sync::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use core::ptr::NonNull;

/// Bytes of a cache's name that are kept.
pub const NAME_BYTES: usize = 32;

/// Called on every object of a cache before it is handed out the first time.
pub type Constructor = unsafe extern "C" fn(*mut u8);

/// What the creator of a cache asks for.
#[derive(Clone, Copy, Debug)]
pub struct CacheRequest<'a> {
    /// Shown in statistics; cut at [`NAME_BYTES`].
    pub name: &'a str,
    /// Bytes the program uses of each object; at least one.
    pub object_size: usize,
    /// Alignment, a power of two, or zero for the default.
    pub align: usize,
    /// Align to cache lines as the policy's layout rule says.
    pub hwcache_align: bool,
    /// Run once over every object.
    pub ctor: Option<Constructor>,
    /// Sheaf capacity asked for, or zero.
    pub sheaf_capacity: u32,
    /// One of the general-purpose caches.
    pub kmalloc: bool,
    /// A word of free objects that is the requester's, by its offset in bytes, not zero: no link
    /// lies there.
    pub kept_word: Option<usize>,
}

impl<'a> CacheRequest<'a> {
    /// Plain objects of `object_size` bytes.
    #[must_use]
    pub const fn new(name: &'a str, object_size: usize) -> Self {
        Self {
            name,
            object_size,
            align: 0,
            hwcache_align: false,
            ctor: None,
            sheaf_capacity: 0,
            kmalloc: false,
            kept_word: None,
        }
    }
}

/// Life of a cache table entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum CacheState {
    /// No cache here. Zeroed memory means this.
    Absent = 0,
    /// In use.
    Live = 1,
    /// Destroyed; the entry may be used again.
    Gone = 2,
}

/// One cache. Lives in the cache table and never moves.
#[derive(Debug)]
#[repr(align(64))]
pub struct Cache {
    pub(crate) state: AtomicU8,
    pub(crate) id: CacheId,
    pub(crate) geometry: Geometry,
    pub(crate) sizing: SheafSizing,
    pub(crate) sparse: Sparse,
    pub(crate) engine: Engine,
    pub(crate) room: EngineRoom,
    pub(crate) ctor: Option<Constructor>,
    pub(crate) min_partial: AtomicU32,
    /// Refill sheaves to the brim (the kernels) or stop at the first new slab (flagstone).
    pub(crate) refill_whole: bool,
    pub(crate) object_size: u32,
    pub(crate) align: u32,
    /// One of the general-purpose caches, whose free objects bear a mark.
    pub(crate) general: bool,
    name: [u8; NAME_BYTES],
    /// Bytes asked for in the sampled allocations, and how many those were.
    pub(crate) sampled_bytes: AtomicU64,
    pub(crate) samples: AtomicU64,
    pub(crate) visits: Visits,
}

/// A cache's room: memory that an engine made and kept for the next cache of this id.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct EngineRoom {
    address: usize,
    bytes: usize,
}

impl EngineRoom {
    pub fn new(memory: NonNull<u8>, bytes: usize) -> Self {
        Self {
            address: memory.as_ptr() as usize,
            bytes,
        }
    }

    /// The same room for another cache, if it has so many bytes.
    pub fn again(&self, bytes: usize) -> Option<Self> {
        (self.address != 0 && self.bytes >= bytes).then_some(*self)
    }

    #[inline]
    pub fn address(&self) -> usize {
        self.address
    }
}

/// What `Cache` is made of besides the request.
pub(crate) struct CacheMaking {
    pub id: CacheId,
    pub geometry: Geometry,
    pub align: usize,
    pub min_partial: u32,
    pub sheaf_first: u32,
    pub sheaf_max: u32,
    pub sheaf_busy: u32,
    pub sheaf_spread: u32,
    pub barn_full: u32,
    pub barn_empty: u32,
    pub barn_bytes: usize,
    pub refill_whole: bool,
    pub engine: Engine,
    pub room: EngineRoom,
}

impl Cache {
    pub(crate) fn new(request: &CacheRequest<'_>, making: CacheMaking) -> Self {
        let mut name = [0; NAME_BYTES];
        for (to, from) in name.iter_mut().zip(request.name.bytes()) {
            *to = from;
        }
        let sizing = SheafSizing {
            spread: making.sheaf_spread,
            ..SheafSizing::default()
        };
        sizing.target.store(making.sheaf_first, Relaxed);
        sizing.first.store(making.sheaf_first, Relaxed);
        sizing.max.store(making.sheaf_max, Relaxed);
        sizing.most.store(making.sheaf_max, Relaxed);
        sizing.busy.store(making.sheaf_busy, Relaxed);
        sizing.barn_full.store(making.barn_full, Relaxed);
        sizing.barn_empty.store(making.barn_empty, Relaxed);
        sizing.barn_bytes.store(making.barn_bytes, Relaxed);
        Self {
            state: AtomicU8::new(CacheState::Live as u8),
            id: making.id,
            geometry: making.geometry,
            sizing,
            sparse: Sparse::default(),
            engine: making.engine,
            room: making.room,
            ctor: request.ctor,
            min_partial: AtomicU32::new(making.min_partial),
            refill_whole: making.refill_whole,
            object_size: request.object_size as u32,
            align: making.align as u32,
            general: request.kmalloc,
            name,
            sampled_bytes: AtomicU64::new(0),
            samples: AtomicU64::new(0),
            visits: Visits::default(),
        }
    }

    /// The cache's index in the table.
    #[must_use]
    pub fn id(&self) -> CacheId {
        self.id
    }

    /// The name it was created with.
    #[must_use]
    pub fn name(&self) -> &str {
        let len = self.name.iter().position(|&b| b == 0).unwrap_or(NAME_BYTES);
        core::str::from_utf8(&self.name[..len]).unwrap_or("?")
    }

    /// How its objects lie in slabs.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Bytes the program uses of an object.
    #[must_use]
    pub fn object_size(&self) -> usize {
        self.object_size as usize
    }

    /// Bytes a program may use of an object: all of its stride, unless something lies behind the object.
    #[must_use]
    pub fn usable_size(&self) -> usize {
        if self.ctor.is_some() {
            self.object_size()
        } else {
            self.geometry.size()
        }
    }

    /// Alignment of every object in bytes.
    #[must_use]
    pub fn align(&self) -> usize {
        self.align as usize
    }

    /// Empty slabs a node keeps on its partial list.
    #[must_use]
    pub fn min_partial(&self) -> u32 {
        self.min_partial.load(Relaxed)
    }

    /// Sets how many empty slabs a node keeps on its partial list; nodes follow as slabs become empty.
    pub fn set_min_partial(&self, slabs: u32) {
        self.min_partial.store(slabs, Relaxed);
    }

    /// From now on its sheaves are made with so many slots, whatever is observed.
    pub fn set_sheaf_capacity(&self, slots: u32) {
        let of = &self.sizing;
        for word in [&of.first, &of.max, &of.most, &of.busy, &of.target] {
            word.store(slots, Relaxed);
        }
    }

    /// Counts objects on their way back into slabs.
    #[inline]
    pub(crate) fn count_back(&self, objects: u32) {
        if self.engine() == Engine::Sheaf {
            self.visits.out.fetch_sub(u64::from(objects), Relaxed);
        }
    }

    /// Whether a new slab's pages stay untouched until its objects are handed out, as the default policy has it.
    /// Kernels link all objects at once; so their presets are charged for it, those with sheaves too.
    pub(crate) fn links_when_taken(&self) -> bool {
        self.engine() == Engine::Sheaf && !self.refill_whole
    }

    /// The engine that serves this cache.
    #[inline]
    #[must_use]
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// Where the memory of the engine that serves this cache lies; zero if it has none.
    #[inline]
    #[must_use]
    pub fn room(&self) -> usize {
        self.room.address()
    }

    /// Mean bytes asked for per object, by the sampled allocations; `None` before the first.
    #[must_use]
    pub fn mean_requested(&self) -> Option<u64> {
        self.sampled_bytes
            .load(Relaxed)
            .checked_div(self.samples.load(Relaxed))
    }

    /// Notes one sampled request (racy on purpose: a lost sample does not matter).
    #[inline]
    pub fn sample(&self, bytes: usize) {
        self.sampled_bytes
            .store(self.sampled_bytes.load(Relaxed) + bytes as u64, Relaxed);
        self.samples.store(self.samples.load(Relaxed) + 1, Relaxed);
    }

    /// Runs the constructor, if there is one, over a fresh object.
    #[inline]
    pub fn construct(&self, object: NonNull<u8>) {
        if let Some(ctor) = self.ctor {
            // SAFETY: the object is the cache's size and nobody else's; the creator of the cache
            // vouches for the constructor.
            unsafe { ctor(object.as_ptr()) };
        }
    }
}
