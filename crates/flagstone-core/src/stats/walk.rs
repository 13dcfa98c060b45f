//! The walk over the memmap: what every page below a frontier is used for.
//!
//! ```text
//!   pfn  [ slab ........ ][ run ....... ][ free block ............ ][ slab ]    frontier
//!         by its length    by its length   by its order
//! ```
//!
//! Heads say how long their block is. A head that changes under the walk may give a length of
//! the past: then pages are met that head nothing, and counted as unplaced.

use super::cached::Cached;
use super::counts::CacheSurvey;
use super::ledger::{Ledger, Line};
use super::residency::PageBits;
use crate::base::{CacheId, Order, PageCount, Pfn};
use crate::page::{Descriptor, PageKind, flag};
use crate::platform::MAX_CACHES;
use crate::slab::{Engines, Slab, Slabs};
use crate::sync::Ordering::Relaxed;

/// Which pages are resident, and how many objects of each slab are cached.
type Known<'a, P> = (&'a PageBits<P>, &'a Cached<P>);

/// Counts every page below the frontiers.
pub(super) fn pages<P: Engines>(
    slabs: &Slabs<P>,
    known: Known<'_, P>,
    caches: &mut [CacheSurvey; MAX_CACHES],
    ledger: &mut Ledger,
) {
    heads(slabs, |at, head, length| {
        place(slabs, known, caches, ledger, at, head, length);
    });
}

/// Visits the head of every block below the frontiers, with the block's length.
pub(super) fn heads<P: Engines>(
    slabs: &Slabs<P>,
    mut visit: impl FnMut(Pfn, &Descriptor, PageCount),
) {
    for (start, end) in slabs.pages().used_spans() {
        let mut at = start;
        while at < end {
            let head = slabs.pages().descriptor(at);
            let left = (end.0 - at.0) as usize;
            let whole = slabs.pages().is_whole(at);
            let pages = if whole {
                Order::MAX.pages().0
            } else {
                length_of(head)
            };
            let length = PageCount(pages.clamp(1, left));
            visit(at, head, length);
            at = at.plus(length);
        }
    }
}

/// Pages of the block that `head` heads.
fn length_of(head: &Descriptor) -> usize {
    match head.kind() {
        PageKind::Buddy | PageKind::Pageset => head.order().pages().0,
        PageKind::Slab | PageKind::Run => head.pages.load(Relaxed) as usize,
        PageKind::Parked | PageKind::Unused | PageKind::Tail => 1,
    }
}

fn place<P: Engines>(
    slabs: &Slabs<P>,
    (bits, cached): Known<'_, P>,
    caches: &mut [CacheSurvey; MAX_CACHES],
    ledger: &mut Ledger,
    pfn: Pfn,
    head: &Descriptor,
    length: PageCount,
) {
    let page_size = P::page_size();
    let whole = length.bytes(page_size) as u64;
    let resident = PageCount(bits.count(pfn, length)).bytes(page_size) as u64;
    match head.kind() {
        PageKind::Unused if slabs.pages().is_whole(pfn) => ledger.released += whole,
        PageKind::Buddy => {
            ledger.add(Line::FreePages, resident);
            ledger.released += whole - resident;
        }
        PageKind::Pageset => {
            ledger.add(Line::Pagesets, resident);
            ledger.released += whole - resident;
        }
        PageKind::Run if head.has(flag::OWN) => ledger.add(Line::Own, resident),
        PageKind::Run => {
            let asked = (head.spare.load(Relaxed) as usize).min(whole as usize);
            let asked = bits.bytes_in(pfn, 0, asked) as u64;
            ledger.add(Line::Runs, asked);
            ledger.add(Line::RunRounding, resident - asked);
            ledger.untouched += whole - resident;
        }
        PageKind::Slab => {
            let Some(slab) = slab_at(slabs, pfn, head, length) else {
                return ledger.add(Line::Unplaced, resident);
            };
            let found = &mut caches[slab.cache.id().index()];
            count_slab(&slab, bits, cached.of(pfn), found);
            ledger.untouched += whole - resident;
        }
        PageKind::Parked | PageKind::Unused | PageKind::Tail => {
            ledger.add(Line::Unplaced, resident);
        }
    }
}

/// The slab that `head` heads; `None` if it changes under the walk.
pub(super) fn slab_at<'a, P: Engines>(
    slabs: &'a Slabs<P>,
    pfn: Pfn,
    head: &Descriptor,
    length: PageCount,
) -> Option<Slab<'a, P>> {
    let cache = slabs.live_cache(CacheId(head.cache.load(Relaxed)))?;
    // SAFETY: the head said it heads a slab of this cache. Should it stop being one now, what is
    // read are atomics of descriptors that stay where they are.
    (cache.geometry().pages() == length).then(|| unsafe { Slab::at(slabs, cache, pfn) })
}

/// Counts one slab's objects and divides its resident bytes among them.
fn count_slab<P: Engines>(
    slab: &Slab<'_, P>,
    bits: &PageBits<P>,
    cached: u32,
    found: &mut CacheSurvey,
) {
    let geometry = slab.cache.geometry();
    let objects = geometry.objects();
    let out = slab.state().inuse().min(objects);
    // Read after the state, which may have moved: objects out were handed out once.
    let fresh = slab.fresh().clamp(out, objects);
    let bytes = |from: usize, to: usize| bits.bytes_in(slab.pfn, from, to - from) as u64;
    let (used_end, end) = (geometry.offset_of(fresh), geometry.offset_of(objects));
    let used = bytes(0, used_end);
    let never_used = bytes(used_end, end);
    found.slabs += 1;
    found.tail_bytes += bytes(end, geometry.slab_bytes());
    if out == 0 {
        found.empty_slabs += 1;
        found.empty_bytes += used + never_used;
        return;
    }
    let free = freed_bytes(slab, bits, fresh, out, used, used_end as u64);
    found.out += u64::from(out);
    found.out_bytes += used - free;
    if cached >= out {
        found.pinned_slabs += 1;
        found.pinned_bytes += never_used + free;
    } else {
        found.partial_bytes += never_used + free;
    }
}

/// Resident bytes of the objects that were handed out once and are free again.
fn freed_bytes<P: Engines>(
    slab: &Slab<'_, P>,
    bits: &PageBits<P>,
    fresh: u32,
    out: u32,
    used: u64,
    used_end: u64,
) -> u64 {
    let size = slab.cache.geometry().size();
    let freed = fresh - out;
    if freed == 0 {
        return 0;
    }
    if used == used_end {
        // All resident: every object counts whole.
        return u64::from(freed) * size as u64;
    }
    if !slab.cache.geometry().links_aside() {
        // Small objects carry their link, so their pages are touched either way: by share.
        return used * u64::from(freed) / u64::from(fresh);
    }
    let sum: usize = (0..fresh)
        .filter(|&index| slab.links.is_free_aside(index))
        .map(|index| bits.bytes_in(slab.pfn, slab.cache.geometry().offset_of(index), size))
        .sum();
    (sum as u64).min(used)
}
