//! `flagstone host` on captured machines: what it prints, and how it fails.

mod support;

use assert_cmd::Command;
use support::hosts::Files;

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
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), files.tar()).unwrap();
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

#[test]
fn every_host_prints_as_reviewed() {
    for name in HOSTS {
        insta::assert_snapshot!(format!("{name}-80"), text(&Files::of(name), "80", &[]));
    }
    insta::assert_snapshot!(
        "amd64-7.0-16cpu-140",
        text(&Files::of("amd64-7.0-16cpu"), "140", &[])
    );
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
        ("amd64-7.0-16cpu", "linux-7.0"),
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
    insta::assert_snapshot!("unprivileged-80", text(&files, "80", &[]));
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
