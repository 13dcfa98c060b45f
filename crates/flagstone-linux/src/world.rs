//! The answers of Linux to what the core asks.

use crate::{
    batch, cap, clock, cpus, entropy, held, limits, memory, report, slots, take_over, thread,
};
use core::marker::PhantomData;
use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use flagstone_core::base::{CpuId, Means, NodeId, PageSize};
use flagstone_core::page::Pagesets;
use flagstone_core::platform::{
    CpuArea, Extent, Fault, LockKind, NotMapped, OutOfMemory, Platform, SheafWord, SheavesOnly,
    Slot,
};
use flagstone_core::slab::{Engines, ObjectEngine};

/// Linux as a platform of the core, for slabs that the engine `E` serves besides the sheaf engine.
#[derive(Debug)]
pub struct LinuxWith<E>(PhantomData<E>);

/// Linux as a platform of the product.
pub type Linux = LinuxWith<SheavesOnly>;

impl<E: ObjectEngine> Pagesets for LinuxWith<E> {
    type Rule = E::Pages;
}

impl<E: ObjectEngine> Engines for LinuxWith<E> {
    type Engine = E;
}

/// CPU slots; zero before [`init`].
static CPU_COUNT: AtomicU32 = AtomicU32::new(0);

/// Prepares this world: counts CPUs and looks for restartable sequences (a few system calls).
/// Called once, by one thread, before the heap is built.
pub fn init() {
    let count = cpus::slot_count();
    CPU_COUNT.store(count, Ordering::Relaxed);
    slots::start(count);
}

// SAFETY: memory.rs: fresh anonymous mappings are nobody else's and zero. The CPU count is stored
// once by `init`, and `current_cpu` stays below it. slots.rs states why its steps are atomic.
// The locks are the core's own. `report::fatal` aborts.
unsafe impl<E: 'static> Platform for LinuxWith<E> {
    // x86-64 has one page size.
    const PAGE_SHIFT: Option<usize> = if cfg!(target_arch = "x86_64") {
        Some(12)
    } else {
        None
    };

    fn page_size() -> PageSize {
        memory::page_size()
    }

    #[inline(always)]
    fn fetch_ahead(address: *const u8) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch accesses nothing, never faults, and is part of every x86-64.
        unsafe {
            core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(address.cast());
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: the same of this instruction.
        unsafe {
            core::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let _ = address;
    }

    fn reserve(bytes: usize, align: usize) -> Option<NonNull<u8>> {
        let start = memory::reserve(bytes, align)?;
        cap::reserved(bytes);
        Some(start)
    }

    unsafe fn commit(start: NonNull<u8>, bytes: usize) -> Result<(), OutOfMemory> {
        if !cap::may_commit() {
            return Err(OutOfMemory);
        }
        // SAFETY: the caller's obligation.
        unsafe { memory::commit(start, bytes) }
    }

    unsafe fn decommit(start: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's obligation.
        unsafe { memory::decommit(start, bytes) }
    }

    unsafe fn decommit_all(extents: &[Extent]) {
        // SAFETY: the caller's obligation.
        unsafe { batch::decommit_all(extents) }
    }

    unsafe fn release(start: NonNull<u8>, bytes: usize) {
        cap::released(bytes);
        // SAFETY: the caller's obligation.
        unsafe { memory::release(start, bytes) }
    }

    unsafe fn remap(start: NonNull<u8>, old_bytes: usize, new_bytes: usize) -> Option<NonNull<u8>> {
        if !cap::resized(old_bytes, new_bytes) {
            return None;
        }
        // SAFETY: the caller's obligation.
        let moved = unsafe { memory::remap(start, old_bytes, new_bytes) };
        if moved.is_none() {
            cap::resize_undone(old_bytes, new_bytes);
        }
        moved
    }

    fn claim_span() -> Option<usize> {
        limits::claim_wish()
    }

    fn claim(bytes: usize, align: usize) -> Option<NonNull<u8>> {
        memory::claim(bytes, align)
    }

    unsafe fn map(start: NonNull<u8>, bytes: usize) -> Result<(), NotMapped> {
        // SAFETY: the caller's obligation.
        unsafe { memory::map_at(start, bytes) }
    }

    unsafe fn unmap(start: NonNull<u8>, bytes: usize) -> bool {
        // SAFETY: the caller's obligation.
        unsafe { memory::unmap(start, bytes) }
    }

    fn mapped_huge(start: NonNull<u8>, bytes: usize) {
        memory::name_huge(start.addr().get(), bytes);
    }

    fn observe() {
        crate::observe::call();
    }

    #[inline]
    fn may_hold(node: NodeId, pages: impl FnOnce() -> usize) -> bool {
        cap::may_hold(node, pages)
    }

    fn memory_limit() -> usize {
        limits::memory_limit()
    }

    fn address_space_left() -> Option<isize> {
        limits::address_space_left()
    }

    const ASKS_LATE: bool = true;

    fn memory_at_start() -> usize {
        limits::physical_memory()
    }

    fn means() -> Option<Means> {
        cpus::means()
    }

    fn cpu_count() -> u32 {
        CPU_COUNT.load(Ordering::Relaxed).max(1)
    }

    fn current_cpu() -> CpuId {
        let index = slots::current();
        let count = Self::cpu_count();
        CpuId(if index < count { index } else { index % count })
    }

    fn node_count() -> u8 {
        cpus::node_count()
    }

    fn node_of(cpu: CpuId) -> NodeId {
        cpus::node_of(cpu)
    }

    fn cache_slice_bytes() -> usize {
        cpus::cache_slice_bytes()
    }

    fn slot_memory(bytes: usize) -> Option<NonNull<u8>> {
        slots::memory(bytes)
    }

    #[inline(always)]
    unsafe fn pop(area: CpuArea, slot: Slot) -> Option<NonNull<u8>> {
        if slots::fast() {
            // SAFETY: the caller's obligation; sequences are ready.
            unsafe { slots::pop_fast(area, slot) }
        } else {
            // SAFETY: the caller's obligation.
            unsafe { slots::pop_locked(area, slot) }
        }
    }

    #[inline(always)]
    unsafe fn push(area: CpuArea, slot: Slot, object: NonNull<u8>) -> bool {
        if slots::fast() {
            // SAFETY: the caller's obligation; sequences are ready.
            unsafe { slots::push_fast(area, slot, object) }
        } else {
            // SAFETY: the caller's obligation.
            unsafe { slots::push_locked(area, slot, object) }
        }
    }

    #[inline(always)]
    unsafe fn pop_fast(area: CpuArea, slot: Slot) -> Option<NonNull<u8>> {
        // SAFETY: the caller's obligations.
        unsafe { slots::pop_fast(area, slot) }
    }

    #[inline(always)]
    unsafe fn push_fast(area: CpuArea, slot: Slot, object: NonNull<u8>) -> bool {
        // SAFETY: the caller's obligations.
        unsafe { slots::push_fast(area, slot, object) }
    }

    unsafe fn exchange(area: CpuArea, slot: Slot, new: SheafWord) -> SheafWord {
        // SAFETY: the caller's obligations.
        unsafe { slots::exchange(area, slot, new) }
    }

    unsafe fn seize(
        area: CpuArea,
        cpus: Range<u32>,
        caches: Range<u32>,
        take: &mut dyn FnMut(Slot, SheafWord),
    ) {
        // SAFETY: the caller's obligations.
        unsafe { take_over::seize(area, cpus, caches, take) }
    }

    #[inline(always)]
    fn fast_slots() -> bool {
        slots::fast()
    }

    #[inline(always)]
    fn token() -> u64 {
        thread::token()
    }

    #[inline]
    fn note_taking(kind: LockKind) {
        held::word().add(kind);
    }

    #[inline]
    fn note_given_back(kind: LockKind) {
        held::word().remove(kind);
    }

    #[inline]
    fn holds_from(kind: LockKind) -> bool {
        held::word().has_from(kind)
    }

    fn pause(round: u32) {
        thread::pause(round);
    }

    fn now() -> u64 {
        clock::now()
    }

    fn seed() -> u64 {
        entropy::seed()
    }

    fn fatal(fault: Fault, address: *const u8) -> ! {
        report::fatal(fault, address)
    }

    fn warn(line: &str) {
        report::warn(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagstone_core::platform::SheavesOnly;

    #[test]
    fn a_line_may_be_fetched_ahead_wherever_it_is() {
        for address in [0, 1, 4095, usize::MAX, usize::MAX / 2] {
            LinuxWith::<SheavesOnly>::fetch_ahead(core::ptr::without_provenance(address));
        }
    }
}
