//! Figures of several seeds: means over records, with their spread. Computed, never kept.

use crate::record::{DETAIL, FUNCTION_SHARE, History, LOCK_SHARE, Record};
use flagstone_core::platform::Function;
use flagstone_sim::tally::LOCK_NAMES;
use flagstone_sim::window::Settled;
use serde::Serialize;
use std::collections::BTreeMap;

/// One policy at one number of tasks. Shares are percent of the tasks' CPU time (sleep apart);
/// times are nanoseconds; bytes are those of pages in use or parked in pagesets.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The policy as asked for.
    pub policy: String,
    /// Tasks.
    pub tasks: u32,
    /// Operations of each task in a second.
    pub ops_per_task_per_s: f64,
    /// Waiting for any lock.
    pub lock_share: f64,
    /// Waiting for list locks.
    pub list_lock_share: f64,
    /// Waiting for zone locks.
    pub zone_lock_share: f64,
    /// Most bytes in use since the start.
    pub peak_bytes: f64,
    /// Mean bytes in use in the window.
    pub mean_bytes: f64,
    /// One allocation.
    pub alloc_ns: f64,
    /// One free.
    pub free_ns: f64,
    /// All allocations and frees of one operation.
    pub allocator_ns_per_op: f64,
    /// Waiting by kind of lock, those that waited at all.
    pub lock_shares: BTreeMap<String, f64>,
    /// Time in functions of the cpu-slab engine, as a kernel's profile names them: their own, waiting
    /// for locks and what they call apart.
    pub function_shares: BTreeMap<String, f64>,
    /// Fresh slabs for each thousand operations: calls of the page allocator by caches.
    pub page_allocs_per_1000_ops: f64,
    /// Zone locks taken for each thousand operations.
    pub zone_locks_per_1000_ops: f64,
    /// Pages that pagesets fetched from zones for each thousand operations (alloc_zone).
    pub zone_pages_per_1000_ops: f64,
    /// Drains caused by consecutive high-order frees for each thousand operations (free_high).
    pub free_high_per_1000_ops: f64,
    /// Data-cache misses in percent of uses; absent where a workload models no data.
    pub cache_miss_rate: Option<f64>,
    /// Standard deviation over seeds of `ops_per_task_per_s`, in percent of the mean.
    pub ops_spread: f64,
    /// Standard deviation over seeds of `page_allocs_per_1000_ops`.
    pub page_allocs_spread: f64,
    /// Seeds run.
    pub seeds: u32,
    /// Whether the figures of every seed are steady.
    pub converged: bool,
    /// Which kinds of figures are steady in every seed: of throughput, of waits for locks, of pages
    /// fetched from zones, of bytes.
    pub settled: Settled,
    /// The largest drift between the halves of the last window, in percent.
    pub drift: f64,
    /// The largest drift of throughput alone, in percent.
    pub ops_drift: f64,
    /// The largest drift of bytes in use alone, in percent.
    pub bytes_drift: f64,
    /// The last window, in milliseconds of virtual time: from and to.
    pub window_ms: [f64; 2],
    /// Deferred frees pile up: the machine cannot keep up.
    pub backlog_grows: bool,
    /// Figures of the workload's own harness, means over seeds.
    pub details: BTreeMap<String, f64>,
    /// Hash over all events of the first seed's run.
    pub digest: String,
    /// Allocator operations simulated in all seeds, warm-up included.
    pub simulated_ops: u64,
    /// Milliseconds and bytes in use of the first seed's run.
    pub bytes_over_time: Vec<(f64, usize)>,
}

/// The mean; zero of nothing.
pub(crate) fn mean(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let count = values.clone().count().max(1);
    values.sum::<f64>() / count as f64
}

/// The standard deviation of a sample; zero of fewer than two.
#[must_use]
pub fn deviation_of(values: &[f64]) -> f64 {
    deviation(values.iter().copied())
}

fn deviation(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let count = values.clone().count();
    if count < 2 {
        return 0.0;
    }
    let middle = mean(values.clone());
    let squares: f64 = values.map(|value| (value - middle).powi(2)).sum();
    (squares / (count - 1) as f64).sqrt()
}

/// The value that is farthest from zero.
fn farthest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, |most, value| {
        if value.abs() > most.abs() {
            value
        } else {
            most
        }
    })
}

impl Row {
    /// The row of one policy and task count from its seeds' records, and the course of the first one's
    /// memory.
    ///
    /// # Panics
    /// If there is no record.
    #[must_use]
    pub fn new(records: &[&Record], history: &History) -> Self {
        let first = records.first().expect("at least one seed");
        let over = |each: &dyn Fn(&Record) -> f64| mean(records.iter().map(|record| each(record)));
        let locks = LOCK_NAMES.map(|name| over(&|r| r.part(LOCK_SHARE, name)));
        let lock = |name: &str| {
            let place = LOCK_NAMES.iter().position(|known| *known == name);
            place.map_or(0.0, |place| locks[place])
        };
        let shares = LOCK_NAMES
            .iter()
            .zip(locks)
            .map(|(name, share)| ((*name).to_owned(), share));
        let functions = Function::ALL.into_iter().skip(1).map(|function| {
            let share = over(&|r| r.part(FUNCTION_SHARE, function.name()));
            (function.name().to_owned(), share)
        });
        let ops = over(&|r| r.ops_per_task_per_s);
        let ops_drift = farthest(records.iter().map(|r| r.ops_drift));
        let bytes_drift = farthest(records.iter().map(|r| r.bytes_drift));
        let names = first.more.keys().filter_map(|key| key.strip_prefix(DETAIL));
        let details = names.map(|name| {
            let key = format!("{DETAIL}{name}");
            let values = records
                .iter()
                .filter_map(|record| record.more.get(&key).copied());
            (name.to_owned(), mean(values))
        });
        let settled = |r: &Record| Settled {
            ops: r.settled_ops,
            waits: r.settled_waits,
            pages: r.settled_pages,
            bytes: r.settled_bytes,
        };
        Self {
            policy: first.label(),
            tasks: first.tasks,
            ops_per_task_per_s: ops,
            lock_share: locks.iter().sum(),
            list_lock_share: lock("list"),
            zone_lock_share: lock("zone"),
            peak_bytes: over(&|r| r.peak_bytes as f64),
            mean_bytes: over(&|r| r.mean_bytes as f64),
            alloc_ns: over(&|r| r.alloc_ns),
            free_ns: over(&|r| r.free_ns),
            allocator_ns_per_op: over(&|r| r.allocator_ns_per_op),
            lock_shares: shares.filter(|(_, share)| *share > 0.0).collect(),
            function_shares: functions.filter(|(_, share)| *share > 0.0).collect(),
            page_allocs_per_1000_ops: over(&|r| r.page_allocs_per_1000_ops),
            zone_locks_per_1000_ops: over(&|r| r.zone_locks_per_1000_ops),
            zone_pages_per_1000_ops: over(&|r| r.zone_pages_per_1000_ops),
            free_high_per_1000_ops: over(&|r| r.free_high_per_1000_ops),
            cache_miss_rate: first
                .cache_miss_rate
                .map(|_| over(&|r| r.cache_miss_rate.unwrap_or(0.0))),
            ops_spread: deviation(records.iter().map(|r| r.ops_per_task_per_s))
                / ops.max(f64::MIN_POSITIVE)
                * 100.0,
            page_allocs_spread: deviation(records.iter().map(|r| r.page_allocs_per_1000_ops)),
            seeds: records.len() as u32,
            converged: records.iter().all(|r| r.converged),
            settled: records
                .iter()
                .fold(Settled::ALL, |all, r| all.and(settled(r))),
            drift: if ops_drift.abs() > bytes_drift.abs() {
                ops_drift
            } else {
                bytes_drift
            },
            ops_drift,
            bytes_drift,
            window_ms: [first.window_from_ms, first.window_to_ms],
            backlog_grows: records.iter().any(|r| r.backlog_grows),
            details: details.collect(),
            digest: first.digest.clone(),
            simulated_ops: records.iter().map(|r| r.simulated_ops).sum(),
            bytes_over_time: history.clone(),
        }
    }
}
