//! `docs/options.md`, made of the core's own tables.
//!
//! The document is checked in, so that it can be read without a build, and compared with what
//! the code says by a test. `cargo xtask options --write` writes it.

use crate::source::line_of;
use crate::tree::{Finding, Tree};
use flagstone_core::policy::{FlagstoneLimits, KEYS, Policy};
use flagstone_kernels::{BASES, MODIFIERS};
use std::collections::BTreeSet;
use std::fmt::Write;

/// The document.
pub const PATH: &str = "docs/options.md";
const PREFIX: &str = "FLAGSTONE_";

/// Variables that are no key of [`Policy::set`]: name, value, meaning.
const VARIABLES: &[(&str, &str, &str)] = &[
    (
        "FLAGSTONE_POLICY",
        "a policy's name",
        "the base all other options change; read first. `flagstone` in `libflagstone.so`; in the library that `run` loads for them, also the policies of kernels",
    ),
    (
        "FLAGSTONE_CONF",
        "`key:value,key:value`",
        "several options in one variable; read second",
    ),
    (
        "FLAGSTONE_VERBOSE",
        "0 or 1",
        "one line on stderr at start-up: version, and how per-CPU slots work here",
    ),
    (
        "FLAGSTONE_SHOW_STATS",
        "0 or 1",
        "what `malloc_stats()` prints, at exit",
    ),
    (
        "FLAGSTONE_LIMIT",
        "bytes, 1M and more, or a part such as 80%",
        "what the heap may hold from the system; beyond it the answer is NULL (docs/limits.md)",
    ),
    (
        "FLAGSTONE_PRESSURE",
        "0 or 1",
        "free memory goes back where memory is short (docs/limits.md)",
    ),
    (
        "FLAGSTONE_HUGE_PAGES",
        "0 or 1",
        "memory that is committed 4 MiB and more at once asks for transparent huge pages; 0: the first 4 MiB of the heap ask for plain pages, so that small programs stay small where the system gives huge ones to everybody (Debian does), and the rest is the system's choice (measured: docs/adr/0026-one-budget.md)",
    ),
    (
        "FLAGSTONE_NAMES",
        "0 or 1",
        "`/proc/PID/smaps` names huge blocks too, by one `prctl` for each; 0 (docs/watch.md)",
    ),
    (
        "FLAGSTONE_PROFILE",
        "a file; `%p` in its name is the process's number",
        "samples where memory comes from; the file is left at exit, for `flagstone profile` (docs/profiles.md); under a name with `%p` only by processes that had a sample",
    ),
    (
        "FLAGSTONE_PROFILE_INTERVAL",
        "bytes, 4K to 1T",
        "mean bytes between those samples; 512K",
    ),
];

/// Variables of the project's own tools.
const TOOLS: &[(&str, &str)] = &[
    (
        "FLAGSTONE_LIBRARY",
        "build: a `libflagstone.so` to carry inside the command instead of building one",
    ),
    (
        "FLAGSTONE_LIBRARY_KERNELS",
        "build: the same for `libflagstone-kernels.so`, which serves the policies of kernels",
    ),
    (
        "FLAGSTONE_LIBRARY_RECORDER",
        "build: the same for `libflagstone_record.so`, which `record` preloads",
    ),
    (
        "FLAGSTONE_LIB",
        "tests and `bench`: the library to test or to measure",
    ),
    (
        "FLAGSTONE_PEERS",
        "`bench`: the folder of peers built by `bench/peers`",
    ),
    (
        "FLAGSTONE_TESTS_STRICT",
        "tests: a missing program fails a suite instead of skipping a part of it",
    ),
    (
        "FLAGSTONE_TESTS_WHEEL",
        "tests: build the Python wheel and try it in clean environments",
    ),
    (
        "FLAGSTONE_TESTS_IMAGE",
        "tests: 1 builds the image of `Dockerfile` by buildah and runs it, a name runs that image",
    ),
    (
        "FLAGSTONE_TESTS_KERNEL",
        "tests: the kernel that a guest boots (docs/limits.md)",
    ),
    (
        "FLAGSTONE_RUN_REPORT",
        "set by `run` for the library: where its report goes",
    ),
    (
        "FLAGSTONE_RECORD_FILE",
        "set by `record` for the recorder: where the trace goes",
    ),
    (
        "FLAGSTONE_RECORD_BYTES",
        "set by `record` for the recorder: most bytes of the trace",
    ),
    (
        "FLAGSTONE_RECORD_SAMPLE",
        "set by `record` for the recorder: one block in so many",
    ),
    (
        "FLAGSTONE_RUN_ALL",
        "set by `run --all` for the library: a forked process takes a sample at its start",
    ),
    (
        "FLAGSTONE_SEEDS",
        "tests of the simulator: how many seeds to run",
    ),
];

/// The document as the code has it now.
pub fn document() -> String {
    let mut out = String::from(
        "# Options\n\n\
         Made by `cargo xtask options --write` from the code's own tables; a test compares them.\n\n\
         The library reads its options from the environment, in this order, so that the most\n\
         specific wins: `FLAGSTONE_POLICY`, `FLAGSTONE_CONF`, then one variable per key.\n\
         `flagstone run --policy P --set key=value` sets the same things. Values are whole numbers\n\
         and may end in K, M, G or T. An unknown option or a bad value is one line on stderr and\n\
         leaves the default. Nothing is read where the program runs with more rights than its\n\
         caller (AT_SECURE: setuid programs, file capabilities).\n\n\
         ```sh\n\
         FLAGSTONE_SHEAF_CAPACITY=32 LD_PRELOAD=./libflagstone.so CMD\n\
         flagstone run --policy linux-6.5+order4 --set sheaf_capacity=32 -- CMD\n\
         ```\n\n",
    );
    out.push_str("## General variables\n\n| variable | value | meaning |\n|---|---|---|\n");
    for (name, value, meaning) in VARIABLES {
        let _ = writeln!(out, "| `{name}` | {value} | {meaning} |");
    }
    out.push_str(
        "\n## Keys\n\nEach is a key of `Policy::set`, of `--set` and of `FLAGSTONE_CONF`, and a\n\
         variable. The default is the policy's: a number here is that of the policy `flagstone`,\n\
         \"by rule\" means that it follows from object size, page size or CPUs.\n\n\
         | key | variable | default | meaning |\n|---|---|---|---|\n",
    );
    for (key, meaning) in KEYS {
        let variable = format!("{PREFIX}{}", key.to_ascii_uppercase());
        let default = default_of(key).unwrap_or_else(|| "by rule".into());
        let _ = writeln!(out, "| `{key}` | `{variable}` | {default} | {meaning} |");
    }
    out.push_str(
        "\nThe older spellings `slub_max_order`, `slub_min_order` and `slub_min_objects` are\n\
         accepted too.\n\n## Policies\n\nA name is a base and any number of `+modifier`s, applied\n\
         from left to right.\n\n| base | stands for |\n|---|---|\n",
    );
    for (name, meaning) in BASES {
        let _ = writeln!(out, "| `{name}` | {meaning} |");
    }
    out.push_str("\n| modifier | stands for |\n|---|---|\n");
    for (name, meaning) in MODIFIERS {
        let _ = writeln!(out, "| `+{name}` | {meaning} |");
    }
    out.push_str(
        "\n## Variables of the project's own tools\n\nNot options of the library; it leaves them \
         alone.\n\n| variable | meaning |\n|---|---|\n",
    );
    for (name, meaning) in TOOLS {
        let _ = writeln!(out, "| `{name}` | {meaning} |");
    }
    out
}

/// A key's number under the default policy; `None` where it follows from a rule.
fn default_of(key: &str) -> Option<String> {
    let policy = Policy::default();
    let FlagstoneLimits {
        sheaf_capacity_max,
        sheaf_bytes_max,
        sheaf_bytes_busy,
        sheaf_spread,
        barn_bytes_max,
        barns_bytes_quiet,
        retain_bytes_min,
        retain_share,
        pcp_bytes_max,
    } = policy.limits;
    Some(match key {
        "slab_min_order" => policy.min_order.get().to_string(),
        "check" => "0".to_owned(),
        "barn_full" => policy.barn.full.to_string(),
        "barn_empty" => policy.barn.empty.to_string(),
        "percpu_pagelist_high_fraction" => policy.pcp_high_fraction.to_string(),
        "pcp_batch_scale_max" => policy.pcp_batch_scale_max.to_string(),
        "pcp_bytes_max" => size(pcp_bytes_max),
        "sheaf_capacity_max" => sheaf_capacity_max.to_string(),
        "sheaf_bytes_max" => size(sheaf_bytes_max as u64),
        "sheaf_bytes_busy" => size(sheaf_bytes_busy as u64),
        "sheaf_spread" => sheaf_spread.to_string(),
        "barns_bytes_quiet" => size(barns_bytes_quiet as u64),
        "barn_bytes_max" => size(barn_bytes_max as u64),
        "retain_bytes_min" => size(retain_bytes_min as u64),
        "retain_share" => retain_share.to_string(),
        _ => return None,
    })
}

/// Bytes as an option takes them.
fn size(bytes: u64) -> String {
    match bytes {
        _ if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{}M", bytes >> 20),
        _ if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => format!("{}K", bytes >> 10),
        _ => bytes.to_string(),
    }
}

/// A document that differs from the code, and variables it does not name.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let wanted = document();
    let mut findings = Vec::new();
    if tree.text(PATH) != Some(wanted.as_str()) {
        findings.push(Finding {
            path: PATH.into(),
            line: 0,
            what: "differs from the code: cargo xtask options --write".into(),
        });
    }
    let known: BTreeSet<&str> = names(&wanted).map(|(_, name)| name).collect();
    for source in &tree.rust {
        // Tests name variables that must not exist; this file lists them all.
        if source.is_test() || source.path.starts_with("xtask/") {
            continue;
        }
        let code = source.code_without_tests();
        for (at, name) in names(&source.text) {
            // Literals and macro arguments: blank in the code, and not inside a comment.
            let is_literal = code.as_bytes()[at] == b' ' && !in_comment(source, at);
            if is_literal && !known.contains(name) {
                findings.push(Finding {
                    path: source.path.clone(),
                    line: source.line_of(at),
                    what: format!("{name} is in no table of xtask/src/options.rs"),
                });
            }
        }
    }
    findings
}

fn in_comment(source: &crate::source::Source, at: usize) -> bool {
    let line = line_of(&source.text, at);
    let start = source.text[..at].rfind('\n').map_or(0, |end| end + 1);
    let before = &source.text[start..at];
    let on_line = |comment: &crate::source::Comment| comment.line == line;
    source.comments.iter().any(on_line) && before.contains("//")
}

/// Every `FLAGSTONE_NAME` of a text.
fn names(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.match_indices(PREFIX).filter_map(|(at, _)| {
        let rest = &text[at..];
        let word = |c: char| c.is_ascii_uppercase() || c == '_' || c.is_ascii_digit();
        let end = rest.find(|c| !word(c)).unwrap_or(rest.len());
        let name = &rest[..end];
        // The prefix itself, and the digest that the build hands to the compiler.
        (name.len() > PREFIX.len() && !name.ends_with("_DIGEST")).then_some((at, name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Source;

    #[test]
    fn the_document_says_what_the_code_says() {
        crate::expect_none(&check(&Tree::read(&crate::tree::root())));
    }

    #[test]
    fn every_key_and_every_policy_is_in_the_document() {
        let text = document();
        for (name, _) in KEYS.iter().chain(BASES) {
            assert!(text.contains(&format!("`{name}`")), "{name}");
        }
    }

    #[test]
    fn a_number_in_the_document_is_one_the_code_accepts() {
        for (key, _) in KEYS {
            let Some(number) = default_of(key) else {
                continue;
            };
            let shift = match number.chars().last() {
                Some('M') => 20,
                Some('K') => 10,
                _ => 0,
            };
            let digits = number.trim_end_matches(['M', 'K']).parse::<u64>().unwrap();
            let plain = (digits << shift).to_string();
            let mut policy = Policy::default();
            assert_eq!(policy.set(key, &plain), Ok(()), "{key}={plain}");
            if *key != "slab_min_order" {
                assert_eq!(policy, Policy::default(), "{key} is {number} by default");
            }
        }
    }

    #[test]
    fn a_variable_nobody_listed_is_a_finding() {
        let text = "// FLAGSTONE_IDLE\nconst A: &str = \"FLAGSTONE_NEW\";\n";
        let tree = Tree {
            rust: vec![Source::new("crates/x/src/a.rs", text)],
            ..Tree::default()
        };
        let found = check(&tree);
        assert_eq!(
            found.len(),
            2,
            "the missing document, and the variable: {found:?}"
        );
        assert_eq!(found[1].line, 2);
    }
}
