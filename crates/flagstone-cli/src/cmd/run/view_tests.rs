use super::*;
use crate::cmd::run::reports::Pages;

fn entries(bytes: u64) -> Vec<Entry> {
    Line::ALL
        .into_iter()
        .map(|line| Entry {
            line: line.name(),
            bytes,
            sampled: line.sampled(),
            sentence: line.sentence(),
        })
        .collect()
}

fn cache(name: &str, active: u64) -> Cache {
    Cache {
        name: name.to_owned(),
        internal: false,
        object_size: 4096,
        size: 4096,
        order: 3,
        pages: 8,
        objects_per_slab: 8,
        slabs: active / 8,
        objects: active,
        active,
        in_sheaves: 0,
        in_barns: 0,
        free_in_slabs: 0,
        empty_slabs: 0,
        sheaf_capacity: 14,
        tail_bytes: 0,
        mean_requested: Some(4000),
        resident_bytes: active * 4096,
        waste_bytes: active * 96,
    }
}

fn outcome() -> Outcome {
    Outcome {
        schema: "flagstone.run/1",
        command: vec!["prog".into()],
        exit: 3,
        signal: None,
        wall_s: 1.5,
        user_s: 1.0,
        system_s: 0.25,
        peak_rss_kib: 123_456_789,
        policy: "flagstone".into(),
        at_exit: true,
        samples: 4,
        restartable_sequences: Some(true),
        resident_pages_told: Some(true),
        caches: (0..40)
            .map(|index| cache(&format!("malloc-{index}"), 100_000_000))
            .collect(),
        rss_bytes: Some(18 * (900 << 20)),
        ledger: entries(900 << 20),
        not_resident: NotResident::default(),
        peak_sample_rss_bytes: None,
        ledger_at_peak: entries(999 << 20),
        not_resident_at_peak: NotResident::default(),
        pages: Pages::default(),
        other_processes: Vec::new(),
    }
}

fn plain(outcome: &Outcome, width: u16) -> String {
    let mut out = String::new();
    let screen = Screen { width, bold: false };
    summary(&mut out, outcome, screen);
    ledger(&mut out, outcome, screen);
    caches(&mut out, &outcome.caches, screen);
    pages(&mut out, outcome, screen);
    others(&mut out, outcome);
    out
}

#[test]
fn no_line_is_wider_than_the_screen() {
    for width in [80, 120] {
        for line in plain(&outcome(), width).lines() {
            let wide = line.chars().count();
            assert!(wide <= usize::from(width), "{wide} columns: {line}");
        }
    }
}

#[test]
fn numbers_are_never_broken_over_two_lines_at_80_columns() {
    let text = plain(&outcome(), 80);
    let row = text
        .lines()
        .find(|line| line.trim_start().starts_with("malloc-0"));
    let row = row.expect("the first cache");
    assert_eq!(row.matches("100000000").count(), 2, "{row}");
    assert!(row.ends_with("2 %"), "{row}");
}

#[test]
fn the_sum_is_compared_with_what_the_kernel_counts() {
    let text = plain(&outcome(), 120);
    assert!(text.contains("(+0.00 %)"), "{text}");
    assert_eq!(
        closing(102, Some(100)),
        "The kernel counts 100 B (+2.00 %)."
    );
    assert!(closing(1, None).contains("could not be read"));
}

#[test]
fn where_the_kernel_does_not_tell_pages_apart_the_ledger_says_so() {
    let mut outcome = outcome();
    assert!(!plain(&outcome, 80).contains("does not tell"));
    outcome.resident_pages_told = Some(false);
    let text = plain(&outcome, 80);
    assert!(text.contains("cannot be compared"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80));
}

#[test]
fn caches_beyond_the_first_are_summed() {
    let text = plain(&outcome(), 120);
    let more = text.lines().find(|line| line.contains("28 more"));
    assert!(
        more.is_some_and(|line| line.contains("2800000000")),
        "{text}"
    );
    assert!(
        text.lines()
            .any(|line| line.trim_start().starts_with("all "))
    );
}

#[test]
fn sizes_keep_to_four_digits() {
    let sizes = [0, 1023, 1024, 1_048_000, 1 << 20, 1 << 40, u64::MAX].map(size);
    assert_eq!(
        sizes,
        [
            "0 B",
            "1023 B",
            "1.0 KiB",
            "1.0 MiB",
            "1.0 MiB",
            "1.0 TiB",
            "16384.0 PiB"
        ]
    );
    assert_eq!([percent(1, 8), percent(0, 0)], ["12.5 %", "–"]);
}
