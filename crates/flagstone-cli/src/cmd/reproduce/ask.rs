//! What to simulate, and what a simulation says.
//!
//! ```text
//!   Ask { workload, machine, policy, tasks, size, seed, look } ──► Spec ──► Record ──► Stat over seeds
//! ```
//!
//! An ask is one run with one seed. Documents list theirs; equal ones are run once.

use super::without::Mechanism;
use flagstone_lab::{Record, Spec, Window, names};
use std::collections::HashMap;

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
pub(super) fn precise(runs: &[&Record]) -> bool {
    let of = |figure: fn(&Record) -> f64| {
        Stat::of(&runs.iter().map(|run| figure(run)).collect::<Vec<_>>())
    };
    let (ops, waits) = (of(|r| r.ops_per_task_per_s), of(|r| r.lock_share));
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
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Ask {
    /// The workload's name.
    pub(super) workload: &'static str,
    /// The machine's name.
    pub(super) machine: &'static str,
    /// Bytes in a page, if not the machine's.
    pub(super) page_size: Option<usize>,
    /// The policy's name.
    pub(super) policy: &'static str,
    /// Tasks.
    pub(super) tasks: u32,
    /// Object size, for workloads that have one.
    pub(super) size: Option<usize>,
    /// Nanoseconds outside the allocator; zero leaves the workload's own.
    pub(super) think_ns: i64,
    /// Seed of everything random.
    pub(super) seed: u64,
    /// How long to look, as [`Window::parse`] reads it; finite workloads run to their end.
    pub(super) look: &'static str,
}

impl Ask {
    /// The same with another seed.
    pub(super) fn with_seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// The same with seeds 1 to `count`.
    pub(super) fn seeds(self, count: u64) -> impl Iterator<Item = Self> {
        (1..=count).map(move |seed| self.with_seed(seed))
    }

    /// The run, with seeds counted from `first` instead of 1 and a mechanism of the model left out.
    pub(super) fn spec(
        &self,
        first: u64,
        without: Option<&'static Mechanism>,
    ) -> Result<Spec, String> {
        let mut machine = names::machine(self.machine)?;
        machine.topology.page_size = self.page_size.unwrap_or(machine.topology.page_size);
        let left = without.and_then(|mechanism| mechanism.taken_from(&machine));
        let mut spec = Spec::new(self.workload, left.unwrap_or(machine), self.policy)?;
        spec.workload.size = self.size;
        spec.workload.think_ns = (self.think_ns != 0).then_some(self.think_ns as f64);
        spec.tasks = self.tasks;
        spec.seed = first + (self.seed - 1);
        spec.window = Window::parse(self.look)?;
        Ok(spec)
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

    /// Added, subtracted, multiplied or divided. The deviation is the left one's, or the right one's if the left
    /// does not vary; the other counts as its mean.
    ///
    /// # Errors
    /// One line: a division by zero.
    pub(super) fn with(self, operation: char, other: Self) -> Result<Self, String> {
        let of = |a: f64, b: f64| match operation {
            '+' => a + b,
            '-' => a - b,
            '*' => a * b,
            _ => a / b,
        };
        if operation == '/' && other.mean == 0.0 {
            return Err("there are none of these in the simulation to compare with".into());
        }
        let left = self.sd.is_some() || other.sd.is_none();
        let owner = if left { self } else { other };
        let each = |value: f64| match left {
            true => of(value, other.mean),
            false => of(self.mean, value),
        };
        let mean = each(owner.mean);
        let sd = owner.sd.map(|sd| match operation {
            '+' | '-' => sd,
            '*' => sd * (if left { other } else { self }).mean.abs(),
            _ if left => sd / other.mean.abs(),
            _ => sd / owner.mean * mean.abs(),
        });
        let ends = [each(owner.min), each(owner.max)];
        Ok(Self {
            mean,
            sd,
            min: ends[0].min(ends[1]),
            max: ends[0].max(ends[1]),
            count: owner.count,
        })
    }
}

/// What all runs said.
#[derive(Debug, Default)]
pub(super) struct Runs(pub(super) HashMap<Ask, Result<Record, String>>);

impl Runs {
    /// One run.
    pub(super) fn get(&self, ask: &Ask) -> Result<&Record, String> {
        match self.0.get(ask) {
            Some(Ok(record)) => Ok(record),
            Some(Err(reason)) => Err(format!("{} under {}: {reason}", ask.workload, ask.policy)),
            None => Err(format!("{} under {} was not run", ask.workload, ask.policy)),
        }
    }

    /// The runs of an ask with seed 1 and those after it, so many at most.
    pub(super) fn seeds(&self, ask: &Ask, most: u64) -> Result<Vec<&Record>, String> {
        let asked = ask.seeds(most);
        let made = asked.take_while(|ask| self.0.contains_key(ask));
        let found: Result<Vec<_>, _> = made.map(|ask| self.get(&ask)).collect();
        match found {
            Ok(none) if none.is_empty() => Err(self.get(ask).expect_err("it was not run")),
            found => found,
        }
    }

    /// What to know about the runs behind a cell: the first that did not settle in these kinds of figures;
    /// `what` names it.
    pub(super) fn note(&self, asks: &[Ask], what: &str, kinds: &str) -> Option<String> {
        let settled = |record: &Record| {
            kinds.split_whitespace().all(|kind| match kind {
                "ops" => record.settled_ops,
                "waits" => record.settled_waits,
                "pages" => record.settled_pages,
                _ => record.settled_bytes,
            })
        };
        asks.iter().find_map(|ask| {
            let runs = self.seeds(ask, u64::MAX).unwrap_or_default();
            let record = runs.into_iter().find(|record| !settled(record))?;
            let (ops, bytes) = (record.ops_drift, record.bytes_drift);
            Some(format!(
                "{}: {what} did not settle (drift: throughput {ops:+.1} %, bytes {bytes:+.1} %)",
                ask.policy
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask() -> Ask {
        Ask {
            workload: "random-mix",
            machine: "this-machine",
            page_size: None,
            policy: "flagstone",
            tasks: 1,
            size: None,
            think_ns: 0,
            seed: 1,
            look: "4ms",
        }
    }

    #[test]
    fn a_digest_names_everything_that_decides_a_run() {
        let of = |ask: Ask| ask.spec(1, None).unwrap().digest();
        let others = [
            Ask { seed: 2, ..ask() },
            Ask { tasks: 2, ..ask() },
            Ask {
                policy: "linux-6.5",
                ..ask()
            },
            Ask {
                look: "4..8ms",
                ..ask()
            },
            Ask {
                page_size: Some(65536),
                ..ask()
            },
        ];
        assert!(others.into_iter().all(|other| of(other) != of(ask())));
        let later = ask().spec(2, None).unwrap().digest();
        assert_eq!(of(Ask { seed: 2, ..ask() }), later);
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
    fn of_two_values_that_vary_the_left_ones_deviation_is_kept() {
        let (a, b) = (Stat::of(&[2.0, 4.0]), Stat::of(&[1.0, 2.0, 3.0]));
        let half = a.with('/', b).unwrap();
        assert_eq!((half.mean, half.sd), (1.5, a.sd.map(|sd| sd / 2.0)));
        let inverse = Stat::exact(6.0).with('/', b).unwrap();
        assert_eq!((inverse.mean, inverse.sd), (3.0, Some(1.5)));
        assert_eq!((inverse.min, inverse.max), (2.0, 6.0));
        assert_eq!(a.with('-', b).unwrap().sd, a.sd);
        assert!(a.with('/', Stat::exact(0.0)).is_err());
    }

    #[test]
    fn a_cell_is_marked_by_what_it_shows_and_not_by_what_else_did_not_settle() {
        let mut record = ask().spec(1, None).unwrap().run().unwrap().record;
        record.settled_ops = true;
        record.settled_bytes = false;
        let runs = Runs(HashMap::from([(ask(), Ok(record))]));
        assert_eq!(runs.note(&[ask()], "throughput", "ops"), None);
        let line = runs.note(&[ask()], "memory", "bytes").unwrap();
        assert!(
            line.starts_with("flagstone: memory did not settle"),
            "{line}"
        );
    }

    #[test]
    fn a_row_goes_on_while_its_spread_is_large_whatever_it_came_to() {
        let one = ask().spec(1, None).unwrap().run().unwrap().record;
        let with = |ops: [f64; 3], waits: [f64; 3]| {
            let runs: Vec<Record> = (0..3)
                .map(|n| Record {
                    ops_per_task_per_s: ops[n],
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
        let line = Runs::default().get(&ask()).unwrap_err();
        assert!(
            line.contains("random-mix") && line.contains("flagstone"),
            "{line}"
        );
    }
}
