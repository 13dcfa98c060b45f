//! Rows for people and programs: means over seeds, with their spread.

use crate::costs::{NS, Ps};
use crate::scenario::Outcome;
use crate::tally::{LOCK_KINDS, LOCK_NAMES, lock_index};
use crate::window::Settled;
use flagstone_core::platform::{Function, LockKind};
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

fn ms(ps: Ps) -> f64 {
    ps as f64 / 1e9
}

fn mean(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let count = values.clone().count().max(1);
    values.sum::<f64>() / count as f64
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

fn per(numerator: u64, denominator: u64, factor: f64) -> f64 {
    if denominator == 0 {
        0.0
    } else {
        numerator as f64 / denominator as f64 * factor
    }
}

impl Row {
    /// The row of one policy and task count from its seeds' outcomes.
    ///
    /// # Panics
    /// If there is no outcome.
    #[must_use]
    pub fn new(policy: &str, tasks: u32, outcomes: &[Outcome]) -> Self {
        let first = outcomes.first().expect("at least one seed");
        let over = |each: &dyn Fn(&Outcome) -> f64| mean(outcomes.iter().map(each));
        let rate =
            |o: &Outcome| o.totals.ops as f64 / f64::from(tasks) / (o.span.max(1) as f64 / 1e12);
        let awake = |o: &Outcome| (u64::from(tasks) * o.span).saturating_sub(o.totals.idle_ps);
        let share = |kind: usize| over(&|o| per(o.totals.lock_wait[kind], awake(o), 100.0));
        let page_allocs = |o: &Outcome| per(o.totals.slabs, o.totals.ops, 1000.0);
        let zone = lock_index(LockKind::Zone);
        let ops = over(&rate);
        let shares = (0..LOCK_KINDS).map(|kind| (LOCK_NAMES[kind].to_owned(), share(kind)));
        let function = |function: Function| {
            let booked = over(&|o| per(o.totals.function_ps[function as usize], awake(o), 100.0));
            (function.name().to_owned(), booked)
        };
        let functions = Function::ALL.into_iter().skip(1).map(function);
        let ops_drift = farthest(outcomes.iter().map(|o| o.drift * 100.0));
        let bytes_drift = farthest(outcomes.iter().map(|o| o.bytes_drift * 100.0));
        let mut details = BTreeMap::new();
        for (name, _) in &first.details {
            let values = outcomes.iter().filter_map(|outcome| {
                let found = outcome.details.iter().find(|(known, _)| known == name);
                found.map(|(_, value)| *value)
            });
            details.insert(name.clone(), mean(values));
        }
        Self {
            policy: policy.to_owned(),
            tasks,
            ops_per_task_per_s: ops,
            lock_share: (0..LOCK_KINDS).map(share).sum(),
            list_lock_share: share(lock_index(LockKind::List)),
            zone_lock_share: share(zone),
            peak_bytes: over(&|o| o.peak_bytes as f64),
            mean_bytes: over(&|o| o.mean_bytes as f64),
            alloc_ns: over(&|o| per(o.totals.alloc_ps, o.totals.allocs, 1.0 / NS as f64)),
            free_ns: over(&|o| per(o.totals.free_ps, o.totals.frees, 1.0 / NS as f64)),
            allocator_ns_per_op: over(&|o| {
                per(
                    o.totals.alloc_ps + o.totals.free_ps,
                    o.totals.ops,
                    1.0 / NS as f64,
                )
            }),
            lock_shares: shares.filter(|(_, share)| *share > 0.0).collect(),
            function_shares: functions.filter(|(_, share)| *share > 0.0).collect(),
            page_allocs_per_1000_ops: over(&page_allocs),
            zone_locks_per_1000_ops: over(&|o| {
                per(o.totals.lock_taken[zone], o.totals.ops, 1000.0)
            }),
            zone_pages_per_1000_ops: over(&|o| per(o.totals.zone_pages, o.totals.ops, 1000.0)),
            free_high_per_1000_ops: over(&|o| per(o.totals.free_high, o.totals.ops, 1000.0)),
            cache_miss_rate: (first.totals.data_uses > 0)
                .then(|| over(&|o| per(o.totals.data_misses, o.totals.data_uses, 100.0))),
            ops_spread: deviation(outcomes.iter().map(rate)) / ops.max(f64::MIN_POSITIVE) * 100.0,
            page_allocs_spread: deviation(outcomes.iter().map(page_allocs)),
            seeds: outcomes.len() as u32,
            converged: outcomes.iter().all(|o| o.converged),
            settled: outcomes
                .iter()
                .fold(Settled::ALL, |all, o| all.and(o.settled)),
            drift: if ops_drift.abs() > bytes_drift.abs() {
                ops_drift
            } else {
                bytes_drift
            },
            ops_drift,
            bytes_drift,
            window_ms: [ms(first.from), ms(first.from + first.span)],
            backlog_grows: outcomes.iter().any(|o| o.backlog_grows),
            details,
            digest: format!("{:016x}", first.digest),
            simulated_ops: outcomes.iter().map(|o| o.simulated).sum(),
            bytes_over_time: first
                .history
                .iter()
                .map(|(at, bytes)| (ms(*at), *bytes))
                .collect(),
        }
    }
}
