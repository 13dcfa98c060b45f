//! Layer 1: what a world must offer so that the allocator can run in it.
//!
//! ```text
//!               core ──────────────► P: Platform
//!                     memory         reserve · commit · decommit · release · remap
//!                     cpus           cpu_count · current_cpu · node_of
//!                     per-CPU slots  pop · push · exchange · seize          (percpu.rs)
//!                     locks          acquire · try_acquire · release        (lock.rs)
//!                     shared lines   touch(line, access) · work(amount)     (cost.rs)
//!                     time, chance   now · seed
//!                     reports        fatal · warn
//! ```
//!
//! A platform is a type, never a value: all methods are associated functions, so that the real
//! world adds no bytes and no indirection, and worlds coexist in one program. The seam carries
//! time: every access to shared state passes `touch` or a lock, which is nothing at all on real
//! hardware, a scheduling point with a cost on the virtual machine, and a choice in a checker.

mod cost;
mod held;
mod lock;
pub mod percpu;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(all(loom, any(test, feature = "testing")))]
pub mod world_loom;

pub use cost::{Access, Function, Line, Within, Work};
pub use held::Held;
pub use lock::{ASK_AFTER, Guard, Lock, LockKind, RawLock, Reentered};
pub use percpu::{
    CPU_STRIDE, CpuArea, ENTRY_UNUSED, INDEX_ROUNDING, LockedSlots, MAX_CACHES, SHEAF_FRAME_BYTES,
    SHEAF_HEADER_BYTES, SheafHeader, SheafWord, Slot, WORD_BIAS,
};

use crate::base::{CpuId, Means, NodeId, PageSize};
use core::ptr::NonNull;

/// Memory could not be had: the system refused, or a limit is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfMemory;

/// Why a range could not be mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotMapped {
    /// The system refused, or a limit is reached.
    Refused,
    /// Somebody else's memory lies there.
    Taken,
}

/// A mistake of the program above, or damage it did, that must end it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// An object was freed that is free already.
    DoubleFree,
    /// The address is not the start of a live block.
    InvalidFree,
    /// The address is misaligned for any block.
    MisalignedFree,
    /// A free object's link was overwritten (write after free, or an overrun).
    CorruptedFreeList,
    /// A sized free named a size of another class.
    WrongSize,
    /// A broken invariant of our own.
    Broken(&'static str),
}

impl Fault {
    /// The sentence printed after `flagstone: `.
    #[must_use]
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::DoubleFree => "double free: this block is free already",
            Self::InvalidFree => "invalid free: not the start of a block of this allocator",
            Self::MisalignedFree => "invalid free: the address is misaligned for any block",
            Self::CorruptedFreeList => {
                "corrupted free object: something wrote to a block after freeing it"
            }
            Self::WrongSize => "sized free: the size given is not the block's",
            Self::Broken(name) => name,
        }
    }
}

/// A stretch of memory, as system calls for several take it (`struct iovec`).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Extent {
    /// Its first byte.
    pub start: NonNull<u8>,
    /// Its length.
    pub bytes: usize,
}

impl Extent {
    /// Nothing.
    pub const NONE: Self = Self {
        start: NonNull::dangling(),
        bytes: 0,
    };
}

/// A mistake that this core made once. A world may ask for it back, to see that its checks find it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Planted {
    /// Whoever took a slab's last object looks a second time whether the slab is full.
    AnotherLook,
}

/// Names no object engine: a world with it serves all its caches by sheaves (`slab::ObjectEngine`).
#[derive(Clone, Copy, Debug)]
pub struct SheavesOnly;

/// The world below: an operating system, a kernel, a virtual machine or a model checker.
///
/// # Safety
/// 1. `reserve` returns address space nobody else uses; `commit` makes it readable and writable,
///    and zero where it was never committed or was decommitted since.
/// 2. `cpu_count` never changes, and `current_cpu` is always below it.
/// 3. `pop`, `push`, `exchange` and `seize` are atomic against each other on one CPU's slots, as
///    `percpu.rs` states them.
/// 4. `acquire` and `release` give mutual exclusion with acquire and release ordering.
/// 5. `fatal` does not return.
pub unsafe trait Platform: Sized + 'static {
    // ---- memory -------------------------------------------------------------------------

    /// The binary logarithm of the page size, where it is known when this is compiled.
    const PAGE_SHIFT: Option<usize> = None;

    /// The system's page size.
    fn page_size() -> PageSize;

    /// Reserves address space aligned to `align` (a power of two), not yet usable.
    fn reserve(bytes: usize, align: usize) -> Option<NonNull<u8>>;

    /// Makes part of a reservation usable.
    ///
    /// # Errors
    /// `OutOfMemory` when the system refuses; nothing changed then.
    ///
    /// # Safety
    /// 1. The range is page-aligned and inside one live reservation.
    unsafe fn commit(start: NonNull<u8>, bytes: usize) -> Result<(), OutOfMemory>;

    /// A reservation of [`Platform::reserve`], usable.
    #[must_use]
    fn reserve_whole(bytes: usize, align: usize) -> Option<NonNull<u8>> {
        let start = Self::reserve(bytes, align)?;
        // SAFETY: the whole of a fresh reservation, which nobody uses where it is given back.
        unsafe {
            match Self::commit(start, bytes) {
                Ok(()) => Some(start),
                Err(OutOfMemory) => {
                    Self::release(start, bytes);
                    None
                }
            }
        }
    }

    /// Gives the contents back to the system. The range stays usable and reads as zero.
    ///
    /// # Safety
    /// 1. The range is page-aligned, committed, and nobody uses what it held.
    unsafe fn decommit(start: NonNull<u8>, bytes: usize);

    /// The same of several extents, at once where the world can.
    ///
    /// # Safety
    /// 1. As for [`Platform::decommit`], for each of them.
    unsafe fn decommit_all(extents: &[Extent]) {
        for &Extent { start, bytes } in extents {
            // SAFETY: obligation 1.
            unsafe { Self::decommit(start, bytes) };
        }
    }

    /// Ends (part of) a reservation.
    ///
    /// # Safety
    /// 1. The range is page-aligned, reserved, and nobody uses it again.
    unsafe fn release(start: NonNull<u8>, bytes: usize);

    /// Resizes a committed reservation in place or by moving pages, keeping its contents;
    /// `None` where the world cannot, and then nothing changed.
    ///
    /// # Safety
    /// 1. `start` and `old_bytes` are one whole reservation, page-aligned, committed.
    unsafe fn remap(start: NonNull<u8>, old_bytes: usize, new_bytes: usize) -> Option<NonNull<u8>>;

    /// Bytes of pages worth claiming where address space is limited; `None` where it is not, or where
    /// the world cannot map a range of the caller's choice: then a heap reserves.
    fn claim_span() -> Option<usize> {
        None
    }

    /// The start of a range that nobody uses now, aligned to `align`. It is not reserved and costs
    /// nothing: [`Platform::map`] tells where somebody else came first.
    fn claim(_bytes: usize, _align: usize) -> Option<NonNull<u8>> {
        None
    }

    /// Maps a part of a claim, or what was unmapped before: usable and zero.
    ///
    /// # Errors
    /// Nothing changed: see [`NotMapped`].
    ///
    /// # Safety
    /// 1. The range is page-aligned and inside a claim or a former reservation of the caller's, and
    ///    nothing of the caller's is mapped there.
    unsafe fn map(_start: NonNull<u8>, _bytes: usize) -> Result<(), NotMapped> {
        Err(NotMapped::Refused)
    }

    /// Gives a range up to the system, as [`Platform::release`], for [`Platform::map`] to map it again.
    /// `false`, and nothing changed, where the world cannot.
    ///
    /// # Safety
    /// 1. The range is page-aligned, the caller's, and nobody uses what it held.
    unsafe fn unmap(_start: NonNull<u8>, _bytes: usize) -> bool {
        false
    }

    /// A huge block was mapped: a world may give the mapping a name.
    fn mapped_huge(_start: NonNull<u8>, _bytes: usize) {}

    /// Called by slow paths of a heap that is watched, while no lock is held: a moment to take figures.
    fn observe() {}

    /// Whether a node may come to hold so many pages: a limit of the user's. Asked under its zone's lock.
    fn may_hold(_node: NodeId, _pages: impl FnOnce() -> usize) -> bool {
        true
    }

    /// Bytes of memory this process may use in all (physical memory or a container's limit).
    fn memory_limit() -> usize;

    /// Address space in bytes that this process may still map, negative where a limit was lowered
    /// below what is mapped; `None` where nothing limits it.
    #[must_use]
    fn address_space_left() -> Option<isize> {
        None
    }

    /// Whether asking for limits and cache sizes takes system calls: then a heap is built with
    /// [`Platform::memory_at_start`] and asks once it has grown.
    const ASKS_LATE: bool = false;

    /// An upper bound of [`Platform::memory_limit`] that costs next to nothing.
    #[must_use]
    fn memory_at_start() -> usize {
        Self::memory_limit()
    }

    /// What this process may use now; it may change. Upkeep asks about once a second. `None` where
    /// nobody may ask any more: then the last answer stays.
    fn means() -> Option<Means> {
        Some(Means {
            memory_bytes: Self::memory_limit(),
            cpus: Self::cpu_count(),
            cpus_in_reach: Self::cpu_count(),
        })
    }

    // ---- CPUs ---------------------------------------------------------------------------

    /// Number of CPU slots: fixed, at least one.
    fn cpu_count() -> u32;

    /// The CPU slot of the caller: a hint that may be stale at once.
    fn current_cpu() -> CpuId;

    /// Number of memory nodes: fixed, at least one.
    fn node_count() -> u8;

    /// The memory node near a CPU slot.
    fn node_of(cpu: CpuId) -> NodeId;

    /// Bytes of data cache that belong to one CPU (last-level size over its sharers), for the
    /// pageset rule of S3; zero when unknown.
    fn cache_slice_bytes() -> usize {
        0
    }

    // ---- per-CPU slots: see percpu.rs ---------------------------------------------------

    /// `bytes` of zeroed memory, aligned to a page, that this world keeps for the slots of one
    /// heap at a place its fast path knows without looking it up; the caller's for ever. `None`
    /// (the default, too many bytes, or given away): a heap takes memory of its own.
    fn slot_memory(_bytes: usize) -> Option<NonNull<u8>> {
        None
    }

    /// Takes the top object of the sheaf in `slot` of the current CPU; `None` if it is empty.
    ///
    /// # Safety
    /// 1. `area` was set up by this core and `slot` is inside it.
    unsafe fn pop(area: CpuArea, slot: Slot) -> Option<NonNull<u8>>;

    /// Puts `object` on the sheaf in `slot` of the current CPU. `false`, and nothing changed,
    /// if the sheaf is full or `object` is its top already (a double free).
    ///
    /// # Safety
    /// 1. As for [`Platform::pop`].
    /// 2. The caller owns `object`.
    unsafe fn push(area: CpuArea, slot: Slot, object: NonNull<u8>) -> bool;

    /// [`Platform::pop`] without the question which form serves, for the hottest path.
    ///
    /// # Safety
    /// 1. As for [`Platform::pop`].
    /// 2. [`Platform::fast_slots`] was true.
    #[inline(always)]
    unsafe fn pop_fast(area: CpuArea, slot: Slot) -> Option<NonNull<u8>> {
        // SAFETY: obligation 1.
        unsafe { Self::pop(area, slot) }
    }

    /// [`Platform::push`] without the question which form serves, for the hottest path.
    ///
    /// # Safety
    /// 1. As for [`Platform::push`].
    /// 2. [`Platform::fast_slots`] was true.
    #[inline(always)]
    unsafe fn push_fast(area: CpuArea, slot: Slot, object: NonNull<u8>) -> bool {
        // SAFETY: obligation 1.
        unsafe { Self::push(area, slot, object) }
    }

    /// Puts the sheaf `new` (or none) into `slot` of the current CPU and returns what was there;
    /// the caller owns that exclusively. It returns `new` itself, and nothing changed, where the
    /// step cannot be done now (a signal handler on top of a locked step, an unknown CPU).
    ///
    /// # Safety
    /// 1. As for [`Platform::pop`].
    /// 2. The caller owns `new` and gives it up.
    unsafe fn exchange(area: CpuArea, slot: Slot, new: SheafWord) -> SheafWord;

    /// Takes the sheaves of `caches` out of the slots of `cpus`, also of CPUs that are running.
    /// Afterwards no operation there can still touch them; each is handed to `take`.
    ///
    /// # Safety
    /// 1. As for [`Platform::pop`], for every slot of the caches; the CPUs exist.
    unsafe fn seize(
        area: CpuArea,
        cpus: core::ops::Range<u32>,
        caches: core::ops::Range<u32>,
        take: &mut dyn FnMut(Slot, SheafWord),
    );

    /// Whether `pop` and `push` may be used at any time by this thread (false before start-up
    /// is done and where the system has no restartable sequences: then the locked form serves).
    fn fast_slots() -> bool {
        true
    }

    // ---- locks: see lock.rs -------------------------------------------------------------

    /// A value that is the same for one thread of execution and different for two; never zero.
    fn token() -> u64;

    /// Waits in round `round` (from 0) for a lock that another holds.
    fn pause(round: u32);

    /// Takes `lock`, waiting as long as needed.
    ///
    /// # Errors
    /// `Reentered` if the caller holds it already (a signal handler on top of the holder).
    #[inline]
    fn acquire(lock: &RawLock) -> Result<(), Reentered> {
        lock.acquire_spinning::<Self>()
    }

    /// Takes `lock` if it is free.
    #[inline]
    fn try_acquire(lock: &RawLock) -> bool {
        lock.try_acquire_now::<Self>()
    }

    /// The caller is about to take a lock of `kind`: a count in the thread's own word ([`Held`]),
    /// nothing where no handlers come.
    #[inline(always)]
    fn note_taking(_kind: LockKind) {}

    /// The caller gave a lock of `kind` back, or did not get it.
    #[inline(always)]
    fn note_given_back(_kind: LockKind) {}

    /// Whether the caller holds a lock of `kind` or of one that comes after it, which only a signal
    /// handler does that wants a lock of `kind`: a look at that word. `false` (the default) where no
    /// handlers come.
    fn holds_from(_kind: LockKind) -> bool {
        false
    }

    /// Gives `lock` back.
    #[inline]
    fn release_lock(lock: &RawLock) {
        lock.release_now::<Self>();
    }

    // ---- per-CPU sections: the engines with a slab per CPU (ADR 0012) ---------------------

    /// Enters one CPU's section for the few instructions of an allocation or a free that stay
    /// on this CPU. A kernel does them with one compare-and-swap local to the CPU; a world
    /// where that is free of other cost overrides this. Slow paths use [`Platform::acquire`] on
    /// the same lock.
    ///
    /// # Errors
    /// `Reentered` if the caller is inside already (a signal handler on top of a section).
    #[inline]
    fn enter_local(lock: &RawLock) -> Result<(), Reentered> {
        Self::acquire(lock)
    }

    /// Leaves the section entered by [`Platform::enter_local`].
    #[inline]
    fn leave_local(lock: &RawLock) {
        Self::release_lock(lock);
    }

    /// The line of `address`, which may be any, is wanted soon: a hint, so that its fetch need not be waited for.
    #[inline(always)]
    fn fetch_ahead(_address: *const u8) {}

    // ---- the seam that carries time -----------------------------------------------------

    /// The caller is about to access a line other CPUs may hold. `line` says which kind,
    /// `address` which one. Nothing on real hardware.
    #[inline(always)]
    fn touch(_line: Line, _address: *const u8, _access: Access) {}

    /// The caller changed a shared word just now: from here on others act on it, on other CPUs and
    /// in signal handlers on top of the caller. Nothing on real hardware.
    #[inline(always)]
    fn changed() {}

    /// The caller does private work. Nothing on real hardware.
    #[inline(always)]
    fn work(_work: Work) {}

    /// The caller's time belongs to `function` from here on; answers to whom it belonged before.
    /// Nothing on real hardware.
    #[inline(always)]
    fn enter_function(function: Function) -> Function {
        function
    }

    /// The caller's time belongs to `before` again. Nothing on real hardware.
    #[inline(always)]
    fn leave_function(_before: Function) {}

    // ---- time, chance, reports ----------------------------------------------------------

    /// Monotonic nanoseconds; coarse is fine (milliseconds).
    fn now() -> u64;

    /// Entropy, read once at start-up.
    fn seed() -> u64;

    /// Reports a fault in one line and ends the program without unwinding or allocating.
    fn fatal(fault: Fault, address: *const u8) -> !;

    /// Whether this world wants the mistake `planted`; a constant `false` but in worlds that check.
    #[inline(always)]
    fn planted(_planted: Planted) -> bool {
        false
    }

    /// Reports one line without allocating.
    fn warn(line: &str);
}
