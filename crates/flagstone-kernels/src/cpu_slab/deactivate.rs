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

use super::{CpuSlab, Detached};
use crate::host::Host;
use crate::rules::{self, PartialLimit, is_surplus, rules};
use crate::tally::bump;
use flagstone_core::base::{CpuId, Pfn};
use flagstone_core::platform::{Access, Function, Line, Within};
use flagstone_core::policy::Engine;
use flagstone_core::slab::{Cache, CpuHeld, End, Engines, NO_OBJECT, Slab, SlabState};
use flagstone_core::sync::Ordering::Relaxed;

/// A private chain: its last object and its length.
#[derive(Clone, Copy)]
struct Private {
    first: u32,
    last: u32,
    count: u32,
}

impl<P: Engines> Host<'_, P> {
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
        if matches!(rules(cache).partial, PartialLimit::Objects(_)) {
            private = self.push_back_singly(&slab, private);
        }
        if rules(cache).freezes_partial {
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
            let surplus = after.is_empty() && is_surplus(slab.cache, node.nr_partial());
            let mut list = None;
            let listed = !surplus && after.freelist() != NO_OBJECT;
            if listed {
                list = node.hold(self.pages()).ok();
                P::touch(Line::Node, node.address(), Access::Read);
            }
            slab.touch(Access::Atomic);
            if !slab.swap_state(state, after) {
                continue;
            }
            if let Some(mut list) = list {
                bump(&self.cpu_slab_here(slab.cache).tally.list_visits, 1);
                list.add(slab.pfn, end);
            } else if listed {
                // A signal handler on top of the list's holder.
                node.orphan(self.pages(), slab.pfn);
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
        if after.is_empty() && is_surplus(slab.cache, node.nr_partial()) {
            self.discard(slab);
        } else if after.freelist() != NO_OBJECT {
            let Ok(mut list) = node.hold(self.pages()) else {
                return node.orphan(self.pages(), slab.pfn);
            };
            P::touch(Line::Node, node.address(), Access::Read);
            bump(&self.cpu_slab_here(slab.cache).tally.list_visits, 1);
            list.add(slab.pfn, end);
        }
    }

    /// Takes everything off every CPU of a cache of the cpu-slab engines. What was put aside
    /// goes first: freeing it may put slabs on this CPU's partial list.
    pub(crate) fn flush_cpu_slabs(&self, cache: &Cache) {
        for cpu in rules(cache).cpus() {
            let there = rules::cpu_slab(cache, cpu);
            if there.put_nothing_aside() {
                continue;
            }
            let aside = match there.enter::<P>() {
                Ok(_section) => [there.take_deferred(), there.take_rcu()],
                Err(_) => [None, None],
            };
            for sheaf in aside.into_iter().flatten() {
                self.flush_deferred(cache, sheaf);
            }
        }
        self.flush_barns(cache);
        for cpu in rules(cache).cpus() {
            self.flush_cpu_slab(cache, cpu);
        }
    }

    fn flush_cpu_slab(&self, cache: &Cache, cpu: CpuId) {
        let there = rules::cpu_slab(cache, cpu);
        if there.looks_empty() {
            return;
        }
        let (detached, partial) = {
            let Ok(_section) = there.enter::<P>() else {
                return;
            };
            let detached = there.detach();
            if let (Some(detached), Engine::CpuSlab2007) = (detached, cache.engine()) {
                // Inside: whoever holds a slab's lock holds a section (`slab-2007.under-section`).
                return self.deactivate_2007(cache, there, detached);
            }
            (detached, there.take_partial())
        };
        if let Some(detached) = detached {
            self.deactivate(cache, there, detached);
        }
        if partial.head.is_some() {
            self.drain(cache, there, partial);
        }
    }

    /// What a CPU keeps.
    pub(crate) fn add_cpu_slab(&self, cache: &Cache, cpu: CpuId, held: &mut CpuHeld) {
        let there = rules::cpu_slab(cache, cpu);
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
}
