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
//! Not protected, as in every user of these sequences: a child of `vfork` that allocates while
//! its parent's other threads run (the kernel gives such a child no area).

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub use x86_64::{exchange_below, index, node, pop, push, registered};
#[cfg(all(test, target_arch = "x86_64"))]
pub use x86_64::{exchange_below_slowly, pop_slowly, push_slowly};

#[cfg(not(target_arch = "x86_64"))]
mod unsupported;
#[cfg(not(target_arch = "x86_64"))]
pub use unsupported::{exchange_below, index, node, pop, push, registered};

use core::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use flagstone_core::platform::{CpuArea, SheafWord, Slot};

/// `AT_RSEQ_FEATURE_SIZE`: how many bytes of the area this kernel keeps up to date.
const AT_RSEQ_FEATURE_SIZE: libc::c_ulong = 27;
/// The feature size from which `mm_cid` is kept (it ends at byte 28).
const FEATURES_WITH_MM_CID: u64 = 28;

const CPU_ID: isize = 4;
const RSEQ_CS: isize = 8;
const NODE_ID: isize = 20;
const MM_CID: isize = 24;

/// Distances from the thread pointer, 32 bits each: to `rseq_cs` (low half), and to the index,
/// `mm_cid` or `cpu_id` (high half). Zero while sequences may not be used. Why in one word: the
/// fast paths load it once.
pub static OFFSETS: AtomicI64 = AtomicI64::new(0);
/// Indexes that exist: `exchange` installs no sheaf at or above it.
static INDEX_COUNT: AtomicU32 = AtomicU32::new(0);
/// The index, plus one, on which `exchange` does nothing now; zero for none.
static CLOSED: AtomicU32 = AtomicU32::new(0);

/// Distance from the thread pointer to `rseq_cs`.
#[inline(always)]
fn cs_offset() -> isize {
    OFFSETS.load(Ordering::Relaxed) as i32 as isize
}

/// Distance from the thread pointer to the index.
#[inline(always)]
fn index_offset() -> isize {
    (OFFSETS.load(Ordering::Relaxed) >> 32) as isize
}

/// Whether sequences may be used.
#[inline(always)]
pub fn ready() -> bool {
    OFFSETS.load(Ordering::Relaxed) != 0
}

/// Whether the index is the dense `mm_cid`.
pub fn index_is_mm_cid() -> bool {
    index_offset() - cs_offset() == MM_CID - RSEQ_CS
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
    // Thread-local areas lie near the thread pointer; one that does not is not used.
    let (Ok(cs), Ok(index)) = (i32::try_from(area + RSEQ_CS), i32::try_from(area + index)) else {
        return;
    };
    INDEX_COUNT.store(count, Ordering::Relaxed);
    let offsets = i64::from(index) << 32 | i64::from(cs.cast_unsigned());
    OFFSETS.store(offsets, Ordering::Release);
}

/// Keeps `exchange` away from an index until [`open`]; `false` if another is kept away already.
/// An `exchange` under way is done after the next fence.
pub fn close(index: u32) -> bool {
    CLOSED
        .compare_exchange(0, index + 1, Ordering::AcqRel, Ordering::Relaxed)
        .is_ok()
}

/// Ends [`close`]; in the child of a fork, that of a thread which is no more.
pub fn open() {
    CLOSED.store(0, Ordering::Release);
}

/// `Platform::exchange` as a restartable sequence; gives `new` back for an index that has no
/// slots or is closed.
///
/// # Safety
/// 1. As for `Platform::exchange`.
/// 2. Sequences are ready.
pub unsafe fn exchange(area: CpuArea, slot: Slot, new: SheafWord) -> SheafWord {
    // SAFETY: obligations 1 and 2; the count is the area's.
    unsafe { exchange_below(INDEX_COUNT.load(Ordering::Relaxed), area, slot, new) }
}
