//! What slow paths remember of a cache, of all barns, and of flushes.
#![forbid(unsafe_code)]

use crate::sync::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

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
    /// Visits that look for a sheaf elsewhere.
    pub misses: Burst,
    /// Turns between freeing and allocating.
    pub turns: Burst,
    /// A bit for each CPU that came by, modulo 64, since the last shrink.
    pub seen: AtomicU64,
    /// The same for each CPU that made a sheaf.
    pub makers: AtomicU64,
    /// Objects taken out of slabs (by sheaves or callers) minus those put back. The other engines do not count:
    /// their slabs' states say it.
    pub out: AtomicU64,
}

const _: () = assert!(size_of::<Visits>() == 64, "one line");

/// Events of one kind, counted until there are enough to tell whether they came in quick succession.
#[derive(Debug, Default)]
pub(crate) struct Burst {
    count: AtomicU32,
    /// When the first of them was.
    pub since: AtomicU64,
}

impl Burst {
    /// Counts one; with the last of `many` answers whether all came within `within` nanoseconds, and begins anew.
    pub fn completes(&self, many: u32, within: u64, now: impl Fn() -> u64) -> bool {
        let count = self.count.load(Relaxed) + 1;
        self.count.store(count, Relaxed);
        if count == 1 {
            self.since.store(now(), Relaxed);
        }
        if count < many {
            return false;
        }
        self.forget();
        now().saturating_sub(self.since.load(Relaxed)) <= within
    }

    /// Begins anew.
    pub fn forget(&self) {
        self.count.store(0, Relaxed);
    }
}

/// The bound of all barns.
#[derive(Debug, Default)]
pub(crate) struct BarnsTotal {
    pub hand: AtomicU32,
    /// A sheaf was flushed because of the bound of all barns, since a refill last asked.
    pub refused: AtomicBool,
}
