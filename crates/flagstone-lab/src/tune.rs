//! Tuning: which settings of a policy are worth having for a workload, by throughput and memory.
//!
//! ```text
//!   Halton points in the knobs' ranges ─► short windows, all ─► longer, the better half ─► .. ─► the last
//!   the last, the policy as it is, named policies ─► seeds that the search has not seen ─► front, verdict
//! ```
//!
//! Successive halving over windows: a point that is bad in a few milliseconds is seldom good in many. Who goes
//! on is chosen as NSGA-II does: by rank among what beats what, then by distance to the neighbours, so that the
//! whole front goes on and not one end of it. Between halvings the survivors have children: halves of what
//! fell out are replaced by points between two survivors. Everything follows from the seed.

use crate::record::Record;
use crate::row::deviation_of;
use crate::runs::{Answer, Options, sim};
pub use crate::settings::kernel_settings;
use crate::spec::{Rules, Spec, Window};
use crate::{names, units};
use flagstone_core::policy::{KEYS, Policy};
use flagstone_sim::chance::Chance;
use std::collections::BTreeSet;

/// A knob and the values it may take.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Knob {
    /// Its key.
    pub key: String,
    /// Least value.
    pub low: u64,
    /// Greatest value.
    pub high: u64,
}

/// Ranges of more than this ratio are searched by orders of magnitude.
const WIDE: u64 = 8;

impl Knob {
    /// `KEY=LO..HI`; sizes may end in K, M, G or T.
    ///
    /// # Errors
    /// One line that says what is wrong and what was probably meant.
    pub fn parse(text: &str) -> Result<Self, String> {
        let form = || format!("knob `{text}`: it is written KEY=LO..HI, as sheaf_capacity=8..128");
        let (key, range) = text.split_once('=').ok_or_else(form)?;
        let (low, high) = range.split_once("..").ok_or_else(form)?;
        let (key, high) = (key.trim(), high.trim_start_matches('='));
        if !KEYS.iter().any(|(known, _)| *known == key) {
            let near = names::question(key, KEYS.iter().map(|(known, _)| *known));
            return Err(format!(
                "unknown knob `{key}`; {near}docs/options.md lists all"
            ));
        }
        let number =
            |word: &str| units::bytes(word.trim()).map_err(|why| format!("knob {key}: {why}"));
        let (low, high) = (number(low)? as u64, number(high)? as u64);
        if low > high {
            return Err(format!("knob {key}: {low} is more than {high}"));
        }
        for value in [low, high] {
            names::set(&mut Policy::default(), &format!("{key}={value}"))?;
        }
        Ok(Self {
            key: key.to_owned(),
            low,
            high,
        })
    }

    /// The value at a place from 0 to 1.
    fn at(&self, place: f64) -> u64 {
        let (low, high) = (self.low as f64, self.high as f64);
        let value = match self.high / self.low.max(1) > WIDE {
            // One more, because zero has no logarithm.
            true => ((low + 1.0).ln() + place * ((high + 1.0) / (low + 1.0)).ln()).exp() - 1.0,
            false => low + place * (high - low),
        };
        (value.round() as u64).clamp(self.low, self.high)
    }
}

/// What to tune.
#[derive(Clone, Debug)]
pub struct Question {
    /// Workload, machine, tasks, window and policy; knobs are set over the policy's own.
    pub spec: Spec,
    /// What may be changed.
    pub knobs: Vec<Knob>,
    /// Points to begin with.
    pub points: usize,
    /// Unseen seeds of the last comparison.
    pub seeds: u64,
    /// Other policies to compare with, by name.
    pub others: Vec<String>,
    /// What counts.
    pub goals: Weights,
}

/// What each goal counts; zero leaves it out.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
pub struct Weights {
    /// Operations of a task in a second.
    pub throughput: f64,
    /// Mean bytes in use.
    pub memory: f64,
}

impl Weights {
    /// `throughput,memory`, each perhaps with a weight: `throughput=2,memory`.
    ///
    /// # Errors
    /// One line.
    pub fn parse(goals: &[String]) -> Result<Self, String> {
        let mut weights = Self {
            throughput: 0.0,
            memory: 0.0,
        };
        for goal in goals {
            let (name, weight) = goal.split_once('=').unwrap_or((goal, "1"));
            let number = weight.parse::<f64>().ok();
            let number = number.filter(|number| *number > 0.0 && number.is_finite());
            let number = number
                .ok_or_else(|| format!("--goal {goal}: a weight is a number above 0, as 2"))?;
            match name.trim() {
                "throughput" => weights.throughput = number,
                "memory" => weights.memory = number,
                _ => {
                    let near = names::question(name, ["throughput", "memory"]);
                    return Err(format!("--goal {goal}: {near}known: throughput, memory"));
                }
            }
        }
        Ok(weights)
    }

    /// Whether one goal counts alone.
    #[must_use]
    pub fn single(&self) -> bool {
        self.throughput == 0.0 || self.memory == 0.0
    }

    /// What is to be high: throughput, and the memory not used; a goal that does not count is zero.
    fn goals(&self, ops: f64, bytes: f64) -> Goals {
        let counts = |weight: f64, value: f64| if weight > 0.0 { value } else { 0.0 };
        [counts(self.throughput, ops), counts(self.memory, -bytes)]
    }
}

/// The part of a trace that the search sees, and those of the last comparison, in percent of its time.
const SEEN: (u8, u8) = (0, 50);
const UNSEEN_PARTS: [(u8, u8); 2] = [(50, 75), (75, 100)];

/// A figure over the unseen seeds.
#[derive(Clone, Copy, PartialEq, Debug, Default, serde::Serialize)]
pub struct Figure {
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub spread: f64,
}

/// A point that was compared at the end.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Found {
    /// The policy.
    pub policy: String,
    /// Its settings, `KEY=VALUE`.
    pub settings: Vec<String>,
    /// The policy as it is, without settings of the search.
    pub is_default: bool,
    /// Another policy.
    pub is_other: bool,
    /// Operations of a task in a second.
    pub ops: Figure,
    /// Mean bytes in use.
    pub bytes: Figure,
    /// No other point beats it in both.
    pub on_front: bool,
    /// Better than the policy as it is in one goal, and not worse in the other, beyond the spread.
    pub better: bool,
    /// Its gain over the policy as it is, in percent, pair by pair of the same seed and part: more operations,
    /// fewer bytes.
    pub ops_gain: Figure,
    /// See [`Self::ops_gain`].
    pub bytes_gain: Figure,
    /// Operations and bytes of every unseen run.
    #[serde(skip)]
    runs: Vec<[f64; 2]>,
}

/// What came of it.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Tuned {
    /// All points of the last comparison, the highest throughput first.
    pub points: Vec<Found>,
    /// Runs made.
    pub runs: usize,
    /// Points that could not be run, in a line each.
    pub failures: Vec<String>,
    /// What counted.
    pub goals: Weights,
}

impl Tuned {
    /// The settings to take, if any are worth it: those better beyond the spread, by the larger gain.
    #[must_use]
    pub fn advice(&self) -> Option<&Found> {
        let gain = |point: &&Found| {
            self.goals.throughput * point.ops_gain.mean + self.goals.memory * point.bytes_gain.mean
        };
        let candidates = self
            .points
            .iter()
            .filter(|point| point.better && !point.is_other);
        candidates.max_by(|a, b| gain(a).total_cmp(&gain(b)))
    }
}

/// Standard errors that count as a difference.
const ERRORS: f64 = 2.0;
/// The search's own seed.
const SEARCH_SEED: u64 = 1;
/// Unseen seeds begin here.
const UNSEEN: u64 = 1001;
/// Points at the last halving.
const LAST: usize = 8;

/// Searches. `done` hears of each run.
///
/// # Errors
/// One line: no knobs, or the policy as it is cannot be run.
pub fn tune(
    question: &Question,
    options: &Options,
    done: impl Fn(&Answer) + Sync,
) -> Result<Tuned, String> {
    if question.knobs.is_empty() {
        return Err("nothing to change: name knobs with their ranges".into());
    }
    question.spec.check()?;
    let mut runs = 0;
    let mut failures = BTreeSet::new();
    let mut chance = Chance::new(SEARCH_SEED);
    let mut points: Vec<Vec<f64>> = (0..question.points.max(LAST))
        .map(|at| halton(at as u64 + 1, question.knobs.len()))
        .collect();
    for share in windows(points.len()) {
        let window = shorter(question.spec.window, share);
        points = unlike(points, question);
        let specs: Vec<Spec> = points
            .iter()
            .map(|point| Ok(on_part(question.at(point, SEARCH_SEED, window)?, SEEN)))
            .collect::<Result<_, String>>()?;
        let answers = sim(&specs, options, &done);
        runs += answers.len();
        let mut alive = Vec::new();
        for (answer, point) in answers.iter().zip(&points) {
            match &answer.run {
                Ok(run) => alive.push((point.clone(), question.goals_of(&run.record))),
                Err(why) => drop(failures.insert(why.clone())),
            }
        }
        let keep = (points.len() / 2).max(LAST);
        points = selected(alive, keep)
            .into_iter()
            .map(|(point, _)| point)
            .collect();
        if share < 1.0 && points.len() > LAST {
            let children = (points.len() / 4).max(1);
            for _ in 0..children {
                let child = between(&points, &mut chance);
                points.push(child);
            }
        }
    }
    let last = compare(question, &unlike(points, question), options, &done)?;
    Ok(Tuned {
        runs: runs + last.runs,
        failures: failures.into_iter().chain(last.failures).collect(),
        ..last
    })
}

/// Parts of the window, one for each halving.
fn windows(points: usize) -> Vec<f64> {
    let halvings = (points as f64 / LAST as f64).log2().ceil().max(1.0) as i32;
    (0..halvings).rev().map(|left| 0.5f64.powi(left)).collect()
}

/// A part of a window; never less than a millisecond.
fn shorter(window: Window, share: f64) -> Window {
    let part = |ps: u64| ((ps as f64 * share) as u64).max(flagstone_sim::costs::MS);
    Window {
        first_ps: part(window.first_ps),
        last_ps: part(window.last_ps),
        patient_ps: part(window.last_ps),
        ..window
    }
}

/// The point of a low-discrepancy sequence: each coordinate in a prime base of its own.
fn halton(index: u64, dimensions: usize) -> Vec<f64> {
    const PRIMES: [u64; 12] = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37];
    let coordinate = |base: u64| {
        let (mut place, mut part, mut left) = (0.0, 1.0, index);
        while left > 0 {
            part /= base as f64;
            place += part * (left % base) as f64;
            left /= base;
        }
        place
    };
    (0..dimensions)
        .map(|at| coordinate(PRIMES[at % PRIMES.len()]))
        .collect()
}

/// A point between two, a little moved.
fn between(points: &[Vec<f64>], chance: &mut Chance) -> Vec<f64> {
    let pick = |chance: &Chance| &points[chance.below(points.len() as u32) as usize];
    let (one, other) = (pick(chance), pick(chance));
    let unit = |chance: &Chance| f64::from(chance.below(1 << 20)) / f64::from(1 << 20);
    one.iter()
        .zip(other)
        .map(|(a, b)| (a + (b - a) * unit(chance) + (unit(chance) - 0.5) * 0.1).clamp(0.0, 1.0))
        .collect()
}

/// A run on a part of its trace, if it plays one.
fn on_part(mut spec: Spec, part: (u8, u8)) -> Spec {
    if let Some(trace) = &mut spec.workload.trace {
        trace.part = Some(part);
    }
    spec
}

/// Points that mean other settings than all before them.
fn unlike(points: Vec<Vec<f64>>, question: &Question) -> Vec<Vec<f64>> {
    let mut seen = BTreeSet::new();
    points
        .into_iter()
        .filter(|point| seen.insert(question.settings(point)))
        .collect()
}

impl Question {
    fn settings(&self, point: &[f64]) -> Vec<String> {
        let knobs = self.knobs.iter().zip(point);
        knobs
            .map(|(knob, place)| format!("{}={}", knob.key, knob.at(*place)))
            .collect()
    }

    fn goals_of(&self, record: &Record) -> Goals {
        self.goals
            .goals(record.ops_per_task_per_s, record.mean_bytes as f64)
    }

    fn at(&self, point: &[f64], seed: u64, window: Window) -> Result<Spec, String> {
        let all: Vec<String> = self
            .spec
            .policy
            .knobs
            .iter()
            .cloned()
            .chain(self.settings(point))
            .collect();
        Ok(Spec {
            seed,
            window,
            policy: Rules::parse(&self.spec.policy.name, &all)?,
            ..self.spec.clone()
        })
    }
}

/// What is to be high: throughput, and the memory not used.
type Goals = [f64; 2];

fn beats(a: &Goals, b: &Goals) -> bool {
    a[0] >= b[0] && a[1] >= b[1] && a != b
}

/// The better `keep`: rank by rank of what nothing beats, within the last rank those with distant neighbours.
fn selected<T>(mut all: Vec<(T, Goals)>, keep: usize) -> Vec<(T, Goals)> {
    let mut kept = Vec::new();
    while kept.len() < keep && !all.is_empty() {
        let all_goals: Vec<Goals> = all.iter().map(|(_, goals)| *goals).collect();
        let mut rank = Vec::new();
        let mut rest = Vec::new();
        for one in all {
            match all_goals.iter().any(|other| beats(other, &one.1)) {
                true => rest.push(one),
                false => rank.push(one),
            }
        }
        if kept.len() + rank.len() > keep {
            let apart = distances(&rank.iter().map(|(_, goals)| *goals).collect::<Vec<_>>());
            let mut order: Vec<(f64, (T, Goals))> = apart.into_iter().zip(rank).collect();
            order.sort_by(|a, b| b.0.total_cmp(&a.0));
            rank = order
                .into_iter()
                .map(|(_, one)| one)
                .take(keep - kept.len())
                .collect();
        }
        kept.extend(rank);
        all = rest;
    }
    kept
}

/// How far each point's neighbours are apart, of the whole in each goal; the ends are infinitely far.
fn distances(all: &[Goals]) -> Vec<f64> {
    let mut apart = vec![0.0; all.len()];
    for goal in 0..2 {
        let mut order: Vec<usize> = (0..all.len()).collect();
        order.sort_by(|&a, &b| all[a][goal].total_cmp(&all[b][goal]));
        let (Some(&first), Some(&last)) = (order.first(), order.last()) else {
            continue;
        };
        let whole = (all[last][goal] - all[first][goal]).max(f64::MIN_POSITIVE);
        apart[first] = f64::INFINITY;
        apart[last] = f64::INFINITY;
        for three in order.windows(3) {
            apart[three[1]] += (all[three[2]][goal] - all[three[0]][goal]) / whole;
        }
    }
    apart
}

/// The last comparison: all on the same unseen seeds.
fn compare(
    question: &Question,
    points: &[Vec<f64>],
    options: &Options,
    done: &(impl Fn(&Answer) + Sync),
) -> Result<Tuned, String> {
    let window = question.spec.window;
    let mut rules = vec![question.spec.policy.clone()];
    for point in points {
        rules.push(question.at(point, UNSEEN, window)?.policy);
    }
    let own = rules.len();
    for name in &question.others {
        rules.push(Rules::parse(name, &[])?);
    }
    let count = question.seeds.max(2);
    let of = |rules: &Rules| {
        (0..count)
            .map(|at| (rules.clone(), UNSEEN + at))
            .collect::<Vec<_>>()
    };
    let specs: Vec<Spec> = rules
        .iter()
        .flat_map(of)
        .map(|(policy, seed)| {
            let spec = Spec {
                seed,
                policy,
                ..question.spec.clone()
            };
            on_part(spec, UNSEEN_PARTS[seed as usize % UNSEEN_PARTS.len()])
        })
        .collect();
    let answers = sim(&specs, options, done);
    let mut failures = Vec::new();
    let mut found: Vec<Found> = Vec::new();
    for (at, seeds) in answers.chunks(count as usize).enumerate() {
        let mut records = Vec::new();
        for answer in seeds {
            match &answer.run {
                Ok(run) => records.push(&run.record),
                Err(why) => failures.push(why.clone()),
            }
        }
        if records.len() == seeds.len() {
            let runs: Vec<[f64; 2]> = records
                .iter()
                .map(|record| [record.ops_per_task_per_s, record.mean_bytes as f64])
                .collect();
            let figure = |at: usize| Figure::of(runs.iter().map(|run| run[at]));
            found.push(Found {
                policy: rules[at].name.clone(),
                settings: rules[at].knobs.clone(),
                is_default: at == 0,
                is_other: at >= own,
                ops: figure(0),
                bytes: figure(1),
                on_front: false,
                better: false,
                ops_gain: Figure::default(),
                bytes_gain: Figure::default(),
                runs,
            });
        } else if at == 0 {
            return Err(failures.pop().unwrap_or_default());
        }
    }
    judge(&mut found, question.goals);
    match question.goals.throughput > 0.0 {
        true => found.sort_by(|a, b| b.ops.mean.total_cmp(&a.ops.mean)),
        false => found.sort_by(|a, b| a.bytes.mean.total_cmp(&b.bytes.mean)),
    }
    Ok(Tuned {
        points: found,
        runs: answers.len(),
        failures,
        goals: question.goals,
    })
}

/// Marks the front and what is better than the policy as it is.
fn judge(found: &mut [Found], weights: Weights) {
    let goals: Vec<Goals> = found
        .iter()
        .map(|point| weights.goals(point.ops.mean, point.bytes.mean))
        .collect();
    let default = found.first().cloned();
    for (at, point) in found.iter_mut().enumerate() {
        point.on_front = !goals.iter().any(|other| beats(other, &goals[at]));
        if let Some(default) = default.as_ref().filter(|_| !point.is_default) {
            let pairs = || point.runs.iter().zip(&default.runs);
            let more = |a: f64, b: f64| (a / b.max(f64::MIN_POSITIVE) - 1.0) * 100.0;
            point.ops_gain = Figure::of(pairs().map(|(own, than)| more(own[0], than[0])));
            point.bytes_gain = Figure::of(pairs().map(|(own, than)| -more(own[1], than[1])));
            let count = point.runs.len();
            let counts = |weight: f64, gain: i32| if weight > 0.0 { gain } else { 0 };
            let ops = counts(weights.throughput, point.ops_gain.sign(count));
            let bytes = counts(weights.memory, point.bytes_gain.sign(count));
            point.better = ops + bytes > 0 && ops >= 0 && bytes >= 0;
        }
    }
}

impl Figure {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.collect();
        Self {
            mean: values.iter().sum::<f64>() / values.len().max(1) as f64,
            spread: deviation_of(&values),
        }
    }

    /// One if a gain is above zero beyond the spread of `count` pairs, minus one if below, else zero.
    fn sign(self, count: usize) -> i32 {
        let error = ERRORS * self.spread / (count.max(1) as f64).sqrt();
        // Equal seeds may give equal figures: a difference of less than a thousandth is none.
        let least = error.max(0.1);
        match self.mean {
            more if more > least => 1,
            less if less < -least => -1,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(knobs: &[&str]) -> Question {
        let mut spec =
            Spec::new("random-mix", names::machine("x86-16").unwrap(), "linux-7.0").unwrap();
        spec.tasks = 4;
        spec.window = Window::fixed(2);
        Question {
            spec,
            knobs: knobs
                .iter()
                .map(|knob| Knob::parse(knob).unwrap())
                .collect(),
            points: 16,
            seeds: 3,
            others: vec!["linux-6.5".into(), "flagstone".into()],
            goals: Weights::parse(&["throughput".into(), "memory".into()]).unwrap(),
        }
    }

    #[test]
    fn knobs_have_ranges_and_mistakes_are_told() {
        let knob = Knob::parse("sheaf_bytes_max=4K..64K").unwrap();
        assert_eq!(
            (knob.low, knob.high, knob.at(0.0), knob.at(1.0)),
            (4096, 65_536, 4096, 65_536)
        );
        assert!(
            (15_000..18_000).contains(&knob.at(0.5)),
            "by orders of magnitude: {}",
            knob.at(0.5)
        );
        assert_eq!(Knob::parse("slab_max_order=0..3").unwrap().at(0.5), 2);
        for (wrong, part) in [
            ("sheaf_capcity=1..2", "did you mean 'sheaf_capacity'?"),
            ("sheaf_capacity=9..2", "9 is more than 2"),
            ("sheaf_capacity", "KEY=LO..HI"),
            ("slab_max_order=0..99", "from 0 to 10"),
            ("sheaf_bytes_max=1KB..2", "8K"),
        ] {
            assert!(
                Knob::parse(wrong).unwrap_err().contains(part),
                "{wrong}: {}",
                Knob::parse(wrong).unwrap_err()
            );
        }
    }

    #[test]
    fn a_search_ends_with_a_front_and_the_same_search_with_the_same() {
        let question = question(&["sheaf_capacity=2..200"]);
        let tuned = tune(&question, &Options::default(), |_| ()).unwrap();
        assert_eq!(tune(&question, &Options::default(), |_| ()).unwrap(), tuned);
        assert!(tuned.points.iter().any(|point| point.on_front));
        assert_eq!(
            tuned.points.iter().filter(|point| point.is_default).count(),
            1
        );
        assert_eq!(
            tuned.points.iter().filter(|point| point.is_other).count(),
            2
        );
        // Tiny sheaves go to the barn all the time.
        let of = |point: &Found| {
            point
                .settings
                .first()
                .and_then(|s| s.split_once('=')?.1.parse::<u32>().ok())
        };
        let tuned_points = tuned
            .points
            .iter()
            .filter_map(|point| Some((of(point)?, point.ops.mean)));
        let best = tuned_points.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
        assert!(best.0 > 16, "{best:?}");
    }

    #[test]
    fn a_knob_without_effect_is_left_alone() {
        // A boot parameter for debugging orders: slabs of this workload are larger anyway.
        let tuned = tune(
            &question(&["percpu_pagelist_high_fraction=8..9"]),
            &Options::default(),
            |_| (),
        )
        .unwrap();
        assert_eq!(tuned.advice(), None, "{:?}", tuned.points);
    }

    #[test]
    fn one_goal_has_one_best_point_and_weights_are_told_apart() {
        let mut question = question(&["sheaf_capacity=2..200"]);
        for (goal, best) in [("throughput", 0), ("memory", 0)] {
            question.goals = Weights::parse(&[goal.into()]).unwrap();
            let tuned = tune(&question, &Options::default(), |_| ()).unwrap();
            // The first of the list, and those equal to it.
            let first = &tuned.points[best];
            assert!(first.on_front, "{goal}");
            for point in tuned.points.iter().filter(|point| point.on_front) {
                match goal {
                    "throughput" => assert_eq!(point.ops.mean, first.ops.mean),
                    _ => assert_eq!(point.bytes.mean, first.bytes.mean),
                }
            }
        }
        let weights = Weights::parse(&["throughput=2".into(), "memory".into()]).unwrap();
        assert_eq!((weights.throughput, weights.memory), (2.0, 1.0));
        for wrong in ["memroy", "memory=0", "memory=x"] {
            assert!(Weights::parse(&[wrong.into()]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn selection_keeps_both_ends_of_the_front() {
        let all = [[9.0, 1.0], [1.0, 9.0], [5.0, 5.0], [5.1, 5.1], [4.0, 4.0]];
        let kept = selected(all.iter().map(|goals| ((), *goals)).collect(), 3);
        let kept: Vec<Goals> = kept.into_iter().map(|(_, goals)| goals).collect();
        assert!(
            kept.contains(&[9.0, 1.0]) && kept.contains(&[1.0, 9.0]) && kept.contains(&[5.1, 5.1]),
            "{kept:?}"
        );
    }
}
