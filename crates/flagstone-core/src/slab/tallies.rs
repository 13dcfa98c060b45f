//! What slow paths remember of a cache, of all barns, and of flushes.
#![forbid(unsafe_code)]

use crate::sync::plain::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};

/// Bytes of full sheaves a barn holds before traffic shows that more would help.
pub(crate) const BARN_BYTES_FIRST: usize = 16 << 10;

/// How many sheaves a cache uses, and how large.
#[derive(Debug, Default)]
pub(crate) struct SheafSizing {
    /// Slots of a sheaf made now; zero: the cache has no sheaves.
    pub target: AtomicU32,
    /// Slots of a cache's first sheaves, and after a shrink.
    pub first: AtomicU32,
    /// Most slots now, by visits alone.
    pub max: AtomicU32,
    /// The same by the policy.
    pub most: AtomicU32,
    /// Most slots now while objects go round.
    pub busy: AtomicU32,
    /// One slot in so many may be missing in a sheaf; zero: all are alike.
    pub spread: u32,
    /// Bytes of full sheaves a barn of this cache may hold now; zero: only `barn_full` counts.
    pub barn_bytes: AtomicUsize,
    /// Full sheaves a barn may hold by the policy.
    pub barn_full: AtomicU32,
    /// Empty sheaves a barn may hold by the policy.
    pub barn_empty: AtomicU32,
}

/// What visits of slow paths write of a cache, in one line; what allocations among them sample lies apart.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Visits {
    /// Slow-path visits since sheaves last grew, and when the first of them was.
    pub misses: AtomicU32,
    pub since: AtomicU64,
    /// Turns between freeing and allocating since sheaves last grew for them, and when the first of them was.
    pub turns: AtomicU32,
    pub turns_since: AtomicU64,
    /// A bit for each CPU that came by, modulo 64, since the last shrink.
    pub seen: AtomicU64,
    /// The same for each CPU that made a sheaf.
    pub makers: AtomicU64,
    /// Objects taken out of slabs (by sheaves or callers) minus those put back. The other engines do not count:
    /// their slabs' states say it.
    pub out: AtomicU64,
}

const _: () = assert!(size_of::<Visits>() == 64, "one line");

/// The bound of all barns.
#[derive(Debug, Default)]
pub(crate) struct BarnsTotal {
    pub hand: AtomicU32,
    /// A sheaf was flushed because of the bound of all barns, since a refill last asked.
    pub refused: AtomicBool,
}

/// What sweeps remember.
#[derive(Debug, Default)]
pub(crate) struct Sweeps {
    /// Bytes of slabs in which nothing was out at the last estimate.
    pub idle_bytes: AtomicUsize,
}
