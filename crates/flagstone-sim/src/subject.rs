//! The allocator under simulation: the core, built in the memory of a virtual machine.
//!
//! Nothing of an allocator is here: calls go to the core, and on the way the time they take is
//! noted.

use crate::ahead::fetch;
use crate::costs::Ps;
use crate::rcu::Deferred;
use crate::served::Served;
use crate::tally::bump;
use crate::vm::Vm;
use crate::world::{Virtual, word_and_entry};
use core::cell::Cell;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;
use flagstone_core::base::{CacheId, CpuId, NodeId, Order, Pfn};
use flagstone_core::page::PageKind;
use flagstone_core::platform::{Platform, Slot};
use flagstone_core::policy::{Engine, Policy};
use flagstone_core::slab::{Cache, CacheRequest, OwnSheaf, Slabs};
use flagstone_kernels::{Deferral, after_grace, free_rcu};

/// Bytes at the start of the pages in which the core's own tables lie, the slots of hundreds of CPUs
/// among them. What is known of pages lies before them. All CPUs look at both at random, and in small
/// pages they alone would fill the host's tables of addresses; the pages themselves are too many and
/// too thinly used.
const OWN_BYTES: usize = 4 << 20;

/// What waits for its grace period is a sheaf, not an object: beside the number of its cache.
const A_SHEAF: u16 = 1 << 15;

/// A cache when a run has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CacheCount {
    /// Its name.
    pub name: String,
    /// Its slabs.
    pub slabs: u64,
    /// Objects of one.
    pub objects_per_slab: u32,
    /// Bytes from one object to the next.
    pub size: usize,
}

/// The core on a virtual machine.
pub struct Subject {
    pub(crate) served: Served<Virtual>,
    page_bytes: usize,
    /// When each CPU's last step of upkeep was.
    upkeep: Vec<Cell<Ps>>,
    /// Bytes a workload holds beside what it takes here.
    beside: Cell<usize>,
    /// Bytes of objects and blocks it took and did not give back.
    live: Cell<usize>,
}

impl Subject {
    /// Builds the core for `policy`. To be called inside [`Vm::boot`].
    ///
    /// # Errors
    /// One line, when the machine has no memory for it.
    pub fn new(vm: &Vm, policy: &Policy) -> Result<Self, String> {
        // The whole memory of the machine: pageset marks follow from it.
        let span = Virtual::memory_limit();
        let served = Served::<Virtual>::build(policy, span, span / 8)
            .ok_or_else(|| String::from("the simulated machine has no memory for the allocator"))?;
        let data = served.slabs().pages().base();
        vm.arena
            .borrow()
            .dense_before(data.as_ptr() as usize + OWN_BYTES);
        Ok(Self {
            served,
            page_bytes: vm.machine.topology.page_size,
            upkeep: vec![Cell::new(0); vm.topology.cpus() as usize],
            beside: Cell::new(0),
            live: Cell::new(0),
        })
    }

    /// The core's slab layer.
    #[inline]
    #[must_use]
    pub fn slabs(&self) -> &Slabs<Virtual> {
        self.served.slabs()
    }

    /// Makes a cache of plain objects.
    ///
    /// # Panics
    /// If the core refuses: workloads ask for sizes that every policy can hold.
    #[must_use]
    pub fn cache(&self, name: &str, object_size: usize) -> CacheId {
        let request = CacheRequest::new(name, object_size);
        self.create(&request)
    }

    /// Makes one of the general-purpose caches.
    ///
    /// # Panics
    /// As [`Subject::cache`].
    #[must_use]
    pub fn kmalloc(&self, name: &str, object_size: usize) -> CacheId {
        let mut request = CacheRequest::new(name, object_size);
        request.kmalloc = true;
        request.align = 8;
        self.create(&request)
    }

    /// Makes a cache for which opt-in policies are asked for sheaves of `capacity` objects.
    ///
    /// # Panics
    /// As [`Subject::cache`].
    #[must_use]
    pub fn cache_with_sheaves(&self, name: &str, object_size: usize, capacity: u32) -> CacheId {
        let mut request = CacheRequest::new(name, object_size);
        request.sheaf_capacity = capacity;
        self.create(&request)
    }

    fn create(&self, request: &CacheRequest<'_>) -> CacheId {
        match self.served.cache(request) {
            Ok(id) => id,
            Err(error) => panic!(
                "no cache {} of {} B: {error:?}",
                request.name, request.object_size
            ),
        }
    }

    /// Takes an object; ends the run when memory is exhausted.
    #[inline]
    #[must_use]
    pub fn alloc(&self, vm: &Vm, cache: CacheId) -> NonNull<u8> {
        match self.try_alloc(vm, cache) {
            Some(object) => object,
            None => vm.fail("the simulated machine ran out of memory"),
        }
    }

    /// Takes an object, if there is memory for it.
    #[inline]
    #[must_use]
    pub fn try_alloc(&self, vm: &Vm, cache: CacheId) -> Option<NonNull<u8>> {
        let (start, before) = (vm.now(), vm.interrupted());
        let slabs = self.slabs();
        let cache = slabs.cache(cache);
        let object = self.served.alloc(cache);
        if object.is_some() {
            self.live.set(self.live.get() + cache.geometry().size());
        }
        let tally = vm.tally();
        bump(&tally.allocs, 1);
        bump(
            &tally.alloc_ps,
            vm.now() - start - (vm.interrupted() - before),
        );
        object
    }

    /// Gives an object back.
    ///
    /// # Safety
    /// 1. `object` came from this cache and is not used again.
    #[inline]
    pub unsafe fn free(&self, vm: &Vm, cache: CacheId, object: NonNull<u8>) {
        let start = vm.now();
        let slabs = self.slabs();
        let cache = slabs.cache(cache);
        self.expect(vm, cache, object);
        self.live.set(self.live.get() - cache.geometry().size());
        // SAFETY: obligation 1.
        unsafe { self.served.free(cache, object) };
        let tally = vm.tally();
        bump(&tally.frees, 1);
        bump(&tally.free_ps, vm.now() - start);
    }

    /// Gives an object back whose readers may still look at it: `kfree_rcu`. Under policies with sheaves
    /// it waits for its grace period in one, under others by itself; [`Subject::after_grace`] does the
    /// rest.
    ///
    /// # Safety
    /// 1. `object` came from this cache and is not used again but by readers of before.
    pub unsafe fn free_rcu(&self, vm: &Vm, cache: CacheId, object: NonNull<u8>) {
        let start = vm.now();
        let slabs = self.slabs();
        // SAFETY: obligation 1.
        match unsafe { free_rcu(slabs, slabs.cache(cache), object) } {
            Deferral::Kept => {}
            Deferral::Full(sheaf) => vm.defer(Deferred {
                kind: cache.0 | A_SHEAF,
                address: sheaf.into_raw().as_ptr() as usize,
            }),
            Deferral::Refused => {
                return vm.defer(Deferred {
                    kind: cache.0,
                    address: object.as_ptr() as usize,
                });
            }
        }
        let tally = vm.tally();
        bump(&tally.frees, 1);
        bump(&tally.free_ps, vm.now() - start);
    }

    /// What was deferred has had its grace period: an object of a cache, or a sheaf of them.
    ///
    /// # Safety
    /// 1. `item` came from [`Subject::free_rcu`], or names a cache and an object of it that its owner
    ///    gave up.
    pub unsafe fn after_grace(&self, vm: &Vm, item: Deferred) {
        let id = CacheId(item.kind & !A_SHEAF);
        if item.kind & A_SHEAF == 0 {
            if let Some(object) = NonNull::new(item.address as *mut u8) {
                // SAFETY: obligation 1.
                unsafe { self.free(vm, id, object) };
            }
            return;
        }
        let start = vm.now();
        let slabs = self.slabs();
        let cache = slabs.cache(id);
        if let Some(header) = NonNull::new(item.address as *mut _) {
            // SAFETY: obligation 1: `free_rcu` gave the sheaf up to the queue.
            let sheaf = unsafe { OwnSheaf::from_raw(header) };
            let bytes = sheaf.len() as usize * cache.geometry().size();
            self.live.set(self.live.get() - bytes);
            after_grace(slabs, cache, sheaf);
        }
        bump(&vm.tally().free_ps, vm.now() - start);
    }

    /// What a free will look at, all of it at once: under the sheaf engine the next allocation of the
    /// object, under the others the free itself.
    #[inline]
    fn expect(&self, vm: &Vm, cache: &Cache, object: NonNull<u8>) {
        vm.expect_object(object.as_ptr());
        if cache.engine() != Engine::Sheaf {
            let pages = self.slabs().pages();
            fetch(object.as_ptr() as usize);
            if let Some(pfn) = pages.pfn_of(object.as_ptr()) {
                fetch(core::ptr::from_ref(pages.descriptor(pfn)) as usize);
            }
        }
    }

    /// Where the running CPU's next object of `cache` is listed.
    #[inline]
    fn top(&self, vm: &Vm, cache: CacheId) -> NonNull<*mut u8> {
        let (area, slot) = (self.slabs().area(), Slot::main(cache.index()));
        // SAFETY: a running CPU is below the CPU count.
        let (_, entry) = unsafe { word_and_entry(area, CpuId(vm.cpu.get()), slot) };
        // SAFETY: `slot.one-home`: the word names an entry of a live sheaf or of the absent one; below it
        // lies another entry, or the floor.
        unsafe { entry.sub(1) }
    }

    /// An object of `cache` will be taken soon.
    #[inline]
    pub(crate) fn expect_alloc(&self, vm: &Vm, cache: CacheId) {
        fetch(self.top(vm, cache).as_ptr() as usize);
    }

    /// An object of `cache` will be taken next, as far as is known.
    #[inline]
    pub(crate) fn expect_taken(&self, vm: &Vm, cache: CacheId) {
        // SAFETY: as in `top`; nobody else runs.
        vm.expect_object(unsafe { self.top(vm, cache).read() });
    }

    /// Gives an object back without counting it: of its cache, or a block of pages in place of one.
    ///
    /// # Safety
    /// 1. `object` came from this cache, or from the page layer with this order, and is not used
    ///    again.
    pub(crate) unsafe fn give_back(
        &self,
        cache: CacheId,
        whole: Option<Order>,
        object: NonNull<u8>,
    ) {
        let slabs = self.slabs();
        let bytes = match whole {
            None => slabs.cache(cache).geometry().size(),
            Some(order) => order.pages().bytes(Virtual::page_size()),
        };
        self.live.set(self.live.get() - bytes);
        let Some(order) = whole else {
            // SAFETY: obligation 1.
            return unsafe { self.served.free(slabs.cache(cache), object) };
        };
        if let Some(pfn) = slabs.pages().pfn_of(object.as_ptr()) {
            // SAFETY: obligation 1.
            unsafe { slabs.pages().free_block(pfn, order) };
        }
    }

    /// Notes bytes that are in use all the while and that nobody takes or gives back: files in
    /// memory. They count as in use.
    pub fn note_beside(&self, bytes: usize) {
        self.beside.set(bytes);
    }

    /// The CPU's worker: every so often pagesets decay. CPUs start at different points.
    #[inline]
    fn keep_up(&self, vm: &Vm) {
        let cpu = Virtual::current_cpu();
        let last = &self.upkeep[cpu.0 as usize];
        if vm.now() - last.get() > vm.upkeep_every.get() {
            self.step_of_upkeep(vm, cpu, last);
        }
    }

    #[cold]
    fn step_of_upkeep(&self, vm: &Vm, cpu: CpuId, last: &Cell<Ps>) {
        if last.get() == 0 {
            let share = u64::from(vm.chance.below(1024));
            last.set(vm.now() - vm.upkeep_every.get() / 1024 * share);
            return;
        }
        last.set(vm.now());
        self.slabs().pages().tick_cpu(cpu);
    }

    /// Lets seconds pass on a machine where nobody runs any more, until no pageset gives anything
    /// back; answers how many.
    pub fn settle(&self, vm: &Vm) -> u32 {
        /// A pageset of the largest machine is empty long before.
        const MOST: u32 = 600;
        vm.boot_look(|| {
            let mut seconds = 0;
            let mut before = usize::MAX;
            while seconds < MOST {
                let parked = self.parked_pages(vm);
                if parked >= before {
                    break;
                }
                before = parked;
                seconds += 1;
                for cpu in 0..vm.topology.cpus() {
                    self.slabs().pages().tick_cpu(CpuId(cpu));
                }
            }
            seconds.saturating_sub(1)
        })
    }

    /// Caches with slabs, by name: slabs, pages of all of them, objects in a slab of the policy's order.
    /// For when nobody runs.
    #[must_use]
    pub fn caches(&self, vm: &Vm) -> Vec<CacheCount> {
        vm.boot_look(|| {
            let slabs = self.slabs();
            let mut counts = std::collections::BTreeMap::<usize, (CacheId, u64)>::new();
            let pages = slabs.pages();
            let limit = pages.map_limit().load(Relaxed) >> pages.page_size().shift();
            for pfn in (0..limit as u32).map(Pfn) {
                if let Some(cache) = slabs.cache_of_page(pfn)
                    && pages.descriptor(pfn).kind() == PageKind::Slab
                {
                    let id = cache.id();
                    counts.entry(id.index()).or_insert((id, 0)).1 += 1;
                }
            }
            let of = |(id, slabs_of): (CacheId, u64)| {
                let cache = slabs.cache(id);
                CacheCount {
                    name: cache.name().to_owned(),
                    slabs: slabs_of,
                    objects_per_slab: cache.geometry().objects(),
                    size: cache.geometry().size(),
                }
            };
            counts.into_values().map(of).collect()
        })
    }

    fn parked_pages(&self, vm: &Vm) -> usize {
        let pages = self.slabs().pages();
        let all = (0..vm.topology.cpus())
            .flat_map(|cpu| (0..self.nodes()).map(move |node| (NodeId(node), CpuId(cpu))));
        all.filter_map(|(node, cpu)| pages.pageset_counts(node, cpu))
            .map(|(count, _)| count as usize)
            .sum()
    }

    /// Takes a block of pages near the running CPU; ends the run when memory is exhausted.
    #[must_use]
    pub fn alloc_pages(&self, vm: &Vm, order: Order) -> Pfn {
        match self.try_alloc_pages(vm, order) {
            Some(pfn) => pfn,
            None => vm.fail("the simulated machine ran out of pages"),
        }
    }

    /// Takes a block of pages, if there is one.
    #[must_use]
    pub fn try_alloc_pages(&self, vm: &Vm, order: Order) -> Option<Pfn> {
        self.keep_up(vm);
        let start = vm.now();
        let node: NodeId = Virtual::node_of(Virtual::current_cpu());
        let block = self.slabs().pages().alloc_block(order, node);
        let tally = vm.tally();
        bump(&tally.allocs, 1);
        bump(&tally.alloc_ps, vm.now() - start);
        if block.is_some() {
            let bytes = order.pages().bytes(Virtual::page_size());
            self.live.set(self.live.get() + bytes);
        }
        block.map(|block| block.pfn)
    }

    /// Gives a block of pages back.
    ///
    /// # Safety
    /// 1. `pfn` came from [`Subject::alloc_pages`] with this order and is not used again.
    pub unsafe fn free_pages(&self, vm: &Vm, pfn: Pfn, order: Order) {
        self.keep_up(vm);
        let start = vm.now();
        let bytes = order.pages().bytes(Virtual::page_size());
        self.live.set(self.live.get() - bytes);
        // SAFETY: obligation 1.
        unsafe { self.slabs().pages().free_block(pfn, order) };
        let tally = vm.tally();
        bump(&tally.frees, 1);
        bump(&tally.free_ps, vm.now() - start);
    }

    /// The address of a page.
    #[must_use]
    pub fn page_address(&self, pfn: Pfn) -> *const u8 {
        self.slabs().pages().address(pfn).as_ptr()
    }

    /// Bytes of pages outside the zones' free areas, those in pagesets included, and what the
    /// workload holds beside; without a lock.
    #[must_use]
    pub fn in_use_bytes(&self) -> usize {
        self.slabs().pages().in_use().0 * self.page_bytes + self.beside.get()
    }

    /// Bytes of what the workload holds: objects, at their stride, and blocks it took and did not
    /// give back, those it handed to RCU included. The rest of what is in use is parked by the
    /// allocator.
    #[must_use]
    pub fn live_bytes(&self) -> usize {
        self.live.get() + self.beside.get()
    }

    /// Memory nodes that have a zone.
    #[must_use]
    pub fn nodes(&self) -> u8 {
        self.slabs().node_count()
    }

    /// Bytes in a page.
    #[must_use]
    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }
}
