//! Random programs interleaved at every shared access: the core keeps its invariants, and a
//! planted bug is found.

use flagstone_core::platform::Planted;
use flagstone_sim::Plant;
use flagstone_sim::interleave::{POLICIES, check, check_without_handlers};
use rayon::prelude::*;

/// Seeds run here; `FLAGSTONE_SEEDS` asks for more or fewer.
fn seeds() -> u64 {
    let asked = std::env::var("FLAGSTONE_SEEDS").ok();
    asked.and_then(|word| word.parse().ok()).unwrap_or(10_000)
}

#[test]
fn random_programs_keep_every_invariant() {
    let failures: Vec<_> = (1..=seeds())
        .into_par_iter()
        .filter_map(|seed| check(seed, Plant::Nothing).err())
        .collect();
    let lines: Vec<_> = failures.iter().map(ToString::to_string).collect();
    assert!(
        lines.is_empty(),
        "{} seeds failed:\n{}",
        lines.len(),
        lines.join("\n")
    );
}

#[test]
fn seeds_that_found_something_once_stay_fixed() {
    // 987, 2328, 5191: a block whose descriptors were being given back did not merge with its
    // buddy, which was freed meanwhile (`buddy.no-free-buddy-pair`).
    for seed in [987, 2328, 5191] {
        check_without_handlers(seed).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
fn a_planted_bug_is_found_within_fifty_seeds_and_shows_again() {
    let found = (1..=50).find_map(|seed| check(seed, Plant::TornSlots).err());
    let failure = found.expect("slot steps that are not atomic must be found");
    assert_eq!(check(failure.seed, Plant::TornSlots).unwrap_err(), failure);
}

#[test]
fn a_slab_with_two_homes_is_found_within_ten_thousand_seeds() {
    let plant = Plant::Core(Planted::AnotherLook);
    let found = (1..=10_000u64)
        .into_par_iter()
        .find_map_first(|seed| check(seed, plant).err());
    let failure = found.expect("a second look at a slab that may be somebody else's must be found");
    assert_eq!(check(failure.seed, plant).unwrap_err(), failure);
    check(failure.seed, Plant::Nothing).unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn the_same_seed_repeats_step_by_step() {
    for seed in 1..20 {
        assert_eq!(check(seed, Plant::Nothing), check(seed, Plant::Nothing));
    }
}

#[test]
fn seeds_reach_the_paths_they_are_meant_for() {
    let runs: Vec<_> = (1..120)
        .filter_map(|seed| check(seed, Plant::Nothing).ok())
        .collect();
    assert!(
        runs.iter().any(|run| run.refused > 0),
        "memory is refused at times"
    );
    assert!(
        runs.iter().any(|run| run.verified > 0),
        "invariants are checked on the way"
    );
    assert!(
        runs.iter().map(|run| run.handlers_on_top).sum::<u64>() > 1000,
        "signal handlers come under locks"
    );
    assert!(
        runs.iter().any(|run| run.threads > run.cpus),
        "threads share CPUs"
    );
    for policy in POLICIES {
        assert!(
            runs.iter().any(|run| run.policy == policy),
            "{policy} is drawn"
        );
    }
}
