//! Restartable sequences through the area the C library registered.
//!
//! ```text
//!   struct rseq, at thread pointer + __rseq_offset
//!     0  cpu_id_start   4  cpu_id   8  rseq_cs   16 flags   20 node_id   24 mm_cid
//! ```
//!
//! A sequence stores the address of its descriptor in `rseq_cs`, reads its index, works, and
//! commits by one store; the kernel restarts it when the thread was preempted, migrated or
//! interrupted by a signal before that store. So nothing on one index ever runs half-way beside
//! another, without a lock and without a locked instruction.
//!
//! A step commits by storing the slot's word, so another CPU's `seize`, which stores there too,
//! must first keep `exchange` away ([`close`]); slots.rs says how it then comes by the sheaf.
//!
//! The index is `mm_cid` where the kernel keeps it (Linux 6.3: dense, bounded by threads and by
//! allowed CPUs), otherwise `cpu_id`. We never register an area of our own: a thread has one, and
//! it is the C library's.
//!
//! A thread whose area the kernel does not keep, such as the child of a `vfork`, must not use it: strangers.rs.

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub use x86_64::{exchange_below, index, node, pop, push, registered};
#[cfg(all(test, target_arch = "x86_64"))]
pub use x86_64::{exchange_below_slowly, pop_slowly, push_slowly};

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "aarch64")]
pub use aarch64::{exchange_below, index, node, pop, push, registered};
#[cfg(all(test, target_arch = "aarch64"))]
pub use aarch64::{exchange_below_slowly, pop_slowly, push_slowly};

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod unsupported;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub use unsupported::{exchange_below, index, node, pop, push, registered};

use core::sync::atomic::{AtomicIsize, AtomicU32, Ordering};
use flagstone_core::platform::{CpuArea, SheafWord, Slot};

/// `AT_RSEQ_FEATURE_SIZE`: how many bytes of the area this kernel keeps up to date.
const AT_RSEQ_FEATURE_SIZE: libc::c_ulong = 27;
/// The feature size from which `mm_cid` is kept (it ends at byte 28).
const FEATURES_WITH_MM_CID: u64 = 28;

const CPU_ID: isize = 4;
const RSEQ_CS: isize = 8;
#[cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64")),
    expect(dead_code, reason = "no area is read there")
)]
const NODE_ID: isize = 20;
const MM_CID: isize = 24;

/// Distance from the thread pointer to `rseq_cs`; zero while sequences may not be used. (Zero is
/// the thread control block itself, so no area lies there.)
static CS_OFFSET: AtomicIsize = AtomicIsize::new(0);
/// Distance from the thread pointer to the index: `mm_cid` or `cpu_id`; zero while sequences may not be used.
pub static INDEX_OFFSET: AtomicIsize = AtomicIsize::new(0);
/// The same as `CS_OFFSET` where the index is `mm_cid`, which lies [`MM_CID_BEHIND`] bytes behind:
/// for fast paths that save the look at a second distance. Zero elsewhere.
pub static DENSE_OFFSET: AtomicIsize = AtomicIsize::new(0);
/// `DENSE_OFFSET` as the fast path of allocations reads it: zero also while they are diverted.
pub static POP_OFFSET: AtomicIsize = AtomicIsize::new(0);
/// The same for the form of that path which counts bytes: zero unless allocations are diverted.
pub static COUNTED_OFFSET: AtomicIsize = AtomicIsize::new(0);
/// Bytes from `rseq_cs` to `mm_cid`.
pub const MM_CID_BEHIND: isize = MM_CID - RSEQ_CS;
/// Indexes that exist: `exchange` installs no sheaf at or above it.
static INDEX_COUNT: AtomicU32 = AtomicU32::new(0);
/// Whether `exchange` does nothing now: not zero.
static CLOSED: AtomicU32 = AtomicU32::new(0);

/// Distance from the thread pointer to `rseq_cs`.
#[inline(always)]
fn cs_offset() -> isize {
    CS_OFFSET.load(Ordering::Relaxed)
}

/// Distance from the thread pointer to the index.
#[inline(always)]
fn index_offset() -> isize {
    INDEX_OFFSET.load(Ordering::Relaxed)
}

/// Whether sequences may be used.
#[inline(always)]
pub fn ready() -> bool {
    cs_offset() != 0
}

/// Whether the index is the dense `mm_cid`.
pub fn index_is_mm_cid() -> bool {
    index_offset() - cs_offset() == MM_CID_BEHIND
}

/// Where the area of the thread with this pointer lies, if sequences are used.
pub fn area_of(thread_pointer: u64) -> Option<usize> {
    let distance = cs_offset() - RSEQ_CS;
    ready().then(|| (thread_pointer as usize).wrapping_add_signed(distance))
}

/// Starts using sequences over `count` indexes, if the C library registered an area. Called once,
/// before any other thread uses the heap.
pub fn start(count: u32) {
    let Some(area) = registered() else {
        return;
    };
    // SAFETY: reads the auxiliary vector; zero for an entry the kernel does not give.
    let features = unsafe { libc::getauxval(AT_RSEQ_FEATURE_SIZE) };
    let index = if features >= FEATURES_WITH_MM_CID {
        MM_CID
    } else {
        CPU_ID
    };
    INDEX_COUNT.store(count, Ordering::Relaxed);
    INDEX_OFFSET.store(area + index, Ordering::Relaxed);
    if index == MM_CID {
        DENSE_OFFSET.store(area + RSEQ_CS, Ordering::Relaxed);
        POP_OFFSET.store(area + RSEQ_CS, Ordering::Relaxed);
    }
    CS_OFFSET.store(area + RSEQ_CS, Ordering::Release);
}

/// Sends allocations from their fast path to the form of it that counts, or back.
#[cold]
pub fn divert(divert: bool) {
    let dense = DENSE_OFFSET.load(Ordering::Relaxed);
    let (plain, counted) = if divert { (0, dense) } else { (dense, 0) };
    COUNTED_OFFSET.store(counted, Ordering::Relaxed);
    POP_OFFSET.store(plain, Ordering::Relaxed);
}

/// Keeps `exchange` away from all indexes until [`open`]. One under way is done after the next fence.
pub fn close() {
    CLOSED.store(1, Ordering::Release);
}

/// Ends [`close`]; in the child of a fork, that of a thread which is no more.
pub fn open() {
    CLOSED.store(0, Ordering::Release);
}

/// `Platform::exchange` as a restartable sequence; gives `new` back for an index that has no
/// slots, and while all are closed.
///
/// # Safety
/// 1. As for `Platform::exchange`.
/// 2. Sequences are ready.
pub unsafe fn exchange(area: CpuArea, slot: Slot, new: SheafWord) -> SheafWord {
    // SAFETY: obligations 1 and 2; the count is the area's.
    unsafe { exchange_below(INDEX_COUNT.load(Ordering::Relaxed), area, slot, new) }
}
