//! Files of strangers: whatever the text, an answer, within a small address space.

#[path = "../../../fuzz/mutate.rs"]
mod mutate;

use flagstone_lab::probe;

fn harmless(target: &str, count: usize, read: impl Fn(&str) -> Result<(), String>) {
    mutate::each_read(target, count, 10, |bytes| {
        read(&String::from_utf8_lossy(bytes))
    });
}

#[test]
fn no_mutation_of_a_sweep_does_harm() {
    if mutate::in_small_space("no_mutation_of_a_sweep_does_harm", 300) {
        harmless("sweep", 15_000, |text| probe::sweep(text).map(drop));
    }
}

#[test]
fn no_mutation_of_a_record_does_harm() {
    if mutate::in_small_space("no_mutation_of_a_record_does_harm", 300) {
        harmless("record", 15_000, probe::record);
    }
}

#[test]
fn no_mutation_of_recorded_pagesets_does_harm() {
    if mutate::in_small_space("no_mutation_of_recorded_pagesets_does_harm", 300) {
        harmless("pagesets", 15_000, |text| probe::pagesets(text).map(drop));
    }
}

#[test]
fn a_sweep_of_too_many_runs_is_refused_before_they_are_made() {
    if mutate::in_small_space(
        "a_sweep_of_too_many_runs_is_refused_before_they_are_made",
        300,
    ) {
        let text =
            "workload = \"mmap1\"\nmachine = \"x86-16\"\nseeds = 999999\ntasks = [1, 2, 3]\n";
        let refused = probe::sweep(text).unwrap_err();
        assert!(refused.contains("more than 1000 runs"), "{refused}");
        let unknown = probe::sweep("workload = \"mmap1\"\n\nmachin = \"x86-16\"\n").unwrap_err();
        assert!(
            unknown.contains("line 3") && unknown.contains("machine"),
            "{unknown}"
        );
    }
}
