//! The world that loom checks: a [`World`]'s memory, loom's threads, locks and slots whose words a test names.

use super::percpu::{each_slot, exchange_owned};
use super::testing::{Setup, Testing, World};
use super::{
    CpuArea, Fault, LockKind, LockedSlots, OutOfMemory, Planted, Platform, RawLock, SheafWord,
    SheavesOnly, Slot,
};
use crate::base::{CpuId, NodeId, PageSize};
use crate::sync::followed::{Mistake, forget};
use core::cell::Cell;
use core::marker::PhantomData;
use core::ptr::NonNull;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::vec::Vec;

/// The platform that loom checks; its slabs are served by the engine `E` besides the sheaf engine.
#[derive(Debug)]
pub struct CheckedWith<E>(PhantomData<E>);

/// The same for the product.
pub type Checked = CheckedWith<SheavesOnly>;

/// CPUs of the world.
const CPUS: u32 = 2;

std::thread_local! {
    /// The locks of CPUs' slots.
    static LOCKS: RefCell<Rc<[RawLock]>> = RefCell::default();
    static PLANTED: Cell<bool> = const { Cell::new(false) };
}

loom::thread_local! {
    static TOKEN: u64 = {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        NEXT.fetch_add(1, Relaxed)
    };
    static CPU: Cell<u32> = Cell::new(0);
    static ON_TOP: Cell<bool> = Cell::new(false);
}

/// Runs `body` in every order that two switches away from a thread that could go on allow, with
/// everything a load may then see. Why two: each race of the tables needs one or two.
pub fn explore(body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.max_branches = 20_000;
    builder.check(move || {
        forget();
        let locks = (0..CPUS).map(|_| RawLock::new(LockKind::Local));
        LOCKS.set(locks.collect::<Vec<_>>().into());
        let _world = World::enter_new(Setup {
            cpus: CPUS,
            memory_limit: 64 << 20,
            reserve_limit: 64 << 20,
            ..Setup::default()
        });
        body();
    });
}

/// Has loom follow the locks of CPUs' slots.
pub fn follow_slot_locks(mistake: Mistake) {
    LOCKS.with_borrow(|locks| locks.iter().for_each(|lock| lock.follow(mistake)));
}

/// Moves the calling thread to `cpu`.
pub fn run_on(cpu: u32) {
    CPU.with(|here| here.set(cpu));
}

/// From now on the calling thread stands for a signal handler on top of a holder of locks.
pub fn stand_on_top() {
    ON_TOP.with(|on_top| on_top.set(true));
}

/// Whether `Planted` mistakes are made, from here to the end of the system's thread.
pub fn plant(mistake: bool) {
    PLANTED.set(mistake);
}

fn slots<T>(area: CpuArea, step: impl FnOnce(LockedSlots<'_>, CpuId) -> T) -> T {
    let locks = LOCKS.with_borrow(Rc::clone);
    step(LockedSlots::new(area, &locks), Checked::current_cpu())
}

// SAFETY: 1. and 2. are the test world's. 3. the slot steps are the core's own, each under its CPU's
// lock. 4. the default locks. 5. `fatal` panics.
unsafe impl<E: 'static> Platform for CheckedWith<E> {
    fn page_size() -> PageSize {
        Testing::page_size()
    }

    fn reserve(bytes: usize, align: usize) -> Option<NonNull<u8>> {
        Testing::reserve(bytes, align)
    }

    unsafe fn commit(start: NonNull<u8>, bytes: usize) -> Result<(), OutOfMemory> {
        // SAFETY: as the caller's.
        unsafe { Testing::commit(start, bytes) }
    }

    unsafe fn decommit(start: NonNull<u8>, bytes: usize) {
        // SAFETY: as the caller's.
        unsafe { Testing::decommit(start, bytes) }
    }

    unsafe fn release(start: NonNull<u8>, bytes: usize) {
        // SAFETY: as the caller's.
        unsafe { Testing::release(start, bytes) }
    }

    unsafe fn remap(_: NonNull<u8>, _: usize, _: usize) -> Option<NonNull<u8>> {
        None
    }

    fn memory_limit() -> usize {
        Testing::memory_limit()
    }

    fn cpu_count() -> u32 {
        CPUS
    }

    fn current_cpu() -> CpuId {
        CpuId(CPU.with(Cell::get))
    }

    fn node_count() -> u8 {
        1
    }

    fn node_of(_: CpuId) -> NodeId {
        NodeId(0)
    }

    unsafe fn pop(area: CpuArea, slot: Slot) -> Option<NonNull<u8>> {
        // SAFETY: as the caller's.
        slots(area, |slots, cpu| unsafe { slots.pop::<Self>(cpu, slot) })
    }

    unsafe fn push(area: CpuArea, slot: Slot, object: NonNull<u8>) -> bool {
        // SAFETY: as the caller's.
        slots(area, |slots, cpu| unsafe {
            slots.push::<Self>(cpu, slot, object)
        })
    }

    unsafe fn exchange(area: CpuArea, slot: Slot, new: SheafWord) -> SheafWord {
        // SAFETY: as the caller's.
        slots(area, |slots, cpu| unsafe {
            slots.exchange::<Self>(cpu, slot, new)
        })
    }

    unsafe fn seize(
        area: CpuArea,
        cpus: core::ops::Range<u32>,
        caches: core::ops::Range<u32>,
        take: &mut dyn FnMut(Slot, SheafWord),
    ) {
        let locks = LOCKS.with_borrow(Rc::clone);
        for (cpu, slot) in each_slot(cpus, caches) {
            let lock = &locks[cpu.index()];
            Self::acquire(lock).expect("no handler takes slots");
            // SAFETY: as the caller's; the CPU's lock is held.
            let word = unsafe { exchange_owned(area, cpu, slot, SheafWord::ABSENT) };
            Self::release_lock(lock);
            if !word.is_absent() {
                take(slot, word);
            }
        }
    }

    fn token() -> u64 {
        match std::thread::panicking() {
            // A failed execution unwinds: its guards still give locks back.
            true => 1,
            false => TOKEN.with(|token| *token),
        }
    }

    fn holds_from(_: LockKind) -> bool {
        ON_TOP.with(Cell::get)
    }

    /// A handler's rounds pass at once: what it does then is what matters.
    fn pause(_: u32) {
        if !ON_TOP.with(Cell::get) {
            loom::thread::yield_now();
        }
    }

    fn now() -> u64 {
        1_000_000_000
    }

    fn seed() -> u64 {
        Testing::seed()
    }

    fn fatal(fault: Fault, _: *const u8) -> ! {
        panic!("{}", fault.sentence())
    }

    fn planted(_: Planted) -> bool {
        PLANTED.get()
    }

    fn warn(line: &str) {
        panic!("{line}")
    }
}
