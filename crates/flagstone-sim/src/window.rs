//! When may a figure be called steady?
//!
//! ```text
//!   |--warm-up--|----earlier half----|--------later half--------|
//!               T/4                 T/2                         T
//!        drift = later / earlier - 1, for throughput and for bytes; steady if both are small
//! ```
//!
//! T doubles until the two halves agree or the bound is reached. Halves, not a fixed number of
//! last windows: slabs fragment slowly, and a row can rest for tens of milliseconds and then move
//! again. Every boundary is a whole number of grace periods, so that a half never holds a part of
//! a grace period of deferred frees. What never agrees is reported with its drift and is not called
//! converged.
//!
//! Throughput settles long before memory does where pagesets fill: with pages that one CPU allocates and
//! another one frees, kernels that let a pageset grow keep gigabytes in those of the freeing CPUs,
//! which fill for a second and then breathe with the decay of every second. So each kind of figure
//! is judged alone: what happens in an operation, and how many bytes are in use.
//!
//! Time is counted from the last look before all tasks have begun: where tasks prepare themselves (set
//! up what an earlier life left), what the first of them do meanwhile is no part of a window.

use crate::costs::{MS, Ps};
use crate::options::Failure;
use crate::progress;
use crate::tally::Totals;
use crate::vm::Vm;
use crate::watch::Watch;
use crate::{Program, subject::Subject};
use serde::{Deserialize, Serialize};

/// How long to look, and how steady is steady.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// T at the first decision.
    pub first: Ps,
    /// T at the last decision, for rows that are much work.
    pub last: Ps,
    /// T at the last decision, for rows that are little: pagesets decay once a second, so that their
    /// bytes need seconds to settle.
    pub patient: Ps,
    /// Allocator operations beyond which a row is much work.
    pub work: u64,
    /// Largest relative drift that counts as steady.
    pub tolerance: f64,
}

impl Plan {
    /// The usual plan: 64 ms at least, because fragmentation needs that long to show, up to 512 ms,
    /// and up to 4 s while that is cheap.
    pub const FULL: Self = Self::of(64 * MS, 512 * MS);

    /// Decisions from `first` to `last`, and up to 4 s while that is cheap.
    #[must_use]
    pub const fn of(first: Ps, last: Ps) -> Self {
        Self {
            first,
            last,
            patient: 4096 * MS,
            work: 100_000_000,
            tolerance: 0.03,
        }
    }

    /// A short look: for tests and first impressions.
    pub const QUICK: Self = Self {
        first: 16 * MS,
        last: 32 * MS,
        patient: 32 * MS,
        work: 0,
        tolerance: 0.05,
    };

    /// Whether a row that did `ops` allocator operations in `length` goes on to twice that length.
    fn goes_on(&self, length: Ps, ops: u64) -> bool {
        let longest = if ops.saturating_mul(2) <= self.work {
            self.last.max(self.patient)
        } else {
            self.last
        };
        2 * length <= longest
    }
}

/// A look at the whole machine.
#[derive(Clone, Debug)]
struct Look {
    at: Ps,
    totals: Totals,
    in_use: usize,
    live: usize,
    backlog: usize,
}

/// The kinds of figures in which both halves of a window agreed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Settled {
    /// Operations of a task in a second.
    pub ops: bool,
    /// The share of the tasks' time that goes into waiting for locks, within as many points.
    pub waits: bool,
    /// Pages fetched from zones by an operation.
    pub pages: bool,
    /// Bytes in use.
    pub bytes: bool,
}

impl Settled {
    /// In everything: a finite run's figures are of the whole of it.
    pub const ALL: Self = Self {
        ops: true,
        waits: true,
        pages: true,
        bytes: true,
    };

    /// Settled in what both are settled in.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            ops: self.ops && other.ops,
            waits: self.waits && other.waits,
            pages: self.pages && other.pages,
            bytes: self.bytes && other.bytes,
        }
    }
}

/// What a steady workload did in its last window.
#[derive(Clone, Debug)]
pub struct Steady {
    /// What happened in the window.
    pub totals: Totals,
    /// Its length.
    pub span: Ps,
    /// Where it began.
    pub from: Ps,
    /// Whether both halves agreed in throughput and in bytes.
    pub converged: bool,
    /// In which kinds of figures they agreed.
    pub settled: Settled,
    /// Throughput of the later half over the earlier, minus one.
    pub drift: f64,
    /// Bytes likewise.
    pub bytes_drift: f64,
    /// Mean bytes in use in the window.
    pub mean_bytes: usize,
    /// Mean bytes of what the workload holds itself ([`Subject::live_bytes`]).
    pub mean_live_bytes: usize,
    /// Most bytes in use at any look since the start.
    pub peak_bytes: usize,
    /// Deferred objects piled up and kept growing: the machine cannot keep up with itself.
    pub backlog_grows: bool,
    /// Time and bytes in use at every look.
    pub history: Vec<(Ps, usize)>,
}

/// Looks per T at its first value: enough for a plot.
const LOOKS: u64 = 32;

/// Pages of an operation that decide nothing: what is as rare as this comes by chance.
const RARE: f64 = 1e-4;

/// Virtual time within which every task must have prepared itself.
const PREPARATION_MOST: Ps = 8192 * MS;

/// Runs steady programs until the plan is content.
///
/// # Errors
/// What went wrong in the run.
pub fn run_steady(
    vm: &Vm,
    subject: &Subject,
    programs: Vec<(u32, Program<'_>)>,
    plan: Plan,
) -> Result<Steady, Failure> {
    let grace = vm.grace();
    // A look every few grace periods, so that boundaries are whole ones.
    let step = (plan.first / LOOKS).next_multiple_of(grace).max(grace);
    let first = plan.first.next_multiple_of(4 * step);
    let mut watch = Watch::new(vm, subject);
    let mut looks: Vec<Look> = vec![look(vm, subject, &mut watch, 0)];
    // The look from which time counts, and the length after which to decide.
    let (mut origin, mut length) = (0, first);
    let mut outcome = None;
    let tasks = programs.len();
    vm.run(programs, step, |vm| {
        let at = vm.now();
        if !progress::went_on(at - looks[looks.len() - 1].at) {
            outcome = None;
            return None;
        }
        looks.push(look(vm, subject, &mut watch, at));
        if vm.preparing() {
            origin = looks.len() - 1;
            return (at < PREPARATION_MOST).then_some(at + step);
        }
        if at - looks[origin].at < length {
            return Some(at + step);
        }
        let steady = judge(&looks, origin, tasks, plan.tolerance);
        let done = &looks[looks.len() - 1].totals;
        let enough = steady.converged || !plan.goes_on(length, done.allocs + done.frees);
        outcome = Some(steady);
        length *= 2;
        (!enough).then_some(at + step)
    })?;
    let why = match progress::is_ended() {
        true => "interrupted",
        false => "some tasks never finish their preparation",
    };
    outcome.ok_or_else(|| Failure {
        what: why.to_owned(),
        seed: vm.options.seed,
        at_ns: vm.now() / 1000,
        thread: 0,
    })
}

fn look(vm: &Vm, subject: &Subject, watch: &mut Watch, at: Ps) -> Look {
    let mut totals = vm.totals();
    let in_use = watch.look(vm, subject, &mut totals);
    Look {
        at,
        totals,
        in_use,
        live: subject.live_bytes(),
        backlog: vm.deferred_backlog(),
    }
}

/// What the looks say since the one at index `origin`.
fn judge(looks: &[Look], origin: usize, tasks: usize, tolerance: f64) -> Steady {
    let end = looks.len() - 1;
    let start = looks[origin].at;
    let at = |time: Ps| {
        let found = looks.iter().position(|look| look.at >= start + time);
        found.unwrap_or(end)
    };
    let length = looks[end].at - start;
    let (quarter, half) = (at(length / 4), at(length / 2));
    let rate = |from: usize, to: usize| {
        let span = (looks[to].at - looks[from].at).max(1);
        (looks[to].totals.ops - looks[from].totals.ops) as f64 / span as f64
    };
    let mean_of = |from: usize, to: usize, figure: fn(&Look) -> usize| {
        let part = &looks[from + 1..=to];
        part.iter().map(figure).sum::<usize>() / part.len().max(1)
    };
    let mean = |from: usize, to: usize| mean_of(from, to, |look| look.in_use);
    let relative = |later: f64, earlier: f64| {
        if earlier == 0.0 {
            // From nothing to something counts as doubled: documents know no infinity.
            if later == 0.0 { 0.0 } else { 1.0 }
        } else {
            later / earlier - 1.0
        }
    };
    let drift = relative(rate(half, end), rate(quarter, half));
    let bytes_drift = relative(mean(half, end) as f64, mean(quarter, half) as f64);
    let part = |from: usize, to: usize| &looks[to].totals - &looks[from].totals;
    let (earlier, later) = (part(quarter, half), part(half, end));
    let waits = |totals: &Totals, from: usize, to: usize| {
        let span = (looks[to].at - looks[from].at).max(1);
        totals.lock_wait.iter().sum::<u64>() as f64 / (span * tasks.max(1) as u64) as f64
    };
    let waits_drift = waits(&later, half, end) - waits(&earlier, quarter, half);
    let pages = |totals: &Totals| totals.zone_pages as f64 / totals.ops.max(1) as f64;
    let (before, now) = (pages(&earlier), pages(&later));
    let pages_drift = relative(now, before);
    let backlog = |index: usize| looks[index].backlog as f64;
    let backlog_grows = backlog(end) > 10_000.0 && backlog(end) > 1.5 * backlog(half);
    let works = !backlog_grows && later.ops > 0;
    let settled = Settled {
        ops: works && drift.abs() <= tolerance,
        waits: works && waits_drift.abs() <= tolerance,
        pages: works && (pages_drift.abs() <= tolerance || (now - before).abs() <= RARE),
        bytes: works && bytes_drift.abs() <= tolerance,
    };
    Steady {
        totals: later,
        span: looks[end].at - looks[half].at,
        from: looks[half].at,
        converged: settled.ops && settled.bytes,
        settled,
        drift,
        bytes_drift,
        mean_bytes: mean(half, end),
        mean_live_bytes: mean_of(half, end, |look| look.live),
        peak_bytes: looks.iter().map(|look| look.in_use).max().unwrap_or(0),
        backlog_grows,
        history: looks.iter().map(|look| (look.at, look.in_use)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(ops: impl Fn(u64) -> u64, bytes: impl Fn(u64) -> usize) -> Vec<Look> {
        let each = (0..=32).map(|step| Look {
            at: step * MS,
            totals: Totals {
                ops: ops(step),
                ..Totals::default()
            },
            in_use: bytes(step),
            live: 0,
            backlog: 0,
        });
        each.collect()
    }

    #[test]
    fn a_cheap_row_may_take_longer_than_a_dear_one_and_a_fixed_look_never_does() {
        let plan = Plan::of(64 * MS, 512 * MS);
        assert!(plan.goes_on(256 * MS, u64::MAX));
        assert!(!plan.goes_on(512 * MS, plan.work));
        assert!(plan.goes_on(512 * MS, plan.work / 2));
        assert!(plan.goes_on(2048 * MS, 0) && !plan.goes_on(4096 * MS, 0));
        assert!(!Plan::QUICK.goes_on(32 * MS, 0));
    }

    #[test]
    fn an_even_run_is_steady_and_its_window_is_the_later_half() {
        let steady = judge(&looks(|t| 1000 * t, |_| 4096), 0, 1, 0.03);
        assert!(steady.converged);
        assert_eq!(
            (steady.totals.ops, steady.span, steady.from),
            (16_000, 16 * MS, 16 * MS)
        );
        assert_eq!((steady.mean_bytes, steady.peak_bytes), (4096, 4096));
    }

    #[test]
    fn a_run_that_slows_down_is_not_steady() {
        let steady = judge(
            &looks(|t| 100 * t.min(16) + 90 * t.saturating_sub(16), |_| 4096),
            0,
            1,
            0.03,
        );
        assert!(!steady.converged);
        assert!((steady.drift + 0.1).abs() < 1e-9);
    }

    #[test]
    fn a_run_that_began_late_is_not_steady_and_its_drift_is_a_number() {
        let steady = judge(&looks(|t| 100 * t.saturating_sub(16), |_| 4096), 0, 1, 0.03);
        assert!(!steady.converged && steady.drift.is_finite());
    }

    #[test]
    fn growing_memory_is_not_steady_however_even_the_throughput() {
        let steady = judge(&looks(|t| 1000 * t, |t| 4096 * t as usize), 0, 1, 0.03);
        assert!(!steady.converged && steady.drift.abs() < 1e-9);
        let throughput = Settled {
            bytes: false,
            ..Settled::ALL
        };
        assert_eq!(steady.settled, throughput, "what tasks do is known");
    }

    #[test]
    fn waits_and_pages_that_still_grow_are_known_by_name() {
        let mut even = looks(|t| 1000 * t, |_| 4096);
        for (step, look) in even.iter_mut().enumerate() {
            let step = step as u64;
            look.totals.zone_pages = step * step;
            look.totals.lock_wait[0] = step * step * MS / 100;
        }
        let steady = judge(&even, 0, 1, 0.03);
        assert!(steady.converged, "neither throughput nor bytes move");
        assert!(!steady.settled.waits && !steady.settled.pages);
        assert!(
            judge(&even, 0, 100, 0.03).settled.waits,
            "little of a hundred tasks' time"
        );
    }

    #[test]
    fn time_before_the_tasks_had_begun_counts_for_nothing() {
        let late = looks(
            |t| 1000 * t.saturating_sub(16),
            |t| if t < 16 { 1 << 20 } else { 4096 },
        );
        assert!(!judge(&late, 0, 1, 0.03).converged);
        let steady = judge(&late, 16, 1, 0.03);
        assert!(steady.converged);
        assert_eq!(
            (steady.from, steady.span, steady.totals.ops),
            (24 * MS, 8 * MS, 8000)
        );
        assert_eq!(
            steady.peak_bytes,
            1 << 20,
            "the peak is that of the whole run"
        );
    }

    #[test]
    fn a_task_that_begins_before_the_warm_up_is_over_begins_it_anew() {
        use crate::{Machine, Options};
        let vm = Vm::new(Machine::named("x86-16").unwrap(), Options::default());
        let policy = flagstone_core::policy::Policy::default();
        let subject = vm.boot(|| Subject::new(&vm, &policy)).unwrap();
        vm.will_prepare(2);
        let task = |begins: Ps| -> Program<'_> {
            Box::new(move |vm: &Vm| {
                vm.sleep_until(begins);
                vm.prepared();
                while !vm.stopping() {
                    vm.sleep_until(vm.now() + MS / 10);
                    vm.count_op();
                }
            })
        };
        let programs = vec![(0, task(0)), (1, task(11 * MS))];
        let plan = Plan::of(64 * MS, 64 * MS);
        let steady = run_steady(&vm, &subject, programs, plan).unwrap();
        assert!(steady.from > 32 * MS, "counted from the machine's start");
        assert!(steady.drift.abs() < 0.01, "{}", steady.drift);
    }

    #[test]
    fn a_machine_that_does_nothing_never_counts_as_steady() {
        assert!(!judge(&looks(|_| 0, |_| 0), 0, 1, 0.03).converged);
    }
}
