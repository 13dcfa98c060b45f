//! The world of virtual CPUs, as the core sees it.
//!
//! `Virtual` is a type without values: the machine behind it is the one that runs on this
//! operating-system thread (vm.rs). What is nothing at all on real hardware has a price here:
//! lines travel, locks queue, work takes time, and all of it decides who runs next.

use crate::costs::NS;
use crate::options::Plant;
use crate::predictor::Step;
use crate::tally::bump;
use crate::vm::{self, Vm};
use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use flagstone_core::base::{CpuId, NodeId, PageSize};
use flagstone_core::page::Pagesets;
use flagstone_core::platform::percpu::{each_slot, exchange_owned, pop_owned, push_owned};
use flagstone_core::platform::{
    Access, CpuArea, Fault, Function, Line, LockKind, OutOfMemory, Planted, Platform, RawLock,
    Reentered, SheafWord, Slot, Work,
};
use flagstone_core::slab::Engines;
use flagstone_kernels::Kernels;
use flagstone_kernels::policy::KernelPages;

/// The platform of the simulator.
#[derive(Debug)]
pub enum Virtual {}

/// Time a round of waiting takes where the core waits by itself.
const PAUSE: u64 = 100 * NS;

impl Vm {
    #[inline]
    fn slot_step(&self) {
        if self.timed.get() {
            self.spend(self.costs.slot);
        } else {
            self.slot_step_untimed();
        }
    }

    #[cold]
    fn slot_step_untimed(&self) {
        self.point();
        if self.in_task.get() && self.chance.happens(self.options.faults.restart, 1024) {
            // A restart: the step was under way, nothing is done yet, somebody else runs.
            self.point();
        }
    }

    /// The running thread was at this slot and this entry of its sheaf, and will probably come back.
    #[inline]
    fn note_used(&self, slot: &AtomicUsize, entry: NonNull<*mut u8>) {
        self.used
            .set([core::ptr::from_ref(slot) as usize, entry.as_ptr() as usize]);
    }

    /// The core does something that it might not have done.
    #[inline]
    pub(crate) fn decided(&self, step: impl FnOnce() -> Step) {
        if self.costs.mispredict != 0 {
            self.predict(step());
        }
    }

    #[cold]
    fn predict(&self, step: Step) {
        if self.timed.get() && self.predictors[self.cpu.get() as usize].misses(step) {
            self.spend(self.costs.mispredict);
        }
    }

    /// The planted bug: looks at the slot, lets others run, then takes what it saw.
    ///
    /// # Safety
    /// 1. As for [`Platform::pop`]; the bug lets two callers take one object, but touches no
    ///    memory that a correct pop would not.
    #[cold]
    unsafe fn torn_pop(&self, area: CpuArea, slot: Slot) -> Option<NonNull<u8>> {
        let cpu = CpuId(self.cpu.get());
        // SAFETY: obligation 1.
        let seen = unsafe { pop_owned(area, cpu, slot) }?;
        // SAFETY: obligation 1: the slot below was vacated on the line above.
        unsafe { push_owned(area, cpu, slot, seen) };
        self.point();
        // SAFETY: obligation 1.
        unsafe { pop_owned(area, cpu, slot) };
        Some(seen)
    }

    fn refuses(&self) -> bool {
        let refuse = self.options.faults.refuse;
        refuse != 0 && self.in_task.get() && self.chance.happens(refuse, 1024)
    }
}

/// The word of a CPU's slot, and the entry that it names: where its sheaf's next object goes.
///
/// # Safety
/// 1. `cpu` is below the CPU count.
#[inline]
pub(crate) unsafe fn word_and_entry<'a>(
    area: CpuArea,
    cpu: CpuId,
    slot: Slot,
) -> (&'a AtomicUsize, NonNull<*mut u8>) {
    // SAFETY: obligation 1.
    let word = unsafe { area.word(cpu, slot) };
    (word, area.entry(SheafWord(word.load(Relaxed))))
}

impl Pagesets for Virtual {
    type Rule = KernelPages;
}

impl Engines for Virtual {
    type Engine = Kernels;
}

// SAFETY: 1: the arena hands out address space once and keeps its contents as promised.
// 2: counts come from the profile, CPUs from the topology. 3: nothing else of this machine runs
// during a slot step, which has no scheduling point inside. 4: the core's own lock word decides,
// and one operating-system thread runs the whole machine. 5: `Vm::fail` never returns.
unsafe impl Platform for Virtual {
    #[inline]
    fn page_size() -> PageSize {
        PageSize::new(vm::current().machine.topology.page_size).unwrap_or(PageSize::K4)
    }

    fn reserve(bytes: usize, align: usize) -> Option<NonNull<u8>> {
        let vm = vm::current();
        if vm.refuses() {
            return None;
        }
        vm.arena.borrow_mut().reserve(bytes, align)
    }

    unsafe fn commit(start: NonNull<u8>, bytes: usize) -> Result<(), OutOfMemory> {
        let vm = vm::current();
        if vm.refuses() || !vm.arena.borrow_mut().commit(start.as_ptr() as usize, bytes) {
            return Err(OutOfMemory);
        }
        Ok(())
    }

    unsafe fn decommit(start: NonNull<u8>, bytes: usize) {
        vm::current()
            .arena
            .borrow_mut()
            .decommit(start.as_ptr() as usize, bytes);
    }

    unsafe fn release(start: NonNull<u8>, bytes: usize) {
        vm::current()
            .arena
            .borrow_mut()
            .release(start.as_ptr() as usize, bytes);
    }

    unsafe fn remap(_start: NonNull<u8>, _old: usize, _new: usize) -> Option<NonNull<u8>> {
        None
    }

    fn memory_limit() -> usize {
        let vm = vm::current();
        if vm.options.budget_bytes == 0 {
            vm.machine.topology.memory_gib << 30
        } else {
            vm.options.budget_bytes
        }
    }

    #[inline]
    fn cpu_count() -> u32 {
        vm::current().topology.cpus()
    }

    #[inline]
    fn current_cpu() -> CpuId {
        CpuId(vm::current().cpu.get())
    }

    fn node_count() -> u8 {
        vm::current().machine.topology.nodes
    }

    #[inline]
    fn node_of(cpu: CpuId) -> NodeId {
        NodeId(vm::current().topology.node_of(cpu.0))
    }

    fn cache_slice_bytes() -> usize {
        let machine = &vm::current().machine;
        let sharers = machine.cache.cluster_cores * machine.topology.threads_per_core;
        (machine.cache.llc_kib << 10) / sharers as usize
    }

    #[inline]
    unsafe fn pop(area: CpuArea, slot: Slot) -> Option<NonNull<u8>> {
        let vm = vm::current();
        vm.slot_step();
        if vm.options.faults.plant == Plant::TornSlots {
            // SAFETY: the caller's contract.
            return unsafe { vm.torn_pop(area, slot) };
        }
        let cpu = CpuId(vm.cpu.get());
        // SAFETY: the caller's contract; no scheduling point until it returns.
        let object = unsafe { pop_owned(area, cpu, slot) };
        if object.is_some() {
            // SAFETY: the caller's contract: the CPU is one of the area's.
            let (word, entry) = unsafe { word_and_entry(area, cpu, slot) };
            // SAFETY: an object was in this sheaf, so the word names its entry; the one below it
            // is another object's, or the floor that every sheaf has.
            let below = unsafe { entry.sub(1) };
            vm.note_used(word, below);
            // SAFETY: as above.
            vm.expect_next(unsafe { below.read() });
            vm.use_entry(entry);
        }
        object
    }

    #[inline]
    unsafe fn push(area: CpuArea, slot: Slot, object: NonNull<u8>) -> bool {
        let vm = vm::current();
        vm.slot_step();
        let cpu = CpuId(vm.cpu.get());
        // SAFETY: the caller's contract: the CPU is one of the area's.
        let (word, entry) = unsafe { word_and_entry(area, cpu, slot) };
        vm.note_used(word, entry);
        vm.use_entry(entry);
        // SAFETY: the caller's contract; no scheduling point until it returns.
        unsafe { push_owned(area, cpu, slot, object) }
    }

    #[inline]
    unsafe fn exchange(area: CpuArea, slot: Slot, new: SheafWord) -> SheafWord {
        let vm = vm::current();
        vm.slot_step();
        // SAFETY: the caller's contract; no scheduling point until it returns.
        unsafe { exchange_owned(area, CpuId(vm.cpu.get()), slot, new) }
    }

    unsafe fn seize(
        area: CpuArea,
        cpus: Range<u32>,
        caches: Range<u32>,
        take: &mut dyn FnMut(Slot, SheafWord),
    ) {
        let vm = vm::current();
        if vm.timed.get() {
            vm.sync();
            vm.pass(vm.costs.seize);
        } else {
            vm.point();
        }
        for (cpu, slot) in each_slot(cpus, caches) {
            // SAFETY: the caller's contract; slot steps have no scheduling point inside, so none
            // is under way on any CPU now.
            let word = unsafe { exchange_owned(area, cpu, slot, SheafWord::ABSENT) };
            if !word.is_absent() {
                take(slot, word);
            }
        }
    }

    #[inline]
    fn token() -> u64 {
        u64::from(vm::current().current.get()) + 1
    }

    fn pause(_round: u32) {
        let vm = vm::current();
        vm.now.set(vm.now.get() + PAUSE);
        vm.switch();
    }

    #[inline]
    fn acquire(lock: &RawLock) -> Result<(), Reentered> {
        vm::current().acquire(lock)
    }

    #[inline]
    fn try_acquire(lock: &RawLock) -> bool {
        vm::current().try_acquire(lock)
    }

    #[inline]
    fn release_lock(lock: &RawLock) {
        vm::current().release(lock);
    }

    fn holds_from(kind: LockKind) -> bool {
        vm::current().is_on_top_from(kind)
    }

    #[inline]
    fn changed() {
        let vm = vm::current();
        if !vm.timed.get() {
            vm.point();
        }
    }

    #[inline]
    fn planted(planted: Planted) -> bool {
        vm::current().options.faults.plant == Plant::Core(planted)
    }

    #[inline]
    fn touch(line: Line, address: *const u8, access: Access) {
        vm::current().touch(line, address as usize, access);
    }

    #[inline]
    fn work(work: Work) {
        let vm = vm::current();
        if vm.timed.get() {
            vm.decided(|| Step::of_work(work));
            vm.spend(vm.costs.work(work));
            if let Work::NewSlab(_) = work {
                bump(&vm.tally().slabs, 1);
                vm.interrupt();
            }
        }
    }

    #[inline]
    fn enter_function(function: Function) -> Function {
        vm::current().book(function)
    }

    #[inline]
    fn leave_function(before: Function) {
        vm::current().book(before);
    }

    fn now() -> u64 {
        vm::current().now() / NS
    }

    fn seed() -> u64 {
        vm::current().chance.fork(0x5eed).next()
    }

    fn fatal(fault: Fault, address: *const u8) -> ! {
        let vm = vm::current();
        let base = vm.arena.borrow().base();
        let offset = (address as usize).wrapping_sub(base);
        vm.fail(format!("{} (arena offset {offset:#x})", fault.sentence()));
    }

    fn warn(line: &str) {
        eprintln!("{line}");
    }
}
