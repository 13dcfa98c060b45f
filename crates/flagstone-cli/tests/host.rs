//! `flagstone host` on captured machines: what it prints, and how it fails.

mod support;

use assert_cmd::Command;
use support::hosts::{self, Files};

fn flagstone() -> Command {
    let mut command = Command::cargo_bin("flagstone").unwrap();
    command
        .env_remove("NO_COLOR")
        .env("COLUMNS", "80")
        .arg("host");
    command
}

/// Runs on the tree and answers stdout.
fn text(files: &Files, columns: &str, args: &[&str]) -> String {
    text_of(&files.tar(), columns, args)
}

fn text_of(tar: &[u8], columns: &str, args: &[&str]) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), tar).unwrap();
    let output = flagstone()
        .env("COLUMNS", columns)
        .arg("--root")
        .arg(file.path())
        .args(args)
        .assert();
    let output = output.success().get_output().clone();
    assert!(
        output.stderr.is_empty(),
        "stderr: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

fn json(files: &Files, args: &[&str]) -> serde_json::Value {
    let mut with = vec!["--json"];
    with.extend(args);
    serde_json::from_str(&text(files, "80", &with)).unwrap()
}

const HOSTS: [&str; 6] = [
    "amd64-6.1-2cpu",
    "amd64-6.12-224cpu",
    "amd64-6.12-4node",
    "amd64-7.0-16cpu",
    "amd64-7.0-debug",
    "ppc64el-6.12-64k-160cpu",
];

/// Published policies only: the default policy's own row moves whenever it is improved.
const PUBLISHED: [&str; 6] = [
    "--policy",
    "linux-6.1",
    "--policy",
    "linux-6.5+order4",
    "--policy",
    "linux-7.0",
];

#[test]
fn every_host_prints_as_reviewed() {
    for name in HOSTS {
        insta::assert_snapshot!(
            format!("{name}-80"),
            text(&Files::of(name), "80", &PUBLISHED)
        );
    }
    for columns in ["80", "140"] {
        let text = text_of(&hosts::captured(), columns, &PUBLISHED);
        insta::assert_snapshot!(format!("amd64-6.18-2cpu-{columns}"), text);
    }
    let wide = text(&Files::of("amd64-7.0-16cpu"), "140", &PUBLISHED);
    insta::assert_snapshot!("amd64-7.0-16cpu-140", wide);
}

#[test]
fn the_published_patches_and_the_default_are_costed_unasked() {
    let report = json(&Files::of("amd64-6.12-224cpu"), &[]);
    let rows = report["what_if"].as_array().unwrap();
    let names: Vec<&str> = rows
        .iter()
        .map(|row| row["policy"].as_str().unwrap())
        .collect();
    for expect in [
        "linux-6.12+order4",
        "linux-6.12+least-waste-repaired",
        "linux-7.0",
        "flagstone",
    ] {
        assert!(names.contains(&expect), "{names:?}");
    }
}

#[test]
fn every_parse_of_a_capture_gives_parts_that_add_up() {
    for name in HOSTS {
        let report = json(&Files::of(name), &[]);
        assert_eq!(report["schema"], "flagstone.host/1");
        let rows = report["caches"].as_array().unwrap();
        for row in rows.iter().chain([&report["totals"]]) {
            let bytes = |key: &str| row[key].as_u64().unwrap();
            let parts = ["live_bytes", "alignment_bytes", "free_bytes", "tail_bytes"].map(bytes);
            assert_eq!(
                parts.iter().sum::<u64>(),
                bytes("total_bytes"),
                "{name}: {row}"
            );
        }
        assert_eq!(report["advice"].is_array(), report["formula"].is_object());
    }
}

#[test]
fn the_formula_is_found_without_reading_a_version() {
    for (name, expect) in [
        ("amd64-6.1-2cpu", "linux-6.6"),
        ("amd64-6.12-224cpu", "linux-6.12"),
        ("amd64-6.12-4node", "linux-6.12"),
        ("amd64-7.0-16cpu", "linux-7.2"),
        ("ppc64el-6.12-64k-160cpu", "linux-6.12"),
    ] {
        let mut files = Files::of(name);
        files.put("proc/sys/kernel/osrelease", "0.0.0-unknown\n");
        let report = json(&files, &[]);
        assert_eq!(report["formula"]["name"], expect, "{name}");
        let right = report["formula"]["right"].as_f64().unwrap();
        let values = report["formula"]["values"].as_f64().unwrap();
        assert!(right / values > 0.99, "{name}: {right} of {values}");
    }
}

#[test]
fn the_page_size_follows_from_the_caches() {
    assert_eq!(
        json(&Files::of("ppc64el-6.12-64k-160cpu"), &[])["page_size"],
        65536
    );
    assert_eq!(json(&Files::of("amd64-7.0-16cpu"), &[])["page_size"], 4096);
}

#[test]
fn the_first_what_if_row_costs_what_the_host_pays() {
    for name in HOSTS {
        let report = json(&Files::of(name), &[]);
        let now = report["totals"]["total_bytes"].as_u64().unwrap();
        let row = &report["what_if"][0];
        assert_eq!(row["policy"], report["formula"]["name"]);
        for key in ["total_bytes", "total_bytes_same_partial"] {
            let model = row[key].as_u64().unwrap();
            // A slab per cache may be counted differently where counters were read apart.
            assert!(
                model.abs_diff(now) * 100 <= now,
                "{name}: {key} {model}, here {now}"
            );
        }
    }
}

#[test]
fn a_boot_parameter_explains_the_orders_it_changed() {
    let report = json(&Files::of("ppc64el-6.12-64k-160cpu"), &[]);
    let deviations = report["deviations"].as_array().unwrap();
    let changed: Vec<_> = deviations
        .iter()
        .filter(|d| d["property"] == "order")
        .collect();
    assert!(!changed.is_empty());
    for deviation in changed {
        assert_eq!(
            deviation["cause"], "boot parameters: slab_max_order=4",
            "{deviation}"
        );
        assert_eq!(deviation["explained"], true);
    }
}

#[test]
fn a_written_limit_is_a_deviation_with_its_cause() {
    let mut files = Files::of("amd64-6.12-224cpu");
    files.put("sys/kernel/slab/inode_cache/min_partial", "64\n");
    files.put("sys/kernel/slab/inode_cache/cpu_partial", "0\n");
    let report = json(&files, &[]);
    let deviations = report["deviations"].as_array().unwrap();
    let of = |property: &str| {
        let found = deviations
            .iter()
            .find(|d| d["property"] == property)
            .unwrap();
        (
            found["subject"].clone(),
            found["here"].clone(),
            found["formula"].clone(),
        )
    };
    assert_eq!(
        of("min_partial"),
        ("inode_cache".into(), 64.into(), 5.into())
    );
    assert_eq!(
        of("cpu_partial"),
        ("inode_cache".into(), 0.into(), 52.into())
    );
}

#[test]
fn merged_caches_show_who_else_lives_there() {
    let report = json(&Files::of("amd64-6.12-224cpu"), &[]);
    let caches = report["caches"].as_array().unwrap();
    let merged = caches
        .iter()
        .find(|cache| cache["name"] == "pool_workqueue")
        .unwrap();
    assert_eq!(merged["aliases"].as_array().unwrap().len(), 2);
    let wide = text(&Files::of("amd64-6.12-224cpu"), "160", &[]);
    let line = wide
        .lines()
        .find(|line| line.starts_with(" pool_workqueue"))
        .unwrap();
    assert!(
        line.contains(merged["aliases"][0].as_str().unwrap()),
        "{line}"
    );
}

#[test]
fn debugging_left_on_is_advised_against_with_its_cost() {
    let report = json(&Files::of("amd64-7.0-debug"), &[]);
    let advice = &report["advice"][0];
    assert_eq!(advice["rule"], "debugging-on");
    assert_eq!(advice["commands"][0], "remove slab_debug=FZPU");
    let gain = advice["gain_bytes"].as_u64().unwrap();
    // Stride by stride, what the same caches take on a machine without debugging.
    assert!(gain > report["totals"]["alignment_bytes"].as_u64().unwrap());
    assert!(gain < report["totals"]["total_bytes"].as_u64().unwrap() / 2);
}

fn advice<'a>(report: &'a serde_json::Value, rule: &str) -> Option<&'a serde_json::Value> {
    report["advice"]
        .as_array()
        .unwrap()
        .iter()
        .find(|advice| advice["rule"] == rule)
}

#[test]
fn many_cpus_are_offered_larger_slabs_in_the_spelling_of_their_kernel() {
    let report = json(&Files::of("amd64-6.12-224cpu"), &[]);
    let found = advice(&report, "larger-slabs").unwrap();
    assert_eq!(
        found["commands"],
        serde_json::json!(["slab_max_order=4", "slab_min_objects=72"])
    );
    // Two CPUs do not contend; the change is weighed only, and an old kernel spells it its way.
    let report = json(&Files::of("amd64-6.1-2cpu"), &[]);
    assert!(advice(&report, "larger-slabs").is_none());
    let weighed = report["considered"].as_array().unwrap();
    let commands = |rule: &str| &weighed.iter().find(|a| a["rule"] == rule).unwrap()["commands"];
    assert_eq!(commands("larger-slabs")[0], "slub_max_order=4");
}

#[test]
fn pagesets_full_of_free_pages_are_worth_a_fixed_mark() {
    let mut files = Files::of("amd64-7.0-16cpu");
    assert!(advice(&json(&files, &[]), "smaller-pagesets").is_none());
    let full = files
        .text("proc/zoneinfo")
        .replace("high: 873\n", "high: 3883\n");
    let full: String = full
        .lines()
        .map(|line| match line.trim().strip_prefix("count:") {
            Some(count) if count.trim() != "0" => "              count: 3000\n".to_owned(),
            _ => format!("{line}\n"),
        })
        .collect();
    files.put("proc/zoneinfo", &full);
    let report = json(&files, &[]);
    let found = advice(&report, "smaller-pagesets").unwrap();
    let command = found["commands"][0].as_str().unwrap();
    let fraction: u64 = command.rsplit('=').next().unwrap().parse().unwrap();
    assert!(
        command.contains("percpu_pagelist_high_fraction") && fraction >= 8,
        "{command}"
    );
    assert!(found["gain_bytes"].as_u64().unwrap() > 32 << 20);
}

#[test]
fn slabs_that_fell_back_to_the_smallest_order_are_counted_and_explained() {
    let mut files = Files::of("amd64-7.0-16cpu");
    // 50 slabs of task_struct's preferred shape would hold 150 objects; these hold 110.
    let line = "task_struct 110 110 8832 3 8 : tunables 0 0 0 : slabdata 50 50 0";
    let edited: String = files
        .text("proc/slabinfo")
        .lines()
        .map(|old| {
            if old.starts_with("task_struct ") {
                line
            } else {
                old
            }
        })
        .map(|line| format!("{line}\n"))
        .collect();
    files.put("proc/slabinfo", &edited);
    let report = json(&files, &[]);
    let caches = report["caches"].as_array().unwrap();
    let cache = caches
        .iter()
        .find(|cache| cache["name"] == "task_struct")
        .unwrap();
    assert_eq!(cache["fallback_slabs"], 20);
    assert_eq!(cache["total_bytes"], 30 * 32768 + 20 * 16384);
    assert_eq!(report["totals"]["fallback_slabs"], 20);
}

#[test]
fn asked_policies_replace_the_usual_ones() {
    let files = Files::of("amd64-7.0-16cpu");
    let report = json(
        &files,
        &["--policy", "linux-6.5+order4", "--policy", "slab-2.6.24"],
    );
    let rows = report["what_if"].as_array().unwrap();
    let names: Vec<&str> = rows
        .iter()
        .map(|row| row["policy"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["linux-7.0", "linux-6.5+order4", "slab-2.6.24"]);
    let words = ["--policy", "linux-7.0", "--policy", "linux-6.1"];
    let report = json(&files, &words);
    let rows = report["what_if"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "the host's own once");
}

#[test]
fn a_directory_and_its_archive_give_the_same_answer() {
    let files = Files::of("amd64-6.12-4node");
    let root = tempfile::tempdir().unwrap();
    files.write(root.path());
    let output = flagstone()
        .arg("--root")
        .arg(root.path())
        .assert()
        .success();
    assert_eq!(
        String::from_utf8_lossy(&output.get_output().stdout),
        text(&files, "80", &[])
    );
}

#[test]
fn a_capture_of_a_tree_answers_as_the_tree_does() {
    let files = Files::of("amd64-7.0-16cpu");
    let root = tempfile::tempdir().unwrap();
    files.write(root.path());
    let to = root.path().join("copy.tar");
    let output = flagstone()
        .arg("--root")
        .arg(root.path())
        .arg("--capture")
        .arg(&to)
        .assert()
        .success();
    assert!(output.get_output().stdout.is_empty(), "stdout is for data");
    let copied = flagstone().arg("--root").arg(&to).assert().success();
    assert_eq!(
        String::from_utf8_lossy(&copied.get_output().stdout),
        text(&files, "80", &[])
    );
}

#[test]
fn without_privilege_the_answer_says_what_it_lacks() {
    let mut files = Files::of("amd64-7.0-16cpu");
    files.remove("proc/slabinfo");
    files.remove("sys/kernel/slab");
    files.put(
        "proc/meminfo",
        "MemTotal: 1985640 kB\nSlab: 20480 kB\nSReclaimable: 8192 kB\n",
    );
    let manifest = "page_size 4096\ndenied proc/slabinfo\ndenied sys/kernel/slab\n";
    files.put("flagstone-capture.txt", manifest);
    insta::assert_snapshot!("unprivileged-80", text(&files, "80", &PUBLISHED));
    let report = json(&files, &[]);
    assert!(report["totals"].is_null());
    let unread = report["unread"].as_array().unwrap();
    let denied = |path: &str| {
        unread
            .iter()
            .any(|u| u["path"] == path && u["reason"] == "permission denied")
    };
    assert!(
        denied("proc/slabinfo") && denied("sys/kernel/slab"),
        "{unread:?}"
    );
}

#[test]
fn slabinfo_alone_is_enough_for_totals() {
    let mut files = Files::of("amd64-6.12-224cpu");
    files.remove("sys/kernel/slab");
    let report = json(&files, &[]);
    // Orders alone cannot tell the newer kernels apart, and the answer says so.
    let alike = report["formula"]["alike"].as_array().unwrap();
    assert!(
        alike.contains(&"linux-6.12".into()) && alike.len() > 1,
        "{alike:?}"
    );
    assert!(report["totals"]["tail_bytes"].as_u64().unwrap() > 0);
    assert!(report["caches"][0]["object_size"].is_null());
}

#[test]
fn sysfs_alone_is_enough_for_everything_but_the_lines_of_slabinfo() {
    let whole = json(&Files::of("amd64-6.12-224cpu"), &[]);
    let mut files = Files::of("amd64-6.12-224cpu");
    files.remove("proc/slabinfo");
    let report = json(&files, &[]);
    assert_eq!(report["totals"], whole["totals"]);
}

/// Runs and answers the one line on stderr of a run that must end with 2.
fn refusal(command: &mut Command) -> String {
    let output = command.assert().code(2).get_output().clone();
    assert!(output.stdout.is_empty());
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!(line.lines().count(), 1, "{line}");
    line
}

#[test]
fn damage_in_any_file_is_one_line_with_file_and_line_number() {
    for (path, from, to, expect) in [
        (
            "proc/slabinfo",
            "version: 2.1",
            "version: 9",
            "proc/slabinfo: line 1: ",
        ),
        (
            "proc/zoneinfo",
            "low",
            "low x",
            "proc/zoneinfo: line 5: low is \"x\"",
        ),
        (
            "sys/kernel/slab/dentry/order",
            "1",
            "one",
            "sys/kernel/slab/dentry/order: line 1: ",
        ),
        (
            "sys/devices/system/cpu/present",
            "0-15",
            "none",
            "cpu/present: line 1: ",
        ),
    ] {
        let mut files = Files::of("amd64-7.0-16cpu");
        let text = files.text(path).replacen(from, to, 1);
        assert_ne!(text, files.text(path), "{path} holds {from}");
        files.put(path, &text);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), files.tar()).unwrap();
        eprintln!("{path}: {from} -> {to}");
        let line = refusal(flagstone().arg("--root").arg(file.path()));
        assert!(line.contains(expect), "{path}: {line}");
    }
}

#[test]
fn a_change_is_made_only_by_name_and_only_on_the_running_system() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), Files::of("amd64-6.1-2cpu").tar()).unwrap();
    let line = refusal(
        flagstone()
            .arg("--root")
            .arg(file.path())
            .args(["--apply", "shrink"]),
    );
    assert!(line.contains("--root"), "{line}");
    let line = refusal(flagstone().args(["--apply", "no-such-rule"]));
    assert!(line.contains("no-such-rule"), "{line}");
}

#[test]
fn impossible_calls_end_with_two_and_one_line() {
    let empty = tempfile::tempdir().unwrap();
    let line = refusal(flagstone().arg("--root").arg(empty.path()));
    assert!(line.contains("--root"), "{line}");
    let line = refusal(flagstone().args(["--root", "/nowhere/at/all"]));
    assert!(line.contains("/nowhere/at/all"), "{line}");
    let line = refusal(flagstone().args(["--policy", "linux-9.9"]));
    assert!(
        line.contains("linux-9.9") && line.contains("linux-7.0"),
        "{line}"
    );
    let line = refusal(flagstone().args(["--page-size", "5000"]));
    assert!(line.contains("5000"), "{line}");
    let not_tar = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(not_tar.path(), "this is no archive").unwrap();
    let line = refusal(flagstone().arg("--root").arg(not_tar.path()));
    assert!(line.contains("tar"), "{line}");
}

mod damage {
    //! Whole captures with random damage: the answer may be a refusal, never a panic.

    use super::support::hosts::Files;
    use flagstone_cli::cmd::host;
    use flagstone_cli::source::Tree;
    use proptest::prelude::*;

    fn small() -> Files {
        let mut files = Files::of("amd64-7.0-16cpu");
        let keep = |path: &str| {
            !path.starts_with("sys/kernel/slab/") || path.starts_with("sys/kernel/slab/dentry/")
        };
        files.files.retain(|(path, _)| keep(path));
        files.links.clear();
        let head: String = files
            .text("proc/slabinfo")
            .lines()
            .take(12)
            .map(|line| format!("{line}\n"))
            .collect();
        files.put("proc/slabinfo", &head);
        files.put(
            "proc/buddyinfo",
            "Node 0, zone   Normal      5      2      0      3 \n",
        );
        files.put("proc/meminfo", "MemTotal:  1985640 kB\nSlab:    20480 kB\n");
        files
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 150,
            failure_persistence: None,
            ..ProptestConfig::default()
        })]
        #[test]
        fn no_damage_to_any_file_makes_the_command_panic(
            which in any::<prop::sample::Index>(),
            edits in prop::collection::vec(
                (any::<prop::sample::Index>(), 0usize..12, "[0-9]{1,20}|[0-9a-z:,. \\-]{0,6}"), 1..4
            ),
        ) {
            let mut files = small();
            let (_, text) = which.get_mut(&mut files.files[..]);
            for (at, cut, put) in &edits {
                // Whole numbers are replaced too: the start is moved to that of a word.
                let at = if text.is_empty() { 0 } else { at.index(text.len()) };
                let at = text[..at].rfind([' ', '\n']).map_or(0, |space| space + 1);
                let end = (at + cut).min(text.len());
                text.replace_range(at..end, put);
            }
            let tree = Tree::from_tar(&files.tar()[..]).unwrap();
            if let Ok(text) = host::text(&tree, 80) {
                prop_assert!(text.lines().count() > 3);
            }
        }
    }
}

#[test]
fn a_capture_of_nothing_is_refused_and_leaves_no_file() {
    let empty = tempfile::tempdir().unwrap();
    let to = empty.path().join("host.tar");
    let output = flagstone()
        .arg("--root")
        .arg(empty.path())
        .arg("--capture")
        .arg(&to)
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.contains("nothing to copy"), "{stderr}");
    assert!(!to.exists());
}
