//! Every workload on the real core: it runs, repeats, and says what its harness says.

use flagstone_core::platform::Function;
use flagstone_sim::machine::Machine;
use flagstone_sim::scenario::{NamedPolicy, Outcome, Scenario};
use flagstone_sim::window::Plan;
use flagstone_sim::workload::{Kind, Params, WORKLOADS, Workload};

fn run(workload: &str, machine: &str, policy: &str, tasks: u32, seed: u64) -> Outcome {
    run_with(workload, machine, policy, tasks, seed, &Params::default())
}

fn run_with(
    workload: &str,
    machine: &str,
    policy: &str,
    tasks: u32,
    seed: u64,
    params: &Params,
) -> Outcome {
    let machine = Machine::named(machine).unwrap();
    let policy = NamedPolicy::parse(policy).unwrap();
    let scenario = Scenario {
        machine: &machine,
        workload: Workload::named(workload).unwrap(),
        policy: &policy,
        tasks,
        seed,
        params,
        plan: Plan::QUICK,
    };
    scenario.run().unwrap()
}

#[test]
fn every_workload_runs_under_both_sheaf_policies() {
    for workload in WORKLOADS {
        for policy in ["flagstone", "linux-7.0"] {
            let outcome = run(workload.name, "x86-16", policy, 4, 1);
            let name = workload.name;
            assert!(outcome.totals.ops > 0, "{name} under {policy} did nothing");
            assert!(
                outcome.totals.allocs > 0 && outcome.span > 0,
                "{name} under {policy}"
            );
            assert!(outcome.peak_bytes >= outcome.mean_bytes && outcome.mean_bytes > 0);
            let used = outcome.totals.alloc_ps + outcome.totals.free_ps + outcome.totals.idle_ps;
            assert!(
                used <= 4 * outcome.span + outcome.span / 10,
                "{name}: more time than there is"
            );
        }
    }
}

#[test]
fn frees_take_the_fast_path_whatever_the_page_size() {
    for machine in ["x86-16", "power-160"] {
        let outcome = run("larson", machine, "flagstone", 16, 1);
        let free_ns = outcome.totals.free_ps / outcome.totals.frees / 1000;
        assert!(free_ns < 200, "{machine}: {free_ns} ns");
    }
}

#[test]
fn time_booked_to_functions_is_part_of_the_time_in_the_allocator_and_waits_are_not() {
    let outcome = run("mmap1", "x86-16", "linux-6.5", 16, 1);
    let totals = &outcome.totals;
    let of = |function: Function| totals.function_ps[function as usize];
    for function in [
        Function::SlabAlloc,
        Function::GetPartialNode,
        Function::SlabFree,
        Function::UnfreezePartials,
        Function::NewSlab,
    ] {
        assert!(of(function) > 0, "{}", function.name());
    }
    let named: u64 = Function::ALL.into_iter().skip(1).map(of).sum();
    let inside = totals.alloc_ps + totals.free_ps;
    assert!(totals.wait_ps() > 0 && named <= inside - totals.wait_ps());
    let sheaves = run("mmap1", "x86-16", "flagstone", 16, 1).totals;
    let named = &sheaves.function_ps[1..];
    assert!(named.iter().all(|ps| *ps == 0), "no such functions there");
}

#[test]
fn every_workload_repeats_by_seed() {
    for workload in WORKLOADS {
        let digest = |seed| run(workload.name, "x86-16", "flagstone", 2, seed).digest;
        assert_eq!(digest(1), digest(1), "{}", workload.name);
        assert_ne!(digest(1), digest(2), "{}", workload.name);
    }
}

#[test]
fn one_alloc_n_free_does_the_arithmetic_of_its_harness() {
    let outcome = run("one-alloc-n-free", "xeon-2007-8", "flagstone", 8, 1);
    assert_eq!(
        outcome.totals.allocs, 70_000,
        "10000 rounds for seven others"
    );
    assert_eq!(outcome.totals.ops, 7 * 1250, "each frees 10000 / 8");
    assert_eq!(outcome.details.len(), 8, "one time for each CPU");
    let kind = Workload::named("one-alloc-n-free").unwrap().kind;
    assert_eq!(kind, Kind::Finite);
}

#[test]
fn a_thousand_cpus_run_the_core_in_less_than_two_gib() {
    let think = Params {
        think_ns: Some(20_000.0),
        ..Params::default()
    };
    let outcome = run_with(
        "random-mix",
        "spr-2s-224@1024",
        "flagstone",
        1024,
        1,
        &think,
    );
    assert!(outcome.totals.ops > 100_000);
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM"))
        .unwrap();
    let kib: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(kib < 2 << 20, "{kib} KiB");
}

#[test]
fn more_contention_costs_throughput() {
    let rate = |tasks| {
        let outcome = run("random-mix", "spr-2s-224", "linux-7.0", tasks, 1);
        outcome.totals.ops as f64 / f64::from(tasks) / outcome.span as f64
    };
    assert!(rate(2) > rate(56), "56 tasks share lists that two do not");
}

/// Page-allocator calls for 1000 blocks of netio, one figure for each seed.
fn netio_calls(policy: &str, seeds: u64) -> Vec<f64> {
    let runs = (1..=seeds).map(|seed| run("netio", "x86-2way-2008", policy, 2, seed));
    runs.map(|run| run.totals.slabs as f64 / run.totals.ops as f64 * 1000.0)
        .collect()
}

#[test]
fn min_partial_by_size_saves_page_allocator_calls_and_halves_their_spread() {
    let of = |policy: &str| {
        let calls = netio_calls(policy, 24);
        let mean = calls.iter().sum::<f64>() / calls.len() as f64;
        let squares: f64 = calls.iter().map(|call| (call - mean).powi(2)).sum();
        (mean, (squares / (calls.len() - 1) as f64).sqrt())
    };
    let fixed = of("linux-2.6.26");
    let dynamic = of("linux-2.6.26+dynamic-min-partial");
    assert!(dynamic.0 < fixed.0 * 0.8, "{dynamic:?} against {fixed:?}");
    assert!(dynamic.1 <= fixed.1 / 2.0, "{dynamic:?} against {fixed:?}");
}

#[test]
fn where_windows_are_not_in_step_min_partial_changes_nothing() {
    let share = |outcome: &Outcome| {
        let of_step = outcome.details.iter().find(|(name, _)| name == "% in step");
        of_step.expect("netio says it").1
    };
    let seeds = (1..=24).map(|seed| run("netio", "x86-2way-2008", "linux-2.6.26", 2, seed));
    let free: Vec<_> = (1..)
        .zip(seeds)
        .filter(|(_, run)| share(run) == 0.0)
        .collect();
    assert!(!free.is_empty(), "no run of 24 is free");
    for (seed, fixed) in free {
        let policy = "linux-2.6.26+dynamic-min-partial";
        let dynamic = run("netio", "x86-2way-2008", policy, 2, seed);
        assert_eq!(dynamic.totals.slabs, fixed.totals.slabs, "seed {seed}");
    }
}

#[test]
fn after_its_end_a_build_leaves_its_files_and_what_pagesets_keep_at_least() {
    let outcome = run("kbuild", "x86-16", "linux-6.7", 16, 1);
    let detail = |name: &str| {
        let found = outcome.details.iter().find(|(known, _)| known == name);
        found.unwrap_or_else(|| panic!("no {name}")).1
    };
    let (during, end) = (detail("MiB during"), detail("MiB at the end"));
    let files = 8.0 * 1433.0;
    let mib = |bytes: usize| bytes as f64 / 1_048_576.0;
    let most = mib(outcome.peak_bytes);
    assert!(end > files && end <= most, "{files} < {end} <= {most}");
    assert!((during - mib(outcome.mean_bytes)).abs() < 1.0);
}
