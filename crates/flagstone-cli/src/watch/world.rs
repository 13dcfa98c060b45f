//! The core's platform in a reader: one thread over a copy that belongs to it.
//!
//! Locks are never waited for: their words say who held them when the page was copied. Memory that the core
//! would give back to the system is noted instead, which is how a trim is foretold.

use flagstone_core::base::{CpuId, Means, NodeId, PageSize};
use flagstone_core::page::Pagesets;
use flagstone_core::platform::percpu::{each_slot, exchange_owned, pop_owned, push_owned};
use flagstone_core::platform::{
    Access, CpuArea, Fault, Line, OutOfMemory, Platform, RawLock, Reentered, SheafWord, Slot, Work,
};
use flagstone_core::slab::Engines;
use flagstone_kernels::Kernels;
use flagstone_kernels::policy::KernelPages;
use flagstone_linux::Linux;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

/// The world of a reader. It knows one process.
#[derive(Debug)]
pub struct Copied;

static CPUS: AtomicU32 = AtomicU32::new(1);
static NODES: AtomicU8 = AtomicU8::new(1);
/// Whether its slots are reached by restartable sequences.
static SEQUENCES: AtomicU32 = AtomicU32::new(1);
/// Steps of the core that may follow.
static STEPS: AtomicU64 = AtomicU64::new(u64::MAX);
static GIVEN_BACK: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

impl Copied {
    /// Says what the process has; before anything else.
    pub fn has(cpus: u32, state: u32) {
        CPUS.store(cpus.max(1), Relaxed);
        SEQUENCES.store(u32::from(state == 1), Relaxed);
    }

    /// Says how many memory nodes its heap has.
    pub fn has_nodes(nodes: u8) {
        NODES.store(nodes.max(1), Relaxed);
    }

    /// How many steps the core may take from here on: a list that was torn may lead round for ever.
    pub fn may_take(steps: u64) {
        STEPS.store(steps, Relaxed);
    }

    /// The ranges given back since the last call, as start and bytes.
    pub fn given_back() -> Vec<(usize, usize)> {
        GIVEN_BACK
            .lock()
            .map(|mut all| std::mem::take(&mut *all))
            .unwrap_or_default()
    }
}

fn step() {
    let left = STEPS.load(Relaxed);
    if left == 0 {
        super::image::leave(super::image::CHANGED);
    }
    STEPS.store(left - 1, Relaxed);
}

fn note(start: NonNull<u8>, bytes: usize) {
    step();
    if let Ok(mut all) = GIVEN_BACK.lock() {
        all.push((start.addr().get(), bytes));
    }
}

impl Pagesets for Copied {
    type Rule = KernelPages;
}

impl Engines for Copied {
    type Engine = Kernels;
}

// SAFETY: fresh memory is Linux's own answer. There is one thread, so that slot steps and locks have
// nobody to be atomic against. `fatal` ends the process.
unsafe impl Platform for Copied {
    fn page_size() -> PageSize {
        Linux::page_size()
    }

    fn reserve(bytes: usize, align: usize) -> Option<NonNull<u8>> {
        Linux::reserve(bytes, align)
    }

    unsafe fn commit(start: NonNull<u8>, bytes: usize) -> Result<(), OutOfMemory> {
        // SAFETY: the caller's obligation. Only the reader's own reservations are committed.
        unsafe { Linux::commit(start, bytes) }
    }

    unsafe fn decommit(start: NonNull<u8>, bytes: usize) {
        note(start, bytes);
    }

    unsafe fn release(start: NonNull<u8>, bytes: usize) {
        note(start, bytes);
    }

    unsafe fn remap(_: NonNull<u8>, _: usize, _: usize) -> Option<NonNull<u8>> {
        None
    }

    unsafe fn unmap(start: NonNull<u8>, bytes: usize) -> bool {
        note(start, bytes);
        true
    }

    fn touch(_: Line, _: *const u8, _: Access) {
        step();
    }

    fn work(_: Work) {
        step();
    }

    fn memory_limit() -> usize {
        usize::MAX
    }

    fn means() -> Option<Means> {
        None
    }

    fn cpu_count() -> u32 {
        CPUS.load(Relaxed)
    }

    fn current_cpu() -> CpuId {
        CpuId(0)
    }

    fn node_count() -> u8 {
        NODES.load(Relaxed)
    }

    fn node_of(_: CpuId) -> NodeId {
        NodeId(0)
    }

    unsafe fn pop(area: CpuArea, slot: Slot) -> Option<NonNull<u8>> {
        // SAFETY: the caller's obligation; one thread.
        unsafe { pop_owned(area, CpuId(0), slot) }
    }

    unsafe fn push(area: CpuArea, slot: Slot, object: NonNull<u8>) -> bool {
        // SAFETY: the caller's obligations; one thread.
        unsafe { push_owned(area, CpuId(0), slot, object) }
    }

    unsafe fn exchange(area: CpuArea, slot: Slot, new: SheafWord) -> SheafWord {
        // SAFETY: the caller's obligations; one thread.
        unsafe { exchange_owned(area, CpuId(0), slot, new) }
    }

    unsafe fn seize(
        area: CpuArea,
        cpus: Range<u32>,
        caches: Range<u32>,
        take: &mut dyn FnMut(Slot, SheafWord),
    ) {
        for (cpu, slot) in each_slot(cpus, caches) {
            // SAFETY: the caller's obligations; one thread.
            let word = unsafe { exchange_owned(area, cpu, slot, SheafWord::ABSENT) };
            if !word.is_absent() {
                take(slot, word);
            }
        }
    }

    fn fast_slots() -> bool {
        SEQUENCES.load(Relaxed) != 0
    }

    fn token() -> u64 {
        1
    }

    fn pause(_: u32) {}

    fn acquire(_: &RawLock) -> Result<(), Reentered> {
        Ok(())
    }

    fn try_acquire(_: &RawLock) -> bool {
        true
    }

    fn release_lock(_: &RawLock) {}

    fn now() -> u64 {
        Linux::now()
    }

    fn seed() -> u64 {
        1
    }

    fn fatal(_: Fault, _: *const u8) -> ! {
        super::image::leave(super::image::CHANGED)
    }

    fn warn(_: &str) {}
}
