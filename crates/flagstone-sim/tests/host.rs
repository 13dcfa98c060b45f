//! The same programs on real threads: they run, on as many CPUs as there are, and are compared.

use flagstone_sim::host::validate::{CPUS_MOST, POLICIES, compare};
use flagstone_sim::host::{between, probe, rows, threads};
use flagstone_sim::machine::Machine;
use std::cell::Cell;
use std::time::Duration;

#[test]
fn every_program_runs_in_both_worlds_on_each_number_of_cpus() {
    let machine = Machine::named("this-machine").unwrap();
    let done = Cell::new(0);
    let tell = || done.set(done.get() + 1);
    let rows = compare(&machine, Duration::from_millis(20), tell).unwrap();
    let counts = threads::allowed().len().min(CPUS_MOST);
    assert_eq!(rows.len(), 4 * counts * POLICIES.len());
    assert_eq!(done.get(), 3 * counts * POLICIES.len());
    for row in &rows {
        let name = &row.workload;
        assert!(
            row.measured_ns > 0.0 && row.simulated_ns > 0.0,
            "{name} did nothing"
        );
        assert_eq!(row.line_ns.is_some(), row.cpus > 1, "{name}");
        let ratio = row.simulated_ns / row.measured_ns;
        assert!((row.ratio - ratio).abs() < 1e-9);
        assert_eq!(row.within, (ratio - 1.0).abs() <= 0.25);
    }
}

#[test]
fn probes_answer_and_those_of_two_cpus_only_where_there_are_two() {
    let cpus = threads::allowed();
    assert!(probe::own_line() > 0.0);
    if cpus.len() > 1 {
        assert!(between::transfer(cpus[0], cpus[1]) > 0.0);
        assert!(between::in_row(cpus[0], cpus[1], 2) > 0.0);
        let short = Duration::from_millis(5);
        assert!(between::hand_off(cpus[0], cpus[1], short) > 0.0);
        assert!(between::contended_atomic(cpus[0], cpus[1], 4, short) > 0.0);
    }
}

#[test]
fn published_rows_run_on_real_threads_under_every_policy_and_say_their_range() {
    let rows = rows::measure(&["S3", "S4"], |_| ()).unwrap();
    assert_eq!(
        rows.len(),
        2 * 3 * 4,
        "two rows, three policies, four figures"
    );
    for row in &rows {
        assert_eq!((row.method, row.runs), ("measured", rows::RUNS));
        assert!(row.low <= row.median && row.median <= row.high, "{row:?}");
        assert!(row.unit != "ns of CPU" || row.low > 0.0, "{row:?}");
        assert!(row.cpus <= row.threads);
    }
    let fetched = |row: &&rows::Measured| {
        row.policy == "linux-6.6" && row.column.starts_with("pages fetched")
    };
    assert!(rows.iter().find(fetched).unwrap().median > 0.0);
}
