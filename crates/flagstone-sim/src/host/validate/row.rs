//! One comparison, and what may be said about it.

use super::super::threads::{Paced, Stretch, lower_quartile, median};
use serde::Serialize;

/// How far simulation may be from measurement to count as within.
pub const WITHIN: f64 = 0.25;

/// How far the middle stretch of a real run may be above the one quoted: beyond it neighbours decide
/// the figure.
const SPREAD: f64 = 0.25;

/// By what part the program alone may take longer than at its best, at the same pace: beyond it
/// something else than the pace slows the CPU down.
const SLOWER: f64 = 0.15;

/// Undisturbed stretches a real run needs.
const CLEAN: usize = 8;

/// Percent of all that they must be: of less than that the CPUs were elsewhere before and after, and
/// caches are not what they would be.
const SHARE: f64 = 15.0;

/// One comparison: of one pass, or the middle one of several.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The workload, with its side where it has two.
    pub workload: String,
    /// The policy.
    pub policy: &'static str,
    /// CPUs and tasks.
    pub cpus: usize,
    /// Nanoseconds of one operation of one task on real threads.
    pub measured_ns: f64,
    /// The same on the virtual machine.
    pub simulated_ns: f64,
    /// Nanoseconds of it outside the allocator, measured without one.
    pub program_ns: f64,
    /// The CPU's pace meanwhile over that of the profile: above one, it was slower.
    pub pace: f64,
    /// Simulated over measured.
    pub ratio: f64,
    /// Whether the ratio is within [`WITHIN`] of one.
    pub within: bool,
    /// Percent of the real stretches nobody disturbed.
    pub undisturbed: f64,
    /// How far the middle one of them is above the one quoted, in percent.
    pub spread: f64,
    /// Real runs until one was calm; the calmest is quoted.
    pub runs: u32,
    /// Nanoseconds of a line's way between the two CPUs: before the real run, and in the stretches that
    /// count, which are those with the same way; absent for one CPU.
    pub line_ns: Option<[f64; 2]>,
    /// Whether there were enough of them: if not, the host moved its CPUs.
    pub still: bool,
    /// Whether the measurement may be quoted: enough of the run counts, and neighbours did not decide the
    /// figure. Of any other row neither agreement nor disagreement says anything.
    pub calm: bool,
    /// The ratios of all calm passes, ascending.
    pub ratios: Vec<f64>,
}

/// Of each row the pass whose ratio is the middle one of those that were calm; of two the one farther
/// off. A row that never was calm stays as its last pass had it. Why several passes, each with a profile
/// of its own: where a hypervisor puts its CPUs moves a row by a quarter, and prices by a tenth.
#[must_use]
pub fn middle(passes: &[Vec<Row>]) -> Vec<Row> {
    let rows = passes.last().map_or(0, Vec::len);
    let one = |index: usize| {
        let all = || passes.iter().filter_map(|pass| pass.get(index));
        let mut calm: Vec<&Row> = all().filter(|row| row.calm).collect();
        calm.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
        let ratios = calm.iter().map(|row| row.ratio).collect();
        let either = [calm.len().saturating_sub(1) / 2, calm.len() / 2];
        let middle = either.into_iter().filter_map(|at| calm.get(at).copied());
        let farther = middle.max_by(|a, b| off(a.ratio).total_cmp(&off(b.ratio)));
        farther.or(all().next_back()).map(|row| Row {
            ratios,
            ..row.clone()
        })
    };
    (0..rows).filter_map(one).collect()
}

/// How far a ratio is from one: what [`WITHIN`] bounds.
pub(super) fn off(ratio: f64) -> f64 {
    (ratio - 1.0).abs()
}

/// What a real run showed.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    pub(super) ns: f64,
    /// The pace it was measured at, in ns of a step.
    pub(super) pace: f64,
    pub(super) undisturbed: f64,
    /// Stretches that it is made of: undisturbed, at the best pace.
    pub(super) clean: usize,
    /// The middle one over the one quoted, less one.
    pub(super) spread: f64,
    /// By what part the same took longer at another time, where that is known.
    pub(super) slower: f64,
    /// What a line took on its way meanwhile, where that is known.
    pub(super) way_ns: Option<f64>,
}

impl Seen {
    /// The figure of these stretches of each task, of `clean` undisturbed ones of `all`.
    pub(super) fn of(tasks: &[Vec<Stretch>], clean: usize, all: usize) -> Self {
        let mean = |figure: &dyn Fn(&[Stretch]) -> f64| {
            tasks.iter().map(|task| figure(task)).sum::<f64>() / tasks.len().max(1) as f64
        };
        let values = |task: &[Stretch]| task.iter().map(Stretch::ns).collect::<Vec<f64>>();
        let ns = mean(&|task| lower_quartile(values(task)));
        let all_of_them = tasks.iter().flatten();
        let ways: Vec<f64> = all_of_them.flat_map(|one| one.ways).flatten().collect();
        let middle = mean(&|task| median(values(task)));
        Self {
            ns,
            pace: mean(&|task| median(task.iter().map(|stretch| stretch.pace).collect())),
            undisturbed: clean as f64 / all.max(1) as f64 * 100.0,
            clean: clean.min(tasks.iter().map(Vec::len).sum()),
            spread: middle / ns.max(f64::MIN_POSITIVE) - 1.0,
            slower: 0.0,
            way_ns: (!ways.is_empty()).then(|| median(ways)),
        }
    }

    /// The figure with its pace.
    pub(super) fn paced(self) -> Paced {
        Paced {
            ns: self.ns,
            pace: self.pace,
        }
    }

    /// How much neighbours disturbed the run: the spread, and more than any where there is little
    /// to tell it from.
    pub(super) fn unrest(self) -> f64 {
        if self.is_enough() {
            self.spread
        } else {
            1e3 / (1.0 + self.clean as f64)
        }
    }

    /// Whether there is enough to tell from.
    pub(super) fn is_enough(self) -> bool {
        self.clean >= CLEAN && self.undisturbed >= SHARE
    }

    /// Whether the figure may be quoted.
    pub(super) fn is_calm(self) -> bool {
        self.is_enough() && self.spread <= SPREAD && self.slower <= SLOWER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(clean: usize, spread: f64) -> Seen {
        Seen {
            ns: 10.0,
            pace: 2.5,
            undisturbed: 50.0,
            clean,
            spread,
            slower: 0.0,
            way_ns: None,
        }
    }

    fn row(ratio: f64, calm: bool) -> Row {
        Row {
            workload: "larson".into(),
            policy: "flagstone",
            cpus: 1,
            measured_ns: 10.0,
            simulated_ns: 10.0 * ratio,
            program_ns: 1.0,
            pace: 1.0,
            ratio,
            within: off(ratio) <= WITHIN,
            undisturbed: 100.0,
            spread: 0.0,
            runs: 1,
            line_ns: None,
            still: true,
            calm,
            ratios: calm.then_some(ratio).into_iter().collect(),
        }
    }

    #[test]
    fn the_middle_of_the_calm_passes_is_quoted_with_all_their_ratios() {
        let quoted = |rows: &[(f64, bool)]| {
            let passes: Vec<_> = rows
                .iter()
                .map(|(ratio, calm)| vec![row(*ratio, *calm)])
                .collect();
            let [row] = &middle(&passes)[..] else {
                panic!("one row")
            };
            (row.ratio, row.calm, row.ratios.clone())
        };
        let three = [(1.3, true), (0.9, true), (1.1, true)];
        assert_eq!(quoted(&three), (1.1, true, vec![0.9, 1.1, 1.3]));
        let two = [(1.3, true), (0.1, false), (1.1, true)];
        assert_eq!(quoted(&two), (1.3, true, vec![1.1, 1.3]), "the farther one");
        let sides = [(1.26, true), (0.77, true)];
        assert_eq!(
            quoted(&sides).0,
            1.26,
            "the one that is off, not the one within"
        );
        let none = [(1.3, false), (0.9, false)];
        assert_eq!(quoted(&none), (0.9, false, vec![]));
    }

    #[test]
    fn a_run_is_calm_when_enough_of_it_was_undisturbed_and_lies_together() {
        assert!(seen(8, 0.1).is_calm());
        assert!(!seen(8, 0.3).is_calm());
        let slowed = Seen {
            slower: 0.3,
            ..seen(8, 0.1)
        };
        assert!(!slowed.is_calm(), "the whole CPU was slow");
        assert!(!seen(7, 0.0).is_calm(), "too little to tell");
        let seldom = Seen {
            undisturbed: 8.0,
            ..seen(80, 0.1)
        };
        assert!(!seldom.is_calm(), "the CPUs were elsewhere");
        assert!(seen(7, 0.0).unrest() < seen(0, 0.0).unrest());
    }
}
