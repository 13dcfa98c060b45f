//! What the page layer says about itself, and where its own data lies.

use super::allocator::PageAllocator;
use super::buddy::ORDERS;
use super::memmap::Memmap;
use super::pageset::{PagesetCounters, Pagesets};
use super::zone::{Zone, ZoneCounters};
use crate::base::{CpuId, Order, Pfn};
use crate::policy::{Watermarks, ZoneFlags};
use crate::sync::Ordering::Acquire;
use core::ptr::NonNull;

/// One zone, or the sum of all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ZoneSnapshot {
    /// Pages the zone may ever hold.
    pub span_pages: usize,
    /// Pages below the frontier.
    pub frontier_pages: usize,
    /// Pages whose data and descriptors are committed.
    pub committed_pages: usize,
    /// Pages outside the free areas (those in pagesets included).
    pub in_use_pages: usize,
    /// Free pages in the free areas.
    pub free_pages: usize,
    /// Free pages that are resident, in the free areas.
    pub free_resident_pages: usize,
    /// Pages being given back at this moment.
    pub parked_pages: usize,
    /// Free blocks by order with a resident page.
    pub resident_blocks: [u32; ORDERS],
    /// Free blocks by order that are wholly given back or never used.
    pub released_blocks: [u32; ORDERS],
    /// Pages of long released blocks whose descriptors, but for the head's, are not resident.
    pub bare_pages: usize,
    /// How many such blocks there are.
    pub bare_blocks: usize,
    /// Free blocks of the largest order whose descriptors are not resident at all.
    pub idle_blocks: usize,
    /// Resident free pages the zone may keep.
    pub keep_pages: usize,
    /// Pages the zone counts as its own: its span, or its share of the memory limit.
    pub managed_pages: usize,
    /// Watermarks, in pages free of those.
    pub marks: Watermarks,
    /// Whether it fell below its high watermark.
    pub below_high: bool,
    /// What happened since the start.
    pub counters: ZoneCounters,
    /// Pages in its CPUs' pagesets.
    pub cached_pages: usize,
    /// Those of them that are resident.
    pub cached_resident_pages: usize,
    /// What happened in its CPUs' pagesets since the start.
    pub cached: PagesetCounters,
    /// Times a pageset's lock was held, so that the zone served.
    pub bypassed: u64,
}

/// The whole page layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PageSnapshot {
    /// Bytes in a page.
    pub page_bytes: usize,
    /// Number of zones.
    pub zones: usize,
    /// The sum of all zones.
    pub total: ZoneSnapshot,
    /// Bytes handed out by `alloc_own`.
    pub own_bytes: usize,
    /// Bytes of page map, resident bits and descriptors committed.
    pub memmap_bytes: usize,
    /// Those of them that may be resident: what describes pages below the frontiers, but for the
    /// descriptors given back.
    pub memmap_resident_bytes: usize,
    /// Bytes of zones and pagesets.
    pub control_bytes: usize,
    /// Bytes inside live blocks given back by `punch_holes`, in all.
    pub hole_bytes_total: u64,
}

impl ZoneSnapshot {
    /// A zone's figures; `None` on top of a lock's holder.
    pub(super) fn of<P: Pagesets>(zone: &Zone<P>, map: &Memmap) -> Option<Self> {
        let mut found = Self::of_areas(zone, map)?;
        for cpu in (0..zone.cpus).map(CpuId) {
            let set = zone.pageset_snapshot(map, cpu)?;
            found.cached_pages += set.count as usize;
            found.cached_resident_pages += set.resident as usize;
            found.cached.add(&set.counters);
            found.bypassed += zone.pageset(cpu).bypassed();
        }
        Some(found)
    }

    /// The figures of a zone's free areas alone.
    pub(super) fn of_areas<P: Pagesets>(zone: &Zone<P>, map: &Memmap) -> Option<Self> {
        let core = zone.lock(map)?;
        let blocks = |released: bool| {
            core::array::from_fn(|o| {
                Order::new(o as u32).map_or(0, |order| core.areas.count(order, released))
            })
        };
        Some(Self {
            span_pages: (zone.end().0 - zone.start().0) as usize,
            frontier_pages: (core.areas.frontier().0 - zone.start().0) as usize,
            committed_pages: (core.committed.0 - zone.start().0) as usize,
            in_use_pages: zone.used(&core),
            free_pages: core.areas.pages(),
            free_resident_pages: core.areas.resident(),
            parked_pages: core.parked_pages,
            resident_blocks: blocks(false),
            released_blocks: blocks(true),
            bare_pages: core.areas.bare_pages(),
            bare_blocks: core.areas.bare_blocks(),
            idle_blocks: core.areas.idle_blocks(),
            keep_pages: core.keep.bound(map.budget(), zone.live(&core)),
            managed_pages: zone.size().pages(),
            marks: zone.size().marks(),
            below_high: zone.flags().has(ZoneFlags::BELOW_HIGH),
            counters: core.counters,
            ..Self::default()
        })
    }

    /// Adds another zone's figures.
    pub fn add(&mut self, other: &Self) {
        self.span_pages += other.span_pages;
        self.frontier_pages += other.frontier_pages;
        self.committed_pages += other.committed_pages;
        self.in_use_pages += other.in_use_pages;
        self.free_pages += other.free_pages;
        self.free_resident_pages += other.free_resident_pages;
        self.parked_pages += other.parked_pages;
        for order in 0..ORDERS {
            self.resident_blocks[order] += other.resident_blocks[order];
            self.released_blocks[order] += other.released_blocks[order];
        }
        self.bare_pages += other.bare_pages;
        self.bare_blocks += other.bare_blocks;
        self.idle_blocks += other.idle_blocks;
        self.keep_pages = self.keep_pages.saturating_add(other.keep_pages);
        self.managed_pages += other.managed_pages;
        self.marks.min += other.marks.min;
        self.marks.low += other.marks.low;
        self.marks.high += other.marks.high;
        self.marks.promo += other.marks.promo;
        self.below_high |= other.below_high;
        self.counters.add(&other.counters);
        self.cached_pages += other.cached_pages;
        self.cached_resident_pages += other.cached_resident_pages;
        self.cached.add(&other.cached);
        self.bypassed += other.bypassed;
    }
}

impl ZoneCounters {
    /// Adds another zone's events.
    pub fn add(&mut self, other: &Self) {
        self.alloc_pages += other.alloc_pages;
        self.free_pages += other.free_pages;
        self.lock_waits += other.lock_waits;
        self.lock_takes += other.lock_takes;
        self.released_pages += other.released_pages;
        self.release_calls += other.release_calls;
        self.fresh_pages += other.fresh_pages;
        self.commit_calls += other.commit_calls;
    }
}

impl<P: Pagesets> PageAllocator<P> {
    /// For each zone its first page and its frontier: the pages that were ever used.
    pub fn used_spans(&self) -> impl Iterator<Item = (Pfn, Pfn)> {
        self.zones().map(|zone| (zone.start(), zone.frontier()))
    }

    /// Calls `visit` with the start and the bytes of every part that describes pages: page map,
    /// resident bits, and the descriptors below each zone's frontier.
    pub fn each_memmap_part(&self, mut visit: impl FnMut(NonNull<u8>, usize)) {
        let known = self.map_limit().load(Acquire) >> self.page_size().shift();
        visit(self.page_map(), known);
        visit(self.memmap().resident().base(), known / 8);
        for (start, end) in self.used_spans().filter(|(start, end)| start < end) {
            let first = NonNull::from(self.descriptor(start));
            let bytes = (end.0 - start.0) as usize * self.memmap().spacing().bytes();
            visit(first.cast(), bytes);
        }
    }

    /// The start and the bytes of the zones and pagesets: all that lies before the page map.
    #[must_use]
    pub fn control_part(&self) -> (NonNull<u8>, usize) {
        let end = self.page_map().addr().get();
        match self.zones().next() {
            Some(zone) => {
                let start = NonNull::from(zone).cast::<u8>();
                (start, end - start.addr().get())
            }
            None => (self.page_map(), 0),
        }
    }

    /// Calls `visit` with the addresses of the reservation's parts: control and memmap, and each
    /// zone's data as far as it was not given up.
    pub fn each_reserved_part(&self, mut visit: impl FnMut(usize, usize)) {
        let (control, _) = self.control_part();
        visit(control.addr().get(), self.base().addr().get());
        for zone in self.zones() {
            let [start, end] = [zone.start(), zone.end()].map(|pfn| self.address(pfn).addr().get());
            visit(start, end);
        }
    }
}
