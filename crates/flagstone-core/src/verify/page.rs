//! Checks of the page layer: every page has one owner, and all counts add up.
//!
//! ```text
//!   walk   start ─► head ─► head ─► ... ─► frontier      blocks tile the zone without gaps
//!   lists  free areas, pagesets, deferred and parked     every free block is on exactly one
//!   sums   what the walk found = what the lists hold = what the zone says
//! ```
//!
//! The layer must be at rest: no other thread is inside it while a check walks.

use crate::base::{CpuId, Order, PageCount, Pfn};
use crate::page::buddy::{FreeAreas, TAILS_MAX};
use crate::page::zone::Zone;
use crate::page::{Memmap, ORDERS, PageAllocator, PageKind, Pagesets, flag};

use crate::sync::Ordering::Relaxed;

/// The first broken rule a check found, and where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Broken {
    /// The invariant's name.
    pub rule: &'static str,
    /// The page it was seen at, if one.
    pub pfn: Pfn,
}

type Checked = Result<(), Broken>;

fn ensure(holds: bool, rule: &'static str, pfn: Pfn) -> Checked {
    holds.then_some(()).ok_or(Broken { rule, pfn })
}

/// What a walk over one zone found.
#[derive(Default)]
struct Found {
    blocks: [[u32; ORDERS]; 2],
    free: usize,
    resident: usize,
    cached: usize,
    parked: usize,
    live: usize,
    bare_pages: usize,
    idle: usize,
    gone: usize,
}

/// Checks every zone, list and count of the page layer.
///
/// # Errors
/// The first broken invariant.
pub fn check_pages<P: Pagesets>(pages: &PageAllocator<P>) -> Checked {
    pages.zones().try_for_each(|zone| check_zone(pages, zone))
}

fn check_zone<P: Pagesets>(pages: &PageAllocator<P>, zone: &Zone<P>) -> Checked {
    let map = pages.memmap();
    let found = walk(pages, zone)?;
    let mut cached = 0;
    for cpu in (0..P::cpu_count()).map(CpuId) {
        cached += check_pageset(map, zone, cpu)?;
    }
    ensure(cached == found.cached, "pageset.count", Pfn::NONE)?;
    let deferred = deferred_pages(map, zone)?;
    let Some(core) = zone.lock(map) else {
        // Called on top of the lock's holder: not at rest, nothing can be said.
        return Ok(());
    };
    check_areas(map, &core.areas, &found)?;
    ensure(
        !core.releasing && core.parked.is_empty(),
        "zone.parked",
        core.parked.head(),
    )?;
    ensure(core.parked_pages == 0, "zone.parked", Pfn::NONE)?;
    // Taking the lock has freed what was deferred.
    let free = core.areas.pages();
    ensure(free == found.free + deferred, "zone.counts", Pfn::NONE)?;
    ensure(found.parked == deferred, "zone.parked", Pfn::NONE)?;
    let used = zone.used(&core);
    ensure(used == found.live + found.cached, "zone.counts", Pfn::NONE)?;
    ensure(
        deferred != 0 || zone.in_use() == used,
        "zone.published",
        Pfn::NONE,
    )?;
    let frontier = core.areas.frontier();
    ensure(zone.frontier() == frontier, "zone.published", frontier)?;
    ensure(
        frontier <= core.committed && core.committed <= zone.end(),
        "zone.frontier",
        frontier,
    )
}

/// Steps from head to head through everything below the frontier.
fn walk<P: Pagesets>(pages: &PageAllocator<P>, zone: &Zone<P>) -> Result<Found, Broken> {
    let map = pages.memmap();
    let mut found = Found::default();
    let mut pfn = zone.start();
    while pfn < zone.frontier() {
        let page = map.descriptor(pfn);
        if map.whole().has(pfn) {
            pfn = check_whole(map, pfn, &mut found)?;
            continue;
        }
        let by_order = page.order().pages().0;
        let length = match page.kind() {
            PageKind::Buddy => {
                check_free(map, zone, pfn, &mut found)?;
                by_order
            }
            PageKind::Pageset => {
                found.cached += by_order;
                ensure(aligned(pfn, page.order()), "pageset.owned", pfn)?;
                by_order
            }
            PageKind::Slab | PageKind::Run => {
                let length = page.pages.load(Relaxed) as usize;
                found.live += length;
                ensure(
                    page.node().index() == zone_index(pages, zone),
                    "page.node",
                    pfn,
                )?;
                check_live(pages, pfn, length)?;
                length
            }
            PageKind::Parked => {
                let length = page.spare.load(Relaxed) as usize;
                found.parked += length;
                length
            }
            PageKind::Tail | PageKind::Unused => {
                return Err(Broken {
                    rule: "page.one-owner",
                    pfn,
                });
            }
        };
        ensure(length > 0, "page.one-owner", pfn)?;
        check_tails(map, pfn, length)?;
        pfn = pfn.plus(PageCount(length));
    }
    ensure(pfn == zone.frontier(), "page.one-owner", pfn)?;
    Ok(found)
}

/// A block of the largest order with a bit; answers where the next block starts.
fn check_whole(map: &Memmap, pfn: Pfn, found: &mut Found) -> Result<Pfn, Broken> {
    let whole = map.whole();
    let (idle, gone) = (whole.idle.has(pfn), whole.gone.has(pfn));
    let unlisted = map.descriptor(pfn).kind() == PageKind::Unused;
    ensure(
        idle != gone && !whole.parked.has(pfn) && unlisted,
        "whole.alone",
        pfn,
    )?;
    let resident = map.resident().any(pfn, Order::MAX.pages());
    ensure(!resident, "buddy.released", pfn)?;
    if gone {
        found.gone += Order::MAX.pages().0;
    } else {
        found.blocks[1][Order::MAX.get() as usize] += 1;
        found.free += Order::MAX.pages().0;
        found.idle += 1;
    }
    Ok(pfn.plus(Order::MAX.pages()))
}

fn check_free<P: Pagesets>(map: &Memmap, zone: &Zone<P>, pfn: Pfn, found: &mut Found) -> Checked {
    let page = map.descriptor(pfn);
    let order = page.order();
    ensure(aligned(pfn, order), "buddy.aligned", pfn)?;
    let resident = map.resident().count(pfn, order.pages());
    let released = page.has(flag::RELEASED);
    ensure(released == (resident == 0), "buddy.released", pfn)?;
    found.blocks[usize::from(released)][order.get() as usize] += 1;
    found.free += order.pages().0;
    found.resident += resident;
    if page.has(flag::BARE) {
        let unclaimed = released && page.pages.load(Relaxed) == 1;
        ensure(unclaimed, "buddy.bare", pfn)?;
        found.bare_pages += order.pages().0;
    }
    let buddy = pfn.buddy(order);
    let inside = buddy >= zone.start() && buddy.plus(order.pages()) <= zone.frontier();
    if order == Order::MAX || !inside {
        return Ok(());
    }
    let other = map.descriptor(buddy);
    let pair = other.kind() == PageKind::Buddy && other.order() == order;
    ensure(!pair, "buddy.no-free-buddy-pair", pfn)
}

/// Every page of a live block that is not too long finds its head.
fn check_live<P: Pagesets>(pages: &PageAllocator<P>, pfn: Pfn, length: usize) -> Checked {
    let known = if length > TAILS_MAX { 1 } else { length };
    for distance in 0..known {
        let at = pfn.plus(PageCount(distance));
        ensure(pages.head_of(at) == Some(pfn), "page.head-known", at)?;
    }
    Ok(())
}

/// The tails a head claims to have name it, and it claims no more than its block.
fn check_tails(map: &Memmap, pfn: Pfn, length: usize) -> Checked {
    let claimed = map.descriptor(pfn).pages.load(Relaxed) as usize;
    ensure(0 < claimed && claimed <= length, "page.tails", pfn)?;
    let kind = map.descriptor(pfn).kind();
    if claimed > TAILS_MAX && matches!(kind, PageKind::Run | PageKind::Parked) {
        return Ok(());
    }
    for distance in 1..claimed {
        let at = pfn.plus(PageCount(distance));
        let tail = map.descriptor(at);
        let named = tail.kind() == PageKind::Tail && tail.pages.load(Relaxed) as usize == distance;
        ensure(named, "page.tails", at)?;
    }
    Ok(())
}

fn check_areas(map: &Memmap, areas: &FreeAreas, found: &Found) -> Checked {
    for released in [false, true] {
        for index in 0..ORDERS {
            let order = Order::new(index as u32).unwrap_or(Order::ZERO);
            let list = areas.list(order, released);
            let mut before = Pfn::NONE;
            let mut blocks = 0;
            for pfn in list.iter(map) {
                let page = map.descriptor(pfn);
                let owned = page.kind() == PageKind::Buddy
                    && page.order() == order
                    && page.has(flag::RELEASED) == released;
                ensure(owned, "page.one-owner", pfn)?;
                ensure(page.prev.load(Relaxed) == before.0, "list.linked", pfn)?;
                let after_bare = before.is_some() && map.descriptor(before).has(flag::BARE);
                ensure(!after_bare || page.has(flag::BARE), "buddy.bare", pfn)?;
                before = pfn;
                blocks += 1;
            }
            ensure(list.tail() == before, "list.linked", before)?;
            let whole = released && order == Order::MAX;
            let idle = if whole { areas.idle_blocks() as u32 } else { 0 };
            ensure(
                blocks + idle == areas.count(order, released),
                "buddy.counts",
                before,
            )?;
            let masked = areas.mask(released) & (1 << index) != 0;
            ensure(masked == (blocks > 0), "buddy.counts", before)?;
            // Blocks deferred when the walk went by are free only now.
            let walked = found.blocks[usize::from(released)][index];
            ensure(
                blocks + idle == walked || found.parked > 0,
                "buddy.counts",
                before,
            )?;
        }
    }
    ensure(areas.gone_pages() == found.gone, "zone.counts", Pfn::NONE)?;
    ensure(areas.idle_blocks() == found.idle, "whole.alone", Pfn::NONE)?;
    let bare = areas.bare_pages() == found.bare_pages;
    ensure(bare || found.parked > 0, "buddy.bare", Pfn::NONE)?;
    let settled = found.parked > 0;
    ensure(
        settled || areas.resident() == found.resident,
        "zone.counts",
        Pfn::NONE,
    )
}

fn check_pageset<P: Pagesets>(map: &Memmap, zone: &Zone<P>, cpu: CpuId) -> Result<usize, Broken> {
    let mut pages = 0;
    let mut verdict = Ok(());
    let count = zone.each_cached(map, cpu, |pfn, index| {
        let page = map.descriptor(pfn);
        pages += 1 << index;
        let owned = page.kind() == PageKind::Pageset && page.order().get() as usize == index;
        let untouched = !page.has(flag::RELEASED) || !map.resident().any(pfn, page.order().pages());
        if verdict.is_ok() {
            verdict = ensure(owned && untouched, "pageset.owned", pfn);
        }
    });
    verdict?;
    ensure(pages == count as usize, "pageset.count", Pfn::NONE)?;
    Ok(pages)
}

fn deferred_pages<P: Pagesets>(map: &Memmap, zone: &Zone<P>) -> Result<usize, Broken> {
    let mut pages = 0;
    for pfn in zone.deferred().heads(map) {
        let page = map.descriptor(pfn);
        ensure(page.kind() == PageKind::Parked, "zone.parked", pfn)?;
        pages += page.spare.load(Relaxed) as usize;
    }
    Ok(pages)
}

fn aligned(pfn: Pfn, order: Order) -> bool {
    pfn.0.trailing_zeros() >= order.get()
}

fn zone_index<P: Pagesets>(pages: &PageAllocator<P>, zone: &Zone<P>) -> usize {
    pages
        .zones()
        .position(|other| core::ptr::eq(other, zone))
        .unwrap_or(usize::MAX)
}
