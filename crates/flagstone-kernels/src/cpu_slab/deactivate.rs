//! Giving a CPU's slab up, and emptying CPUs.
//!
//! ```text
//!   private chain ─► in front of the slab's own chain, in use falls, no longer frozen
//!     empty and the node has enough   back to the page layer
//!     something free                  node's list: head, or tail if others freed into it
//!     full                            nothing: the next free takes it over
//! ```
//!
//! Source: docs: linux-policies 4.5. It happens when a slab arrives at a CPU that got one
//! meanwhile, and when a cache is shrunk or ended; never because a slab ran dry.

use super::cache::Cache;
use super::cpu_slab::{CpuSlab, Detached};
use super::engine::{CpuHeld, EngineCounts, PartialLimit, bump};
use super::node::End;
use super::slab::Slab;
use super::slabs::Slabs;
use super::state::{NO_OBJECT, SlabState};
use crate::base::{CpuId, Pfn};
use crate::platform::{Access, Function, Line, Platform, RawLock, Within};
use crate::policy::Engine;
use crate::sync::Ordering::Relaxed;

/// A private chain: its last object and its length.
#[derive(Clone, Copy)]
struct Private {
    first: u32,
    last: u32,
    count: u32,
}

impl<P: Platform> Slabs<P> {
    /// Gives up a slab that was taken off its CPU, with its private chain.
    pub(crate) fn deactivate(&self, cache: &Cache, here: &CpuSlab, detached: Detached) {
        let _within = Within::<P>::of(Function::DeactivateSlab);
        bump(&here.tally.deactivations, 1);
        // SAFETY: a CPU's slab is a live slab of the cache, and the caller took it off.
        let slab = unsafe { Slab::at(self, cache, detached.slab) };
        slab.touch(Access::Read);
        let end = match slab.state().freelist() {
            NO_OBJECT => End::Head,
            _ => End::Tail,
        };
        let mut private = self.measure(&slab, detached.freelist);
        if matches!(cache.parts.partial, PartialLimit::Objects(_)) {
            private = self.push_back_singly(&slab, private);
        }
        if cache.parts.freezes_partial {
            self.settle_under_lock(&slab, private, end);
        } else {
            self.settle(&slab, private, end);
        }
    }

    fn measure(&self, slab: &Slab<'_, P>, first: u32) -> Private {
        let mut private = Private {
            first,
            last: first,
            count: 0,
        };
        let mut next = first;
        while next != NO_OBJECT {
            private.last = next;
            private.count += 1;
            next = slab.links.next(next);
        }
        private
    }

    /// Kernels up to 5.x push every private object back by a swap of its own.
    fn push_back_singly(&self, slab: &Slab<'_, P>, mut private: Private) -> Private {
        while private.count > 0 {
            let next = slab.links.next(private.first);
            loop {
                let state = slab.state();
                slab.links.relink(private.first, state.freelist());
                slab.touch(Access::Atomic);
                if slab.swap_state(state, state.with(private.first, state.inuse() - 1)) {
                    break;
                }
            }
            private.first = next;
            private.count -= 1;
        }
        private
    }

    /// The slab's state with the private chain in front, not frozen.
    fn settled(&self, slab: &Slab<'_, P>, private: Private, state: SlabState) -> SlabState {
        if private.count == 0 {
            return state.with_frozen(false);
        }
        slab.links.relink(private.last, state.freelist());
        state
            .with(private.first, state.inuse() - private.count)
            .with_frozen(false)
    }

    /// Until 6.7: the list lock is taken before the swap where the slab goes on the list.
    fn settle_under_lock(&self, slab: &Slab<'_, P>, private: Private, end: End) {
        let node = slab.node();
        loop {
            let state = slab.state();
            let after = self.settled(slab, private, state);
            let surplus = after.is_empty() && slab.cache.is_surplus(node.nr_partial());
            let mut list = None;
            let listed = !surplus && after.freelist() != NO_OBJECT;
            if listed {
                list = self.list(node).ok();
                P::touch(Line::Node, node.address(), Access::Read);
            }
            slab.touch(Access::Atomic);
            if !slab.swap_state(state, after) {
                continue;
            }
            if let Some(mut list) = list {
                bump(&self.cpu_slab_here(slab.cache).tally.list_visits, 1);
                self.list_add(node, &mut list, slab.pfn, end);
            } else if listed {
                // A signal handler on top of the list's holder.
                self.orphan(node, slab.pfn);
            } else if surplus {
                self.discard(slab);
            }
            return;
        }
    }

    /// Since 6.8: the swap first, then the list.
    fn settle(&self, slab: &Slab<'_, P>, private: Private, end: End) {
        let after = loop {
            let state = slab.state();
            let after = self.settled(slab, private, state);
            slab.touch(Access::Atomic);
            if slab.swap_state(state, after) {
                break after;
            }
        };
        let node = slab.node();
        if after.is_empty() && slab.cache.is_surplus(node.nr_partial()) {
            self.discard(slab);
        } else if after.freelist() != NO_OBJECT {
            let Ok(mut list) = self.list(node) else {
                return self.orphan(node, slab.pfn);
            };
            P::touch(Line::Node, node.address(), Access::Read);
            bump(&self.cpu_slab_here(slab.cache).tally.list_visits, 1);
            self.list_add(node, &mut list, slab.pfn, end);
        }
    }

    /// Takes everything off every CPU of a cache of the cpu-slab engines. What was put aside
    /// goes first: freeing it may put slabs on this CPU's partial list.
    pub(crate) fn flush_cpu_slabs(&self, cache: &Cache) {
        for cpu in cache.parts.cpus() {
            let there = self.cpu_slab(cache, cpu);
            if !there.has_deferred() {
                continue;
            }
            let deferred = match there.enter::<P>() {
                Ok(_section) => there.take_deferred(),
                Err(_) => None,
            };
            if let Some(sheaf) = deferred {
                self.flush_deferred(cache, sheaf);
            }
        }
        for cpu in cache.parts.cpus() {
            self.flush_cpu_slab(cache, cpu);
        }
    }

    fn flush_cpu_slab(&self, cache: &Cache, cpu: CpuId) {
        let there = self.cpu_slab(cache, cpu);
        if there.looks_empty() {
            return;
        }
        let (detached, partial) = {
            let Ok(_section) = there.enter::<P>() else {
                return;
            };
            (there.detach(), there.take_partial())
        };
        if let Some(detached) = detached {
            match cache.engine() {
                Engine::CpuSlab2007 => self.deactivate_2007(cache, there, detached),
                _ => self.deactivate(cache, there, detached),
            }
        }
        if partial.head.is_some() {
            self.drain(cache, there, partial);
        }
    }

    /// What the engine of `cache` did so far, all CPUs together. Nothing for the sheaf engine,
    /// whose counts are the barns'.
    pub fn engine_counts(&self, cache: &Cache) -> EngineCounts {
        let mut sum = EngineCounts::default();
        for cpu in cache.parts.cpus() {
            sum += self.tally(cache, cpu);
        }
        sum
    }

    /// Slabs and free objects that CPUs keep for themselves under the engines without sheaves.
    /// Exact when no other thread is at work.
    pub fn cpu_held(&self, cache: &Cache) -> CpuHeld {
        let mut held = CpuHeld::default();
        for cpu in cache.parts.cpus() {
            match cache.engine() {
                Engine::Slab2007 => self.add_array(cache, cpu, &mut held),
                _ => self.add_cpu_slab(cache, cpu, &mut held),
            }
        }
        held
    }

    fn add_cpu_slab(&self, cache: &Cache, cpu: CpuId, held: &mut CpuHeld) {
        let there = self.cpu_slab(cache, cpu);
        if there.looks_empty() {
            return;
        }
        let Ok(_section) = there.enter::<P>() else {
            return;
        };
        held.deferred_objects += u64::from(there.deferred_objects());
        if there.slab().is_some() {
            // SAFETY: a CPU's slab is a live slab of the cache.
            let slab = unsafe { Slab::at(self, cache, there.slab()) };
            held.slabs += 1;
            held.private_objects += u64::from(self.measure(&slab, there.freelist()).count);
            held.slab_objects += u64::from(slab.state().free());
        }
        let mut pfn = there.partial();
        while pfn.is_some() {
            // SAFETY: as above, for the slabs of the CPU's list.
            let slab = unsafe { Slab::at(self, cache, pfn) };
            held.slabs += 1;
            held.slab_objects += u64::from(slab.state().free());
            pfn = Pfn(slab.descriptor.next.load(Relaxed));
        }
    }

    /// Visits every CPU's section lock of every cache: for fork handling, before barns and lists.
    pub fn each_local_lock(&self, visit: &mut dyn FnMut(&RawLock)) {
        for cache in self.live_caches() {
            for cpu in cache.parts.cpus() {
                visit(self.local_lock(cache, cpu));
            }
        }
    }
}
