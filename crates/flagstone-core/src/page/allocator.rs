//! The page allocator: what the layers above ask for pages.
//!
//! ```text
//!   alloc_block(order) ─► pageset of this CPU ─► zone of the node ─► other zones ─► None
//!   alloc_run(pages)   ─────────────────────────► zone of the node ─► other zones ─► None
//! ```
//!
//! Invariants
//! - `page.one-owner`, `page.head-known`: see `descriptor`.
//!
//! Locking: see the zone and the pageset; nothing here holds a lock itself.

use super::config::PageConfig;
use super::descriptor::{Descriptor, PageKind, flag};
use super::memmap::{Layout, Memmap};
use super::snapshot::{PageSnapshot, ZoneSnapshot};
use super::zone::{Block, Zone};
use crate::base::{NodeId, Order, PageCount, PageSize, Pfn};
use crate::platform::{OutOfMemory, Platform};
use crate::sync::Ordering::Relaxed;
use crate::sync::{AtomicU64, AtomicUsize};
use core::ptr::NonNull;

/// The page allocator of one heap.
#[derive(Debug)]
pub struct PageAllocator<P: Platform> {
    map: Memmap,
    zones: NonNull<Zone<P>>,
    zone_count: u32,
    /// Binary logarithm of the pages in each zone's share of the span.
    zone_shift: u32,
    control_bytes: usize,
    own_bytes: AtomicUsize,
    holes: AtomicU64,
}

// SAFETY: zones are shared by design (locks and atomics), the memmap likewise.
unsafe impl<P: Platform> Send for PageAllocator<P> {}
// SAFETY: as above.
unsafe impl<P: Platform> Sync for PageAllocator<P> {}

/// How the span is shared out.
struct Shares {
    zones: u32,
    shift: u32,
}

impl Shares {
    fn of(pages: usize, nodes: u32) -> Self {
        let share = if nodes > 1 { pages / nodes as usize } else { 0 };
        if share < Order::MAX.pages().0 {
            return Self {
                zones: 1,
                shift: 31,
            };
        }
        Self {
            zones: nodes,
            shift: crate::base::ilog2(share as u64),
        }
    }
}

impl<P: Platform> PageAllocator<P> {
    /// Builds the allocator in place: `this` must not move afterwards.
    ///
    /// # Errors
    /// `OutOfMemory` if not even the smallest span could be reserved, or its first pages not
    /// committed; `this` is not initialised then.
    ///
    /// # Safety
    /// 1. `this` is valid for writes and nobody else's.
    pub unsafe fn init(this: *mut Self, config: &PageConfig) -> Result<(), OutOfMemory> {
        let page_size = P::page_size();
        let block = page_size.block_bytes(Order::MAX);
        let unit = if config.span_bytes >= block {
            block
        } else {
            page_size.bytes()
        };
        let most = page_size.bytes() << 31;
        let mut span = config.span_bytes.clamp(page_size.bytes(), most) / unit * unit;
        let least = config.span_bytes_min.min(span).max(unit);
        loop {
            if let Some(built) = Self::build(span, page_size, config) {
                // SAFETY: obligation 1.
                unsafe { this.write(built) };
                return Ok(());
            }
            span = span / 2 / unit * unit;
            if span < least {
                return Err(OutOfMemory);
            }
        }
    }

    fn build(span: usize, page_size: PageSize, config: &PageConfig) -> Option<Self> {
        let pages = span >> page_size.shift();
        let shares = Shares::of(pages, u32::from(P::node_count()));
        let control = shares.zones as usize * size_of::<Zone<P>>();
        let layout = Layout::of(page_size, control, span);
        let (bytes, align) = layout.reservation();
        let start = P::reserve(bytes, align)?;
        // SAFETY: `start` is that reservation.
        let (map, control_at) = unsafe { Memmap::new(start, &layout, page_size) };
        // SAFETY: whole pages of the reservation.
        if unsafe { P::commit(control_at, layout.control) }.is_err() {
            // SAFETY: nobody has used the reservation.
            unsafe { P::release(start, bytes) };
            return None;
        }
        let zones: NonNull<Zone<P>> = control_at.cast();
        let each = if shares.zones == 1 {
            pages as u32
        } else {
            1 << shares.shift
        };
        for index in 0..shares.zones {
            let node = NodeId(index as u8);
            let first = Pfn(index * each);
            let zone = Zone::new(node, first, Pfn(first.0 + each), &config.retention, &map);
            // SAFETY: the control part has room for this many zones.
            unsafe { zones.add(index as usize).write(zone) };
        }
        Some(Self {
            map,
            zones,
            zone_count: shares.zones,
            zone_shift: shares.shift,
            control_bytes: layout.control,
            own_bytes: AtomicUsize::new(0),
            holes: AtomicU64::new(0),
        })
    }

    // ---- addresses ----------------------------------------------------------------------

    /// Where the data starts: constant for life.
    #[inline]
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.map.base()
    }

    /// Bytes of data reserved.
    #[inline]
    #[must_use]
    pub fn span_bytes(&self) -> usize {
        (self.map.pages() as usize) << self.map.page_size().shift()
    }

    /// The page map: one byte for each page, zero or the cache whose slab holds the page.
    #[inline]
    #[must_use]
    pub fn page_map(&self) -> NonNull<u8> {
        self.map.page_map()
    }

    /// Bytes from the base below which [`PageAllocator::page_map`] may be read; it only grows.
    #[inline]
    #[must_use]
    pub fn map_limit(&self) -> &AtomicUsize {
        self.map.map_limit()
    }

    /// The page size.
    #[inline]
    #[must_use]
    pub fn page_size(&self) -> PageSize {
        self.map.page_size()
    }

    /// A page's descriptor; the page must lie below its zone's frontier.
    #[inline]
    #[must_use]
    pub fn descriptor(&self, pfn: Pfn) -> &Descriptor {
        self.map.descriptor(pfn)
    }

    /// A page's address.
    #[inline]
    #[must_use]
    pub fn address(&self, pfn: Pfn) -> NonNull<u8> {
        self.map.address(pfn)
    }

    /// The page that holds `address`; `None` outside the span or beyond a zone's frontier.
    #[inline]
    #[must_use]
    pub fn pfn_of(&self, address: *const u8) -> Option<Pfn> {
        let pfn = self.map.lookup(address)?;
        let zone = self.zone_at((pfn.0 >> self.zone_shift).min(self.zone_count - 1));
        (pfn < zone.frontier()).then_some(pfn)
    }

    /// The head of the live slab or run that holds a page; `None` if the page is free.
    #[inline]
    #[must_use]
    pub fn head_of(&self, pfn: Pfn) -> Option<Pfn> {
        let page = self.descriptor(pfn);
        match page.kind() {
            PageKind::Slab | PageKind::Run => Some(pfn),
            PageKind::Tail => {
                let distance = page.pages.load(Relaxed);
                let head = Pfn(pfn.0.checked_sub(distance)?);
                let named = self.descriptor(head);
                let live = matches!(named.kind(), PageKind::Slab | PageKind::Run);
                (live && named.pages.load(Relaxed) > distance).then_some(head)
            }
            _ => None,
        }
    }

    // ---- blocks and runs ----------------------------------------------------------------

    /// A block of 2^order pages, near `node`; its head says `Run`, its tails name it.
    #[inline]
    #[must_use]
    pub fn alloc_block(&self, order: Order, node: NodeId) -> Option<Block> {
        self.alloc_from_zones(order.pages(), node)
    }

    /// Frees a block.
    ///
    /// # Safety
    /// 1. `pfn` heads a live block of `order` of this allocator, given up by its owner.
    #[inline]
    pub unsafe fn free_block(&self, pfn: Pfn, order: Order) {
        // SAFETY: obligation 1.
        unsafe { self.zone_of(pfn).free(&self.map, pfn, order.pages()) };
    }

    /// A run of exactly `pages` pages near `node`, aligned to the next power of two; `None` also
    /// for zero pages and for more than a block of the largest order.
    #[inline]
    #[must_use]
    pub fn alloc_run(&self, pages: PageCount, node: NodeId) -> Option<Block> {
        if pages.0 == 0 || pages.0 > Order::MAX.pages().0 {
            return None;
        }
        self.alloc_from_zones(pages, node)
    }

    /// Frees a run.
    ///
    /// # Safety
    /// 1. `pfn` heads a live run of `pages` pages of this allocator, given up by its owner.
    #[inline]
    pub unsafe fn free_run(&self, pfn: Pfn, pages: PageCount) {
        // SAFETY: obligation 1.
        unsafe { self.zone_of(pfn).free(&self.map, pfn, pages) };
    }

    /// Shortens a live run; the pages behind are free afterwards.
    ///
    /// # Safety
    /// 1. `pfn` heads a live run of `old` pages that the caller owns.
    pub unsafe fn shrink_run(&self, pfn: Pfn, old: PageCount, new: PageCount) {
        debug_assert!(new.0 > 0);
        if 0 < new.0 && new < old {
            // SAFETY: obligation 1.
            unsafe { self.zone_of(pfn).shrink(&self.map, pfn, old, new) };
        }
    }

    /// Lengthens a live run in place; `false`, and nothing changed, if the pages behind it are
    /// not free or the run would be longer than a block of the largest order.
    ///
    /// # Safety
    /// 1. `pfn` heads a live run of `old` pages that the caller owns.
    pub unsafe fn grow_run(&self, pfn: Pfn, old: PageCount, new: PageCount) -> bool {
        if new <= old {
            return true;
        }
        // SAFETY: obligation 1.
        new <= Order::MAX.pages() && unsafe { self.zone_of(pfn).grow(&self.map, pfn, old, new) }
    }

    /// Gives the memory of some pages inside a live slab or run back to the system; they stay
    /// usable and read as zero.
    ///
    /// # Safety
    /// 1. The pages belong to one live block whose owner gave up their contents.
    pub unsafe fn release_pages(&self, pfn: Pfn, pages: PageCount) {
        let bytes = pages.bytes(self.page_size());
        // SAFETY: obligation 1: committed pages whose contents nobody needs.
        unsafe { P::decommit(self.address(pfn), bytes) };
        self.holes.fetch_add(bytes as u64, Relaxed);
    }

    /// Zeroed memory for the allocator's own data: whole pages, never freed.
    #[must_use]
    pub fn alloc_own(&self, bytes: usize) -> Option<NonNull<u8>> {
        let pages = self.page_size().pages_for(bytes.max(1));
        let whole = pages.bytes(self.page_size());
        let memory = if pages > Order::MAX.pages() {
            let start = P::reserve(whole, self.page_size().bytes())?;
            // SAFETY: the whole of a fresh reservation.
            if unsafe { P::commit(start, whole) }.is_err() {
                // SAFETY: nobody has used it.
                unsafe { P::release(start, whole) };
                return None;
            }
            start
        } else {
            let block = self.alloc_run(pages, P::node_of(P::current_cpu()))?;
            self.descriptor(block.pfn).mark(flag::OWN, true);
            let start = self.address(block.pfn);
            if !block.zeroed {
                // SAFETY: the run is ours and committed.
                unsafe { start.write_bytes(0, whole) };
            }
            start
        };
        self.own_bytes.fetch_add(whole, Relaxed);
        Some(memory)
    }

    fn alloc_from_zones(&self, pages: PageCount, node: NodeId) -> Option<Block> {
        let first = self.zone_near(node);
        if let Some(block) = self.zone_at(first).alloc(&self.map, pages) {
            return Some(block);
        }
        (1..self.zone_count)
            .map(|step| (first + step) % self.zone_count)
            .find_map(|index| self.zone_at(index).alloc(&self.map, pages))
    }

    // ---- upkeep -------------------------------------------------------------------------

    /// Gives free memory back until at most `keep_bytes` of it stay resident; answers the bytes
    /// given back.
    pub fn trim(&self, keep_bytes: usize) -> usize {
        let shift = self.page_size().shift();
        let mut keep = keep_bytes >> shift;
        let mut pages = 0;
        for zone in self.zones() {
            pages += zone.release_down_to(&self.map, keep);
            let left = zone
                .snapshot(&self.map)
                .map_or(0, |z| z.free_resident_pages);
            keep = keep.saturating_sub(left);
        }
        pages << shift
    }

    /// Lets time pass: at most once a second it lets bounds decay. Called by slow paths.
    pub fn tick(&self) {}

    /// Pages outside the free areas, as last noted: without a lock, for upkeep.
    #[must_use]
    pub fn in_use(&self) -> PageCount {
        PageCount(self.zones().map(Zone::in_use).sum())
    }

    /// What the page layer holds.
    #[must_use]
    pub fn snapshot(&self) -> PageSnapshot {
        let mut total = ZoneSnapshot::default();
        for zone in self.zones() {
            total.add(&zone.snapshot(&self.map).unwrap_or_default());
        }
        let known = self.map_limit().load(Relaxed) >> self.page_size().shift();
        PageSnapshot {
            page_bytes: self.page_size().bytes(),
            zones: self.zone_count as usize,
            memmap_bytes: total.committed_pages * size_of::<Descriptor>() + known + known / 8,
            total,
            own_bytes: self.own_bytes.load(Relaxed),
            control_bytes: self.control_bytes,
            hole_bytes_total: self.holes.load(Relaxed),
        }
    }

    /// One zone's figures; `None` for a node without a zone or on top of the lock's holder.
    #[must_use]
    pub fn zone_snapshot(&self, node: NodeId) -> Option<ZoneSnapshot> {
        let index = u32::from(node.0);
        (index < self.zone_count)
            .then(|| self.zone_at(index).snapshot(&self.map))
            .flatten()
    }

    /// Takes every lock of the layer, in order: before a fork.
    pub fn lock_all(&self) {
        for zone in self.zones() {
            // On top of the holder the lock is ours already.
            let _ = P::acquire(zone.raw());
        }
    }

    /// Gives back what [`PageAllocator::lock_all`] took: in the parent of a fork.
    pub fn unlock_all(&self) {
        for zone in self.zones() {
            P::release_lock(zone.raw());
        }
    }

    /// Frees every lock and finishes what threads that are gone had begun: in the child of a fork
    /// whose parent had called [`PageAllocator::lock_all`].
    pub fn reset_after_fork(&self) {
        for zone in self.zones() {
            zone.raw().reset();
        }
        for zone in self.zones() {
            zone.recover_parked(&self.map);
        }
    }

    // ---- zones --------------------------------------------------------------------------

    #[inline]
    fn zone_at(&self, index: u32) -> &Zone<P> {
        debug_assert!(index < self.zone_count);
        // SAFETY: `init` wrote this many zones; they live as long as the reservation.
        unsafe { self.zones.add(index as usize).as_ref() }
    }

    #[inline]
    fn zone_of(&self, pfn: Pfn) -> &Zone<P> {
        self.zone_at(pfn.0 >> self.zone_shift)
    }

    #[inline]
    fn zone_near(&self, node: NodeId) -> u32 {
        let index = u32::from(node.0);
        if index < self.zone_count {
            index
        } else {
            index % self.zone_count
        }
    }

    /// All zones, by node.
    pub(super) fn zones(&self) -> impl Iterator<Item = &Zone<P>> {
        (0..self.zone_count).map(|index| self.zone_at(index))
    }

    /// The memmap, for `verify`.
    pub(super) fn memmap(&self) -> &Memmap {
        &self.map
    }
}

#[cfg(all(test, not(loom)))]
#[path = "allocator_tests.rs"]
pub(crate) mod tests;
