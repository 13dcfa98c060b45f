//! What to simulate, and what a simulation says.
//!
//! ```text
//!   Ask { workload, machine, policy, tasks, size, seed, look }  ──►  Figures
//! ```
//!
//! An ask is one run with one seed. Families list theirs; equal ones are run once.

use super::without::Mechanism;
use flagstone_lab::{Row, Spec, Window};
use flagstone_sim::Machine;
use flagstone_sim::scenario::NamedPolicy;
use flagstone_sim::window::Settled;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// How long to look, in milliseconds of virtual time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Look {
    /// At the first decision.
    pub(super) first_ms: u64,
    /// At the last.
    pub(super) last_ms: u64,
}

impl Look {
    /// From `first_ms` to `last_ms`.
    pub(super) const fn ms(first_ms: u64, last_ms: u64) -> Self {
        Self { first_ms, last_ms }
    }

    fn window(self) -> Window {
        match self.first_ms < self.last_ms {
            true => Window::until(self.first_ms, self.last_ms),
            false => Window::fixed(self.last_ms),
        }
    }
}

/// Seeds of every row of a table, and how many more at a time.
pub(super) const FIRST_SEEDS: u64 = 3;

/// Seeds at most.
pub(super) const MOST_SEEDS: u64 = 9;

/// The standard error of throughput that is small enough, in percent of it.
const PRECISE_PERCENT: f64 = 1.0;

/// The standard error of the share of waiting that is small enough, in points.
const PRECISE_POINTS: f64 = 0.5;

/// Whether a row has enough seeds. The one rule for every table, set before results (ADR 0033): a row
/// begins with [`FIRST_SEEDS`] and goes on by as many while either error is larger, up to [`MOST_SEEDS`].
/// It looks at the spread only, never at what was published.
pub(super) fn precise(runs: &[&Figures]) -> bool {
    let of = |figure: fn(&Figures) -> f64| {
        Stat::of(&runs.iter().map(|run| figure(run)).collect::<Vec<_>>())
    };
    let (ops, waits) = (of(|f| f.ops), of(|f| f.lock_share));
    ops.error() * 100.0 <= PRECISE_PERCENT * ops.mean.abs() && waits.error() <= PRECISE_POINTS
}

/// How much to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Effort {
    /// A minute.
    Quick,
    /// A quarter of an hour.
    Full,
}

impl Effort {
    /// Seeds that a row of a table begins with; full runs go on by [`precise`].
    pub(super) fn seeds(self) -> u64 {
        self.pick(1, FIRST_SEEDS)
    }

    /// One of two, by effort.
    pub(super) fn pick<T>(self, quick: T, full: T) -> T {
        match self {
            Self::Quick => quick,
            Self::Full => full,
        }
    }
}

/// One run with one seed.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Ask {
    /// The workload's name.
    pub(super) workload: &'static str,
    /// The machine's name.
    pub(super) machine: &'static str,
    /// Bytes in a page, if not the machine's.
    pub(super) page_size: Option<usize>,
    /// The policy's name.
    pub(super) policy: String,
    /// Tasks.
    pub(super) tasks: u32,
    /// Object size, for workloads that have one.
    pub(super) size: Option<usize>,
    /// Nanoseconds outside the allocator, if not the workload's.
    pub(super) think_ns: Option<i64>,
    /// Seed of everything random.
    pub(super) seed: u64,
    /// How long to look; finite workloads run to their end.
    pub(super) look: Look,
    /// A mechanism of the model that is left out.
    pub(super) without: Option<&'static str>,
}

impl Ask {
    /// A run of `workload` on `machine` with seed 1.
    pub(super) fn new(
        workload: &'static str,
        machine: &'static str,
        tasks: u32,
        look: Look,
    ) -> Self {
        Self {
            workload,
            machine,
            page_size: None,
            policy: String::new(),
            tasks,
            size: None,
            think_ns: None,
            seed: 1,
            look,
            without: None,
        }
    }

    /// The same under another policy.
    pub(super) fn under(&self, policy: &str) -> Self {
        Self {
            policy: policy.to_owned(),
            ..self.clone()
        }
    }

    /// The same with another seed.
    pub(super) fn with_seed(&self, seed: u64) -> Self {
        Self {
            seed,
            ..self.clone()
        }
    }

    /// The same with seeds 1 to `count`.
    pub(super) fn seeds(&self, count: u64) -> impl Iterator<Item = Self> + '_ {
        (1..=count).map(|seed| self.with_seed(seed))
    }

    /// The same with seeds counted from `first` instead of 1.
    pub(super) fn beginning_at(&self, first: u64) -> Self {
        Self {
            seed: first + (self.seed - 1),
            ..self.clone()
        }
    }

    /// The machine, with the page size asked for, and without what is left out.
    pub(super) fn machine(&self) -> Result<Machine, String> {
        let mut machine = Machine::named(self.machine)?;
        if let Some(page_size) = self.page_size {
            machine.topology.page_size = page_size;
        }
        let left_out = self.without.and_then(Mechanism::named);
        Ok(left_out
            .and_then(|known| known.taken_from(&machine))
            .unwrap_or(machine))
    }

    /// Everything that decides the run, in text; equal text, equal figures.
    pub(super) fn key(&self) -> Result<String, String> {
        let policy = NamedPolicy::parse(&self.policy)?;
        // The machine says what is left out: where it has no part, the run is the one with it.
        let ask = Self {
            without: None,
            ..self.clone()
        };
        Ok(format!(
            "code {} {ask:?} {:?} {:?}",
            env!("SIMULATED_CODE_DIGEST"),
            self.machine()?,
            policy.policy
        ))
    }

    /// About how long the run takes, in no unit.
    pub(super) fn weight(&self) -> u64 {
        u64::from(self.tasks) * self.look.first_ms
    }

    /// Runs it.
    pub(super) fn run(&self) -> Result<Figures, String> {
        let mut spec = Spec::new(self.workload, self.machine()?, &self.policy)?;
        spec.workload.size = self.size;
        spec.workload.think_ns = self.think_ns.map(|ns| ns as f64);
        spec.tasks = self.tasks;
        spec.seed = self.seed;
        spec.window = self.look.window();
        let run = spec.run()?;
        Ok(Figures::of(&Row::new(&[&run.record], &run.history)))
    }
}

/// What one run said. Shares are percent of the tasks' CPU time, times nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Figures {
    /// Operations of each task in a second.
    pub(super) ops: f64,
    /// Waiting for any lock.
    pub(super) lock_share: f64,
    /// Waiting for list locks.
    pub(super) list_share: f64,
    /// Waiting for zone locks.
    pub(super) zone_share: f64,
    /// Own time in functions of the cpu-slab engine, by the names kernels' profiles use.
    pub(super) functions: BTreeMap<String, f64>,
    /// Mean bytes in use.
    pub(super) mean_bytes: f64,
    /// Most bytes in use.
    pub(super) peak_bytes: f64,
    /// One allocation.
    pub(super) alloc_ns: f64,
    /// One free.
    pub(super) free_ns: f64,
    /// All allocations and frees of one operation.
    pub(super) allocator_ns: f64,
    /// Fresh slabs for each thousand operations.
    pub(super) page_allocs: f64,
    /// Pages fetched from zones for each thousand operations.
    pub(super) zone_pages: f64,
    /// Drains by consecutive high-order frees for each thousand operations.
    pub(super) free_high: f64,
    /// Data-cache misses in percent of uses.
    pub(super) cache_misses: Option<f64>,
    /// Which kinds of figures are steady.
    pub(super) settled: Settled,
    /// Drift of throughput between the halves of the window in percent.
    pub(super) ops_drift: f64,
    /// Drift of bytes likewise.
    pub(super) bytes_drift: f64,
    /// Figures of the workload's own harness.
    pub(super) details: BTreeMap<String, f64>,
    /// Allocator operations simulated.
    pub(super) simulated_ops: u64,
}

impl Figures {
    fn of(row: &Row) -> Self {
        Self {
            ops: row.ops_per_task_per_s,
            lock_share: row.lock_share,
            list_share: row.list_lock_share,
            zone_share: row.zone_lock_share,
            functions: row.function_shares.clone(),
            mean_bytes: row.mean_bytes,
            peak_bytes: row.peak_bytes,
            alloc_ns: row.alloc_ns,
            free_ns: row.free_ns,
            allocator_ns: row.allocator_ns_per_op,
            page_allocs: row.page_allocs_per_1000_ops,
            zone_pages: row.zone_pages_per_1000_ops,
            free_high: row.free_high_per_1000_ops,
            cache_misses: row.cache_miss_rate,
            settled: row.settled,
            ops_drift: row.ops_drift,
            bytes_drift: row.bytes_drift,
            details: row.details.clone(),
            simulated_ops: row.simulated_ops,
        }
    }
}

/// A figure over seeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stat {
    /// Mean.
    pub(super) mean: f64,
    /// Standard deviation; `None` for one seed.
    pub(super) sd: Option<f64>,
    /// Least.
    pub(super) min: f64,
    /// Most.
    pub(super) max: f64,
    /// Of so many seeds.
    pub(super) count: usize,
}

impl Stat {
    /// Of these values, of which there is at least one.
    pub(super) fn of(values: &[f64]) -> Self {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Self {
            mean,
            sd: (values.len() > 1).then(|| (squares / (count - 1.0)).sqrt()),
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            count: values.len(),
        }
    }

    /// A figure that does not vary.
    pub(super) fn exact(value: f64) -> Self {
        Self::of(&[value])
    }

    /// Standard error of the mean; zero for one seed, which does not tell.
    pub(super) fn error(&self) -> f64 {
        self.sd.unwrap_or(0.0) / (self.count as f64).sqrt()
    }

    /// The standard deviation as a figure with an error of its own, of values taken for normal.
    pub(super) fn deviation(&self) -> Self {
        let sd = self.sd.unwrap_or(0.0);
        Self {
            mean: sd,
            sd: Some(
                sd / (2.0 * (self.count.max(2) - 1) as f64).sqrt() * (self.count as f64).sqrt(),
            ),
            min: sd,
            max: sd,
            count: self.count,
        }
    }

    /// All figures multiplied.
    pub(super) fn times(self, factor: f64) -> Self {
        Self {
            mean: self.mean * factor,
            sd: self.sd.map(|sd| sd * factor.abs()),
            min: self.min * factor,
            max: self.max * factor,
            count: self.count,
        }
    }

    /// Mean and deviation, as a cell wants them.
    pub(super) fn pair(self) -> (f64, Option<f64>) {
        (self.mean, self.sd)
    }
}

/// What all runs said.
#[derive(Debug, Default)]
pub(super) struct Runs(pub(super) HashMap<Ask, Result<Figures, String>>);

impl Runs {
    /// One run.
    pub(super) fn get(&self, ask: &Ask) -> Result<&Figures, String> {
        match self.0.get(ask) {
            Some(Ok(figures)) => Ok(figures),
            Some(Err(reason)) => Err(format!("{} under {}: {reason}", ask.workload, ask.policy)),
            None => Err(format!("{} under {} was not run", ask.workload, ask.policy)),
        }
    }

    /// The runs of an ask with seed 1 and those after it.
    pub(super) fn seeds(&self, ask: &Ask) -> Result<Vec<&Figures>, String> {
        let made = ask
            .seeds(u64::MAX)
            .take_while(|ask| self.0.contains_key(ask));
        let found: Result<Vec<_>, _> = made.map(|ask| self.get(&ask)).collect();
        match found {
            Ok(none) if none.is_empty() => Err(self.get(ask).expect_err("it was not run")),
            found => found,
        }
    }

    /// A figure over all seeds that were run.
    pub(super) fn stat(&self, ask: &Ask, figure: impl Fn(&Figures) -> f64) -> Result<Stat, String> {
        let runs = self.seeds(ask)?;
        Ok(Stat::of(&runs.into_iter().map(figure).collect::<Vec<_>>()))
    }

    /// What to know about the runs behind a cell: those that did not settle in what it shows, as
    /// `settled` says; `what` names it.
    pub(super) fn note(
        &self,
        asks: &[&Ask],
        what: &str,
        settled: impl Fn(Settled) -> bool,
    ) -> Option<String> {
        let runs = asks.iter().flat_map(|ask| {
            let runs = self.seeds(ask).unwrap_or_default().into_iter();
            runs.map(move |figures| (ask, figures))
        });
        let unsteady: Vec<String> = runs
            .filter(|(_, figures)| !settled(figures.settled))
            .map(|(ask, figures)| {
                let (ops, bytes) = (figures.ops_drift, figures.bytes_drift);
                format!(
                    "{}: {what} did not settle (drift: throughput {ops:+.1} %, bytes {bytes:+.1} %)",
                    ask.policy
                )
            })
            .take(1)
            .collect();
        (!unsteady.is_empty()).then(|| unsteady.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_names_everything_that_decides_a_run() {
        let ask = Ask::new("mmap1", "x86-16", 4, Look::ms(8, 8)).under("linux-6.5");
        let key = ask.key().unwrap();
        let other = |change: &dyn Fn(&mut Ask)| {
            let mut other = ask.clone();
            change(&mut other);
            other.key().unwrap()
        };
        assert_eq!(other(&|_| {}), key);
        assert_ne!(other(&|ask| ask.seed = 2), key);
        assert_ne!(other(&|ask| ask.tasks = 2), key);
        assert_ne!(other(&|ask| ask.policy = "flagstone".into()), key);
        assert_ne!(other(&|ask| ask.look = Look::ms(8, 16)), key);
        assert_ne!(other(&|ask| ask.page_size = Some(65536)), key);
    }

    #[test]
    fn a_stat_is_mean_sample_deviation_and_extremes() {
        let stat = Stat::of(&[1.0, 2.0, 3.0]);
        assert_eq!(
            (stat.mean, stat.sd, stat.min, stat.max),
            (2.0, Some(1.0), 1.0, 3.0)
        );
        assert_eq!(Stat::of(&[4.0]).sd, None);
    }

    #[test]
    fn a_cell_is_marked_by_what_it_shows_and_not_by_what_else_did_not_settle() {
        let ask = Ask::new("random-mix", "this-machine", 1, Look::ms(4, 4));
        let ask = ask.under("flagstone");
        let mut figures = ask.run().unwrap();
        figures.settled = Settled {
            bytes: false,
            ..Settled::ALL
        };
        let runs = Runs(HashMap::from([(ask.clone(), Ok(figures))]));
        let note = |what: &str, settled: fn(Settled) -> bool| runs.note(&[&ask], what, settled);
        assert_eq!(note("throughput", |s| s.ops), None);
        let line = note("memory", |s| s.bytes).unwrap();
        assert!(
            line.starts_with("flagstone: memory did not settle"),
            "{line}"
        );
    }

    #[test]
    fn a_row_goes_on_while_its_spread_is_large_whatever_it_came_to() {
        let ask = Ask::new("random-mix", "this-machine", 1, Look::ms(4, 4));
        let one = ask.under("flagstone").run().unwrap();
        let with = |ops: [f64; 3], waits: [f64; 3]| {
            let runs: Vec<Figures> = (0..3)
                .map(|n| Figures {
                    ops: ops[n],
                    lock_share: waits[n],
                    ..one.clone()
                })
                .collect();
            precise(&runs.iter().collect::<Vec<_>>())
        };
        assert!(with([100.0, 101.0, 102.0], [40.0, 40.5, 41.0]));
        assert!(
            !with([100.0, 102.0, 104.0], [40.0; 3]),
            "1.2 % of throughput"
        );
        assert!(
            !with([100.0; 3], [40.0, 41.0, 42.0]),
            "0.6 points of waiting"
        );
    }

    #[test]
    fn a_run_that_was_not_made_is_named() {
        let ask = Ask::new("mmap1", "x86-16", 4, Look::ms(8, 8)).under("linux-6.5");
        let line = Runs::default().get(&ask).unwrap_err();
        assert!(
            line.contains("mmap1") && line.contains("linux-6.5"),
            "{line}"
        );
    }
}
