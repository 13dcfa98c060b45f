//! This machine as a world of the core: all that a kernel has to bring.
//!
//! - Memory is mapped as it lies, so a reservation is usable at once: `commit` has nothing to do, and
//!   `decommit` only fills with zeroes. A kernel with page tables to spare would map and unmap here.
//! - The slots of a CPU are under a lock of that CPU's. Nobody else wants it but `seize`; an interrupt on top of
//!   a step finds it taken and goes another way. Interrupts stay on.
//! - What a CPU holds is counted in a word of its own, so that an interrupt on top of a holder is known.

use crate::cpus::{self, here};
use crate::machine::{Serial, counter, end};
use crate::{frames, machine};
use core::fmt::Write;
use core::ops::Range;
use core::ptr::NonNull;
use flagstone_core::base::{CpuId, NodeId, PageSize};
use flagstone_core::page::Pagesets;
use flagstone_core::platform::{
    CpuArea, Fault, LockKind, LockedSlots, OutOfMemory, Platform, RawLock, SheafWord, SheavesOnly,
    Slot, percpu::each_slot, percpu::exchange_owned,
};
use flagstone_core::policy::OwnPages;
use flagstone_core::slab::Engines;

/// The machine without anything else on it.
#[derive(Debug)]
pub struct Bare;

impl Pagesets for Bare {
    type Rule = OwnPages;
}

impl Engines for Bare {
    type Engine = SheavesOnly;
}

fn slots(area: CpuArea) -> LockedSlots<'static> {
    LockedSlots::new(area, cpus::slot_locks())
}

// SAFETY: 1. frames.rs hands a range to one taker, full of zeroes, and it is mapped. 2. The number of CPUs is
// set before the heap is built; a CPU's number is below it. 3. Each step is under its CPU's lock. 4. The
// locks are the core's. 5. `end` ends the machine.
unsafe impl Platform for Bare {
    const PAGE_SHIFT: Option<usize> = Some(12);

    fn page_size() -> PageSize {
        PageSize::K4
    }

    fn reserve(bytes: usize, align: usize) -> Option<NonNull<u8>> {
        frames::take(bytes, align)
    }

    unsafe fn commit(_start: NonNull<u8>, _bytes: usize) -> Result<(), OutOfMemory> {
        Ok(())
    }

    unsafe fn decommit(start: NonNull<u8>, bytes: usize) {
        // SAFETY: committed, and nobody uses what it held.
        unsafe { start.write_bytes(0, bytes) };
    }

    unsafe fn release(start: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's obligation.
        unsafe { frames::put(start, bytes) };
    }

    unsafe fn remap(_: NonNull<u8>, _: usize, _: usize) -> Option<NonNull<u8>> {
        None
    }

    fn memory_limit() -> usize {
        frames::bytes()
    }

    fn cpu_count() -> u32 {
        cpus::count()
    }

    fn current_cpu() -> CpuId {
        CpuId(here().number)
    }

    fn node_count() -> u8 {
        1
    }

    fn node_of(_cpu: CpuId) -> NodeId {
        NodeId(0)
    }

    unsafe fn pop(area: CpuArea, slot: Slot) -> Option<NonNull<u8>> {
        // SAFETY: the caller's obligation.
        unsafe { slots(area).pop::<Self>(Self::current_cpu(), slot) }
    }

    unsafe fn push(area: CpuArea, slot: Slot, object: NonNull<u8>) -> bool {
        // SAFETY: the caller's obligations.
        unsafe { slots(area).push::<Self>(Self::current_cpu(), slot, object) }
    }

    unsafe fn exchange(area: CpuArea, slot: Slot, new: SheafWord) -> SheafWord {
        // SAFETY: the caller's obligations.
        unsafe { slots(area).exchange::<Self>(Self::current_cpu(), slot, new) }
    }

    unsafe fn seize(
        area: CpuArea,
        cpus: Range<u32>,
        caches: Range<u32>,
        take: &mut dyn FnMut(Slot, SheafWord),
    ) {
        for (cpu, slot) in each_slot(cpus, caches) {
            let lock = &cpus::slot_locks()[cpu.index()];
            // An interrupt on top of this CPU's own step leaves it alone.
            if Self::acquire(lock).is_err() {
                continue;
            }
            // SAFETY: the caller's obligation; the CPU's lock is held.
            let word = unsafe { exchange_owned(area, cpu, slot, SheafWord::ABSENT) };
            Self::release_lock(lock);
            if !word.is_absent() {
                take(slot, word);
            }
        }
    }

    fn fast_slots() -> bool {
        true
    }

    fn token() -> u64 {
        u64::from(here().number) + 1
    }

    fn pause(round: u32) {
        cpus::wait(round);
    }

    fn note_taking(kind: LockKind) {
        here().held.add(kind);
    }

    fn note_given_back(kind: LockKind) {
        here().held.remove(kind);
    }

    fn holds_from(kind: LockKind) -> bool {
        here().held.has_from(kind)
    }

    fn now() -> u64 {
        counter()
    }

    fn seed() -> u64 {
        machine::counter() | 1
    }

    fn fatal(fault: Fault, address: *const u8) -> ! {
        let _ = writeln!(Serial, "{} ({address:p})", fault.sentence());
        end(false)
    }

    fn warn(line: &str) {
        let _ = writeln!(Serial, "{line}");
    }
}

/// A lock for one CPU's slots.
pub fn slot_lock() -> RawLock {
    RawLock::new(LockKind::Local)
}
