//! Shrinking: caches give back what they hold beyond what is handed out.
//!
//! ```text
//!   shrink_all     every CPU's sheaves, all barns, empty slabs   after a fall (heap/falls.rs)
//!   shrink_cache   the same for one cache                        on request (destroy)
//!   sweep          pages on which nothing lives (sweep.rs)       after much was flushed
//!   look_through   every CPU's sheaves, some of the barns        at the end of a program
//! ```
//!
//! A limit that fell shrinks caches too, so that a container that is made smaller gets its memory back.
//!
//! Sheaves start small again afterwards. Two fences empty the slots of all CPUs, so
//! `shrink_all` costs little more than looking at the slots. No thread of ours: upkeep rides on
//! slow paths of the program's own frees.

use super::cache::Cache;
use super::engine::{Engines, ObjectEngine};
use super::refill::Part;
use super::sheaf::OwnSheaf;
use super::slab::Slab;
use super::slabs::Slabs;
use super::sparse::Course;
use crate::base::{CacheId, PageCount, Pfn};
use crate::platform::{MAX_CACHES, Slot};
use crate::policy::FlagstoneLimits;
use crate::sync::Ordering::Relaxed;
use core::ops::Range;

/// Flushed bytes below which a sweep is not worth its calls.
const FLUSHED_MIN: usize = 4 << 20;
/// Share of the bytes in use (as a divisor) that must be flushed before a sweep, and that must
/// be idle to make one worth while.
const SHARE: usize = 32;

impl<P: Engines> Slabs<P> {
    /// Empties every sheaf of every cache, on all CPUs, and gives back empty slabs.
    #[inline(never)]
    pub fn shrink_all(&self) {
        self.seize_sheaves(0..MAX_CACHES as u32);
        for cache in self.live_caches() {
            self.shrink_shared(cache);
        }
    }

    /// Empties the sheaves of all CPUs, and of the barns until `most` objects came out of them,
    /// into their slabs: there it is noticed what was freed twice.
    #[cold]
    #[inline(never)]
    pub fn look_through(&self, most: u32) {
        self.seize_sheaves(0..MAX_CACHES as u32);
        let mut seen = 0;
        for cache in self.live_caches() {
            for part in Part::all(self, cache) {
                for objects in core::iter::from_fn(|| part.flush_one()) {
                    seen += objects;
                    if seen >= most {
                        return;
                    }
                }
            }
        }
    }

    /// Empties every sheaf of `cache`, on all CPUs, and gives back its empty slabs.
    pub fn shrink_cache(&self, cache: &Cache) {
        let id = u32::from(cache.id().0);
        self.seize_sheaves(id..id + 1);
        self.shrink_shared(cache);
    }

    /// Empties the sheaves of `caches` on all CPUs, at the price of two fences.
    fn seize_sheaves(&self, caches: Range<u32>) {
        let mut take = |slot: Slot, word| {
            let cache = self.cache(CacheId((slot.index() % MAX_CACHES) as u16));
            // SAFETY: `seize` hands over the sheaf for us alone.
            if let Some(sheaf) = unsafe { self.sheaf_of_word(word) } {
                self.empty_out(cache, sheaf);
            }
        };
        // SAFETY: the area is ours and the slots are inside it.
        unsafe { P::seize(self.area(), 0..P::cpu_count(), caches, &mut take) };
    }

    /// What of shrinking concerns a cache's shared parts.
    fn shrink_shared(&self, cache: &Cache) {
        cache.shrink_sizing();
        if cache.is_guests::<P>() {
            P::Engine::flush(self, cache);
        }
        // A barn may hold objects of another node's slabs: all barns before any list.
        Part::all(self, cache).for_each(|part| part.empty_barn());
        Part::all(self, cache).for_each(|part| part.give_back_empty_slabs());
    }

    fn empty_out(&self, cache: &Cache, mut sheaf: OwnSheaf) {
        self.flush(cache, &mut sheaf);
        self.drop_memory(sheaf);
    }

    /// Sweeps if enough was flushed and enough is idle; called by upkeep.
    pub fn sweep_if_due(&self) {
        let share = FLUSHED_MIN.max(self.pages().live().bytes(P::page_size()) / SHARE);
        let budget = self.pages().budget();
        if budget.moved.flushed.load(Relaxed) < share || !budget.sweeps.affords(P::now()) {
            return;
        }
        budget.moved.flushed.store(0, Relaxed);
        let caches = self.live_caches().filter(|cache| cache.can_be_swept());
        let idle: usize = caches.map(|cache| Course::of(self, cache).idle).sum();
        let before = self.pages().holes();
        if idle.saturating_sub(before.bytes(P::page_size())) >= share {
            let slabs = self.sweep();
            let gained = self.pages().holes().0.saturating_sub(before.0);
            if PageCount(gained).bytes(P::page_size()) < share / 4 {
                budget.charge_slabs(slabs, P::now());
            }
        }
    }

    /// Gives back every page of partial slabs on which nothing lives; answers how many slabs it
    /// looked through.
    #[inline(never)]
    pub fn sweep(&self) -> usize {
        let mut slabs = 0;
        for cache in self.live_caches().filter(|cache| cache.can_be_swept()) {
            for part in Part::all(self, cache) {
                slabs += part.node.nr_partial() as usize;
                part.sweep();
            }
        }
        slabs
    }

    /// Looks at what the process may use, and keeps within it from now on. No lock is held by
    /// the caller.
    #[inline(never)]
    pub fn fit_to_means(&self) {
        let Some(means) = P::means() else { return };
        let before = self.bounds.means();
        if means == before {
            return;
        }
        let limits = self.policy().limits.within(&means);
        let fell = means.memory_bytes < before.memory_bytes || means.cpus < before.cpus;
        self.bounds.set(&limits, &means);
        for cache in self.live_caches() {
            cache.bound(&limits);
        }
        if fell {
            self.shrink_all();
        }
        if self.pages().apply(&means) {
            self.bounds.note(&means);
        }
    }
}

impl<P: Engines> Part<'_, P> {
    /// Flushes a full sheaf of the barn; answers how many objects it held.
    pub(super) fn flush_one(&self) -> Option<u32> {
        let full = self.node.barn.take_full::<P>()?;
        let objects = full.len();
        self.slabs.count_out_of_barns(self.cache, &full);
        self.slabs.empty_out(self.cache, full);
        Some(objects)
    }

    /// Empties the barn into the slabs.
    pub(super) fn empty_barn(&self) {
        let barn = &self.node.barn;
        // Bounded: a barn that other CPUs keep filling must not hold us here.
        let mut sheaves = barn.full() + barn.empty();
        while sheaves > 0 {
            sheaves -= 1;
            if self.flush_one().is_none() {
                let Some(empty) = barn.take_empty::<P>() else {
                    return;
                };
                self.slabs.drop_memory(empty);
            }
        }
    }

    fn give_back_empty_slabs(&self) {
        const BATCH: usize = 32;
        let Self { slabs, cache, .. } = *self;
        loop {
            let mut empty = [Pfn::NONE; BATCH];
            let mut found = 0;
            {
                let Ok(mut list) = self.node.hold(slabs.pages()) else {
                    return;
                };
                let mut pfn = list.head();
                while pfn.is_some() && found < BATCH {
                    // SAFETY: slabs on the list are live slabs of the cache.
                    let slab = unsafe { Slab::at(slabs, cache, pfn) };
                    let next = Pfn(slab.descriptor.next.load(Relaxed));
                    if slab.state().is_empty() && P::Engine::is_idle(&slab) {
                        list.remove(pfn);
                        empty[found] = pfn;
                        found += 1;
                    }
                    pfn = next;
                }
            }
            for &pfn in &empty[..found] {
                // SAFETY: empty and off the list: nobody else refers to it.
                let slab = unsafe { Slab::at(slabs, cache, pfn) };
                slab.give_back();
            }
            if found < BATCH {
                return;
            }
        }
    }
}

impl Cache {
    /// Bounds sheaves and barns that grow with traffic; those of fixed size stay.
    fn bound(&self, limits: &FlagstoneLimits) {
        let sizing = &self.sizing;
        let barn = sizing.barn_bytes.load(Relaxed);
        if barn == 0 || limits.sheaf_bytes_max == 0 {
            return;
        }
        sizing
            .barn_bytes
            .store(barn.min(limits.barn_bytes_max), Relaxed);
        let slots = |bytes: usize| u32::try_from(bytes / self.geometry.size()).unwrap_or(u32::MAX);
        let max = slots(limits.sheaf_bytes_max)
            .max(sizing.first.load(Relaxed))
            .min(sizing.most.load(Relaxed));
        let busy = slots(limits.sheaf_bytes_busy)
            .min(limits.sheaf_capacity_max)
            .max(max);
        sizing.max.store(max, Relaxed);
        sizing.busy.store(busy, Relaxed);
        if sizing.target.load(Relaxed) > busy {
            sizing.target.store(busy, Relaxed);
        }
    }
}
