//! Looks into the slab layer for `verify` and `stats`: nothing here changes anything.
//!
//! All answers are exact only while nothing is under way on the heap.

use super::cache::Cache;
use super::slab::Slab;
use super::slabs::Slabs;
use super::state::NO_OBJECT;
use crate::base::{CpuId, NodeId, Pfn};
use crate::page::PageKind;
use crate::platform::Platform;
use crate::policy::Engine;
use crate::sync::Ordering::Relaxed;

/// One slab, for a look at its links.
pub struct SlabView<'a, P: Platform> {
    slab: Slab<'a, P>,
}

impl<P: Platform> SlabView<'_, P> {
    /// The slab's first page.
    #[must_use]
    pub fn pfn(&self) -> Pfn {
        self.slab.pfn
    }

    /// The link of object `index`: the object behind it or [`NO_OBJECT`]; `None` if it carries
    /// no (valid) link, as objects that are handed out do not.
    #[must_use]
    pub fn link(&self, index: u32) -> Option<u32> {
        if index >= self.slab.cache.geometry().objects() {
            return None;
        }
        self.slab.links.peek(index)
    }
}

/// What one CPU keeps of a cache of the cpu-slab engines.
#[derive(Clone, Copy, Debug)]
pub struct CpuSlabView {
    /// Its slab.
    pub slab: Pfn,
    /// First object of its private chain.
    pub freelist: u32,
    /// First slab of its partial list; linked by the descriptors' `next`.
    pub partial: Pfn,
    /// Slabs counted on that list.
    pub partial_slabs: u32,
    /// Objects counted on that list: each slab's descriptor says its part in `prev`.
    pub partial_objects: u32,
}

impl<P: Platform> Slabs<P> {
    /// The heads of all slabs of a cache, in the order of their pages.
    pub fn slab_heads<'a>(&'a self, cache: &'a Cache) -> impl Iterator<Item = Pfn> + 'a {
        let limit = self.pages().map_limit().load(Relaxed) >> self.pages().page_size().shift();
        (0..limit as u32).map(Pfn).filter(|&pfn| {
            self.cache_of_page(pfn)
                .is_some_and(|of| of.id() == cache.id())
                && self.pages().descriptor(pfn).kind() == PageKind::Slab
        })
    }

    /// One slab of a cache.
    #[must_use]
    pub fn view<'a>(&'a self, cache: &'a Cache, pfn: Pfn) -> SlabView<'a, P> {
        // SAFETY: callers have the page from `slab_heads` of this cache.
        let slab = unsafe { Slab::at(self, cache, pfn) };
        SlabView { slab }
    }

    /// First slab of a node's partial list.
    #[must_use]
    pub fn partial_head(&self, cache: &Cache, node: NodeId) -> Pfn {
        let list = self.node(cache.id(), node).list().lock::<P>();
        list.map_or(Pfn::NONE, |list| list.head())
    }

    /// First slab of a node's list of empty slabs, where the engine keeps one.
    #[must_use]
    pub fn free_head(&self, cache: &Cache, node: NodeId) -> Pfn {
        if cache.engine() != Engine::Slab2007 {
            return Pfn::NONE;
        }
        let Ok(_list) = self.node(cache.id(), node).list().lock::<P>() else {
            return Pfn::NONE;
        };
        // SAFETY: the list lock is held.
        unsafe { self.shared(cache, node).free_head() }
    }

    /// What a node of the SLAB engine counts as free in its slabs.
    #[must_use]
    pub fn free_objects(&self, cache: &Cache, node: NodeId) -> u64 {
        match cache.engine() {
            Engine::Slab2007 => u64::from(self.shared(cache, node).free_objects()),
            _ => 0,
        }
    }

    /// What a CPU keeps; nothing under the other engines.
    #[must_use]
    pub fn cpu_slab_view(&self, cache: &Cache, cpu: CpuId) -> CpuSlabView {
        match cache.engine() {
            Engine::CpuSlab | Engine::CpuSlab2007 => {
                let there = self.cpu_slab(cache, cpu);
                CpuSlabView {
                    slab: there.slab(),
                    freelist: there.freelist(),
                    partial: there.partial(),
                    partial_slabs: there.partial_slabs(),
                    partial_objects: there.partial_objects(),
                }
            }
            Engine::Sheaf | Engine::Slab2007 => CpuSlabView {
                slab: Pfn::NONE,
                freelist: NO_OBJECT,
                partial: Pfn::NONE,
                partial_slabs: 0,
                partial_objects: 0,
            },
        }
    }

    /// First object of the private chain of the CPU whose slab `pfn` is, if it is one's.
    #[must_use]
    pub fn private_chain(&self, cache: &Cache, pfn: Pfn) -> u32 {
        (0..P::cpu_count())
            .map(|cpu| self.cpu_slab_view(cache, CpuId(cpu)))
            .find(|held| held.slab == pfn)
            .map_or(NO_OBJECT, |held| held.freelist)
    }

    /// Whether slabs on CPUs' partial lists of this cache are frozen.
    #[must_use]
    pub fn freezes_partial(&self, cache: &Cache) -> bool {
        cache.parts.freezes_partial
    }

    /// Objects in a CPU's array, and how many it may hold.
    #[must_use]
    pub fn array_fill(&self, cache: &Cache, cpu: CpuId) -> (u32, u32) {
        match cache.engine() {
            Engine::Slab2007 => (self.array(cache, cpu).len(), cache.parts.queues.limit),
            _ => (0, 0),
        }
    }

    /// Sheaves in which a CPU keeps objects it put aside: none or one.
    #[must_use]
    pub fn deferred_sheaves(&self, cache: &Cache, cpu: CpuId) -> u64 {
        match cache.engine() {
            Engine::CpuSlab | Engine::CpuSlab2007 => {
                u64::from(self.cpu_slab(cache, cpu).has_deferred())
            }
            Engine::Sheaf | Engine::Slab2007 => 0,
        }
    }
}
