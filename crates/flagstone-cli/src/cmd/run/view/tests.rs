use super::ledger::closing;
use super::*;
use crate::cmd::run::answer::Shares;
use crate::cmd::run::document::{Answer, Entry, NotResident};
use crate::cmd::run::reports::{Bounds, Cache, Kind, Pages};
use crate::cmd::run::timeline::Timeline;
use crate::cmd::run::trial::Apply;
use flagstone_core::stats::Line;

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
        pinned_slabs: 0,
        pinned_bytes: 0,
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
        own_peak_rss_kib: Some(23_456_789),
        children_peak_rss_kib: Some(123_456_789),
        peak_process: None,
        answer: Some(Answer {
            text: "At its peak (900.0 MiB) the program held 700.0 MiB. ".repeat(4),
            at_peak: Shares::default(),
            at_exit: Shares::default(),
        }),
        unserved: None,
        tries: vec![Try {
            rule: "rule",
            change: "--set sheaf_capacity=16".into(),
            because: "a reason that is long enough to be broken over lines ".repeat(3),
            gain: "at most 900.0 MiB less".into(),
            gain_bytes: Some(1),
            cost: "more refills".into(),
            apply: Apply::default(),
            measured: None,
        }],
        policy: "flagstone".into(),
        at_exit: true,
        samples: 4,
        restartable_sequences: Some(true),
        resident_pages_told: Some(true),
        caches: (0..40)
            .map(|index| cache(&format!("malloc-{index}"), 100_000_000))
            .collect(),
        rss_bytes: Some(Line::ALL.len() as u64 * (900 << 20)),
        ledger: entries(900 << 20),
        outside: kinds(),
        not_resident: NotResident::default(),
        peak_sample_rss_bytes: None,
        ledger_at_peak: entries(999 << 20),
        outside_at_peak: kinds(),
        not_resident_at_peak: NotResident::default(),
        pages: Pages::default(),
        bounds: Bounds::default(),
        other_processes: Vec::new(),
        processes: Vec::new(),
        timeline: Timeline::default(),
    }
}

fn kinds() -> Vec<Kind> {
    ["program", "files", "stacks", "anonymous", "other"]
        .map(|kind| Kind {
            kind: kind.to_owned(),
            bytes: 180 << 20,
        })
        .to_vec()
}

fn plain(outcome: &Outcome, width: u16) -> String {
    let mut out = String::new();
    let screen = Screen {
        width,
        styled: false,
    };
    summary(&mut out, outcome, screen);
    ledger::table_of(&mut out, outcome, screen);
    caches::table_of(&mut out, &outcome.caches, screen);
    pages::layer(&mut out, outcome, screen);
    processes::others(&mut out, outcome, screen);
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
    assert_eq!(closing(102, Some(100)), "Kernel: 100 B (+2.00 %).");
    assert!(closing(1, None).contains("did not tell"));
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
fn the_answer_and_what_to_try_come_before_any_table() {
    let text = plain(&outcome(), 80);
    let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what}: {text}"));
    assert!(at("At its peak") < at("Try:"));
    assert!(at("Try:") < at("Where its memory was"));
}

#[test]
fn the_largest_line_is_the_first_and_outside_is_split_below_its_line() {
    let mut outcome = outcome();
    for entry in &mut outcome.ledger_at_peak {
        entry.bytes = if entry.line == "non_heap" {
            7 << 20
        } else {
            1 << 20
        };
    }
    outcome.outside_at_peak[3].bytes = 1 << 30;
    let text = plain(&outcome, 80);
    let table = text.split("what it is").nth(1).expect("a table");
    let names: Vec<&str> = table.lines().skip(1).take(3).collect();
    assert!(names[0].starts_with("outside the heap"), "{names:?}");
    assert!(names[1].starts_with("  anonymous mappings"), "{names:?}");
}
