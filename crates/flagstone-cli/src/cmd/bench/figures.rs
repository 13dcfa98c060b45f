//! Medians, spreads, ratios and ties.

use super::child::Sample;
use super::runner::{Measured, Outcome};

/// The middle and the spread of some runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Median.
    pub median: f64,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
    /// Distance between the quartiles: the spread that a lead must exceed.
    pub spread: f64,
}

impl Summary {
    /// Of at least one value.
    pub fn of(mut values: Vec<f64>) -> Option<Summary> {
        values.sort_by(f64::total_cmp);
        let (&min, &max) = (values.first()?, values.last()?);
        let spread = quantile(&values, 0.75) - quantile(&values, 0.25);
        Some(Summary {
            median: quantile(&values, 0.5),
            min,
            max,
            spread,
        })
    }
}

/// Linear between the two nearest of the sorted values.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let at = part * (sorted.len() - 1) as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    low + (high - low) * at.fract()
}

/// Geometric mean of at least one value.
pub fn geometric_mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    Some((values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64).exp())
}

/// The standing of one allocator in one workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The smallest median.
    Best,
    /// Behind by less than the spread of either: no difference was shown.
    Tie,
    /// Behind by more.
    Behind,
    /// No figure.
    Failed,
}

impl Outcome {
    /// Summary of the workload's own figure.
    pub fn summary(&self) -> Option<Summary> {
        self.of(|sample| Some(sample.value))
    }

    /// Summary of a named part.
    pub fn part(&self, name: &str) -> Option<Summary> {
        self.of(|sample| sample.parts.get(name).copied())
    }

    /// Summary of anything in the samples.
    pub fn of(&self, figure: impl Fn(&Sample) -> Option<f64>) -> Option<Summary> {
        if self.failure.is_some() {
            return None;
        }
        Summary::of(self.samples.iter().filter_map(figure).collect())
    }
}

impl Measured {
    /// The outcome of the allocator with this name.
    pub fn of(&self, name: &str) -> Option<&Outcome> {
        self.outcomes
            .iter()
            .find(|outcome| outcome.allocator.name == name)
    }

    /// The smallest median among the allocators that `among` accepts.
    pub fn best(&self, among: impl Fn(&Outcome) -> bool) -> Option<(&Outcome, Summary)> {
        self.outcomes
            .iter()
            .filter(|outcome| among(outcome))
            .filter_map(|outcome| Some((outcome, outcome.summary()?)))
            .min_by(|a, b| a.1.median.total_cmp(&b.1.median))
    }

    /// Where an allocator stands against the best of all.
    pub fn standing(&self, outcome: &Outcome) -> Standing {
        let (Some(own), Some((_, best))) = (outcome.summary(), self.best(|_| true)) else {
            return Standing::Failed;
        };
        let lead = own.median - best.median;
        if lead <= 0.0 {
            Standing::Best
        } else if lead < own.spread.max(best.spread) {
            Standing::Tie
        } else {
            Standing::Behind
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::allocators::Allocator;
    use super::super::catalog;
    use super::*;

    fn measured(rows: &[(&str, &[f64])]) -> Measured {
        let outcome = |&(name, values): &(&str, &[f64])| Outcome {
            allocator: Allocator {
                name: name.into(),
                version: String::new(),
                library: None,
                unusable: None,
            },
            samples: values.iter().map(|&value| Sample::of_ns(value)).collect(),
            failure: None,
        };
        let workload = catalog::all().remove(0);
        Measured {
            workload,
            threads: 1,
            outcomes: rows.iter().map(outcome).collect(),
        }
    }

    #[test]
    fn the_median_and_quartiles_are_between_the_runs() {
        let summary = Summary::of(vec![4.0, 1.0, 3.0, 2.0, 5.0]).unwrap();
        assert_eq!(
            summary,
            Summary {
                median: 3.0,
                min: 1.0,
                max: 5.0,
                spread: 2.0
            }
        );
        assert_eq!(Summary::of(vec![]), None);
    }

    #[test]
    fn a_lead_within_the_spread_is_a_tie_and_a_larger_one_is_not() {
        let result = measured(&[
            ("steady", &[3.0, 3.0, 3.0]),
            ("noisy", &[2.9, 3.1, 3.6]),
            ("slow", &[4.0, 4.1, 4.0]),
        ]);
        let standings: Vec<Standing> = result
            .outcomes
            .iter()
            .map(|outcome| result.standing(outcome))
            .collect();
        assert_eq!(standings, [Standing::Best, Standing::Tie, Standing::Behind]);
    }

    #[test]
    fn an_allocator_that_failed_has_no_standing() {
        let mut result = measured(&[("a", &[1.0]), ("b", &[0.5])]);
        result.outcomes[1].failure = Some("killed by signal 11".into());
        assert_eq!(result.standing(&result.outcomes[1]), Standing::Failed);
        assert_eq!(result.best(|_| true).unwrap().0.allocator.name, "a");
    }

    #[test]
    fn the_geometric_mean_of_two_and_eight_is_four() {
        assert!((geometric_mean(&[2.0, 8.0]).unwrap() - 4.0).abs() < 1e-12);
        assert_eq!(geometric_mean(&[]), None);
    }
}
