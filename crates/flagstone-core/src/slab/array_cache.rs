//! The SLAB allocator of 2.6.24: per-CPU arrays of objects over three lists of slabs.
//!
//! ```text
//!   CPU array   [ o o o o . . ]  limit objects, moved `batch` at a time
//!   shared      [ o o o o o o . . ]  one per node, under its list lock
//!   node        partial ⇄ slab ⇄ slab      free ⇄ slab ⇄ slab      (full ones are on no list)
//! ```
//!
//! Allocation: pop; else a batch from the shared array; else from partial slabs, then from free
//! ones; else a new slab. Free: push; else the oldest batch goes to the shared array or back
//! into its slabs. A slab that becomes empty stays on the free list until the node holds more
//! than `free_limit` free objects.
//!
//! Source: the author's knowledge of that kernel, as for its numbers (`policy/slab2007.rs`).
//! Without what that kernel has besides: alien arrays (an object of another node goes straight
//! back to its slab, as with `noaliencache`), colouring, and the reaper's two-second rounds.
//!
//! Locking: arrays inside their CPU's section; everything of a node under its list lock.
//!
//! Invariants
//! - `array.len-bounded`: `avail <= limit`.
//! - `array.free-counted`: a node's `free_objects` is what its slabs count as free.

use super::cache::Cache;
use super::engine::{CpuHeld, Tally, bump};
use super::node::{End, Node, PartialList};
use super::slab::{Chain, Slab};
use super::slabs::Slabs;
use super::state::NO_OBJECT;
use crate::base::{CpuId, NodeId, Pfn};
use crate::platform::{Access, Fault, Guard, Line, LockKind, Platform, RawLock, Reentered, Work};
use crate::sync::Ordering::Relaxed;
use core::cell::UnsafeCell;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicUsize};

/// Objects a refill takes at most when the array was not used since the last one.
const COLD_REFILL_MAX: u32 = 16;

/// One CPU's array; the entries follow it in memory.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct ArrayCache {
    lock: RawLock,
    avail: AtomicU32,
    touched: AtomicU32,
    pub tally: Tally,
}

/// One node's shared array and free slabs; the entries follow it in memory.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct SharedArray {
    avail: AtomicU32,
    free_objects: AtomicU32,
    /// Empty slabs; under the node's list lock.
    free: UnsafeCell<PartialList>,
}

// SAFETY: atomics, and a list that is reached under the node's list lock only.
unsafe impl Sync for SharedArray {}

/// Where an array's entries start, behind its head.
#[derive(Clone, Copy)]
struct Entries(NonNull<AtomicUsize>);

impl Entries {
    /// # Safety
    /// 1. Entries follow `head` in memory and live as long as the heap.
    unsafe fn behind<T>(head: NonNull<T>) -> Self {
        // SAFETY: obligation 1; `T` is aligned to a line, so what follows is aligned to a word.
        Self(unsafe { head.add(1) }.cast())
    }

    #[inline]
    fn at(&self, index: u32) -> &AtomicUsize {
        // SAFETY: callers stay below the array's limit (`array.len-bounded`).
        unsafe { self.0.add(index as usize).as_ref() }
    }

    #[inline]
    fn get(&self, index: u32) -> Option<NonNull<u8>> {
        NonNull::new(self.at(index).load(Relaxed) as *mut u8)
    }

    #[inline]
    fn put(&self, index: u32, object: NonNull<u8>) {
        self.at(index).store(object.as_ptr() as usize, Relaxed);
    }

    /// Says that entries `from..to` are about to be read or written, line by line.
    fn touch<P: Platform>(&self, from: u32, to: u32, access: Access) {
        let mut index = from;
        while index < to {
            let line: *const AtomicUsize = self.at(index);
            P::touch(Line::Sheaf, line.cast(), access);
            index = (index / 8 + 1) * 8;
        }
    }
}

/// Bytes of a CPU's array of `limit` entries.
pub(crate) const fn array_bytes(limit: u32) -> usize {
    (size_of::<ArrayCache>() + limit as usize * 8).next_multiple_of(64)
}

/// Bytes of a node's shared array of `limit` entries.
pub(crate) const fn shared_bytes(limit: u32) -> usize {
    (size_of::<SharedArray>() + limit as usize * 8).next_multiple_of(64)
}

impl ArrayCache {
    /// An empty array.
    pub fn new() -> Self {
        Self {
            lock: RawLock::new(LockKind::Local),
            avail: AtomicU32::new(0),
            touched: AtomicU32::new(0),
            tally: Tally::default(),
        }
    }

    /// The section's lock, for fork handling.
    pub fn lock(&self) -> &RawLock {
        &self.lock
    }

    /// Objects in the array.
    pub fn len(&self) -> u32 {
        self.avail.load(Relaxed)
    }

    fn touch<P: Platform>(&self) {
        P::touch(Line::Cpu, core::ptr::from_ref(self).cast(), Access::Write);
    }
}

impl SharedArray {
    /// An empty array and no free slabs.
    pub fn new() -> Self {
        Self {
            avail: AtomicU32::new(0),
            free_objects: AtomicU32::new(0),
            free: UnsafeCell::new(PartialList::EMPTY),
        }
    }

    /// Objects the node's slabs count as free, but those of slabs that are on no list yet.
    pub fn free_objects(&self) -> u32 {
        self.free_objects.load(Relaxed)
    }

    /// First empty slab.
    ///
    /// # Safety
    /// 1. The caller holds the node's list lock and no reference to the list.
    pub unsafe fn free_head(&self) -> Pfn {
        // SAFETY: obligation 1.
        unsafe { &*self.free.get() }.head()
    }
}

/// One CPU's array with its entries and its number.
struct Array<'a> {
    head: &'a ArrayCache,
    entries: Entries,
    cpu: CpuId,
}

impl Array<'_> {
    /// Runs `step` inside the section.
    #[inline]
    fn inside<P: Platform, T>(&self, step: impl FnOnce(&Self) -> T) -> Result<T, Reentered> {
        P::enter_local(&self.head.lock)?;
        self.head.touch::<P>();
        let out = step(self);
        P::leave_local(&self.head.lock);
        Ok(out)
    }

    fn avail(&self) -> u32 {
        self.head.avail.load(Relaxed)
    }

    fn set_avail(&self, avail: u32) {
        self.head.avail.store(avail, Relaxed);
    }

    #[inline]
    fn pop<P: Platform>(&self) -> Option<NonNull<u8>> {
        let avail = self.avail().checked_sub(1)?;
        self.entries.touch::<P>(avail, avail + 1, Access::Read);
        self.set_avail(avail);
        self.head.touched.store(1, Relaxed);
        self.entries.get(avail)
    }

    /// Puts an object on top; there is room.
    #[inline]
    fn push<P: Platform>(&self, object: NonNull<u8>) {
        let avail = self.avail();
        if avail > 0 && self.entries.get(avail - 1) == Some(object) {
            P::fatal(Fault::DoubleFree, object.as_ptr());
        }
        self.entries.touch::<P>(avail, avail + 1, Access::Write);
        self.entries.put(avail, object);
        self.set_avail(avail + 1);
    }
}

impl<P: Platform> Slabs<P> {
    /// A CPU's array.
    pub(crate) fn array<'a>(&self, cache: &'a Cache, cpu: CpuId) -> &'a ArrayCache {
        self.array_with_entries(cache, cpu).head
    }

    #[inline]
    fn array_with_entries<'a>(&self, cache: &'a Cache, cpu: CpuId) -> Array<'a> {
        // SAFETY: callers dispatched on the engine: the table holds these entries, each with
        // room for `limit` objects behind it.
        unsafe {
            let head = cache.parts.cpu::<ArrayCache>(cpu);
            Array {
                head: head.as_ref(),
                entries: Entries::behind(head),
                cpu,
            }
        }
    }

    /// A node's shared array.
    pub(crate) fn shared<'a>(&self, cache: &'a Cache, node: NodeId) -> &'a SharedArray {
        self.shared_with_entries(cache, node).0
    }

    fn shared_with_entries<'a>(
        &self,
        cache: &'a Cache,
        node: NodeId,
    ) -> (&'a SharedArray, Entries) {
        // SAFETY: as in `array_with_entries`, for the nodes' entries behind the CPUs'.
        unsafe {
            let head = cache.parts.node::<SharedArray>(node);
            (head.as_ref(), Entries::behind(head))
        }
    }

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
            if slab.descriptor.node() != near {
                return Some(self.hand_out_array(&slab));
            }
            let node = slab.node();
            let Ok(mut list) = node.list().lock::<P>() else {
                return Some(self.hand_out_array(&slab));
            };
            P::touch(Line::Node, node.address(), Access::Write);
            self.free_list_add(cache, &mut list, &slab, End::Tail);
        }
    }

    /// Fills a CPU's array from its node. Inside the section.
    fn refill_array(&self, cache: &Cache, here: &Array<'_>) {
        let queues = cache.parts.queues;
        let mut batch = queues.batch;
        if here.head.touched.swap(0, Relaxed) == 0 {
            batch = batch.min(COLD_REFILL_MAX);
        }
        let number = P::node_of(here.cpu);
        let node = self.node(cache.id(), number);
        let Ok(mut list) = node.list().lock::<P>() else {
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
                self.list_add(node, &mut list, pfn, End::Head);
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
    fn first_slab(
        &self,
        cache: &Cache,
        list: &mut Guard<'_, P, PartialList>,
        number: NodeId,
    ) -> Option<Pfn> {
        let pfn = list.head();
        if pfn.is_some() {
            self.list_remove(self.node(cache.id(), number), list, pfn);
            return Some(pfn);
        }
        let shared = self.shared(cache, number);
        // SAFETY: the guard is this node's list lock.
        let free = unsafe { &mut *shared.free.get() };
        let pfn = free.head();
        if !pfn.is_some() {
            return None;
        }
        free.remove(|pfn| self.pages().descriptor(pfn), pfn);
        Some(pfn)
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

    /// Gives an object of a cache of this engine back.
    ///
    /// # Safety
    /// 1. `object` is of this cache and given up by its owner.
    #[inline]
    pub(crate) unsafe fn free_array(&self, cache: &Cache, object: NonNull<u8>) {
        P::work(Work::Fast);
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
        let limit = cache.parts.queues.limit;
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
        let queues = cache.parts.queues;
        let number = P::node_of(here.cpu);
        let node = self.node(cache.id(), number);
        let mut batch = queues.batch.min(here.avail());
        {
            let Ok(mut list) = node.list().lock::<P>() else {
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
                        self.put_under_lock(cache, node, &mut list, object);
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

    fn put_under_lock(
        &self,
        cache: &Cache,
        node: &Node,
        list: &mut Guard<'_, P, PartialList>,
        object: NonNull<u8>,
    ) {
        // SAFETY: objects in an array were freed by the program and are still of this cache.
        let (slab, index) = unsafe { Slab::holding(self, cache, object) };
        slab.links.free(index, NO_OBJECT);
        let chain = Chain {
            first: index,
            last: index,
            count: 1,
        };
        if self.put_listed(&slab, node, list, chain) {
            self.give_back_slab(&slab);
        }
    }

    /// Gives a chain of objects back to its slab.
    pub(crate) fn put_chain_array(&self, slab: &Slab<'_, P>, chain: Chain) {
        let node = slab.node();
        let Ok(mut list) = node.list().lock::<P>() else {
            self.lost.fetch_add(u64::from(chain.count), Relaxed);
            return;
        };
        P::touch(Line::Node, node.address(), Access::Write);
        if self.put_listed(slab, node, &mut list, chain) {
            drop(list);
            self.give_back_slab(slab);
        }
    }

    /// The same under the list lock; answers whether the slab is on no list and to be given back.
    fn put_listed(
        &self,
        slab: &Slab<'_, P>,
        node: &Node,
        list: &mut Guard<'_, P, PartialList>,
        chain: Chain,
    ) -> bool {
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
            self.list_remove(node, list, slab.pfn);
        }
        if inuse > 0 {
            self.list_add(node, list, slab.pfn, End::Tail);
            return false;
        }
        if shared.free_objects() > cache.parts.queues.free_limit {
            shared.free_objects.fetch_sub(after.objects(), Relaxed);
            return true;
        }
        // SAFETY: the guard is this node's list lock.
        let free = unsafe { &mut *shared.free.get() };
        free.insert(|pfn| self.pages().descriptor(pfn), slab.pfn, End::Head);
        false
    }

    /// Puts a new slab on the free list.
    fn free_list_add(
        &self,
        cache: &Cache,
        _list: &mut Guard<'_, P, PartialList>,
        slab: &Slab<'_, P>,
        end: End,
    ) {
        let shared = self.shared(cache, slab.descriptor.node());
        shared
            .free_objects
            .fetch_add(cache.geometry().objects(), Relaxed);
        // SAFETY: the guard is this node's list lock.
        let free = unsafe { &mut *shared.free.get() };
        free.insert(|pfn| self.pages().descriptor(pfn), slab.pfn, end);
    }

    /// Gives all that arrays and free lists hold back.
    pub(crate) fn flush_arrays(&self, cache: &Cache) {
        for cpu in cache.parts.cpus() {
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
                self.give_back_slab(&slab);
            }
        }
    }

    fn pop_shared(&self, cache: &Cache, number: NodeId) -> Option<NonNull<u8>> {
        let _list = self.node(cache.id(), number).list().lock::<P>().ok()?;
        let (shared, entries) = self.shared_with_entries(cache, number);
        let avail = shared.avail.load(Relaxed).checked_sub(1)?;
        shared.avail.store(avail, Relaxed);
        entries.get(avail)
    }

    fn pop_free_slab(&self, cache: &Cache, number: NodeId) -> Option<Pfn> {
        let _list = self.node(cache.id(), number).list().lock::<P>().ok()?;
        let shared = self.shared(cache, number);
        // SAFETY: the guard is this node's list lock.
        let free = unsafe { &mut *shared.free.get() };
        let pfn = free.head();
        if !pfn.is_some() {
            return None;
        }
        free.remove(|pfn| self.pages().descriptor(pfn), pfn);
        shared
            .free_objects
            .fetch_sub(cache.geometry().objects(), Relaxed);
        Some(pfn)
    }

    /// What a CPU's array holds (and, counted with the first CPU, the shared arrays).
    pub(crate) fn add_array(&self, cache: &Cache, cpu: CpuId, held: &mut CpuHeld) {
        held.private_objects += u64::from(self.array_with_entries(cache, cpu).avail());
        if cpu.0 == 0 {
            for number in 0..self.node_count() {
                let shared = self.shared(cache, NodeId(number));
                held.private_objects += u64::from(shared.avail.load(Relaxed));
            }
        }
    }
}
