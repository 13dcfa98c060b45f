//! The heap that these engines are guests of, and the engine that serves a cache.

use crate::array_cache::{array_lock, array_tally};
use crate::check;
use crate::cpu_slab::{Patience, WithLock};
use crate::policy::KernelPages;
use crate::rules::{self, rules};
use crate::tally::{EngineCounts, Tally};
use core::ops::Deref;
use core::ptr::NonNull;
use flagstone_core::base::{CpuId, NodeId, Pfn};
use flagstone_core::platform::RawLock;
use flagstone_core::policy::Engine;
use flagstone_core::slab::{
    Broken, Cache, Chain, CpuHeld, Engines, Geometry, ObjectEngine, Seen, Served, Slab, Slabs,
};

/// The slabs of a heap, with these engines' steps on them.
#[derive(Debug)]
pub(crate) struct Host<'s, P: Engines>(pub &'s Slabs<P>);

impl<P: Engines> Deref for Host<'_, P> {
    type Target = Slabs<P>;

    #[inline]
    fn deref(&self) -> &Slabs<P> {
        self.0
    }
}

/// All engines of old kernels; a cache says which of them serves it.
#[derive(Clone, Copy, Debug)]
pub struct Kernels;

impl ObjectEngine for Kernels {
    const SERVES: bool = true;
    type Pages = KernelPages;

    fn lay_out(engine: Engine, slab: Geometry, objects: u32) -> Option<Geometry> {
        match engine {
            Engine::Sheaf => Some(slab),
            Engine::KernelSheaf | Engine::CpuSlab | Engine::CpuSlab2007 => {
                Some(slab.with_links_inside())
            }
            Engine::Slab2007 => slab.with_links_outside(objects),
        }
    }

    fn room_bytes(cache: &Served<'_>) -> usize {
        rules::room_bytes(cache)
    }

    unsafe fn furnish(room: usize, cache: &Served<'_>) {
        // SAFETY: the caller's obligation.
        unsafe { rules::furnish(room, cache) };
    }

    #[inline]
    fn alloc<P: Engines<Engine = Self>>(slabs: &Slabs<P>, cache: &Cache) -> Option<NonNull<u8>> {
        let host = Host(slabs);
        match cache.engine() {
            Engine::CpuSlab if cache.sheaf_capacity() == 0 => host.alloc_cpu_slab(cache),
            Engine::KernelSheaf | Engine::CpuSlab => host.alloc_sheaf(cache),
            Engine::CpuSlab2007 => host.alloc_2007(cache),
            Engine::Slab2007 => host.alloc_array(cache),
            Engine::Sheaf => None,
        }
    }

    #[inline]
    unsafe fn free<P: Engines<Engine = Self>>(
        slabs: &Slabs<P>,
        cache: &Cache,
        object: NonNull<u8>,
    ) {
        let host = Host(slabs);
        // SAFETY: the caller's obligation.
        unsafe {
            match cache.engine() {
                Engine::CpuSlab if cache.sheaf_capacity() == 0 => host.free_cpu_slab(cache, object),
                Engine::KernelSheaf | Engine::CpuSlab => host.free_sheaf(cache, object),
                Engine::CpuSlab2007 => host.free_2007(cache, object),
                Engine::Slab2007 => host.free_array(cache, object),
                Engine::Sheaf => {}
            }
        }
    }

    fn put_chain<P: Engines<Engine = Self>>(slab: &Slab<'_, P>, chain: Chain) {
        let host = Host(slab.slabs);
        match slab.cache.engine() {
            Engine::KernelSheaf | Engine::CpuSlab => {
                let _never = host.put_chain_cpu_slab(slab, chain, Patience::Endless);
            }
            Engine::CpuSlab2007 => host.put_chain_2007(slab, chain),
            Engine::Slab2007 => host.put_chain_array(slab, chain),
            Engine::Sheaf => {}
        }
    }

    fn flush<P: Engines<Engine = Self>>(slabs: &Slabs<P>, cache: &Cache) {
        match cache.engine() {
            Engine::Slab2007 => Host(slabs).flush_arrays(cache),
            _ => Host(slabs).flush_cpu_slabs(cache),
        }
    }

    fn is_idle<P: Engines<Engine = Self>>(slab: &Slab<'_, P>) -> bool {
        slab.cache.engine() != Engine::CpuSlab2007 || slab.try_locked().is_some()
    }

    fn held<P: Engines<Engine = Self>>(slabs: &Slabs<P>, cache: &Cache) -> CpuHeld {
        let host = Host(slabs);
        let mut held = CpuHeld::default();
        for cpu in rules(cache).cpus() {
            match cache.engine() {
                Engine::Slab2007 => host.add_array(cache, cpu, &mut held),
                _ => host.add_cpu_slab(cache, cpu, &mut held),
            }
        }
        held
    }

    fn each_lock<P: Engines<Engine = Self>>(
        _: &Slabs<P>,
        cache: &Cache,
        visit: &mut dyn FnMut(&RawLock),
    ) {
        for cpu in rules(cache).cpus() {
            match cache.engine() {
                Engine::Slab2007 => visit(array_lock(cache, cpu)),
                _ => visit(rules::cpu_slab(cache, cpu).lock()),
            }
        }
    }

    fn private_chain<P: Engines<Engine = Self>>(_: &Slabs<P>, cache: &Cache, pfn: Pfn) -> u32 {
        check::private_chain(cache, pfn)
    }

    fn empty_head<P: Engines<Engine = Self>>(slabs: &Slabs<P>, cache: &Cache, node: NodeId) -> Pfn {
        Host(slabs).empty_head(cache, node)
    }

    fn sheaves<P: Engines<Engine = Self>>(_: &Slabs<P>, cache: &Cache, cpu: CpuId) -> u64 {
        match cache.engine() {
            Engine::Slab2007 => 0,
            _ => {
                let held = rules::cpu_slab(cache, cpu);
                u64::from(held.has_deferred()) + u64::from(held.has_rcu())
            }
        }
    }

    fn check<P: Engines<Engine = Self>>(
        slabs: &Slabs<P>,
        cache: &Cache,
        seen: &Seen,
    ) -> Result<(), Broken> {
        match cache.engine() {
            Engine::Slab2007 => check::arrays(cache, seen),
            _ => check::cpu_slabs(slabs, cache, seen),
        }
    }

    fn check_node<P: Engines<Engine = Self>>(
        slabs: &Slabs<P>,
        cache: &Cache,
        node: NodeId,
        free: u64,
    ) -> Result<(), Broken> {
        match cache.engine() {
            Engine::Slab2007 => check::node_of_arrays(slabs, cache, node, free),
            _ => Ok(()),
        }
    }
}

/// What the engine of `cache` did so far, all CPUs together; nothing for the sheaf engine.
#[must_use]
pub fn counts(cache: &Cache) -> EngineCounts {
    let mut sum = EngineCounts::default();
    if cache.engine() != Engine::Sheaf {
        for cpu in rules(cache).cpus() {
            sum += tally(cache, cpu).counts();
        }
    }
    sum
}

/// A CPU's counts.
pub(crate) fn tally(cache: &Cache, cpu: CpuId) -> &Tally {
    match cache.engine() {
        Engine::Slab2007 => array_tally(cache, cpu),
        _ => &rules::cpu_slab(cache, cpu).tally,
    }
}
