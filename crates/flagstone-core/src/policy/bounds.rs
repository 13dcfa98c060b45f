//! What may be held now: the policy's limits within what the process may use, as every layer above
//! reads them without a lock.
//!
//! ```text
//!   upkeep ─► means ─► bounds ─┬─► one barn, all barns       slab/sizing.rs
//!                              └─► a store: barns, kept      slab/sizing.rs, heap/huge.rs
//!                                  huge blocks
//! ```
//!
//! The page layer has its own (page/upkeep.rs), a part for each zone.
#![forbid(unsafe_code)]

use super::FlagstoneLimits;
use crate::base::Means;
use crate::sync::{AtomicU32, AtomicUsize, Ordering::Relaxed};

/// The limits in force, and the means they were made for.
#[derive(Debug)]
pub(crate) struct Bounds {
    /// Most bytes one barn may hold.
    pub barn_bytes: AtomicUsize,
    /// Bytes all barns together may hold at any time.
    pub barns_quiet: AtomicUsize,
    /// Most bytes any store of free memory may hold (ADR 0013): the barns of all caches, or kept
    /// huge blocks; all there are before means were looked at.
    pub store_bytes: AtomicUsize,
    memory_bytes: AtomicUsize,
    cpus: AtomicU32,
    cpus_in_reach: AtomicU32,
}

impl Bounds {
    /// The policy's limits, for no means in particular.
    pub(crate) fn of(limits: &FlagstoneLimits) -> Self {
        Self {
            barn_bytes: AtomicUsize::new(limits.barn_bytes_max),
            barns_quiet: AtomicUsize::new(limits.barns_bytes_quiet),
            store_bytes: AtomicUsize::new(usize::MAX),
            memory_bytes: AtomicUsize::new(0),
            cpus: AtomicU32::new(0),
            cpus_in_reach: AtomicU32::new(0),
        }
    }

    /// Whether means were never looked at.
    pub(crate) fn unknown(&self) -> bool {
        self.memory_bytes.load(Relaxed) == 0
    }

    /// The means that were looked at last; zeroes before that.
    pub(crate) fn means(&self) -> Means {
        Means {
            memory_bytes: self.memory_bytes.load(Relaxed),
            cpus: self.cpus.load(Relaxed),
            cpus_in_reach: self.cpus_in_reach.load(Relaxed),
        }
    }

    /// From now on `limits` hold, made for `means`.
    pub(crate) fn set(&self, limits: &FlagstoneLimits, means: &Means) {
        self.barn_bytes.store(limits.barn_bytes_max, Relaxed);
        self.barns_quiet.store(limits.barns_bytes_quiet, Relaxed);
        self.store_bytes.store(means.store_bytes(), Relaxed);
    }

    /// Every part knows these means.
    pub(crate) fn note(&self, means: &Means) {
        self.memory_bytes.store(means.memory_bytes, Relaxed);
        self.cpus.store(means.cpus, Relaxed);
        self.cpus_in_reach.store(means.cpus_in_reach, Relaxed);
    }
}
