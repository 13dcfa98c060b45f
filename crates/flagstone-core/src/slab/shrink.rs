//! Shrinking: caches give back what they hold beyond what is handed out.
//!
//! ```text
//!   shrink_all     every CPU's sheaves, all barns, empty slabs   after a fall (heap/falls.rs)
//!   shrink_cache   the same for one cache                        on request (destroy)
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
use super::node::Node;
use super::sheaf::OwnSheaf;
use super::slab::Slab;
use super::slabs::Slabs;
use crate::base::{CacheId, NodeId, Pfn};
use crate::platform::{MAX_CACHES, Slot};
use crate::policy::FlagstoneLimits;
use crate::sync::Ordering::Relaxed;
use core::ops::Range;

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
            for node in 0..self.node_count() {
                let barn = &self.node(cache.id(), NodeId(node)).barn;
                while let Some(full) = (seen < most).then(|| barn.take_full::<P>()).flatten() {
                    seen += full.len();
                    self.count_out_of_barns(cache, &full);
                    self.empty_out(cache, full);
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
        if Self::is_guests(cache) {
            P::Engine::flush(self, cache);
        }
        let nodes = || (0..self.node_count()).map(|node| self.node(cache.id(), NodeId(node)));
        // A barn may hold objects of another node's slabs: all barns before any list.
        for node in nodes() {
            self.empty_barn(cache, node);
        }
        for node in nodes() {
            self.give_back_empty_slabs(cache, node);
        }
    }

    pub(crate) fn empty_barn(&self, cache: &Cache, node: &Node) {
        // Bounded: a barn that other CPUs keep filling must not hold us here.
        let mut sheaves = node.barn.full() + node.barn.empty();
        while sheaves > 0 {
            sheaves -= 1;
            if let Some(full) = node.barn.take_full::<P>() {
                self.count_out_of_barns(cache, &full);
                self.empty_out(cache, full);
            } else if let Some(empty) = node.barn.take_empty::<P>() {
                self.empty_out(cache, empty);
            } else {
                return;
            }
        }
    }

    fn empty_out(&self, cache: &Cache, mut sheaf: OwnSheaf) {
        self.flush(cache, &mut sheaf);
        self.drop_memory(sheaf);
    }

    fn give_back_empty_slabs(&self, cache: &Cache, node: &Node) {
        const BATCH: usize = 32;
        loop {
            let mut empty = [Pfn::NONE; BATCH];
            let mut found = 0;
            {
                let Ok(mut list) = self.list(node) else {
                    return;
                };
                let at = |pfn| self.pages().descriptor(pfn);
                let mut pfn = list.head();
                while pfn.is_some() && found < BATCH {
                    let next = Pfn(at(pfn).next.load(crate::sync::Ordering::Relaxed));
                    // SAFETY: slabs on the list are live slabs of the cache.
                    let slab = unsafe { Slab::at(self, cache, pfn) };
                    if slab.state().is_empty() && P::Engine::is_idle(&slab) {
                        self.list_remove(node, &mut list, pfn);
                        empty[found] = pfn;
                        found += 1;
                    }
                    pfn = next;
                }
            }
            for &pfn in &empty[..found] {
                // SAFETY: empty and off the list: nobody else refers to it.
                let slab = unsafe { Slab::at(self, cache, pfn) };
                self.give_back_slab(&slab);
            }
            if found < BATCH {
                return;
            }
        }
    }
}

impl<P: Engines> Slabs<P> {
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
