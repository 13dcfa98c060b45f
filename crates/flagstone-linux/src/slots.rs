//! Per-CPU slots: restartable sequences where they are ready, one lock per CPU elsewhere.
//!
//! The locked form is the plain code of `flagstone_core::platform::percpu` under a lock that is
//! never held across anything that can block. Its locks lie in static memory, a line each.
//!
//! Taking sheaves out of any CPU's slots: [`crate::take_over`].

use crate::world::Linux;
use crate::{rseq, seizing, thread};
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use flagstone_core::base::CpuId;
use flagstone_core::platform::percpu::{exchange_owned, pop_owned, push_owned};
use flagstone_core::platform::{ASK_AFTER, CpuArea, LockKind, Platform, RawLock, SheafWord, Slot};

/// Locks of the locked form; CPUs beyond share. Doubling costs 4 KiB of zeroed memory.
const LOCKS: usize = 64;

/// CPUs for whose slots there is a fixed place. Why 448: the place then stays below 2 MiB, so that
/// no huge page ever backs what is used in spots; it costs address space only. A machine with
/// more CPUs takes the heap's memory, and the longer path that looks it up.
const PLACE_CPUS: u32 = 448;

/// A fixed place for one heap's slots, in a program's zeroed data, so that a fast path written
/// for it knows the address when it is linked.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Place(UnsafeCell<[u8; CpuArea::bytes_for(PLACE_CPUS)]>);

// SAFETY: given to one heap, which uses it through slot steps only.
unsafe impl Sync for Place {}

impl Place {
    /// A place that nobody was given yet.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "only useful in a static")]
    pub const fn new() -> Self {
        Self(UnsafeCell::new([0; CpuArea::bytes_for(PLACE_CPUS)]))
    }
}

pub use crate::rseq::{
    COUNTED_OFFSET, DENSE_OFFSET, INDEX_OFFSET, MM_CID_BEHIND, POP_OFFSET, divert,
};

/// The place for the next heap that asks for slots, if one was offered.
static OFFERED: AtomicPtr<Place> = AtomicPtr::new(core::ptr::null_mut());
/// The place that was given to a heap.
static GIVEN: AtomicPtr<Place> = AtomicPtr::new(core::ptr::null_mut());

/// Offers a place to the next heap that is built; once, and before it is.
pub fn offer(place: &'static Place) {
    OFFERED.store(core::ptr::from_ref(place).cast_mut(), Ordering::Relaxed);
}

/// `Platform::slot_memory`.
pub fn memory(bytes: usize) -> Option<NonNull<u8>> {
    if bytes > size_of::<Place>() {
        return None;
    }
    let place = OFFERED.swap(core::ptr::null_mut(), Ordering::Relaxed);
    GIVEN.store(place, Ordering::Relaxed);
    NonNull::new(place.cast())
}

/// Whether a heap's slots are at `place`, and the dense index is found from the distance
/// `cs_offset` of `rseq_cs` to the thread pointer: what a fast path that has both as constants
/// must ask before it is let through.
#[must_use]
pub fn lie_at(place: &'static Place, cs_offset: isize) -> bool {
    cs_offset != 0
        && DENSE_OFFSET.load(Ordering::Relaxed) == cs_offset
        && core::ptr::eq(GIVEN.load(Ordering::Relaxed), place)
}

/// A lock on its own cache line.
#[repr(align(64))]
struct Padded(RawLock);

/// The locks of the locked form.
struct Locks(UnsafeCell<MaybeUninit<[Padded; LOCKS]>>);

// SAFETY: written once by `start`, before any other thread uses the heap; locks afterwards.
unsafe impl Sync for Locks {}

static TABLE: Locks = Locks(UnsafeCell::new(MaybeUninit::uninit()));
/// Slots the locked form uses; zero before `start`.
static LOCKED_COUNT: AtomicU32 = AtomicU32::new(0);

/// Prepares both forms for `count` CPUs. Called once, before any other thread uses the heap.
pub fn start(count: u32) {
    let table = TABLE.0.get().cast::<Padded>();
    for index in 0..LOCKS {
        // SAFETY: inside the table; nobody reads it yet.
        unsafe {
            table
                .add(index)
                .write(Padded(RawLock::new(LockKind::Local)))
        };
    }
    LOCKED_COUNT.store(count.min(LOCKS as u32), Ordering::Release);
    rseq::start(count);
}

/// Whether the restartable sequences serve.
#[inline(always)]
#[must_use]
pub fn fast() -> bool {
    rseq::ready()
}

/// The slot index of the caller at this moment.
#[inline]
#[must_use]
pub fn current() -> u32 {
    if fast() { rseq::index() } else { processor() }
}

/// The CPU as the C library tells it, or a number drawn from the thread pointer.
fn processor() -> u32 {
    // SAFETY: no preconditions; served by the vDSO.
    let cpu = unsafe { libc::sched_getcpu() };
    u32::try_from(cpu).unwrap_or((thread::token() >> 12) as u32)
}

/// Rounds of waiting for a CPU's lock, about twenty milliseconds in all: a holder that was merely
/// preempted is mostly back by then.
const PATIENCE: u32 = 64;

/// Runs `step` on the caller's CPU under its lock; `None` if this thread holds it already (a
/// signal handler on top of a step).
#[inline(never)]
fn locked<T>(step: impl FnOnce(CpuId) -> T) -> Option<T> {
    let cpu = CpuId(processor() % LOCKED_COUNT.load(Ordering::Relaxed).max(1));
    locked_on(cpu, step)
}

/// `None` also where the lock does not come free: two signal handlers, each on top of a holder,
/// may each want the other's lock. Whoever gets no slot goes on without one.
pub(crate) fn locked_on<T>(cpu: CpuId, step: impl FnOnce(CpuId) -> T) -> Option<T> {
    let lock = lock_of(cpu)?;
    let mut round = 0;
    while !Linux::try_acquire(lock) {
        let above = || round == ASK_AFTER && stands_on_top();
        if round == PATIENCE || lock.holder() == Linux::token() || above() {
            return None;
        }
        Linux::pause(round);
        round += 1;
    }
    let out = step(cpu);
    Linux::release_lock(lock);
    Some(out)
}

/// Whether the caller interrupted the holder of any CPU's lock, or of one that comes after these. The
/// former has moved on to another CPU since: if it waited, the holder would not go on.
fn stands_on_top() -> bool {
    Linux::holds_from(LockKind::Local)
}

fn lock_of(cpu: CpuId) -> Option<&'static RawLock> {
    if cpu.0 >= LOCKED_COUNT.load(Ordering::Acquire) {
        return None;
    }
    // SAFETY: below the count, which is stored after the table is written.
    Some(unsafe { &(*TABLE.0.get().cast::<Padded>().add(cpu.index())).0 })
}

/// `Platform::pop` in the locked form.
///
/// # Safety
/// 1. As for `Platform::pop`.
#[cold]
pub unsafe fn pop_locked(area: CpuArea, slot: Slot) -> Option<NonNull<u8>> {
    // SAFETY: obligation 1; the CPU's lock is held.
    locked(|cpu| unsafe { pop_owned(area, cpu, slot) }).flatten()
}

/// `Platform::push` in the locked form.
///
/// # Safety
/// 1. As for `Platform::push`.
#[cold]
pub unsafe fn push_locked(area: CpuArea, slot: Slot, object: NonNull<u8>) -> bool {
    // SAFETY: obligation 1; the CPU's lock is held.
    locked(|cpu| unsafe { push_owned(area, cpu, slot, object) }).unwrap_or(false)
}

/// `Platform::exchange` in either form.
///
/// # Safety
/// 1. As for `Platform::exchange`.
pub unsafe fn exchange(area: CpuArea, slot: Slot, new: SheafWord) -> SheafWord {
    if fast() {
        // SAFETY: obligation 1; sequences are ready.
        unsafe { rseq::exchange(area, slot, new) }
    } else {
        // SAFETY: obligation 1.
        unsafe { exchange_locked(area, slot, new) }
    }
}

/// `Platform::exchange` in the locked form.
///
/// # Safety
/// 1. As for `Platform::exchange`.
#[cold]
pub unsafe fn exchange_locked(area: CpuArea, slot: Slot, new: SheafWord) -> SheafWord {
    // SAFETY: obligation 1; the CPU's lock is held.
    locked(|cpu| unsafe { exchange_owned(area, cpu, slot, new) }).unwrap_or(new)
}

/// `Platform::pop` as a restartable sequence.
///
/// # Safety
/// 1. As for `Platform::pop`.
/// 2. [`fast`] was true.
#[inline(always)]
pub unsafe fn pop_fast(area: CpuArea, slot: Slot) -> Option<NonNull<u8>> {
    // SAFETY: obligations 1 and 2.
    unsafe { rseq::pop(area, slot) }
}

/// `Platform::push` as a restartable sequence.
///
/// # Safety
/// 1. As for `Platform::push`.
/// 2. [`fast`] was true.
#[inline(always)]
pub unsafe fn push_fast(area: CpuArea, slot: Slot, object: NonNull<u8>) -> bool {
    // SAFETY: obligations 1 and 2.
    unsafe { rseq::push(area, slot, object) }
}

/// In the child of a fork: frees the locks of holders that no longer exist. What the forking thread
/// itself was in the middle of, below its signal handler, goes on.
pub fn reset_after_fork() {
    for cpu in 0..LOCKED_COUNT.load(Ordering::Relaxed) {
        if let Some(lock) = lock_of(CpuId(cpu)) {
            lock.reset::<Linux>();
        }
    }
    if !seizing::is_own() {
        rseq::open();
    }
}

#[cfg(test)]
#[path = "slots_tests.rs"]
mod tests;
