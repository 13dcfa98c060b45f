//! What a kernel's events tell of its slabs, and what follows from that.
//!
//! ```text
//!   objects ─ address ─► page ─ less the direct map's offset ─► page frame ─► was it handed out or given back?
//!
//!   a page given back ........ every object on it is free: frees without an event
//!   an older page, first seen  by an allocation: the object was free at the beginning; by a free: in use
//!   a page of the trace ...... a free of an unknown object: it was allocated in bulk
//! ```
//!
//! Kernels map all memory in one piece, so that an object's page less its page frame is the same number for
//! all objects. [`Offset`] finds that number where addresses are plain. Without it pages tell nothing, and an
//! allocation at an address in use is the only sign of a free without an event.
//!
//! A free without an event lies somewhere between its object's allocation and the event that shows it. It is
//! put in the middle: at its earliest the recorded kernel would have had more free objects than it had, at its
//! latest fewer.

use crate::{Error, LIVE_MAX};
use flagstone_trace::header::Level;
use flagstone_trace::index::StreamId;
use flagstone_trace::{Event, Request};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Bits of an address within a page, as far as slabs go: no slab is smaller.
pub const PAGE_SHIFT: u32 = 12;

/// The highest order of a block that is looked at: the buddy system's own.
const ORDER_MAX: u8 = 10;

/// The highest page that an address has: more, and the recording lies.
const PAGES: u64 = u64::MAX >> PAGE_SHIFT;

/// The most objects of a slab that are believed: the smallest ones of the largest slab there is.
const OBJECTS_MAX: u32 = 1 << 13;

/// Pages of a direct map's alignment: 1 GiB, on x86 and arm64 alike.
const ALIGNED: u64 = 1 << 18;

/// The offset of the direct map, by votes: an object soon after a block of pages often lies on it.
#[derive(Default)]
pub struct Offset {
    blocks: HashMap<u32, (u64, u8)>,
    votes: HashMap<u64, u32>,
}

/// Votes that are kept apart, and how many the winner needs.
const VOTES_MAX: usize = 1024;
const ENOUGH: u32 = 3;

impl Offset {
    /// A block of pages on a CPU.
    pub fn pages(&mut self, cpu: u32, pfn: u64, order: u8) {
        self.blocks.insert(cpu, (pfn, order.min(ORDER_MAX)));
    }

    /// An object on that CPU.
    pub fn object(&mut self, cpu: u32, address: u64) {
        let Some(&(pfn, order)) = self.blocks.get(&cpu) else {
            return;
        };
        let apart = (address >> PAGE_SHIFT).wrapping_sub(pfn);
        if apart % ALIGNED < 1 << order && self.votes.len() < VOTES_MAX {
            *self.votes.entry(apart - apart % ALIGNED).or_default() += 1;
        }
    }

    /// The number of pages between an object's page and its page frame, if most votes agree.
    pub fn found(&self) -> Option<u64> {
        let all: u32 = self.votes.values().sum();
        let (apart, most) = self.votes.iter().max_by_key(|(_, votes)| **votes)?;
        (*most >= ENOUGH && *most > all / 2).then_some(*apart)
    }
}

/// How a cache cuts its slabs, as /proc/slabinfo says; zeroes if nobody looked.
#[derive(Clone, Copy, Default, Debug)]
pub struct Shape {
    pub object_size: u64,
    pub objects: u32,
    pub pages: u32,
    /// What it held when the recording began and ended.
    pub levels: Option<(Level, Level)>,
}

/// An event that the recording does not have.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Insert {
    pub ns: u64,
    pub stream: StreamId,
    pub event: Event,
}

/// What is known of the pages and the objects on them, while the recording is read once.
#[derive(Default)]
pub struct Slabs {
    apart: Option<u64>,
    /// Objects of the trace that live, since when, and whose allocation it was.
    live: BTreeMap<u64, (u64, StreamId)>,
    /// The cache of a page.
    caches: BTreeMap<u64, u32>,
    /// Addresses of which an event told.
    told: HashSet<u64>,
    /// Blocks of pages that were handed out or given back in the trace, by their first page.
    blocks: HashMap<u64, u8>,
    /// Pages with objects that stood when the trace began.
    older: BTreeMap<u64, Page>,
    /// Those that were given back since.
    gone: Vec<(u64, Page)>,
    /// The page of a CPU's last allocation from a cache.
    last: HashMap<(u32, StreamId), u64>,
    /// Events to be put in, in no order.
    inserts: Vec<Insert>,
    /// The last event's time.
    now: u64,
    pub counts: Counts,
}

/// What was inferred.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Frees shown by an allocation at the same address.
    pub reused: u64,
    /// Frees shown by a page that was given back.
    pub emptied: u64,
    /// Frees shown by nothing but what /proc/slabinfo says at the end.
    pub excess: u64,
    /// Allocations shown by a free.
    pub bulk: u64,
    /// Frees of objects whose cache nothing tells.
    pub unknown: u64,
    /// Objects that were there when the trace began, of the slabs that it tells of.
    pub older: u64,
}

/// A page that stood when the trace began.
#[derive(Default)]
struct Page {
    cache: u32,
    used: Vec<u64>,
    free: Vec<u64>,
    /// The first allocation on it, and whose it was.
    taken: Option<(u64, StreamId)>,
    /// The first event's stream.
    stream: Option<StreamId>,
}

impl Slabs {
    pub fn new(apart: Option<u64>) -> Self {
        Self {
            apart,
            ..Self::default()
        }
    }

    /// Whether a page was handed out or given back since the trace began.
    fn is_of_trace(&self, page: u64) -> bool {
        self.apart.is_some()
            && (0..=ORDER_MAX).any(|order| {
                let first = page & !((1 << order) - 1);
                self.blocks.get(&first).is_some_and(|of| *of >= order)
            })
    }

    fn missing(&mut self, ns: u64, stream: StreamId, event: Event) {
        self.inserts.push(Insert { ns, stream, event });
    }

    /// A free without an event, between `since` and `shown`.
    fn silent(&mut self, address: u64, since: u64, shown: u64, stream: StreamId) {
        let ns = (since + shown.saturating_sub(since) / 2).max(since.saturating_add(1).min(shown));
        self.missing(ns, stream, Event::Free { address });
    }

    pub fn alloc(&mut self, ns: u64, stream: StreamId, address: u64, cache: u32) {
        let page = address >> PAGE_SHIFT;
        if cache > 0 {
            self.caches.insert(page, cache);
            self.last.insert((cache, stream), page);
        }
        let first = self.told.insert(address);
        self.now = self.now.max(ns);
        if let Some((since, _)) = self.live.insert(address, (ns, stream)) {
            self.counts.reused += 1;
            self.silent(address, since, ns, stream);
        } else if first && !self.is_of_trace(page) {
            let older = self.older.entry(page).or_default();
            older.cache = older.cache.max(cache);
            older.free.push(address);
            older.taken.get_or_insert((ns, stream));
            older.stream.get_or_insert(stream);
        }
    }

    /// A free; `cache` is zero where its event names none.
    pub fn free(&mut self, ns: u64, stream: StreamId, address: u64, cache: u32) {
        self.now = self.now.max(ns);
        let page = address >> PAGE_SHIFT;
        if cache > 0 {
            self.caches.insert(page, cache);
        }
        let first = self.told.insert(address);
        if self.live.remove(&address).is_some() {
            return;
        }
        if first && !self.is_of_trace(page) {
            let older = self.older.entry(page).or_default();
            older.cache = older.cache.max(cache);
            older.used.push(address);
            older.stream.get_or_insert(stream);
            return;
        }
        // It was freed before, or its slab is younger than the trace.
        match self.caches.get(&page) {
            Some(&site) => {
                self.counts.bulk += 1;
                let request = Request {
                    site,
                    ..Request::default()
                };
                let event = Event::Alloc { address, request };
                self.missing(ns.saturating_sub(1), stream, event);
            }
            None => self.counts.unknown += 1,
        }
    }

    /// Pages are handed out, or given back.
    pub fn pages(&mut self, ns: u64, stream: StreamId, pfn: u64, order: u8, given_back: bool) {
        let Some(apart) = self.apart else { return };
        let order = order.min(ORDER_MAX);
        let page = pfn.wrapping_add(apart) & PAGES;
        self.blocks.insert(page, order);
        if !given_back {
            return;
        }
        let pages = page..=(page + (1 << order) - 1).min(PAGES);
        let last = pages.end() << PAGE_SHIFT | ((1 << PAGE_SHIFT) - 1);
        let addresses = pages.start() << PAGE_SHIFT..=last;
        let emptied: Vec<(u64, u64)> = self
            .live
            .range(addresses)
            .map(|(at, (since, _))| (*at, *since))
            .collect();
        for (address, since) in emptied {
            self.live.remove(&address);
            self.counts.emptied += 1;
            self.silent(address, since, ns, stream);
        }
        let older: Vec<u64> = self.older.range(pages.clone()).map(|(at, _)| *at).collect();
        for page in older {
            if let Some(mut older) = self.older.remove(&page) {
                let cache = self.caches.get(&page).copied().unwrap_or(0);
                older.cache = older.cache.max(cache);
                self.gone.push((page, older));
            }
        }
        let named: Vec<u64> = self.caches.range(pages).map(|(at, _)| *at).collect();
        for page in named {
            self.caches.remove(&page);
        }
    }

    /// Refuses more than memory is taken for.
    pub fn checked(&self) -> Result<(), Error> {
        let most = [
            self.told.len(),
            self.blocks.len(),
            self.inserts.len(),
            self.caches.len(),
        ];
        match most.into_iter().any(|len| len > LIVE_MAX) {
            true => Err(Error::Foreign(format!(
                "more than {LIVE_MAX} objects; record for a shorter time"
            ))),
            false => Ok(()),
        }
    }

    /// What is to be put into the trace: at its beginning, and between its events, oldest first. `shapes` has
    /// a place for each cache.
    pub fn finish(mut self, shapes: &[Shape]) -> Finished {
        let caches = std::mem::take(&mut self.caches);
        let mut pages = std::mem::take(&mut self.gone);
        let gone = pages.len();
        pages.extend(std::mem::take(&mut self.older));
        let shape = |cache: u32| match cache.checked_sub(1) {
            Some(at) => shapes.get(at as usize).copied().unwrap_or_default(),
            None => Shape::default(),
        };
        let first_of = |page: u64, pages: u32| page - page % u64::from(pages.max(1));
        for (at, (page, older)) in pages.iter_mut().enumerate() {
            if older.cache == 0 && at >= gone {
                older.cache = caches.get(page).copied().unwrap_or(0);
            }
        }
        // A page without a name has that of its slab's other pages.
        let named: HashMap<u64, u32> = pages
            .iter()
            .filter(|(_, older)| older.cache > 0)
            .map(|(page, older)| (first_of(*page, shape(older.cache).pages), older.cache))
            .collect();
        let mut slabs: BTreeMap<(u32, u64), Slab> = BTreeMap::new();
        for (at, (page, mut older)) in pages.into_iter().enumerate() {
            for order in 0..=3 {
                let first = first_of(page, 1 << order);
                if let Some(cache) = named.get(&first)
                    && older.cache == 0
                    && shape(*cache).pages == 1 << order
                {
                    older.cache = *cache;
                }
            }
            if older.cache == 0 {
                self.counts.unknown += older.used.len() as u64;
                continue;
            }
            let first = first_of(page, shape(older.cache).pages);
            let slab = slabs.entry((older.cache, first)).or_default();
            slab.gone |= at < gone;
            slab.add(older);
        }
        for ((cache, _), page) in &self.last {
            let first = first_of(*page, shape(*cache).pages);
            if let Some(slab) = slabs.get_mut(&(*cache, first)) {
                slab.open = true;
            }
        }
        let mut used: HashMap<u32, u64> = HashMap::new();
        for ((cache, _), slab) in &slabs {
            *used.entry(*cache).or_default() += slab.page.used.len() as u64;
        }
        let start = start(slabs, shape);
        self.level(&caches, &start, &used, shape);
        self.inserts.sort_by_key(|insert| insert.ns);
        self.counts.older = start.iter().map(|slab| slab.objects.len() as u64).sum();
        Finished {
            start,
            inserts: self.inserts,
            counts: self.counts,
        }
    }
}

impl Slabs {
    /// Frees that nothing shows but the end: a cache of which more objects live by the trace than the kernel had in
    /// use. Which of them were freed is not known: they are taken evenly from the order in which they were made.
    fn level(
        &mut self,
        pages: &BTreeMap<u64, u32>,
        start: &[StartSlab],
        used: &HashMap<u32, u64>,
        shape: impl Fn(u32) -> Shape,
    ) {
        let mut older: HashMap<u32, (u64, u64)> = HashMap::new();
        for slab in start {
            let (objects, free) = older.entry(slab.cache).or_default();
            *objects += slab.objects.len() as u64;
            *free += slab.free.len() as u64;
        }
        let mut young: BTreeMap<u32, Vec<(u64, u64, StreamId)>> = BTreeMap::new();
        for (&address, &(since, stream)) in &self.live {
            if let Some(&cache) = pages.get(&(address >> PAGE_SHIFT)) {
                young
                    .entry(cache)
                    .or_default()
                    .push((since, address, stream));
            }
        }
        for (cache, mut young) in young {
            let Some((before, after)) = shape(cache).levels else {
                continue;
            };
            let (objects, free) = older.get(&cache).copied().unwrap_or_default();
            // Of slabs without events, and of those with: what is never freed.
            let elsewhere = before.objects.saturating_sub(objects);
            let free_before = before.objects.saturating_sub(before.active);
            let elsewhere = elsewhere.saturating_sub(free_before.saturating_sub(free));
            let kept = objects.saturating_sub(free);
            let kept = kept.saturating_sub(used.get(&cache).copied().unwrap_or(0));
            let all = elsewhere
                .saturating_add(kept)
                .saturating_add(young.len() as u64);
            let excess = all.saturating_sub(after.active).min(young.len() as u64) as usize;
            young.sort_unstable();
            for at in 0..excess {
                let (since, address, stream) = young[at * young.len() / excess];
                self.silent(address, since, self.now, stream);
            }
            self.counts.excess += excess as u64;
        }
    }
}

/// What [`Slabs`] found.
pub struct Finished {
    pub start: Vec<StartSlab>,
    pub inserts: Vec<Insert>,
    pub counts: Counts,
}

/// A slab that stood when the trace began, in the order in which they are made.
pub struct StartSlab {
    pub cache: u32,
    pub stream: StreamId,
    pub objects: Vec<u64>,
    /// Those that are free.
    pub free: Vec<u64>,
}

#[derive(Default)]
struct Slab {
    page: Page,
    /// It was given back whole.
    gone: bool,
    /// A CPU still allocated from it when the trace ended.
    open: bool,
}

impl Slab {
    fn add(&mut self, other: Page) {
        self.page.used.extend(other.used);
        self.page.free.extend(other.free);
        self.page.taken = match (self.page.taken, other.taken) {
            (Some(a), Some(b)) => Some(if a.0 <= b.0 { a } else { b }),
            (a, b) => a.or(b),
        };
        self.page.stream = self.page.stream.or(other.stream);
    }
}

/// Slabs of each cache and CPU in turn: last those from which objects were taken first, so that they are at
/// hand when the trace begins.
fn start(slabs: BTreeMap<(u32, u64), Slab>, shape: impl Fn(u32) -> Shape) -> Vec<StartSlab> {
    let mut slabs: Vec<((u32, u64), Slab)> = slabs.into_iter().collect();
    slabs.sort_by_key(|((cache, page), slab)| {
        let owner = slab.page.taken.map(|(_, stream)| stream);
        let taken = slab.page.taken.map_or(u64::MAX, |(ns, _)| ns);
        (
            *cache,
            owner.or(slab.page.stream),
            core::cmp::Reverse(taken),
            *page,
        )
    });
    let made = slabs.into_iter().filter_map(|((cache, page), slab)| {
        let shape = shape(cache);
        let mut objects = slab.page.used;
        let mut free = slab.page.free;
        if !(1..=OBJECTS_MAX).contains(&shape.objects) || shape.pages == 0 {
            // Nobody looked at the cache: what was free is not known to be on a slab.
            free.clear();
        } else {
            let known: HashSet<u64> = objects.iter().chain(&free).copied().collect();
            let others = u64::from(shape.objects).saturating_sub(known.len() as u64);
            let base = page << PAGE_SHIFT;
            let unseen = (0..u64::from(shape.objects))
                .map(|at| base.wrapping_add(at.wrapping_mul(shape.object_size)))
                .filter(|address| !known.contains(address))
                .take(others as usize);
            // No event tells of these. They were free if the slab was given back, or if a CPU that had it
            // at last did not use it up.
            match slab.gone || slab.open {
                true => free.extend(unseen),
                false => objects.extend(unseen),
            }
            objects.extend(&free);
        }
        let stream = slab.page.taken.map(|(_, stream)| stream);
        (!objects.is_empty()).then_some(StartSlab {
            cache,
            stream: stream.or(slab.page.stream)?,
            objects,
            free,
        })
    });
    made.collect()
}

#[cfg(test)]
#[path = "slabs_tests.rs"]
mod tests;
