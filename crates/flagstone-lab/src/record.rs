//! A record: what one run with one seed showed, flat, with all that is needed to run it again.
//!
//! Columns whose number depends on the run carry a prefix: `lock_share.zone`, `function_share.NAME`,
//! `detail.NAME`. Figures of several seeds are computed from records ([`crate::Row`]) and kept nowhere.

use crate::spec::Spec;
use flagstone_core::platform::{Function, LockKind};
use flagstone_sim::costs::NS;
use flagstone_sim::scenario::{Outcome, Scenario};
use flagstone_sim::tally::{LOCK_KINDS, LOCK_NAMES, lock_index};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The value of a record's `schema`.
pub const SCHEMA: &str = "flagstone.record/1";

/// Prefixes of columns that some runs have.
pub const LOCK_SHARE: &str = "lock_share.";
/// As [`LOCK_SHARE`].
pub const FUNCTION_SHARE: &str = "function_share.";
/// As [`LOCK_SHARE`].
pub const DETAIL: &str = "detail.";

/// One run. Shares are percent of the tasks' CPU time, sleep apart.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Record {
    /// [`SCHEMA`].
    pub schema: String,
    /// Digest of the spec.
    pub spec_digest: String,
    /// The simulated behaviour's number.
    pub model_version: u32,
    /// Version of the program that made it.
    pub program_version: String,
    /// The workload.
    pub workload: String,
    /// Bytes of its objects, where set.
    pub size: Option<usize>,
    /// Nanoseconds outside the allocator, where set.
    pub think_ns: Option<f64>,
    /// Where its tasks were put, where set.
    pub placement: Option<flagstone_sim::Placement>,
    /// Rounds of a finite workload, where set.
    pub rounds: Option<u32>,
    /// The machine.
    pub machine: String,
    /// Digest of its figures.
    pub machine_digest: String,
    /// Its CPUs.
    pub cpus: u32,
    /// The policy.
    pub policy: String,
    /// Settings over it, with blanks between.
    pub knobs: String,
    /// Tasks.
    pub tasks: u32,
    /// Seed.
    pub seed: u64,
    /// How long it was looked at.
    pub window: String,
    /// Operations of each task in a second.
    pub ops_per_task_per_s: f64,
    /// Waiting for any lock.
    pub lock_share: f64,
    /// Most bytes in use since the start.
    pub peak_bytes: u64,
    /// Mean bytes in use in the window.
    pub mean_bytes: u64,
    /// One allocation.
    pub alloc_ns: f64,
    /// One free.
    pub free_ns: f64,
    /// All allocations and frees of one operation.
    pub allocator_ns_per_op: f64,
    /// Fresh slabs for each thousand operations.
    pub page_allocs_per_1000_ops: f64,
    /// Zone locks taken for each thousand operations.
    pub zone_locks_per_1000_ops: f64,
    /// Pages that pagesets fetched from zones for each thousand operations.
    pub zone_pages_per_1000_ops: f64,
    /// Drains caused by consecutive high-order frees for each thousand operations.
    pub free_high_per_1000_ops: f64,
    /// Data-cache misses in percent of uses.
    pub cache_miss_rate: Option<f64>,
    /// Whether the figures are steady.
    pub converged: bool,
    /// Whether throughput is.
    pub settled_ops: bool,
    /// Whether waiting for locks is.
    pub settled_waits: bool,
    /// Whether pages fetched from zones are.
    pub settled_pages: bool,
    /// Whether bytes are.
    pub settled_bytes: bool,
    /// Drift of throughput between the halves of the last window, in percent.
    pub ops_drift: f64,
    /// Drift of bytes likewise.
    pub bytes_drift: f64,
    /// Where the last window began, in milliseconds of virtual time.
    pub window_from_ms: f64,
    /// Where it ended.
    pub window_to_ms: f64,
    /// Deferred frees pile up.
    pub backlog_grows: bool,
    /// Hash over all events.
    pub digest: String,
    /// Allocator operations simulated, warm-up included.
    pub simulated_ops: u64,
    /// The spec as JSON: `flagstone sim run --spec` makes the run again.
    pub spec: String,
    /// Columns with a prefix.
    #[serde(flatten)]
    pub more: BTreeMap<String, f64>,
}

/// Milliseconds and bytes in use, at every look.
pub type History = Vec<(f64, usize)>;

/// A record and the course of its memory, which belongs to no table.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Run {
    /// The record.
    pub record: Record,
    /// Bytes over time.
    pub history: History,
}

fn ms(ps: u64) -> f64 {
    ps as f64 / 1e9
}

fn per(numerator: u64, denominator: u64, factor: f64) -> f64 {
    if denominator == 0 {
        0.0
    } else {
        numerator as f64 / denominator as f64 * factor
    }
}

impl Spec {
    /// Runs it.
    ///
    /// # Errors
    /// One line: the spec cannot be run, the host has no room for the machine, or something broke in the
    /// run, with the seed that shows it.
    pub fn run(&self) -> Result<Run, String> {
        self.check()?;
        if self.model_version != flagstone_sim::MODEL_VERSION {
            return Err(format!(
                "the spec is of model version {}, this program simulates version {}",
                self.model_version,
                flagstone_sim::MODEL_VERSION
            ));
        }
        let policy = self.policy.named()?;
        let scenario = Scenario {
            machine: &self.machine,
            workload: self.known_workload()?,
            policy: &policy,
            tasks: self.tasks,
            seed: self.seed,
            params: &self.params()?,
            plan: self.plan(),
        };
        let outcome = scenario
            .run()
            .map_err(|line| format!("{} on {}: {line}", self.policy.label(), self.machine.name))?;
        Ok(Run {
            record: Record::new(self, &outcome),
            history: outcome
                .history
                .iter()
                .map(|(at, bytes)| (ms(*at), *bytes))
                .collect(),
        })
    }
}

impl Record {
    fn new(spec: &Spec, outcome: &Outcome) -> Self {
        let totals = &outcome.totals;
        let tasks = spec.tasks;
        let awake = (u64::from(tasks) * outcome.span).saturating_sub(totals.idle_ps);
        let mut more = BTreeMap::new();
        let mut lock_share = 0.0;
        for (kind, name) in LOCK_NAMES.iter().enumerate().take(LOCK_KINDS) {
            let share = per(totals.lock_wait[kind], awake, 100.0);
            lock_share += share;
            more.insert(format!("{LOCK_SHARE}{name}"), share);
        }
        for function in Function::ALL.into_iter().skip(1) {
            let share = per(totals.function_ps[function as usize], awake, 100.0);
            if share > 0.0 {
                more.insert(format!("{FUNCTION_SHARE}{}", function.name()), share);
            }
        }
        for (name, value) in &outcome.details {
            more.insert(format!("{DETAIL}{name}"), *value);
        }
        let zone = lock_index(LockKind::Zone);
        let in_ns = 1.0 / NS as f64;
        let in_1000 = |count| per(count, totals.ops, 1000.0);
        let machine = serde_json::to_string(&spec.machine).expect("plain data");
        Self {
            schema: SCHEMA.into(),
            spec_digest: spec.digest(),
            model_version: spec.model_version,
            program_version: env!("CARGO_PKG_VERSION").into(),
            workload: spec.workload.name.clone(),
            size: spec.workload.size,
            think_ns: spec.workload.think_ns,
            placement: spec.workload.placement,
            rounds: spec.workload.rounds,
            machine: spec.machine.name.clone(),
            machine_digest: crate::spec::digest(machine.as_bytes()),
            cpus: spec.machine.cpus(),
            policy: spec.policy.name.clone(),
            knobs: spec.policy.knobs.join(" "),
            tasks,
            seed: spec.seed,
            window: spec.window.name(),
            ops_per_task_per_s: totals.ops as f64
                / f64::from(tasks)
                / (outcome.span.max(1) as f64 / 1e12),
            lock_share,
            peak_bytes: outcome.peak_bytes as u64,
            mean_bytes: outcome.mean_bytes as u64,
            alloc_ns: per(totals.alloc_ps, totals.allocs, in_ns),
            free_ns: per(totals.free_ps, totals.frees, in_ns),
            allocator_ns_per_op: per(totals.alloc_ps + totals.free_ps, totals.ops, in_ns),
            page_allocs_per_1000_ops: in_1000(totals.slabs),
            zone_locks_per_1000_ops: in_1000(totals.lock_taken[zone]),
            zone_pages_per_1000_ops: in_1000(totals.zone_pages),
            free_high_per_1000_ops: in_1000(totals.free_high),
            cache_miss_rate: (totals.data_uses > 0)
                .then(|| per(totals.data_misses, totals.data_uses, 100.0)),
            converged: outcome.converged,
            settled_ops: outcome.settled.ops,
            settled_waits: outcome.settled.waits,
            settled_pages: outcome.settled.pages,
            settled_bytes: outcome.settled.bytes,
            ops_drift: outcome.drift * 100.0,
            bytes_drift: outcome.bytes_drift * 100.0,
            window_from_ms: ms(outcome.from),
            window_to_ms: ms(outcome.from + outcome.span),
            backlog_grows: outcome.backlog_grows,
            digest: format!("{:016x}", outcome.digest),
            simulated_ops: outcome.simulated,
            spec: spec.to_json(),
            more,
        }
    }

    /// One line of JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("plain data")
    }

    /// From JSON.
    ///
    /// # Errors
    /// One line.
    pub fn from_json(text: &str) -> Result<Self, String> {
        let record: Self =
            serde_json::from_str(text).map_err(|error| format!("record: {error}"))?;
        if record.schema != SCHEMA {
            return Err(format!(
                "a record's schema is {SCHEMA}, not `{}`",
                record.schema
            ));
        }
        Ok(record)
    }

    /// The spec it was made from.
    ///
    /// # Errors
    /// One line, if it cannot be run any more.
    pub fn spec(&self) -> Result<Spec, String> {
        Spec::from_json(&self.spec)
    }

    /// The policy with its settings, for people.
    #[must_use]
    pub fn label(&self) -> String {
        match self.knobs.as_str() {
            "" => self.policy.clone(),
            knobs => format!("{} {knobs}", self.policy),
        }
    }

    /// A column by its name, if it is a number; a share that the run has none of is zero.
    #[must_use]
    pub fn figure(&self, name: &str) -> Option<f64> {
        let share = name.starts_with(LOCK_SHARE) || name.starts_with(FUNCTION_SHARE);
        if share || name.starts_with(DETAIL) {
            return self.more.get(name).copied().or(share.then_some(0.0));
        }
        let columns = serde_json::to_value(self).expect("plain data");
        columns.get(name).and_then(serde_json::Value::as_f64)
    }

    /// A column with a prefix; zero where the run has none.
    #[must_use]
    pub fn part(&self, prefix: &str, name: &str) -> f64 {
        self.more
            .get(&format!("{prefix}{name}"))
            .copied()
            .unwrap_or(0.0)
    }
}
