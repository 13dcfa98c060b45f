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

use super::buddy::TAILS_MAX;
use super::budget::Budget;
use super::config::PageConfig;
use super::descriptor::{Descriptor, PageKind, Spacing, flag};
use super::extents::Extents;
use super::memmap::Memmap;
use super::pageset::Pagesets;
use super::zone::{Block, Zone, each_run, name_tails};
use crate::base::{NodeId, Order, PageCount, PageSize, Pfn};
use crate::platform::Platform;
use crate::sync::Ordering::Relaxed;
use crate::sync::{AtomicU64, AtomicUsize};
use core::ptr::NonNull;

/// The page allocator of one heap.
#[derive(Debug)]
pub struct PageAllocator<P: Platform> {
    pub(super) map: Memmap,
    pub(super) zones: NonNull<Zone<P>>,
    pub(super) zone_count: u32,
    /// Binary logarithm of the pages in each zone's share of the span.
    pub(super) zone_shift: u32,
    pub(super) cached_order: Order,
    pub(super) control_bytes: usize,
    pub(super) own_bytes: AtomicUsize,
    /// Bytes of holes that were punched, in all.
    pub(super) hole_bytes: AtomicU64,
    pub(super) ticked: AtomicU64,
    /// What it was built with.
    pub(super) config: PageConfig,
}

// SAFETY: zones are shared by design (locks and atomics), the memmap likewise.
unsafe impl<P: Platform> Send for PageAllocator<P> {}
// SAFETY: as above.
unsafe impl<P: Platform> Sync for PageAllocator<P> {}

impl<P: Pagesets> PageAllocator<P> {
    // ---- addresses ----------------------------------------------------------------------

    /// Where the data starts: constant for life.
    #[inline]
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.map.base()
    }

    /// Bytes of data reserved at the start.
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

    /// Where the links of a slab begin; see [`Spacing::link_offset`].
    #[inline]
    #[must_use]
    pub fn links_of(&self, pfn: Pfn) -> NonNull<u8> {
        self.map.links_of(pfn)
    }

    /// How descriptors lie.
    #[inline]
    #[must_use]
    pub fn spacing(&self) -> Spacing {
        self.map.spacing()
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

    /// The memory node a page belongs to.
    #[inline]
    #[must_use]
    pub fn node_of(&self, pfn: Pfn) -> NodeId {
        self.zone_of(pfn).node()
    }

    /// The head of the live slab or run that holds a page; `None` if the page is free, or inside a
    /// run longer than [`TAILS_MAX`].
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

    /// Makes every page of a block longer than [`TAILS_MAX`] known to [`PageAllocator::head_of`]; of
    /// shorter ones they are.
    pub fn name_tails(&self, pfn: Pfn, pages: PageCount) {
        if pages.0 > TAILS_MAX {
            self.descriptor(pfn).pages.store(1, Relaxed);
            name_tails(&self.map, pfn, pages);
            self.descriptor(pfn).pages.store(pages.0 as u32, Relaxed);
        }
    }

    /// Whether a free block of the largest order starts at `pfn` of which nothing is resident.
    #[must_use]
    pub fn is_whole(&self, pfn: Pfn) -> bool {
        self.map.whole().has(pfn)
    }

    // ---- blocks and runs ----------------------------------------------------------------

    /// A block of 2^order pages, near `node`; its head says `Run`, its tails name it.
    #[inline]
    #[must_use]
    pub fn alloc_block(&self, order: Order, node: NodeId) -> Option<Block> {
        match self.keeps(order) {
            true => self.alloc_near(node, |zone| self.alloc_small(zone, order)),
            false => self.alloc_near(node, |zone| zone.alloc(&self.map, order.pages())),
        }
    }

    /// From the zone near `node`, or from another where that one is low or has nothing.
    #[inline]
    fn alloc_near(&self, node: NodeId, from: impl Fn(&Zone<P>) -> Option<Block>) -> Option<Block> {
        let near = self.zone_at(self.zone_near(node));
        let suits = self.zone_count == 1 || !near.is_low();
        let block = if suits { from(near) } else { None };
        match block {
            Some(_) => block,
            None => self.alloc_anywhere(node, from),
        }
    }

    /// Frees a block.
    ///
    /// # Safety
    /// 1. `pfn` heads a live block of `order` of this allocator, given up by its owner.
    #[inline]
    pub unsafe fn free_block(&self, pfn: Pfn, order: Order) {
        let zone = self.zone_of(pfn);
        // SAFETY: obligation 1.
        if self.keeps(order) && unsafe { zone.free_cached(&self.map, P::current_cpu(), pfn, order) }
        {
            return;
        }
        // SAFETY: obligation 1; the pageset did not take the block.
        unsafe { zone.free_pages(&self.map, pfn, order.pages()) };
    }

    /// A run of exactly `pages` pages near `node`, aligned to the next power of two; `None` also
    /// for zero pages and for more than a block of the largest order.
    #[inline]
    #[must_use]
    pub fn alloc_run(&self, pages: PageCount, node: NodeId) -> Option<Block> {
        if pages.0 == 0 || pages.0 > Order::MAX.pages().0 {
            return None;
        }
        match as_block(pages) {
            Some(order) if self.keeps(order) => self.alloc_block(order, node),
            _ => self.alloc_near(node, |zone| zone.alloc(&self.map, pages)),
        }
    }

    /// Frees a run.
    ///
    /// # Safety
    /// 1. `pfn` heads a live run of `pages` pages of this allocator, given up by its owner.
    #[inline]
    pub unsafe fn free_run(&self, pfn: Pfn, pages: PageCount) {
        match as_block(pages) {
            Some(order) if self.keeps(order) && pfn.0 % pages.0 as u32 == 0 => {
                // SAFETY: obligation 1; the run is an aligned block.
                unsafe { self.free_block(pfn, order) }
            }
            // SAFETY: obligation 1.
            _ => unsafe { self.zone_of(pfn).free_pages(&self.map, pfn, pages) },
        }
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

    /// Lets some pages inside a live block go back to the system with `extents`: page `i` where bit `i` of
    /// `holes` is set. They stay usable and read as zero.
    ///
    /// # Safety
    /// 1. The pages belong to the live block headed by `pfn`, and its owner gave up their
    ///    contents, and uses them again only after `extents` are gone.
    pub unsafe fn punch_holes(&self, pfn: Pfn, holes: u32, extents: &mut Extents<P>) {
        each_run(holes, |first, len| {
            let bytes = PageCount(len).bytes(self.page_size());
            // SAFETY: obligation 1: committed pages whose contents nobody needs.
            unsafe { extents.push(self.address(pfn.plus(PageCount(first))), bytes) };
            self.hole_bytes.fetch_add(bytes as u64, Relaxed);
        });
        self.zone_of(pfn).add_holes(holes.count_ones() as usize);
    }

    /// Notes that the holes of a live block may be used from now on.
    pub fn fill_holes(&self, pfn: Pfn, holes: u32) {
        self.zone_of(pfn).remove_holes(holes.count_ones() as usize);
    }

    /// Frees a block whose holes nobody used since they were punched.
    ///
    /// # Safety
    /// 1. As for [`PageAllocator::free_run`]; `holes` are those of `punch_holes`.
    pub unsafe fn free_with_holes(&self, pfn: Pfn, pages: PageCount, holes: u32) {
        let zone = self.zone_of(pfn);
        zone.remove_holes(holes.count_ones() as usize);
        // SAFETY: obligation 1.
        unsafe { zone.free_with_holes(&self.map, pfn, pages, holes) };
    }

    /// Pages inside live blocks that are given back now.
    #[must_use]
    pub fn holes(&self) -> PageCount {
        PageCount(self.zones().map(Zone::holes).sum())
    }

    /// Zeroed memory for the allocator's own data: whole pages, never freed.
    #[must_use]
    pub fn alloc_own(&self, bytes: usize) -> Option<NonNull<u8>> {
        let pages = self.page_size().pages_for(bytes.max(1));
        let whole = pages.bytes(self.page_size());
        let memory = if pages > Order::MAX.pages() {
            P::reserve_whole(whole, self.page_size().bytes())?
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

    /// A small block from the CPU's pageset of a zone, or past it from the zone itself.
    #[inline]
    fn alloc_small(&self, zone: &Zone<P>, order: Order) -> Option<Block> {
        zone.alloc_cached(&self.map, P::current_cpu(), order)
            .or_else(|| zone.alloc(&self.map, order.pages()))
    }

    /// From the zone near `node` if it is not low, else from the first that is not, else from
    /// any; at last with what other CPUs' pagesets hold.
    #[cold]
    #[inline(never)]
    fn alloc_anywhere(
        &self,
        node: NodeId,
        from: impl Fn(&Zone<P>) -> Option<Block>,
    ) -> Option<Block> {
        let first = self.zone_near(node);
        let in_turn =
            || (0..self.zone_count).map(|step| self.zone_at((first + step) % self.zone_count));
        let found = in_turn()
            .filter(|zone| !zone.is_low())
            .find_map(&from)
            .or_else(|| in_turn().find_map(&from));
        found.or_else(|| {
            self.drain_pagesets();
            in_turn().find_map(&from)
        })
    }

    // ---- zones --------------------------------------------------------------------------

    /// Whether pagesets keep blocks of `order`.
    #[inline]
    fn keeps(&self, order: Order) -> bool {
        order <= self.cached_order
    }

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
    pub(crate) fn zones(&self) -> impl Iterator<Item = &Zone<P>> {
        (0..self.zone_count).map(|index| self.zone_at(index))
    }

    /// What all stores of free memory may hold together.
    #[inline]
    #[must_use]
    pub fn budget(&self) -> &Budget {
        self.map.budget()
    }

    /// The memmap.
    #[inline]
    #[must_use]
    pub fn memmap(&self) -> &Memmap {
        &self.map
    }
}

/// The order of a run that is a whole block.
#[inline]
fn as_block(pages: PageCount) -> Option<Order> {
    Order::new(pages.0.trailing_zeros()).filter(|order| order.pages() == pages)
}

#[cfg(test)]
#[path = "allocator_tests.rs"]
pub(crate) mod tests;

#[cfg(test)]
#[path = "program_tests.rs"]
mod programs;
