//! `sim pagesets`, `sim replay` and `tune` from outside.

#[path = "support/least.rs"]
mod least;

use assert_cmd::Command;
use least::LEAST;
use std::fmt::Write;
use std::path::Path;

fn flagstone(cache: &Path, words: &[&str]) -> assert_cmd::assert::Assert {
    let program = Command::cargo_bin("flagstone");
    let mut program = program.unwrap();
    program.env("XDG_CACHE_HOME", cache).args(words).assert()
}

fn told(cache: &Path, words: &[&str]) -> String {
    let output = flagstone(cache, words)
        .success()
        .get_output()
        .stdout
        .clone();
    String::from_utf8(output).unwrap()
}

/// A capture of a kernel: objects of two caches, a page now and then.
fn capture(folder: &Path) -> String {
    let mut text = String::new();
    let mut line = |cpu: u32, at: usize, event: &str| {
        let _ = writeln!(text, " work-7 [{cpu:03}] ..... 1.{at:06}: {event}");
    };
    for at in 0..600usize {
        let pointer = 0xffff_8880_0000_0000u64 + at as u64 * 256;
        let cache = if at % 3 == 0 { "dentry" } else { "filp" };
        line(
            0,
            2 * at,
            &format!(
                "kmem_cache_alloc: call_site=a ptr={pointer:016x} name={cache} bytes_req=192 bytes_alloc=192 gfp_flags=GFP_KERNEL node=-1"
            ),
        );
        if at % 2 == 0 {
            line(
                1,
                2 * at + 1,
                &format!("kmem_cache_free: call_site=b ptr={pointer:016x} name={cache}"),
            );
        }
        if at % 10 == 0 {
            line(
                0,
                2 * at + 1,
                &format!(
                    "mm_page_alloc: page=p pfn=0x{at:x} order=0 migratetype=0 gfp_flags=GFP_KERNEL"
                ),
            );
        }
    }
    let file = folder.join("trace.txt");
    std::fs::write(&file, text).unwrap();
    let out = folder.join("kernel.fst").to_str().unwrap().to_owned();
    flagstone(
        folder,
        &["trace", "import", "-o", &out, file.to_str().unwrap()],
    )
    .success();
    out
}

#[test]
fn pagesets_of_the_recorded_kernel_are_matched_by_its_rules_alone() {
    let folder = tempfile::tempdir().unwrap();
    let text = told(folder.path(), &["sim", "pagesets"]);
    let last = text.lines().rfind(|line| line.starts_with("all")).unwrap();
    assert!(
        last.contains("150 / 150 (150 / 150)") && last.contains("56 / 56"),
        "{text}"
    );
    let text = told(
        folder.path(),
        &["sim", "pagesets", "--policy", "6.1", "--json"],
    );
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["schema"], "flagstone.pagesets/1");
    assert!(document["traces"][0]["first_miss"].is_string());
    let output = flagstone(folder.path(), &["sim", "pagesets", "none.csv"]).code(2);
    let line = String::from_utf8(output.get_output().stderr.clone()).unwrap();
    assert!(
        line.contains("none.csv") && line.lines().count() == 1,
        "{line}"
    );
}

#[test]
fn a_kernels_capture_plays_on_virtual_cpus_and_ends_with_its_caches() {
    let folder = tempfile::tempdir().unwrap();
    let trace = capture(folder.path());
    let words = [
        "sim",
        "replay",
        &trace,
        "--machine",
        "x86-16",
        "--policy",
        "linux-6.18,7.0",
    ];
    let text = told(folder.path(), &words);
    assert!(
        text.contains("page events, which contain those of slabs"),
        "{text}"
    );
    let row = |text: &str, cache: &str| {
        let line = text
            .lines()
            .find(|line| line.starts_with(cache))
            .unwrap()
            .to_owned();
        line.split_whitespace()
            .skip(1)
            .map(|word| word.parse().unwrap())
            .collect::<Vec<u64>>()
    };
    let [active, objects, slabs] = row(&text, "filp")[..] else {
        panic!("{text}")
    };
    assert_eq!(active, 200);
    assert!(
        objects >= active && slabs >= active * 192 / 32_768,
        "{text}"
    );
    let four = told(folder.path(), &[&words[..], &["--copies", "4"]].concat());
    assert_eq!(row(&four, "filp")[0], 800);
    let refused = flagstone(folder.path(), &[&words[..], &["--copies", "17"]].concat()).code(2);
    let line = String::from_utf8(refused.get_output().stderr.clone()).unwrap();
    assert!(line.contains("17 copies do not fit"), "{line}");
    flagstone(
        folder.path(),
        &["sim", "replay", "/dev/null", "--machine", "x86-16"],
    )
    .code(2);
}

#[test]
fn the_document_of_a_replayed_capture_has_its_kernels_caches_and_pagesets() {
    let folder = tempfile::tempdir().unwrap();
    let trace = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../flagstone-lab/data/capture-6.18.fst"
    );
    let words = ["sim", "replay", trace, "--machine", "x86-16@2"];
    let words = [&words[..], &["--policy", "linux-6.18"]].concat();
    let text = told(folder.path(), &[&words[..], &["--json"]].concat());
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    let capture = &document["capture"];
    assert_eq!(capture["caches"][0]["known"], 37);
    let all = capture["caches"][0]["caches"].as_array().unwrap();
    let cache = |name: &str| all.iter().find(|cache| cache["name"] == name).unwrap();
    assert_eq!(cache("filp")["kernel"]["slabs"], 42);
    assert!(cache("filp")["frees_missing"].is_null());
    // Of 1368 in use by the trace; the kernel had 656.
    assert!(cache("maple_node")["frees_missing"].as_u64().unwrap() > 500);
    let pagesets = &capture["pagesets"][0];
    assert_eq!(pagesets["policy"], "linux-6.18");
    assert_eq!(pagesets["refills"]["matched"], 18);
    let sets = pagesets["sets"].as_array().unwrap();
    let kernels: Vec<_> = sets
        .iter()
        .map(|set| set["kernel_pages"].as_u64())
        .collect();
    assert_eq!(kernels[4..], [Some(21_543), Some(36_538)]);
    let table = told(folder.path(), &words);
    assert!(
        table.contains("not to be trusted") && table.contains("maple_node (7"),
        "{table}"
    );
}

#[test]
fn tuning_prints_the_front_and_says_leave_it_where_nothing_is_better() {
    let folder = tempfile::tempdir().unwrap();
    let rest = ["--points", "8", "--seeds", "2"];
    let head = [&["tune"], &LEAST[..], &rest].concat();
    let with = |knobs: &[&str]| told(folder.path(), &[&head[..], knobs].concat());
    let text = with(&[
        "--policy",
        "linux-7.0",
        "--knobs",
        "percpu_pagelist_high_fraction=8..9",
    ]);
    assert!(
        text.contains("linux-7.0 as it is") && text.contains("leave it"),
        "{text}"
    );
    let text = with(&["--knobs", "sheaf_capacity=1..128", "--json"]);
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["schema"], "flagstone.tune/1");
    assert!(document["points"].as_array().unwrap().len() > 5);
    let output = flagstone(
        folder.path(),
        &[&head[..], &["--knobs", "sheaf_capcity=1..2"]].concat(),
    )
    .code(2);
    let line = String::from_utf8(output.get_output().stderr.clone()).unwrap();
    assert!(
        line.contains("did you mean 'sheaf_capacity'?") && line.lines().count() == 1,
        "{line}"
    );
}
