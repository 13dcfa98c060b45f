//! Per-CPU slots: restartable sequences where they are ready, one lock per CPU elsewhere.
//!
//! The locked form is the plain code of `flagstone_core::platform::percpu` under a lock that is
//! never held across anything that can block. Its locks lie in static memory, a line each.
//!
//! `seize` under sequences, step by step:
//!
//! 1. close the CPU's index, and fence: no `exchange` happens there any more, so each slot keeps
//!    its sheaf or none; `pop` and `push` go on. (A caller whose exchange is refused keeps its
//!    sheaf in hand and finds another place for it.)
//! 2. swap each word to absent, and fence. A `pop` or `push` that starts after the swap finds no
//!    sheaf. One that read the old word before has committed or will restart and read the new
//!    one; a preempted one restarts before its next instruction.
//! 3. what committed after the swap put its word over ours: the sheaf is back in its slot, one
//!    object more or less. So swap again, until a fence has passed and nothing came back.
//! 4. open the index, hand out: nobody but the caller knows the sheaves any more.
//!
//! Without the fence (Linux before 5.10, or beside a filter, [`crate::filter`]) nothing of another CPU may
//! be handed out, so nothing is swapped; the caller's own CPU gives up its sheaves by `exchange`.

use crate::world::Linux;
use crate::{filter, membarrier, rseq, seizing, thread};
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use flagstone_core::base::CpuId;
use flagstone_core::platform::percpu::{exchange_owned, pop_owned, push_owned};
use flagstone_core::platform::{
    ASK_AFTER, CpuArea, LockKind, MAX_CACHES, Platform, RawLock, SheafWord, Slot,
};

/// Locks of the locked form; CPUs beyond share. Doubling costs 4 KiB of zeroed memory.
const LOCKS: usize = 64;

/// Slots of one CPU.
const SLOTS: usize = 2 * MAX_CACHES;

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
fn locked_on<T>(cpu: CpuId, step: impl FnOnce(CpuId) -> T) -> Option<T> {
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

/// `Platform::seize` in either form.
///
/// # Safety
/// 1. As for `Platform::seize`.
pub unsafe fn seize(
    area: CpuArea,
    cpu: CpuId,
    slots: Range<u32>,
    take: &mut dyn FnMut(Slot, SheafWord),
) {
    if fast() {
        // SAFETY: obligation 1.
        unsafe { seize_fenced(area, cpu, slots, take) }
    } else {
        // SAFETY: obligation 1.
        unsafe { seize_locked(area, cpu, slots, take) }
    }
}

/// `Platform::seize` beside restartable sequences; hands out nothing without the kernel's fence.
///
/// # Safety
/// 1. As for `Platform::seize`.
pub unsafe fn seize_fenced(
    area: CpuArea,
    cpu: CpuId,
    slots: Range<u32>,
    take: &mut dyn FnMut(Slot, SheafWord),
) {
    // SAFETY: obligation 1.
    if !unsafe { any_there(area, cpu, slots.clone()) } {
        return;
    }
    let permit = filter::permit();
    if permit.is_none() || !membarrier::ready() {
        if rseq::index() == cpu.0 {
            // SAFETY: obligation 1; sequences are ready.
            unsafe { take_own(area, slots, take) };
        }
        return;
    }
    if !seizing::begin() {
        return;
    }
    rseq::close(cpu.0);
    let mut taken = [SheafWord::ABSENT; SLOTS];
    // SAFETY: obligation 1.
    let settled = unsafe { swap_until_settled(area, cpu, slots.clone(), &mut taken) };
    rseq::open();
    drop(permit);
    if settled {
        hand_out(slots, &taken, take);
    }
    seizing::end();
}

/// What the caller's own CPU has in `slots`, without a fence: by steps that belong to this CPU. Where the
/// caller moves on meanwhile, the rest is another CPU's.
///
/// # Safety
/// 1. As for `Platform::seize`.
/// 2. Sequences are ready.
unsafe fn take_own(area: CpuArea, slots: Range<u32>, take: &mut dyn FnMut(Slot, SheafWord)) {
    for slot in slots.map(Slot::from_index) {
        // SAFETY: obligations 1 and 2.
        let word = unsafe { rseq::exchange(area, slot, SheafWord::ABSENT) };
        if !word.is_absent() {
            take(slot, word);
        }
    }
}

/// Swaps words with absent until none comes back; whether that was reached. What was taken
/// otherwise is lost, which is the safe side.
///
/// # Safety
/// 1. As for `Platform::seize`; the index is closed.
unsafe fn swap_until_settled(
    area: CpuArea,
    cpu: CpuId,
    slots: Range<u32>,
    taken: &mut [SheafWord; SLOTS],
) -> bool {
    for _ in 0..SEIZE_ROUNDS {
        if !membarrier::fence() {
            return false;
        }
        // SAFETY: obligation 1.
        if !unsafe { swap_out(area, cpu, slots.clone(), taken) } {
            return true;
        }
    }
    false
}

/// Rounds of swapping before `seize` gives up what came back in every one of them. Each round
/// too many takes a step that lay across its swap; three in a row were never seen.
const SEIZE_ROUNDS: u32 = 100;

/// Whether any of the slots has a sheaf. Only reads, so that looking at an untouched CPU costs no
/// memory.
///
/// # Safety
/// 1. As for `Platform::seize`.
unsafe fn any_there(area: CpuArea, cpu: CpuId, mut slots: Range<u32>) -> bool {
    slots.any(|index| {
        // SAFETY: obligation 1.
        let word = unsafe { area.word(cpu, Slot::from_index(index)) };
        word.load(Ordering::Relaxed) != 0
    })
}

/// `Platform::seize` beside the locked form.
///
/// # Safety
/// 1. As for `Platform::seize`.
pub unsafe fn seize_locked(
    area: CpuArea,
    cpu: CpuId,
    slots: Range<u32>,
    take: &mut dyn FnMut(Slot, SheafWord),
) {
    if !seizing::begin() {
        return;
    }
    let mut taken = [SheafWord::ABSENT; SLOTS];
    let swap = |cpu| {
        // SAFETY: obligation 1; the CPU's lock is held.
        unsafe { swap_out(area, cpu, slots.clone(), &mut taken) }
    };
    if locked_on(cpu, swap) == Some(true) {
        hand_out(slots, &taken, take);
    }
    seizing::end();
}

fn hand_out(slots: Range<u32>, taken: &[SheafWord; SLOTS], take: &mut dyn FnMut(Slot, SheafWord)) {
    for (index, &word) in slots.clone().zip(&taken[slots.start as usize..]) {
        if !word.is_absent() {
            take(Slot::from_index(index), word);
        }
    }
}

/// Swaps the words of `slots` with absent; whether any was there. Only reads the words of an
/// untouched CPU, so that looking at it costs no memory.
///
/// # Safety
/// 1. As for `Platform::seize`.
unsafe fn swap_out(
    area: CpuArea,
    cpu: CpuId,
    slots: Range<u32>,
    taken: &mut [SheafWord; SLOTS],
) -> bool {
    let mut any = false;
    for index in slots {
        // SAFETY: obligation 1.
        let word = unsafe { area.word(cpu, Slot::from_index(index)) };
        if word.load(Ordering::Relaxed) != 0 {
            let old = SheafWord(word.swap(0, Ordering::AcqRel));
            taken[index as usize] = old;
            any |= !old.is_absent();
        }
    }
    any
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
