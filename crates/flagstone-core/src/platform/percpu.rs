//! Per-CPU slots: where each CPU keeps its sheaves.
//!
//! ```text
//!   area.base ─► [ zeros: the absent sheaf                     | ... to CPU_STRIDE ]
//!                [ cpu 0:  main of cache 0, 1, .. 255 | spare of cache 0, 1, .. 255 ]
//!                [ cpu 1:  ...                                                      ]
//!
//!   sheaf  ─► { len u32, capacity u32, floor u64 } slots[0] .. slots[capacity-1] | ceiling u64
//!                                        0          o0  o1  stale  stale               0
//!                                                        ▲
//!   a slot holds a SheafWord: where the next object goes, as a distance from area.base
//! ```
//!
//! The word moves with every step, so a step reads it and one entry, and no head: below the
//! first entry and behind the last one lie zeroes, and no entry between is ever zero. A sheaf
//! that its holder owns says its length in the head instead ([`SheafHeader`]).
//!
//! A word of zero is the absent sheaf, which is empty and full at once; so zeroed memory is a
//! valid area, an untouched CPU costs no memory, and the fast path needs no check for it.
//!
//! Four steps exist on a slot, each atomic against the others on the same CPU's slots:
//! - `pop`       entry below the word ≠ 0  →  take it, lower the word by an entry
//! - `push`      entry at the word ≠ 0, entry below ≠ object  →  store object, raise the word
//! - `exchange`  store another word, return the old one: its sheaf is now the caller's
//! - `seize`     exchange with zero on another CPU, after which nothing there is under way
//!
//! Everything else about sheaves is plain code on a sheaf that the caller owns (slab/sheaf.rs).
//!
//! Invariants
//! - `slot.one-home`: a sheaf is in at most one slot, in a barn, or owned by one caller.
//! - `slot.len-bounded`: `len <= capacity`.
//! - `slot.fenced`: in a slot, floor and ceiling of a sheaf are zero and no entry between is.

use super::{LockKind, Platform, RawLock};
use crate::base::CpuId;
use crate::sync::{AtomicBool, AtomicU16, AtomicU32, AtomicUsize, Ordering};
use core::ops::Range;
use core::ptr::NonNull;

/// Caches an area has slots for. Why 256: two words per cache and CPU then fill one 4 KiB page,
/// so that a CPU's slots are found by a shift.
pub const MAX_CACHES: usize = 256;

/// Bytes between one CPU's slots and the next one's.
pub const CPU_STRIDE: usize = 4096;
const _: () = assert!(
    MAX_CACHES * 2 * 8 == CPU_STRIDE,
    "main and spare of every cache"
);

/// CPUs by which an area grows: one word of an operating system's CPU mask.
pub const INDEX_ROUNDING: u32 = 64;

/// Bytes before the first object pointer of a sheaf.
pub const SHEAF_HEADER_BYTES: usize = size_of::<SheafHeader>();
/// Bytes of a sheaf that are no slots: the head and the ceiling.
pub const SHEAF_FRAME_BYTES: usize = SHEAF_HEADER_BYTES + ENTRY;

/// Bytes of an entry.
const ENTRY: usize = size_of::<usize>();

/// Bytes from the base to the entry that the word zero stands for: the last of the zeroes, and
/// the entry below it is one too. Why the last: a sequence that has the address of the first CPU's
/// slots in a register then reaches words and entries with short displacements.
pub const WORD_BIAS: usize = CPU_STRIDE - ENTRY;

/// What lies in an entry that never held an object: not zero, no object's address, and more than
/// the id of any cache, which a fast path may have in a register where it needs something that is
/// almost zero.
pub const ENTRY_UNUSED: usize = MAX_CACHES + 1;

/// The head of a sheaf in memory; `capacity` object pointers and the ceiling follow.
#[repr(C)]
#[derive(Debug)]
pub struct SheafHeader {
    /// Objects held, while somebody owns the sheaf; in a slot the word tells.
    pub len: AtomicU32,
    /// Slots that exist.
    pub capacity: AtomicU16,
    /// Whether it became main from being spare, as the last sheaf that did.
    pub was_spare: AtomicBool,
    /// The next sheaf in a barn's list; zero elsewhere: the floor under the first entry.
    pub link: AtomicUsize,
}

/// A sheaf as a slot stores it: where its next object goes, as the wrapping distance from
/// [`WORD_BIAS`] bytes behind the area's base; zero is absent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct SheafWord(pub usize);

impl SheafWord {
    /// No sheaf.
    pub const ABSENT: Self = Self(0);

    /// Whether there is a sheaf.
    #[inline]
    #[must_use]
    pub const fn is_absent(self) -> bool {
        self.0 == 0
    }
}

/// Index of a slot inside one CPU's block: `main` of a cache, or its `spare`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct Slot(u32);

impl Slot {
    /// The slot of the sheaf in use.
    #[inline]
    #[must_use]
    pub const fn main(cache: usize) -> Self {
        debug_assert!(cache < MAX_CACHES);
        Self(cache as u32)
    }

    /// The slot of the sheaf in reserve.
    #[inline]
    #[must_use]
    pub const fn spare(cache: usize) -> Self {
        debug_assert!(cache < MAX_CACHES);
        Self((MAX_CACHES + cache) as u32)
    }

    /// A slot by number, for walks over all of them.
    #[inline]
    #[must_use]
    pub const fn from_index(index: u32) -> Self {
        debug_assert!((index as usize) < 2 * MAX_CACHES);
        Self(index)
    }

    /// The slot's number inside its CPU's block.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The slots of `caches` on each of `cpus`: CPU by CPU, main ones first.
pub fn each_slot(
    cpus: Range<u32>,
    caches: Range<u32>,
) -> impl Iterator<Item = (CpuId, Slot)> + Clone {
    let spare = MAX_CACHES as u32;
    let slots = caches
        .clone()
        .chain(spare + caches.start..spare + caches.end);
    cpus.flat_map(move |cpu| {
        let of = move |slot| (CpuId(cpu), Slot::from_index(slot));
        slots.clone().map(of)
    })
}

/// The memory of all CPUs' slots.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct CpuArea {
    base: NonNull<u8>,
}

// SAFETY: an address; every use goes through the platform's slot steps.
unsafe impl Send for CpuArea {}
// SAFETY: as above.
unsafe impl Sync for CpuArea {}

impl CpuArea {
    /// Bytes an area for `cpus` CPUs takes, the absent sheaf included.
    ///
    /// Rounded up to [`INDEX_ROUNDING`] CPUs, so that a CPU number which was not expected reads
    /// absent sheaves instead of foreign memory. What is never used costs address space only.
    #[must_use]
    pub const fn bytes_for(cpus: u32) -> usize {
        (cpus.next_multiple_of(INDEX_ROUNDING) as usize + 1) * CPU_STRIDE
    }

    /// An area over zeroed memory.
    ///
    /// # Safety
    /// 1. `base` starts [`CpuArea::bytes_for`] zeroed bytes, aligned to a page, nobody else's.
    #[must_use]
    pub const unsafe fn new(base: NonNull<u8>) -> Self {
        Self { base }
    }

    /// Where the area starts, with the zeroes.
    #[inline]
    #[must_use]
    pub const fn base(self) -> NonNull<u8> {
        self.base
    }

    /// Where the slots of the first CPU are, [`CPU_STRIDE`] bytes behind the start.
    #[inline]
    #[must_use]
    pub const fn slots(self) -> NonNull<u8> {
        // SAFETY: an area has that many bytes before any CPU's.
        unsafe { self.base.byte_add(CPU_STRIDE) }
    }

    /// The word in which a slot keeps its sheaf.
    ///
    /// # Safety
    /// 1. `cpu` is below the platform's CPU count.
    #[inline]
    #[must_use]
    pub unsafe fn word<'a>(self, cpu: CpuId, slot: Slot) -> &'a AtomicUsize {
        let offset = (cpu.index() + 1) * CPU_STRIDE + slot.index() * size_of::<usize>();
        // SAFETY: obligation 1 and the range of `Slot` keep the offset inside the area, which
        // lives as long as the heap and holds only atomics.
        unsafe { self.base.byte_add(offset).cast::<AtomicUsize>().as_ref() }
    }

    /// The entry a word names: where its sheaf's next object goes.
    #[inline]
    #[must_use]
    pub fn entry(self, word: SheafWord) -> NonNull<*mut u8> {
        let offset = word.0.wrapping_add(WORD_BIAS);
        let address = self.base.as_ptr().wrapping_byte_add(offset).cast();
        // SAFETY: words are distances between two non-null addresses (`word_of`).
        unsafe { NonNull::new_unchecked(address) }
    }

    /// The word that names the entry at which the next object goes.
    #[inline]
    #[must_use]
    pub fn word_of(self, entry: NonNull<*mut u8>) -> SheafWord {
        let first = self.base.as_ptr() as usize + WORD_BIAS;
        SheafWord((entry.as_ptr() as usize).wrapping_sub(first))
    }
}

/// The reference implementation of the slot steps: one lock per CPU.
///
/// It serves model checkers, interpreters without assembly, kernels without restartable
/// sequences, and is what the assembly is tested against. The platform keeps the locks, so they
/// are there as soon as it is.
#[derive(Clone, Copy, Debug)]
pub struct LockedSlots<'a> {
    locks: &'a [RawLock],
    area: CpuArea,
}

impl<'a> LockedSlots<'a> {
    /// The steps over `area`, serialised by one lock for each CPU (`locks[cpu]`).
    #[must_use]
    pub fn new(area: CpuArea, locks: &'a [RawLock]) -> Self {
        debug_assert!(locks.iter().all(|l| l.kind() == LockKind::Local));
        Self { locks, area }
    }

    fn on<P: Platform, T>(
        &self,
        cpu: CpuId,
        step: impl FnOnce() -> T,
    ) -> Result<T, super::Reentered> {
        let lock = &self.locks[cpu.index()];
        P::acquire(lock)?;
        let out = step();
        P::release_lock(lock);
        Ok(out)
    }

    /// [`Platform::pop`] on `cpu`; `None` also when a signal handler interrupted the CPU's step.
    ///
    /// # Safety
    /// 1. As for [`Platform::pop`]; `cpu` is below the CPU count.
    pub unsafe fn pop<P: Platform>(&self, cpu: CpuId, slot: Slot) -> Option<NonNull<u8>> {
        self.on::<P, _>(cpu, || {
            // SAFETY: obligation 1; the CPU's lock is held.
            unsafe { pop_owned(self.area, cpu, slot) }
        })
        .ok()
        .flatten()
    }

    /// [`Platform::push`] on `cpu`; `false` also when a signal handler interrupted the CPU's step.
    ///
    /// # Safety
    /// 1. As for [`Platform::push`]; `cpu` is below the CPU count.
    pub unsafe fn push<P: Platform>(&self, cpu: CpuId, slot: Slot, object: NonNull<u8>) -> bool {
        self.on::<P, _>(cpu, || {
            // SAFETY: obligation 1; the CPU's lock is held.
            unsafe { push_owned(self.area, cpu, slot, object) }
        })
        .unwrap_or(false)
    }

    /// [`Platform::exchange`] on `cpu`; hands `new` back when a signal handler interrupted the
    /// CPU's step.
    ///
    /// # Safety
    /// 1. As for [`Platform::exchange`]; `cpu` is below the CPU count.
    pub unsafe fn exchange<P: Platform>(
        &self,
        cpu: CpuId,
        slot: Slot,
        new: SheafWord,
    ) -> SheafWord {
        self.on::<P, _>(cpu, || {
            // SAFETY: obligation 1; the CPU's lock is held.
            unsafe { exchange_owned(self.area, cpu, slot, new) }
        })
        .unwrap_or(new)
    }
}

/// `pop` by a caller that nothing can interrupt on this CPU's slots.
///
/// # Safety
/// 1. As for [`Platform::pop`]; `cpu` is below the CPU count.
/// 2. No other step on this CPU's slots runs at the same time.
#[inline]
pub unsafe fn pop_owned(area: CpuArea, cpu: CpuId, slot: Slot) -> Option<NonNull<u8>> {
    // SAFETY: obligation 1.
    let slot = unsafe { area.word(cpu, slot) };
    let word = slot.load(Ordering::Relaxed);
    // SAFETY: `slot.one-home`: the word names an entry of a live sheaf, ours by obligation 2, or
    // of the absent one; below it lies another entry, or the floor.
    let object = unsafe { area.entry(SheafWord(word)).sub(1).read() };
    if !object.is_null() {
        slot.store(word.wrapping_sub(ENTRY), Ordering::Relaxed);
    }
    NonNull::new(object)
}

/// `push` by a caller that nothing can interrupt on this CPU's slots.
///
/// # Safety
/// 1. As for [`Platform::push`]; `cpu` is below the CPU count.
/// 2. No other step on this CPU's slots runs at the same time.
#[inline]
pub unsafe fn push_owned(area: CpuArea, cpu: CpuId, slot: Slot, object: NonNull<u8>) -> bool {
    // SAFETY: obligation 1.
    let slot = unsafe { area.word(cpu, slot) };
    let word = slot.load(Ordering::Relaxed);
    let entry = area.entry(SheafWord(word));
    // SAFETY: `slot.one-home`: the word names an entry of a live sheaf, ours by obligation 2, or
    // of the absent one; or it names the ceiling.
    let full = unsafe { entry.read() }.is_null();
    // SAFETY: as above; below it lies another entry, or the floor.
    let top = unsafe { entry.sub(1).read() };
    if full || top == object.as_ptr() {
        return false;
    }
    // SAFETY: neither floor nor ceiling nor absent (`slot.fenced`): an entry of our sheaf.
    unsafe { entry.write(object.as_ptr()) };
    slot.store(word.wrapping_add(ENTRY), Ordering::Relaxed);
    true
}

/// `exchange` by a caller that nothing can interrupt on this CPU's slots.
///
/// # Safety
/// 1. As for [`Platform::exchange`]; `cpu` is below the CPU count.
/// 2. No other step on this CPU's slots runs at the same time.
#[inline]
pub unsafe fn exchange_owned(area: CpuArea, cpu: CpuId, slot: Slot, new: SheafWord) -> SheafWord {
    // SAFETY: obligation 1.
    let word = unsafe { area.word(cpu, slot) };
    SheafWord(word.swap(new.0, Ordering::AcqRel))
}
