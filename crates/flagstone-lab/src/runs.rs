//! Many runs: the long ones first, each answered by itself.

use crate::cache::Cache;
use crate::record::Run;
use crate::spec::Spec;
use rayon::prelude::*;

/// How runs are made.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where runs are kept and looked for; none: nowhere.
    pub cache: Option<Cache>,
    /// Runs at a time; none: as many as the host has cores.
    pub jobs: Option<usize>,
}

/// What became of one spec.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its place among the specs asked for.
    pub index: usize,
    /// The run, or why there is none, in one line.
    pub run: Result<Run, String>,
    /// Whether it was simulated now, and not found in the cache.
    pub fresh: bool,
}

/// Makes all runs; answers come back in the order asked for. `done` hears of each as it is there.
///
/// A run that fails is an answer; the others are made all the same.
pub fn sim(specs: &[Spec], options: &Options, done: impl Fn(&Answer) + Sync) -> Vec<Answer> {
    let mut order: Vec<usize> = (0..specs.len()).collect();
    order.sort_by_key(|&index| core::cmp::Reverse(specs[index].weight()));
    let one = |&index: &usize| {
        let spec = &specs[index];
        let kept = options.cache.as_ref().and_then(|cache| cache.get(spec));
        let answer = match kept {
            Some(run) => Answer {
                index,
                run: Ok(run),
                fresh: false,
            },
            None => Answer {
                index,
                run: match flagstone_sim::progress::is_ended() {
                    true => Err("interrupted".to_owned()),
                    false => spec.run(),
                },
                fresh: true,
            },
        };
        if let (true, Some(cache), Ok(run)) = (answer.fresh, &options.cache, &answer.run) {
            cache.put(spec, run);
        }
        done(&answer);
        answer
    };
    let all = || order.par_iter().with_max_len(1).map(one).collect();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(options.jobs.unwrap_or(0));
    let mut answers: Vec<Answer> = match pool.build() {
        Ok(pool) => pool.install(all),
        // No threads to be had: the ones there are do it.
        Err(_) => all(),
    };
    answers.sort_by_key(|answer| answer.index);
    answers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Window, names};

    #[test]
    fn a_failed_run_loses_only_itself() {
        let mut good =
            Spec::new("random-mix", names::machine("x86-16").unwrap(), "flagstone").unwrap();
        good.window = Window::fixed(1);
        let bad = Spec {
            tasks: 99,
            ..good.clone()
        };
        let answers = sim(&[good.clone(), bad, good], &Options::default(), |_| ());
        assert!(answers[0].run.is_ok() && answers[2].run.is_ok());
        assert!(answers[1].run.as_ref().unwrap_err().contains("99 tasks"));
        let digests =
            [0, 2].map(|index| answers[index].run.as_ref().unwrap().record.digest.clone());
        assert_eq!(digests[0], digests[1]);
    }
}
