//! The slab allocator of one heap: its caches over one page layer.
//!
//! ```text
//!   Slabs ─┬─ pages          the page layer (zones, pagesets, memmap)
//!          ├─ area           per-CPU slots: main and spare sheaf of every cache
//!          ├─ caches[256]    table; entry 0 is never used, 1..=8 are the caches of sheaves
//!          └─ nodes[256 × n] partial lists and barns, one per cache and memory node
//! ```
//!
//! Built in place over memory of the page layer; never moves. Sheaves are themselves objects of
//! internal caches that have no sheaves (as the kernel's bootstrap caches).

use super::cache::{Cache, CacheMaking, CacheRequest, CacheState, EngineRoom};
use super::geometry::Geometry;
use super::node::Node;
use super::sheaf::{SHEAF_BYTES_MIN, bytes_for};
use super::tallies::BarnsTotal;
use crate::base::{CacheId, NodeId, PageCount, Pfn};
use crate::page::{PageAllocator, PageConfig, Pagesets};
use crate::platform::{CpuArea, Lock, LockKind, MAX_CACHES, OutOfMemory, Platform};
use crate::policy::{Bounds, Engine, Policy};
use crate::sync::{AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};
use core::ptr::NonNull;

/// Caches of sheaves: memory of 64 B, 128 B, ... 8 KiB.
pub const SHEAF_CACHES: usize = 8;

/// Why a cache could not be made or ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CacheError {
    /// The size is zero, or no slab of this policy can hold such an object.
    Size,
    /// The alignment is not a power of two, or larger than a page.
    Align,
    /// All cache slots are taken, or memory ran out.
    Exhausted,
    /// Objects of the cache are still handed out.
    Busy,
    /// There is no such cache.
    Absent,
}

/// The slab allocator. See the module's picture.
#[derive(Debug)]
pub struct Slabs<P: Platform> {
    area: CpuArea,
    pages: PageAllocator<P>,
    caches: NonNull<Cache>,
    nodes: NonNull<Node>,
    node_count: u8,
    policy: Policy,
    secret: u64,
    pub(super) registry: Lock<u16>,
    /// Objects a signal handler could not give back because it had interrupted the lock's holder.
    pub lost: AtomicU64,
    /// What all barns hold.
    pub(crate) barns: BarnsTotal,
    /// What sheaves and barns may hold.
    pub(crate) bounds: Bounds,
    /// Bytes of slabs in which no object that is out lay at the last estimate.
    pub(crate) idle_bytes: AtomicUsize,
}

// SAFETY: everything shared inside is atomic, behind a lock, or written once in `init`.
unsafe impl<P: Platform> Sync for Slabs<P> {}
// SAFETY: nothing belongs to a thread.
unsafe impl<P: Platform> Send for Slabs<P> {}

impl<P: Pagesets> Slabs<P> {
    /// Builds the slab allocator in place, with its page layer and the caches of sheaves.
    ///
    /// # Errors
    /// `OutOfMemory` when the system gives no memory for the tables.
    ///
    /// # Safety
    /// 1. `this` is writable, aligned, nobody else's, and stays where it is.
    pub unsafe fn init(
        this: *mut Self,
        config: &PageConfig,
        policy: &Policy,
    ) -> Result<(), OutOfMemory> {
        // SAFETY: obligation 1; the field is initialised before anything refers to it.
        unsafe { PageAllocator::init(&raw mut (*this).pages, config)? };
        // SAFETY: initialised on the line above.
        let pages = unsafe { &(*this).pages };
        let node_count = P::node_count();
        let own = |bytes| pages.alloc_own(bytes).ok_or(OutOfMemory);
        let caches = own(MAX_CACHES * size_of::<Cache>())?.cast::<Cache>();
        let nodes = own(MAX_CACHES * usize::from(node_count) * size_of::<Node>())?.cast::<Node>();
        let slots = CpuArea::bytes_for(P::cpu_count());
        let area = P::slot_memory(slots).map_or_else(|| own(slots), Ok)?;
        // SAFETY: obligation 1; each field is written once, the page layer is left alone.
        unsafe {
            // Own memory is zeroed, page-aligned and never freed.
            (&raw mut (*this).area).write(CpuArea::new(area));
            (&raw mut (*this).caches).write(caches);
            (&raw mut (*this).nodes).write(nodes);
            (&raw mut (*this).node_count).write(node_count);
            (&raw mut (*this).policy).write(*policy);
            (&raw mut (*this).secret).write(P::seed() | 1);
            (&raw mut (*this).registry).write(Lock::new(LockKind::Heap, 0));
            (&raw mut (*this).lost).write(AtomicU64::new(0));
            (&raw mut (*this).barns).write(BarnsTotal::default());
            (&raw mut (*this).bounds).write(Bounds::of(&policy.limits));
            (&raw mut (*this).idle_bytes).write(AtomicUsize::new(0));
        }
        // SAFETY: every field is initialised now.
        let slabs = unsafe { &*this };
        slabs.make_sheaf_caches()
    }

    fn make_sheaf_caches(&self) -> Result<(), OutOfMemory> {
        const NAMES: [&str; SHEAF_CACHES] = [
            "sheaf-64",
            "sheaf-128",
            "sheaf-256",
            "sheaf-512",
            "sheaf-1k",
            "sheaf-2k",
            "sheaf-4k",
            "sheaf-8k",
        ];
        for (at, name) in NAMES.into_iter().enumerate() {
            let id = CacheId(at as u16 + 1);
            let size = SHEAF_BYTES_MIN << at;
            let pages = P::page_size().pages_for(size * SHEAVES_PER_SLAB);
            let geometry = Geometry::new(size, 0, pages, P::page_size(), self.pages.spacing())
                .ok_or(OutOfMemory)?;
            let making = CacheMaking {
                id,
                geometry,
                align: size,
                min_partial: 1,
                sheaf_first: 0,
                sheaf_busy: 0,
                sheaf_spread: 0,
                sheaf_max: 0,
                barn_full: 0,
                barn_empty: 0,
                barn_bytes: 0,
                refill_whole: false,
                engine: Engine::Sheaf,
                room: EngineRoom::default(),
            };
            self.install(id, &CacheRequest::new(name, size), making);
        }
        Ok(())
    }

    pub(super) fn install(&self, id: CacheId, request: &CacheRequest<'_>, making: CacheMaking) {
        for node in 0..self.node_count {
            // SAFETY: the entry exists (`node_ptr`) and no cache with this id is live.
            unsafe { self.node_ptr(id, NodeId(node)).write(Node::new()) };
        }
        // SAFETY: the table has MAX_CACHES entries and this one is not live.
        unsafe {
            self.caches
                .add(id.index())
                .write(Cache::new(request, making))
        };
    }

    /// The page layer.
    #[inline]
    #[must_use]
    pub fn pages(&self) -> &PageAllocator<P> {
        &self.pages
    }

    /// The per-CPU slots.
    #[inline]
    #[must_use]
    pub fn area(&self) -> CpuArea {
        self.area
    }

    /// The lock of the cache table, for fork handling.
    #[must_use]
    pub fn registry_lock(&self) -> &crate::platform::RawLock {
        self.registry.raw()
    }

    /// The policy this heap was built with.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    #[inline]
    pub(crate) fn secret(&self) -> u64 {
        self.secret
    }

    /// A random number of this heap, another for each cache.
    pub(crate) fn draw(&self, id: CacheId) -> u16 {
        let of_cache = (id.index() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        ((self.secret.rotate_left(32) ^ of_cache).wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 48) as u16
    }

    pub(crate) fn next_generation(&self) -> u32 {
        self.pages.budget().moved.slabs.fetch_add(1, Relaxed)
    }

    /// Memory nodes.
    #[inline]
    #[must_use]
    pub fn node_count(&self) -> u8 {
        self.node_count
    }

    /// A cache by id. The entry may be absent: look at [`Slabs::live_cache`] for strangers' ids.
    ///
    /// # Panics
    /// If `id` is not an index of the table.
    #[inline]
    #[must_use]
    pub fn cache(&self, id: CacheId) -> &Cache {
        assert!(id.index() < MAX_CACHES, "cache.id-bounded");
        // SAFETY: the table has MAX_CACHES entries; zeroed ones are valid, absent caches.
        unsafe { self.caches.add(id.index()).as_ref() }
    }

    /// A cache by id, if it is live.
    #[must_use]
    pub fn live_cache(&self, id: CacheId) -> Option<&Cache> {
        if id.index() >= MAX_CACHES {
            return None;
        }
        // SAFETY: zeroed entries have a valid state byte (`Absent`); nothing else of them is read.
        let state = unsafe { &(*self.caches.as_ptr().add(id.index())).state };
        (state.load(Relaxed) == CacheState::Live as u8).then(|| self.cache(id))
    }

    /// All live caches.
    pub fn live_caches(&self) -> impl Iterator<Item = &Cache> {
        (1..MAX_CACHES as u16).filter_map(|id| self.live_cache(CacheId(id)))
    }

    fn node_ptr(&self, id: CacheId, node: NodeId) -> NonNull<Node> {
        let at = id.index() * usize::from(self.node_count) + node.index();
        debug_assert!(id.index() < MAX_CACHES && node.0 < self.node_count);
        // SAFETY: the table has MAX_CACHES × node_count entries.
        unsafe { self.nodes.add(at) }
    }

    /// A live cache's part on a memory node.
    #[inline]
    #[must_use]
    pub fn node(&self, id: CacheId, node: NodeId) -> &Node {
        // SAFETY: nodes of live caches are initialised and live as long as the heap.
        unsafe { self.node_ptr(id, node).as_ref() }
    }

    /// Writes `id` (or zero) into the page map for a slab's pages.
    pub(crate) fn map_pages(&self, pfn: Pfn, pages: PageCount, id: u8) {
        for page in 0..pages.0 {
            self.page_map_of(pfn.plus(PageCount(page)))
                .store(id, Relaxed);
        }
    }

    /// A page's byte of the page map.
    #[inline]
    fn page_map_of(&self, pfn: Pfn) -> &AtomicU8 {
        let map = self.pages.page_map().cast::<AtomicU8>();
        // SAFETY: the page map has one byte for each page of the span.
        unsafe { map.add(pfn.index()).as_ref() }
    }

    /// The cache whose slab holds page `pfn`, if any.
    #[inline]
    #[must_use]
    pub fn cache_of_page(&self, pfn: Pfn) -> Option<&Cache> {
        let id = self.page_map_of(pfn).load(Relaxed);
        (id != 0).then(|| self.cache(CacheId(u16::from(id))))
    }

    /// The cache that holds sheaves of `capacity` slots.
    pub fn sheaf_cache(&self, capacity: u32) -> &Cache {
        let class = bytes_for(capacity).max(SHEAF_BYTES_MIN) / SHEAF_BYTES_MIN;
        let at = (class.trailing_zeros() as usize).min(SHEAF_CACHES - 1);
        self.cache(CacheId(at as u16 + 1))
    }
}

/// Sheaves that lie in one slab at least.
const SHEAVES_PER_SLAB: usize = 8;
