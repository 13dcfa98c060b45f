//! Running asks: each once, through the lab, which keeps answers under the digests of their specs.
//!
//! Failures are not kept. No cache directory, no cache: nothing fails for it.

use super::ask::{self, Ask, Runs};
use super::without::Mechanism;
use flagstone_lab::{Cache, Options, Spec, sim};
use std::collections::{HashMap, HashSet};

/// How runs are made.
#[derive(Clone, Debug, Default)]
pub(super) struct Making {
    /// Where answers are kept.
    pub(super) cache: Option<Cache>,
    /// What the seed 1 of documents stands for.
    pub(super) first_seed: u64,
    /// A mechanism of the model that is left out.
    pub(super) without: Option<&'static Mechanism>,
}

/// What a call cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Cost {
    /// Runs made now.
    pub(super) made: usize,
    /// Runs answered from the cache.
    pub(super) kept: usize,
    /// Allocator operations simulated now.
    pub(super) operations: u64,
}

/// Runs all asks, and more seeds of those rows that are not [`ask::precise`] yet. A row is what is asked
/// for with [`ask::FIRST_SEEDS`]; asks with one seed, or with a number of their own, stay as they are.
pub(super) fn run_until_precise(asks: Vec<Ask>, making: &Making) -> (Runs, Cost) {
    let mut seeds: HashMap<Ask, u64> = HashMap::new();
    for ask in &asks {
        let most = seeds.entry(ask.with_seed(1)).or_default();
        *most = ask.seed.max(*most);
    }
    seeds.retain(|_, most| *most == ask::FIRST_SEEDS);
    let mut rows: Vec<Ask> = seeds.into_keys().collect();
    let (mut runs, mut cost) = (Runs::default(), Cost::default());
    run(asks, making, &mut runs, &mut cost);
    for made in (ask::FIRST_SEEDS..ask::MOST_SEEDS).step_by(ask::FIRST_SEEDS as usize) {
        let seeds = |row: &Ask| runs.seeds(row, u64::MAX);
        rows.retain(|row| seeds(row).is_ok_and(|seeds| !ask::precise(&seeds)));
        let next = (made + 1)..=(made + ask::FIRST_SEEDS);
        let of = |row: &Ask| {
            next.clone()
                .map(|seed| row.with_seed(seed))
                .collect::<Vec<_>>()
        };
        run(
            rows.iter().flat_map(of).collect(),
            making,
            &mut runs,
            &mut cost,
        );
    }
    (runs, cost)
}

/// Runs all asks, each once.
pub(super) fn run(asks: Vec<Ask>, making: &Making, runs: &mut Runs, cost: &mut Cost) {
    let mut seen = HashSet::new();
    let (mut specs, mut of): (Vec<Spec>, Vec<Ask>) = (Vec::new(), Vec::new());
    for ask in asks.into_iter().filter(|ask| seen.insert(*ask)) {
        match ask.spec(making.first_seed, making.without) {
            Ok(spec) => {
                specs.push(spec);
                of.push(ask);
            }
            Err(line) => drop(runs.0.insert(ask, Err(line))),
        }
    }
    let options = Options {
        cache: making.cache.clone(),
        jobs: None,
    };
    let bar = crate::progress::bar(
        specs.iter().map(Spec::weight).sum(),
        "{bar:30} {percent} %, {elapsed}, {left}, {msg}",
    );
    let answers = sim(&specs, &options, |answer| {
        let ask = of[answer.index];
        bar.set_message(format!("{} {}", ask.workload, ask.policy));
        bar.inc(specs[answer.index].weight());
    });
    bar.finish_and_clear();
    for (ask, answer) in of.into_iter().zip(answers) {
        let record = answer.run.map(|run| run.record);
        match answer.fresh {
            true => {
                cost.made += 1;
                cost.operations += record.as_ref().map_or(0, |record| record.simulated_ops);
            }
            false => cost.kept += 1,
        }
        runs.0.insert(ask, record);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask() -> Ask {
        Ask {
            workload: "one-alloc-n-free",
            machine: "xeon-2007-8",
            page_size: None,
            policy: "flagstone",
            tasks: 2,
            size: Some(64),
            think_ns: 0,
            seed: 1,
            look: "8ms",
        }
    }

    fn made(asks: Vec<Ask>, cache: Option<Cache>) -> (Runs, Cost) {
        let making = Making {
            cache,
            first_seed: 1,
            without: None,
        };
        let (mut runs, mut cost) = (Runs::default(), Cost::default());
        run(asks, &making, &mut runs, &mut cost);
        (runs, cost)
    }

    #[test]
    fn the_same_ask_is_simulated_once_and_then_remembered() {
        let folder = tempfile::tempdir().unwrap();
        let cache = || Some(Cache::at(folder.path()));
        let (first, cost) = made(vec![ask(), ask()], cache());
        assert_eq!((cost.made, cost.kept), (1, 0));
        let (second, cost) = made(vec![ask()], cache());
        assert_eq!((cost.made, cost.kept, cost.operations), (0, 1, 0));
        assert_eq!(first.get(&ask()).unwrap(), second.get(&ask()).unwrap());
    }

    #[test]
    fn two_calls_at_once_share_a_cache_and_get_the_same_figures() {
        let folder = tempfile::tempdir().unwrap();
        let call = || made(vec![ask()], Some(Cache::at(folder.path()))).0;
        let both = std::thread::scope(|scope| {
            [scope.spawn(call), scope.spawn(call)].map(|thread| thread.join().unwrap())
        });
        assert_eq!(both[0].get(&ask()).unwrap(), both[1].get(&ask()).unwrap());
        assert_eq!(made(vec![ask()], Some(Cache::at(folder.path()))).1.kept, 1);
    }

    #[test]
    fn an_impossible_ask_answers_with_its_reason() {
        let ask = Ask { tasks: 99, ..ask() };
        let (runs, _) = made(vec![ask], None);
        assert!(runs.get(&ask).unwrap_err().contains("99 tasks"));
    }
}
