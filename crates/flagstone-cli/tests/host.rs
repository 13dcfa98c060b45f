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
