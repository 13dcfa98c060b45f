//! Counters of a run: one set per virtual CPU while it runs, summed into [`Totals`] for reports.

use core::cell::Cell;
use core::ops::Sub;
use flagstone_core::platform::{Function, LockKind};

/// How many kinds of locks there are.
pub const LOCK_KINDS: usize = 8;

/// How many functions of the engine time is booked to.
pub const FUNCTIONS: usize = Function::ALL.len();

/// The kinds by index, with the names that reports use. No heap is simulated: locks of that kind
/// are a workload's own, those of sockets.
pub const LOCK_NAMES: [&str; LOCK_KINDS] = [
    "workload",
    "local",
    "barn",
    "slab",
    "list",
    "pageset",
    "zone",
    "array_cache",
];

/// The index of a lock kind in arrays of [`LOCK_KINDS`].
#[inline]
#[must_use]
pub const fn lock_index(kind: LockKind) -> usize {
    kind as usize
}

/// One virtual CPU's counters. Those of every operation lie on one line of the host.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Tally {
    /// Operations of the workload.
    pub ops: Cell<u64>,
    /// Allocations and the picoseconds they took.
    pub allocs: Cell<u64>,
    /// Picoseconds in allocations.
    pub alloc_ps: Cell<u64>,
    /// Frees.
    pub frees: Cell<u64>,
    /// Picoseconds in frees.
    pub free_ps: Cell<u64>,
    /// Line transfers of shared lines that were not at hand.
    pub misses: Cell<u64>,
    /// Fresh slabs set up.
    pub slabs: Cell<u64>,
    /// Picoseconds asleep.
    pub idle_ps: Cell<u64>,
    /// Locks taken, by kind.
    pub lock_taken: [Cell<u64>; LOCK_KINDS],
    /// Picoseconds waiting for locks, by kind.
    pub lock_wait: [Cell<u64>; LOCK_KINDS],
    /// Of these, taken only after waiting.
    pub lock_waited: [Cell<u64>; LOCK_KINDS],
    /// Picoseconds in each function of the engine, waiting for locks apart.
    pub function_ps: [Cell<u64>; FUNCTIONS],
}

/// Adds to a counter.
#[inline]
pub fn bump(counter: &Cell<u64>, by: u64) {
    counter.set(counter.get() + by);
}

/// Sums over CPUs, or the difference of two such sums.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    /// Operations of the workload.
    pub ops: u64,
    /// Allocations.
    pub allocs: u64,
    /// Picoseconds in them.
    pub alloc_ps: u64,
    /// Frees.
    pub frees: u64,
    /// Picoseconds in them.
    pub free_ps: u64,
    /// Picoseconds waiting for locks, by kind.
    pub lock_wait: [u64; LOCK_KINDS],
    /// Locks taken, by kind.
    pub lock_taken: [u64; LOCK_KINDS],
    /// Of these, taken only after waiting.
    pub lock_waited: [u64; LOCK_KINDS],
    /// Picoseconds asleep.
    pub idle_ps: u64,
    /// Fresh slabs set up.
    pub slabs: u64,
    /// Misses on shared lines.
    pub misses: u64,
    /// Picoseconds in each function of the engine, waiting for locks apart (the first, the rest,
    /// holds sleep as well).
    pub function_ps: [u64; FUNCTIONS],
    /// Data-cache line uses.
    pub data_uses: u64,
    /// Data-cache misses.
    pub data_misses: u64,
    /// Drains caused by consecutive high-order frees (the series' free_high).
    pub free_high: u64,
    /// Pages fetched from zones by pagesets (the series' alloc_zone).
    pub zone_pages: u64,
}

impl Totals {
    /// Adds one CPU's counters.
    pub fn add(&mut self, tally: &Tally) {
        self.ops += tally.ops.get();
        self.allocs += tally.allocs.get();
        self.alloc_ps += tally.alloc_ps.get();
        self.frees += tally.frees.get();
        self.free_ps += tally.free_ps.get();
        for kind in 0..LOCK_KINDS {
            self.lock_wait[kind] += tally.lock_wait[kind].get();
            self.lock_taken[kind] += tally.lock_taken[kind].get();
            self.lock_waited[kind] += tally.lock_waited[kind].get();
        }
        self.idle_ps += tally.idle_ps.get();
        self.slabs += tally.slabs.get();
        self.misses += tally.misses.get();
        for (sum, booked) in self.function_ps.iter_mut().zip(&tally.function_ps) {
            *sum += booked.get();
        }
    }

    /// Picoseconds waiting for any lock.
    #[must_use]
    pub fn wait_ps(&self) -> u64 {
        self.lock_wait.iter().sum()
    }
}

impl Sub for &Totals {
    type Output = Totals;

    /// What happened between two moments: `later - earlier`.
    fn sub(self, earlier: &Totals) -> Totals {
        let each = |later: &[u64; LOCK_KINDS], before: &[u64; LOCK_KINDS]| {
            core::array::from_fn(|kind| later[kind] - before[kind])
        };
        Totals {
            ops: self.ops - earlier.ops,
            allocs: self.allocs - earlier.allocs,
            alloc_ps: self.alloc_ps - earlier.alloc_ps,
            frees: self.frees - earlier.frees,
            free_ps: self.free_ps - earlier.free_ps,
            lock_wait: each(&self.lock_wait, &earlier.lock_wait),
            lock_taken: each(&self.lock_taken, &earlier.lock_taken),
            lock_waited: each(&self.lock_waited, &earlier.lock_waited),
            idle_ps: self.idle_ps - earlier.idle_ps,
            slabs: self.slabs - earlier.slabs,
            misses: self.misses - earlier.misses,
            function_ps: core::array::from_fn(|f| self.function_ps[f] - earlier.function_ps[f]),
            data_uses: self.data_uses - earlier.data_uses,
            data_misses: self.data_misses - earlier.data_misses,
            free_high: self.free_high - earlier.free_high,
            zone_pages: self.zone_pages - earlier.zone_pages,
        }
    }
}
