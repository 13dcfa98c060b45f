//! How large a cache's sheaves are and how much its barns hold: both follow what is observed.
//!
//! ```text
//!   sheaf   first ─► quiet limit   slow-path visits in quick succession; at once where a third
//!                                  CPU begins by freeing what others allocated
//!           quiet ─► busy limit    the same, served by the barn: objects go round
//!                                  either while more objects are live than sheaves would hold,
//!                                  the first also while CPUs wait for the barn
//!           from the third CPU on each sheaf a few slots shorter than the next, so that CPUs
//!                                  that are served in turn do not come to the barn all at once
//!   barn    16 KiB, or a sheaf of each CPU that comes by
//!                  ─► doubled      a refill from slabs after flushes to slabs: the barn would
//!                                  have saved both
//!   barns   a part of the budget   all together; a barn nobody takes from makes room for one that
//!                                  is short
//! ```
//!
//! A shrink of the heap starts all of it anew. Racy on purpose: a lost count delays a doubling.

use super::barn::{Barn, Limits};
use super::cache::Cache;
use super::engine::Engines;
use super::node::Node;
use super::refill::Part;
use super::sheaf::{OwnSheaf, capacity_at_least, capacity_for};
use super::slabs::Slabs;
use super::sparse::Course;
use super::tallies::BARN_BYTES_FIRST;
use crate::base::{CacheId, CpuId};
use crate::platform::{Access, Line, MAX_CACHES};
use crate::sync::{
    AtomicU64, AtomicUsize,
    Ordering::{self, Relaxed},
};

/// Sheaves more than one for each visitor that a barn takes where objects go round. Without them
/// one CPU that allocates and one that frees come to the slabs whenever either falls behind.
const ON_THEIR_WAY: usize = 2;

/// Bytes to which a barn takes a sheaf of each CPU that comes by before traffic shows more. Sheaves
/// within the quiet limit always fit: a crowd that finds no room flushes to the same few slabs.
const ONE_EACH_MAX: usize = 1 << 20;

/// Visits after which sheaves double. Why 8: a cache that comes back eight times at one capacity
/// will come back again; doubling then keeps total visits logarithmic in the traffic.
const VISITS: u32 = 8;

/// Visits among these that waited for the barn's lock from which on sheaves double in any case.
const WAITS: u32 = 2;

/// Nanoseconds within which these visits count: a slower cache loses less than a thousandth of a
/// CPU to its visits, and larger sheaves would only park memory.
const VISITS_NS: u64 = 1_000_000;

/// Most slots that turns alone lead to. Why 29: the next size but one to what a hundred objects of a class need that are
/// replaced at random; the memory of such a sheaf is 256 B.
const TURN_SLOTS: u32 = 29;

/// Flushes before a refill that show that the barn was too small: one may be the end of a phase.
const FLUSHES: u64 = 2;

/// Objects flushed before a refill from which on it was no swing that a barn should hold, but the
/// end of a phase: their slabs hand them out in address order again, a barn in the order of the
/// frees. Only where one CPU comes by: between CPUs objects go round in any number. Halving it
/// loses batches of a few thousand objects, doubling it gains them.
const SWING_OBJECTS: u64 = 4096;

/// Who served a slow-path visit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Served {
    /// The barn had a full sheaf: what other CPUs, or this one, freed.
    ByBarn,
    /// Slabs, or it was a free.
    Otherwise,
}

/// Sets the bit of `cpu`, modulo 64, and answers all bits.
fn note_cpu(bits: &AtomicU64, cpu: CpuId) -> u64 {
    let (before, bit) = (bits.load(Relaxed), 1 << (cpu.0 % 64));
    if before & bit == 0 {
        bits.store(before | bit, Relaxed);
    }
    before | bit
}

impl Cache {
    /// Slots of the sheaves made now; zero where the cache has none.
    #[must_use]
    pub fn sheaf_capacity(&self) -> u32 {
        self.sizing.target.load(Relaxed)
    }

    /// Bytes of the objects in a full sheaf.
    pub(crate) fn sheaf_bytes(&self) -> usize {
        self.sheaf_capacity() as usize * self.geometry().size()
    }

    /// Slots of the sheaf that lies `nth` among its like, where `target` are wanted.
    pub(crate) fn nth_capacity(&self, target: u32, nth: usize) -> u32 {
        let missing = target - capacity_at_least(target, self.sizing.spread);
        target - (nth % (missing as usize + 1)) as u32
    }

    /// Whether `sheaf` is one that is made where `target` slots are wanted.
    pub(crate) fn is_of_size(&self, sheaf: &OwnSheaf, target: u32) -> bool {
        let least = capacity_at_least(target, self.sizing.spread);
        (least..=target).contains(&sheaf.capacity())
    }

    /// Back to first sizes: the program shrank.
    pub(crate) fn shrink_sizing(&self) {
        let sizing = &self.sizing;
        sizing.target.store(sizing.first.load(Relaxed), Relaxed);
        self.visits.misses.forget();
        self.visits.seen.store(0, Relaxed);
        self.visits.makers.store(0, Relaxed);
        if sizing.barn_bytes.load(Relaxed) != 0 {
            sizing.barn_bytes.store(BARN_BYTES_FIRST, Relaxed);
        }
    }

    /// Whether three CPUs or more make sheaves of this cache, `cpu` among them. Two wait for each other
    /// once at most, so their sheaves may have one length.
    pub(crate) fn is_crowded(&self, cpu: CpuId) -> bool {
        note_cpu(&self.visits.makers, cpu).count_ones() > 2
    }

    /// Whether `cpu` frees what others allocate: it frees before it has made a sheaf, at least two other
    /// CPUs have made some, and another CPU came by within [`VISITS_NS`].
    fn only_frees(&self, cpu: CpuId, now: u64) -> bool {
        let visits = &self.visits;
        let own = 1 << (cpu.0 % 64);
        let is_first = visits.makers.load(Relaxed) & own == 0;
        self.is_crowded(cpu)
            && is_first
            && visits.seen.load(Relaxed) & !own != 0
            && now.saturating_sub(visits.misses.since.load(Relaxed)) <= VISITS_NS
    }

    /// CPUs that came by lately, estimated from 64 bits.
    fn visitors(&self, cpus: u32) -> u32 {
        self.visits.seen.load(Relaxed).count_ones() * cpus.div_ceil(64)
    }

    /// Grows sheaves by one power of two, within the limit that holds for `served`, and only as long as a full
    /// sheaf of each visitor holds no more objects than are live for sure: sheaves that hold most of what goes
    /// round make CPUs wait for each other's objects. Beyond the quiet limit both sheaves of each visitor count.
    #[cold]
    fn grow_sheaves(&self, served: Served, cpus: u32, barn: &Barn) {
        let sizing = &self.sizing;
        let (target, quiet) = (sizing.target.load(Relaxed), sizing.max.load(Relaxed));
        let visitors = u64::from(self.visitors(cpus));
        let parked = 2 * visitors * u64::from(target) + u64::from(barn.stored());
        let crowded = barn.take_waits() >= WAITS;
        let live = self.visits.out.load(Relaxed).saturating_sub(parked);
        let (limit, sheaves) = match served {
            _ if target < quiet => (quiet, 1),
            Served::ByBarn => (sizing.busy.load(Relaxed), 2),
            Served::Otherwise => return,
        };
        let next = capacity_for(target + 1).min(limit);
        let affords = sheaves * visitors * u64::from(next) <= live;
        if next > target && (affords || (crowded && target < quiet)) {
            sizing.target.store(next, Relaxed);
        }
    }
}

impl<P: Engines> Slabs<P> {
    /// Counts a visit of the slow path, and grows the sheaves of a busy cache.
    pub(crate) fn note_visit(&self, cache: &Cache, node: &Node, served: Served) {
        let visits = &cache.visits;
        note_cpu(&visits.seen, P::current_cpu());
        if cache.sparse.is_on() {
            return;
        }
        P::touch(Line::Heap, (&raw const *visits).cast(), Access::Write);
        if visits.misses.completes(VISITS, VISITS_NS, P::now) {
            cache.grow_sheaves(served, P::cpu_count(), &node.barn);
        }
    }

    /// Counts a turn of objects that go to and fro on one CPU, and lets short sheaves grow until they hold the swing.
    pub(crate) fn note_turn(&self, cache: &Cache) {
        let (target, quiet) = (cache.sheaf_capacity(), cache.sizing.max.load(Relaxed));
        let limit = quiet.min(TURN_SLOTS);
        if target >= limit || cache.sparse.is_on() {
            return;
        }
        let visits = &cache.visits;
        P::touch(Line::Heap, (&raw const *visits).cast(), Access::Write);
        if visits.turns.completes(VISITS, VISITS_NS, P::now) {
            let next = capacity_for(target + 1).min(limit);
            cache.sizing.target.store(next, Relaxed);
        }
    }

    /// Notes a free on a CPU that has no spare sheaf. Several that are fed by one fill every sheaf:
    /// they begin with sheaves of the size that visits would lead to.
    pub(crate) fn note_first(&self, cache: &Cache) {
        let (target, quiet) = (cache.sheaf_capacity(), cache.sizing.max.load(Relaxed));
        if target < quiet && cache.only_frees(P::current_cpu(), P::now()) {
            cache.sizing.target.store(quiet, Relaxed);
        }
    }

    /// What a barn of this cache may keep now.
    pub(crate) fn limits(&self, cache: &Cache) -> Limits {
        let sizing = &cache.sizing;
        let empty = sizing.barn_empty.load(Relaxed);
        let bytes = sizing.barn_bytes.load(Relaxed);
        if bytes == 0 {
            return Limits {
                full: sizing.barn_full.load(Relaxed),
                objects: u32::MAX,
                empty,
            };
        }
        if cache.sparse.is_on() {
            return Limits {
                full: 0,
                objects: 0,
                empty,
            };
        }
        let target = cache.sheaf_capacity();
        let visitors = cache.visitors(P::cpu_count()) as usize;
        let more = if visitors > 1 { ON_THEIR_WAY } else { 0 };
        let sheaves = |slots: u32| (visitors + more) * slots as usize * cache.geometry().size();
        let most = sheaves(sizing.max.load(Relaxed)).max(ONE_EACH_MAX);
        let allowed = match self.barns_are_full() {
            true => bytes.min(BARN_BYTES_FIRST),
            false => bytes.max(sheaves(target).min(most)),
        };
        let objects = (allowed / cache.geometry().size()) as u32;
        let sheaves = objects / target.max(1);
        Limits {
            full: u32::MAX,
            objects,
            // As many as the full ones that may come back.
            empty: empty.max(sheaves / 2),
        }
    }

    /// Most bytes the barns of all caches may hold together.
    fn barns_bound(&self) -> usize {
        let used = self.pages().in_use().bytes(P::page_size());
        let least = self.bounds.barns_quiet.load(Relaxed);
        least
            .max(used / 16)
            .min(self.bounds.store_bytes.load(Relaxed))
    }

    /// Whether the barns of all caches together hold what they may.
    fn barns_are_full(&self) -> bool {
        self.barn_bytes().load(Relaxed) > self.barns_bound()
    }

    /// A barn did not take `full`: takes it off the count again, and remembers why.
    pub(crate) fn note_flush(&self, cache: &Cache, node: &Node, full: &OwnSheaf) {
        if cache.sizing.barn_bytes.load(Relaxed) != 0 && self.barns_are_full() {
            self.barns.refused.store(true, Relaxed);
        }
        self.count_out_of_barns(cache, full);
        node.flushes.store(node.flushes.load(Relaxed) + 1, Relaxed);
    }

    /// Whether the bound of all barns fell far below what they hold.
    pub(crate) fn barns_overflow(&self) -> bool {
        let bound = self.barns_bound();
        self.barn_bytes().load(Relaxed) > bound + bound / 8
    }

    /// Bytes in use apart from what barns hold: what a program's ups and downs are seen by.
    pub(crate) fn used_bytes(&self) -> usize {
        let used = self.pages().live().bytes(P::page_size());
        used.saturating_sub(self.barn_bytes().load(Relaxed))
    }

    /// Estimates what is idle in slabs, and what caches in use hold beside their barns, for the budget: one sheaf within the
    /// quiet limit for each CPU that came by, since of two about half is free, and the empty slabs.
    #[cold]
    #[inline(never)]
    pub(crate) fn estimate_sheaves(&self) {
        let of = |cache: &Cache| {
            let (target, quiet) = (cache.sheaf_capacity(), cache.sizing.max.load(Relaxed));
            let visitors = cache.visitors(P::cpu_count());
            let slots = (visitors * target.min(quiet)) as usize;
            let slabs = if visitors > 0 { cache.min_partial() } else { 0 };
            slots * cache.geometry().size() + slabs as usize * cache.geometry().slab_bytes()
        };
        let bytes = self.live_caches().map(of).sum();
        self.pages().budget().sheaves.store(bytes, Relaxed);
        let (now, used) = (P::now(), self.used_bytes());
        let of = |cache: &Cache| {
            let course = Course::of(self, cache);
            let follows = cache.sizing.barn_bytes.load(Relaxed) != 0;
            if follows && cache.sparse.follow(now, used, &course) {
                cache.shrink_sizing();
                Part::all(self, cache).for_each(|part| part.empty_barn());
            }
            course.idle
        };
        let idle: usize = self.live_caches().map(of).sum();
        let idle = idle.saturating_sub(self.pages().holes().bytes(P::page_size()));
        self.idle_bytes.store(idle, Relaxed);
    }

    /// Counts a full sheaf into the barns.
    pub(crate) fn count_into_barns(&self, cache: &Cache, sheaf: &OwnSheaf) {
        self.count_barns(cache, sheaf, AtomicUsize::fetch_add);
    }

    /// Counts one out of them.
    pub(crate) fn count_out_of_barns(&self, cache: &Cache, sheaf: &OwnSheaf) {
        self.count_barns(cache, sheaf, AtomicUsize::fetch_sub);
    }

    /// Barns that policies bound by sheaves are not counted.
    #[inline]
    fn count_barns(
        &self,
        cache: &Cache,
        sheaf: &OwnSheaf,
        count: impl FnOnce(&AtomicUsize, usize, Ordering) -> usize,
    ) {
        if cache.sizing.barn_bytes.load(Relaxed) != 0 {
            let busy = core::ptr::from_ref(&self.pages().budget().moved);
            P::touch(Line::Heap, busy.cast(), Access::Atomic);
            let bytes = cache.geometry().size() * sheaf.len() as usize;
            count(self.barn_bytes(), bytes, Relaxed);
        }
    }

    /// Bytes that the barns of all caches hold.
    fn barn_bytes(&self) -> &AtomicUsize {
        &self.pages().budget().moved.barns
    }

    /// A refill from slabs after flushes to slabs means the barn was too small: let it hold more.
    pub(crate) fn note_refill(&self, cache: &Cache, node: &Node) {
        let sizing = &cache.sizing;
        let bytes = sizing.barn_bytes.load(Relaxed);
        if bytes == 0 || cache.sparse.is_on() {
            return;
        }
        let flushes = node.flushes.load(Relaxed);
        if flushes.saturating_sub(node.flushes_seen.load(Relaxed)) < FLUSHES {
            return;
        }
        let since = flushes.saturating_sub(node.flushes_seen.swap(flushes, Relaxed));
        let alone = cache.visitors(P::cpu_count()) < 2;
        if alone && since.saturating_mul(u64::from(cache.sheaf_capacity())) > SWING_OBJECTS {
            return;
        }
        let max = self.bounds.barn_bytes.load(Relaxed).max(bytes);
        sizing.barn_bytes.store((bytes * 2).min(max), Relaxed);
        if self.barns.refused.swap(false, Relaxed) {
            self.empty_cold_barn(cache);
        }
    }

    /// Empties the next barn nobody took from since the hand last passed: what all barns may hold
    /// goes where it is used. A barn that was used gets a second chance.
    fn empty_cold_barn(&self, wanting: &Cache) {
        let hand = &self.barns.hand;
        for _ in 0..MAX_CACHES {
            let at = (hand.load(Relaxed) + 1) % MAX_CACHES as u32;
            hand.store(at, Relaxed);
            let id = CacheId(at as u16);
            let Some(cache) = self.live_cache(id) else {
                continue;
            };
            if id == wanting.id() || cache.sizing.barn_bytes.load(Relaxed) == 0 {
                continue;
            }
            let mut emptied = false;
            for part in Part::all(self, cache) {
                let cold = !part.node.barn.was_used();
                if cold && part.node.barn.full() > 0 {
                    part.empty_barn();
                    emptied = true;
                }
            }
            if emptied {
                cache.sizing.barn_bytes.store(BARN_BYTES_FIRST, Relaxed);
                return;
            }
        }
    }
}
