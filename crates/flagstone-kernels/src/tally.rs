//! What the slow paths of these engines did, counted for each CPU.

use core::ops::AddAssign;
use core::sync::atomic::AtomicU64;
use flagstone_core::sync::Ordering::Relaxed;

/// What the slow paths of a cache's engine did, all CPUs together.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct EngineCounts {
    /// A CPU's chain filled again from its own slab (SLAB: from the shared array).
    pub refills: u64,
    /// Visits of a node's list under its lock.
    pub list_visits: u64,
    /// Slabs taken from a node's list by allocations.
    pub slabs_taken: u64,
    /// A CPU's partial list given to the nodes' lists (SLAB: its array's oldest batch).
    pub drains: u64,
    /// Slabs those drains moved (SLAB: objects).
    pub drained: u64,
    /// CPU slabs given up with objects left.
    pub deactivations: u64,
    /// Frees put aside because they met contention.
    pub deferred: u64,
    /// Slabs made.
    pub new_slabs: u64,
}

impl AddAssign for EngineCounts {
    fn add_assign(&mut self, other: Self) {
        self.refills += other.refills;
        self.list_visits += other.list_visits;
        self.slabs_taken += other.slabs_taken;
        self.drains += other.drains;
        self.drained += other.drained;
        self.deactivations += other.deactivations;
        self.deferred += other.deferred;
        self.new_slabs += other.new_slabs;
    }
}

/// One CPU's share of [`EngineCounts`]: relaxed adds on a line of its own, in slow paths only.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Tally {
    pub refills: AtomicU64,
    pub list_visits: AtomicU64,
    pub slabs_taken: AtomicU64,
    pub drains: AtomicU64,
    pub drained: AtomicU64,
    pub deactivations: AtomicU64,
    pub deferred: AtomicU64,
    pub new_slabs: AtomicU64,
}

/// Adds to a count that only one CPU moves in the ordinary course of things.
#[inline]
pub(crate) fn bump(count: &AtomicU64, by: u64) {
    count.store(count.load(Relaxed).wrapping_add(by), Relaxed);
}

impl Tally {
    pub fn counts(&self) -> EngineCounts {
        let read = |count: &AtomicU64| count.load(Relaxed);
        EngineCounts {
            refills: read(&self.refills),
            list_visits: read(&self.list_visits),
            slabs_taken: read(&self.slabs_taken),
            drains: read(&self.drains),
            drained: read(&self.drained),
            deactivations: read(&self.deactivations),
            deferred: read(&self.deferred),
            new_slabs: read(&self.new_slabs),
        }
    }
}
