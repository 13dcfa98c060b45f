//! Free: array, else the oldest batch to the shared array or into its slabs.

use super::Array;
use crate::cpu_slab::Settled;
use crate::host::Host;
use crate::rules::rules;
use crate::tally::bump;
use core::ptr::NonNull;
use flagstone_core::base::{NodeId, Pfn};
use flagstone_core::platform::{Access, Fault, Line, Work};
use flagstone_core::slab::{Cache, Chain, End, Engines, HeldList, NO_OBJECT, Slab};
use flagstone_core::sync::Ordering::Relaxed;

impl<P: Engines> Host<'_, P> {
    /// Gives an object of a cache of this engine back.
    ///
    /// # Safety
    /// 1. `object` is of this cache and given up by its owner.
    #[inline]
    pub(crate) unsafe fn free_array(&self, cache: &Cache, object: NonNull<u8>) {
        P::work(Work::FastFree);
        let here = self.array_with_entries(cache, P::current_cpu());
        // The kernel finds cache and node through the page.
        let page = self.pages().pfn_of(object.as_ptr());
        if let Some(descriptor) = page.map(|pfn| self.pages().descriptor(pfn)) {
            P::touch(
                Line::Slab,
                core::ptr::from_ref(descriptor).cast(),
                Access::Read,
            );
        }
        // SAFETY: obligation 1.
        let local = self.node_count() == 1
            || unsafe { Slab::holding(self, cache, object) }
                .0
                .descriptor
                .node()
                == P::node_of(here.cpu);
        let limit = rules(cache).queues.limit;
        let done = local
            && here
                .inside::<P, _>(|here| {
                    if here.avail() == limit {
                        self.drain_array(cache, here);
                    }
                    here.push::<P>(object);
                })
                .is_ok();
        if !done {
            // SAFETY: obligation 1.
            unsafe { self.put_one(cache, object) };
        }
    }

    /// Moves the oldest batch of a full array to the shared one or back into slabs. Inside the
    /// section.
    #[cold]
    #[inline(never)]
    fn drain_array(&self, cache: &Cache, here: &Array<'_>) {
        P::work(Work::Slow);
        bump(&here.head.tally.drains, 1);
        let queues = rules(cache).queues;
        let number = P::node_of(here.cpu);
        let node = self.node(cache.id(), number);
        let mut batch = queues.batch.min(here.avail());
        {
            let Ok(mut list) = node.hold(self.pages()) else {
                // A signal handler on top of the list's holder: make room by losing one.
                self.lost.fetch_add(1, Relaxed);
                here.set_avail(here.avail() - 1);
                return;
            };
            P::touch(Line::Node, node.address(), Access::Write);
            bump(&here.head.tally.list_visits, 1);
            let (shared, entries) = self.shared_with_entries(cache, number);
            let avail = shared.avail.load(Relaxed);
            let room = (queues.shared * queues.batch).saturating_sub(avail);
            here.entries.touch::<P>(0, batch, Access::Read);
            if room > 0 {
                batch = batch.min(room);
                entries.touch::<P>(avail, avail + batch, Access::Write);
                for index in 0..batch {
                    if let Some(object) = here.entries.get(index) {
                        entries.put(avail + index, object);
                    }
                }
                shared.avail.store(avail + batch, Relaxed);
            } else {
                for index in 0..batch {
                    if let Some(object) = here.entries.get(index) {
                        self.put_under_lock(cache, &mut list, object);
                    }
                }
            }
        }
        bump(&here.head.tally.drained, u64::from(batch));
        P::work(Work::Objects(batch));
        let left = here.avail() - batch;
        here.entries.touch::<P>(0, left, Access::Write);
        for index in 0..left {
            if let Some(object) = here.entries.get(batch + index) {
                here.entries.put(index, object);
            }
        }
        here.set_avail(left);
    }

    fn put_under_lock(&self, cache: &Cache, list: &mut HeldList<'_, P>, object: NonNull<u8>) {
        // SAFETY: objects in an array were freed by the program and are still of this cache.
        let (slab, index) = unsafe { Slab::holding(self, cache, object) };
        slab.links.free(index, NO_OBJECT);
        let chain = Chain {
            first: index,
            last: index,
            count: 1,
        };
        if self.put_listed(&slab, list, chain) {
            slab.give_back();
        }
    }

    /// Gives a chain of objects back to its slab.
    pub(crate) fn put_chain_array(&self, slab: &Slab<'_, P>, chain: Chain) {
        let node = slab.node();
        let Ok(mut list) = node.hold(self.pages()) else {
            self.lost.fetch_add(u64::from(chain.count), Relaxed);
            return;
        };
        P::touch(Line::Node, node.address(), Access::Write);
        if self.put_listed(slab, &mut list, chain) {
            drop(list);
            slab.give_back();
        }
    }

    /// The same under the list lock; answers whether the slab is on no list and to be given back.
    fn put_listed(&self, slab: &Slab<'_, P>, list: &mut HeldList<'_, P>, chain: Chain) -> bool {
        let cache = slab.cache;
        slab.touch(Access::Write);
        let before = slab.state();
        let Some(inuse) = before.inuse().checked_sub(chain.count) else {
            P::fatal(Fault::DoubleFree, slab.links.object(chain.first).as_ptr())
        };
        slab.links.relink(chain.last, before.freelist());
        let after = before.with(chain.first, inuse);
        slab.descriptor.state.store(after.0, Relaxed);
        let shared = self.shared(cache, slab.descriptor.node());
        shared.free_objects.fetch_add(chain.count, Relaxed);
        if slab.is_listed() {
            list.remove(slab.pfn);
        }
        if inuse > 0 {
            list.add(slab.pfn, End::Tail);
            return false;
        }
        if shared.free_objects() > rules(cache).queues.free_limit {
            shared.free_objects.fetch_sub(after.objects(), Relaxed);
            return true;
        }
        // SAFETY: the guard is this node's list lock.
        let free = unsafe { &mut *shared.free.get() };
        free.insert(self.pages().memmap(), slab.pfn, End::Head);
        false
    }

    /// Puts a new slab on the free list.
    pub(super) fn free_list_add(
        &self,
        cache: &Cache,
        _list: &mut HeldList<'_, P>,
        slab: &Slab<'_, P>,
        end: End,
    ) {
        let shared = self.shared(cache, slab.descriptor.node());
        shared
            .free_objects
            .fetch_add(cache.geometry().objects(), Relaxed);
        // SAFETY: the guard is this node's list lock.
        let free = unsafe { &mut *shared.free.get() };
        free.insert(self.pages().memmap(), slab.pfn, end);
    }

    /// Gives all that arrays and free lists hold back.
    pub(crate) fn flush_arrays(&self, cache: &Cache) {
        for cpu in rules(cache).cpus() {
            let there = self.array_with_entries(cache, cpu);
            while let Ok(Some(object)) = there.inside::<P, _>(Array::pop::<P>) {
                // SAFETY: an object in an array belongs to the array's engine alone.
                unsafe { self.put_one(cache, object) };
            }
        }
        for number in 0..self.node_count() {
            let number = NodeId(number);
            while let Some(object) = self.pop_shared(cache, number) {
                // SAFETY: as above.
                unsafe { self.put_one(cache, object) };
            }
            while let Some(pfn) = self.pop_free_slab(cache, number) {
                // SAFETY: empty and on no list: nobody else refers to it.
                let slab = unsafe { Slab::at(self, cache, pfn) };
                slab.give_back();
            }
        }
    }

    fn pop_shared(&self, cache: &Cache, number: NodeId) -> Option<NonNull<u8>> {
        let _list = self.node(cache.id(), number).hold(self.pages()).ok()?;
        let (shared, entries) = self.shared_with_entries(cache, number);
        let avail = shared.avail.load(Relaxed).checked_sub(1)?;
        shared.avail.store(avail, Relaxed);
        entries.get(avail)
    }

    fn pop_free_slab(&self, cache: &Cache, number: NodeId) -> Option<Pfn> {
        let mut list = self.node(cache.id(), number).hold(self.pages()).ok()?;
        let pfn = self.free_list_pop(cache, number, &mut list)?;
        self.shared(cache, number)
            .free_objects
            .fetch_sub(cache.geometry().objects(), Relaxed);
        Some(pfn)
    }

    /// Takes the first of a node's free slabs off their list.
    pub(super) fn free_list_pop(
        &self,
        cache: &Cache,
        number: NodeId,
        _list: &mut HeldList<'_, P>,
    ) -> Option<Pfn> {
        // SAFETY: the guard is this node's list lock.
        let free = unsafe { &mut *self.shared(cache, number).free.get() };
        let pfn = free.head();
        if !pfn.is_some() {
            return None;
        }
        free.remove(self.pages().memmap(), pfn);
        Some(pfn)
    }
}
