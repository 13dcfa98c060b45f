//! Allocation: array, shared array, partial slabs, free slabs, a new slab.

use super::Array;
use crate::host::Host;
use crate::rules::rules;
use crate::tally::bump;
use core::ptr::NonNull;
use flagstone_core::base::{NodeId, Pfn};
use flagstone_core::platform::{Access, Line, Reentered, Work};
use flagstone_core::slab::{Cache, End, Engines, HeldList, NO_OBJECT, Slab};
use flagstone_core::sync::Ordering::Relaxed;

/// Objects a refill takes at most when the array was not used since the last one.
const COLD_REFILL_MAX: u32 = 16;

impl<P: Engines> Host<'_, P> {
    /// Takes an object of a cache of this engine.
    #[inline]
    pub(crate) fn alloc_array(&self, cache: &Cache) -> Option<NonNull<u8>> {
        P::work(Work::Fast);
        let here = self.array_with_entries(cache, P::current_cpu());
        match here.inside::<P, _>(Array::pop::<P>) {
            Ok(Some(object)) => Some(object),
            Ok(None) => self.alloc_array_slow(cache),
            Err(Reentered) => self.alloc_array_beside(cache),
        }
    }

    #[cold]
    #[inline(never)]
    fn alloc_array_slow(&self, cache: &Cache) -> Option<NonNull<u8>> {
        P::work(Work::Slow);
        loop {
            let here = self.array_with_entries(cache, P::current_cpu());
            let refilled = here.inside::<P, _>(|here| {
                if here.avail() == 0 {
                    self.refill_array(cache, here);
                }
                here.pop::<P>()
            });
            match refilled {
                Ok(Some(object)) => return Some(object),
                Ok(None) => {}
                Err(Reentered) => return self.alloc_array_beside(cache),
            }
            // Interrupts are on while a slab is made.
            let near = P::node_of(here.cpu);
            let slab = self.new_linked_slab(cache, near)?;
            P::work(Work::ManagedSlab);
            if slab.descriptor.node() != near {
                return Some(self.hand_out_array(&slab));
            }
            let node = slab.node();
            let Ok(mut list) = node.hold(self.pages()) else {
                return Some(self.hand_out_array(&slab));
            };
            P::touch(Line::Node, node.address(), Access::Write);
            self.free_list_add(cache, &mut list, &slab, End::Tail);
        }
    }

    /// Fills a CPU's array from its node. Inside the section.
    fn refill_array(&self, cache: &Cache, here: &Array<'_>) {
        let queues = rules(cache).queues;
        let mut batch = queues.batch;
        if here.head.touched.swap(0, Relaxed) == 0 {
            batch = batch.min(COLD_REFILL_MAX);
        }
        let number = P::node_of(here.cpu);
        let node = self.node(cache.id(), number);
        let Ok(mut list) = node.hold(self.pages()) else {
            return;
        };
        P::touch(Line::Node, node.address(), Access::Write);
        bump(&here.head.tally.list_visits, 1);
        if self.take_shared(cache, here, number, batch) {
            bump(&here.head.tally.refills, 1);
            return;
        }
        while batch > 0 {
            let Some(pfn) = self.first_slab(cache, &mut list, number) else {
                return;
            };
            bump(&here.head.tally.slabs_taken, 1);
            // SAFETY: slabs on the lists are live slabs of the cache.
            let slab = unsafe { Slab::at(self, cache, pfn) };
            slab.touch(Access::Write);
            let taken = self.take_into_array(&slab, here, batch);
            batch -= taken;
            self.shared(cache, number)
                .free_objects
                .fetch_sub(taken, Relaxed);
            if slab.state().freelist() != NO_OBJECT {
                list.add(pfn, End::Head);
            }
        }
    }

    fn take_shared(&self, cache: &Cache, here: &Array<'_>, node: NodeId, batch: u32) -> bool {
        let (shared, entries) = self.shared_with_entries(cache, node);
        let avail = shared.avail.load(Relaxed);
        let count = batch.min(avail);
        if count == 0 {
            return false;
        }
        entries.touch::<P>(avail - count, avail, Access::Read);
        here.entries.touch::<P>(0, count, Access::Write);
        for index in 0..count {
            if let Some(object) = entries.get(avail - count + index) {
                here.entries.put(index, object);
            }
        }
        P::work(Work::Objects(count));
        shared.avail.store(avail - count, Relaxed);
        here.set_avail(count);
        true
    }

    /// Takes the first partial slab off its list, else the first free one.
    fn first_slab(&self, cache: &Cache, list: &mut HeldList<'_, P>, number: NodeId) -> Option<Pfn> {
        let pfn = list.head();
        if pfn.is_some() {
            list.remove(pfn);
            return Some(pfn);
        }
        self.free_list_pop(cache, number, list)
    }

    /// Moves up to `want` objects of a slab into an array with room for them.
    fn take_into_array(&self, slab: &Slab<'_, P>, here: &Array<'_>, want: u32) -> u32 {
        let state = slab.state();
        let mut next = state.freelist();
        let mut count = 0;
        let base = here.avail();
        while next != NO_OBJECT && count < want {
            here.entries.put(base + count, slab.links.object(next));
            next = slab.links.take(next);
            count += 1;
        }
        here.entries.touch::<P>(base, base + count, Access::Write);
        P::work(Work::Objects(count));
        let after = state.with(next, state.inuse() + count);
        slab.descriptor.state.store(after.0, Relaxed);
        here.set_avail(base + count);
        count
    }

    /// An object for a signal handler on top of this CPU's section: from a slab of its own.
    #[cold]
    fn alloc_array_beside(&self, cache: &Cache) -> Option<NonNull<u8>> {
        let slab = self.new_linked_slab(cache, P::node_of(P::current_cpu()))?;
        Some(self.hand_out_array(&slab))
    }

    /// The first object of a new slab that nobody knows; the rest goes on its node's list.
    fn hand_out_array(&self, slab: &Slab<'_, P>) -> NonNull<u8> {
        let rest = slab.cache.geometry().objects() - 1;
        self.shared(slab.cache, slab.descriptor.node())
            .free_objects
            .fetch_add(rest, Relaxed);
        self.hand_out_first(slab)
    }
}
