//! `cargo deny check` as a part of `cargo xtask check`: what is among the dependencies of each workspace.
//!
//! ```text
//!   licenses bans sources   offline, from Cargo.lock and what cargo has fetched
//!   advisories              needs the advisory database: from the network once, then from its copy
//! ```
//!
//! Where cargo-deny is not installed, or its database cannot be had, a line on stderr says what was
//! skipped, and nothing is found.

use crate::tree::{Finding, Tree};
use std::path::Path;
use std::process::Command;

const MANUAL: &str = "`cargo install cargo-deny --locked` brings it";

/// The workspaces of the tree: each has a lock file of its own.
const WORKSPACES: [&str; 4] = [".", "fuzz", "crates/flagstone-python", "examples/kernel"];

/// Runs cargo-deny on each workspace.
pub fn check(tree: &Tree) -> Vec<Finding> {
    if run(&tree.root, &["--version"]).is_none_or(|done| !done.fine) {
        skip(&format!("cargo-deny is not installed; {MANUAL}"));
        return Vec::new();
    }
    let each = WORKSPACES.iter();
    each.flat_map(|workspace| check_one(&tree.root, workspace))
        .collect()
}

fn check_one(root: &Path, workspace: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let manifest = format!("{workspace}/Cargo.toml");
    // Offline cargo-deny says of a crate that was never fetched that it fails, not what of it is refused.
    if !is_fetched(root, &manifest) {
        skip(&format!(
            "cargo-deny in {workspace}: not all its crates were fetched (cargo fetch)"
        ));
        return findings;
    }
    let config = root.join("deny.toml");
    let config = config.to_string_lossy();
    let on = ["--manifest-path", &manifest, "--config", &config];
    let always = [
        "--offline",
        "check",
        "--hide-inclusion-graph",
        "bans",
        "licenses",
        "sources",
    ];
    if let Some(done) = run(root, &[&on[..], &always].concat())
        && !done.fine
    {
        findings.push(found(workspace, &done.text));
    }
    let advisories = ["check", "--hide-inclusion-graph", "advisories"];
    match run(root, &[&on[..], &advisories].concat()) {
        Some(done) if !done.fine && no_database(&done.text) => {
            skip("cargo-deny's advisories: the database cannot be fetched");
        }
        Some(done) if !done.fine => findings.push(found(workspace, &done.text)),
        _ => {}
    }
    findings
}

/// Whether all crates of a workspace are on this machine.
fn is_fetched(root: &Path, manifest: &str) -> bool {
    let words = ["metadata", "--offline", "--locked", "--format-version", "1"];
    let done = cargo(root, &[&words[..], &["--manifest-path", manifest]].concat());
    done.is_some_and(|done| done.fine)
}

/// Whether a failure says that there is no database rather than that there is an advisory.
fn no_database(text: &str) -> bool {
    text.contains("advisory database") && !text.contains("advisories FAILED")
        || text.contains("FETCH_HEAD")
}

/// The errors of its report, one after another, as one finding: warnings are not quoted.
fn found(workspace: &str, text: &str) -> Finding {
    let errors = text.lines().filter(|line| {
        line.starts_with("error") || line.starts_with("bug") || line.contains("[ERROR]")
    });
    let errors: Vec<&str> = errors.take(10).collect();
    Finding {
        path: "deny.toml".into(),
        line: 0,
        what: format!("cargo deny check in {workspace}: {}", errors.join("; ")),
    }
}

struct Done {
    fine: bool,
    text: String,
}

fn run(root: &Path, words: &[&str]) -> Option<Done> {
    cargo(root, &[&["deny"], words].concat())
}

fn cargo(root: &Path, words: &[&str]) -> Option<Done> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(words)
        .current_dir(root)
        .output()
        .ok()?;
    Some(Done {
        fine: output.status.success(),
        text: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

fn skip(what: &str) {
    eprintln!("skipped: {what}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_that_cannot_be_had_is_no_finding_and_an_advisory_is() {
        let refused = "2026 [ERROR] failed to fetch advisory database https://x with cli";
        assert!(no_database(refused));
        let advisory = "error[vulnerability]: a crate\n\nadvisories FAILED\n";
        assert!(!no_database(advisory));
        assert_eq!(
            found("fuzz", advisory).what,
            "cargo deny check in fuzz: error[vulnerability]: a crate"
        );
    }

    #[test]
    fn todays_dependencies_are_allowed() {
        crate::expect_none(&check(&Tree::read(&crate::tree::root())));
    }
}
