//! Imports go downwards.
//!
//! ```text
//!   base 0 < platform 1 < policy 2 < page 3 < slab 4 < heap 5 < stats 6 < verify 7
//!   core  <  kernels, linux  <  sim, process  <  abi, flagstone  <  malloc  <  cli
//!   sim, trace  <  lab  <  cli      trace  <  record
//! ```
//!
//! `stats` and `verify` see all layers; no layer looks at either, but tests may. `sync` is below
//! everything. A crate's dependencies are checked in its manifest.

use crate::source::{Source, line_of};
use crate::tree::{Finding, Tree};

const CORE: &str = "crates/flagstone-core/src/";

/// The layers of the core, lowest first.
const LAYERS: [&str; 8] = [
    "base", "platform", "policy", "page", "slab", "heap", "stats", "verify",
];

/// What each crate may depend on, and whether crates from outside may be among it.
const CRATES: [(&str, &[&str], bool); 13] = [
    ("flagstone-core", &["loom"], false),
    ("flagstone-kernels", &["flagstone-core"], false),
    ("flagstone-linux", &["flagstone-core", "libc"], false),
    (
        "flagstone-process",
        &[
            "flagstone-core",
            "flagstone-kernels",
            "flagstone-linux",
            "libc",
        ],
        false,
    ),
    (
        "flagstone-abi",
        &[
            "flagstone-core",
            "flagstone-linux",
            "flagstone-process",
            "libc",
        ],
        false,
    ),
    (
        "flagstone",
        &["flagstone-core", "flagstone-process", "flagstone-abi"],
        false,
    ),
    (
        "flagstone-malloc",
        &["flagstone-process", "flagstone-abi", "libc"],
        false,
    ),
    (
        "flagstone-sim",
        &["flagstone-core", "flagstone-kernels", "flagstone-linux"],
        true,
    ),
    (
        "flagstone-lab",
        &[
            "flagstone-core",
            "flagstone-kernels",
            "flagstone-sim",
            "flagstone-trace",
        ],
        true,
    ),
    ("flagstone-trace", &[], true),
    ("flagstone-import", &["flagstone-trace"], true),
    (
        "flagstone-record",
        &["flagstone-linux", "flagstone-trace", "libc", "zstd-sys"],
        false,
    ),
    (
        "flagstone-cli",
        &[
            "flagstone-core",
            "flagstone-kernels",
            "flagstone-linux",
            "flagstone-sim",
            "flagstone-lab",
            "flagstone-trace",
            "flagstone-import",
        ],
        true,
    ),
];

/// Every import that does not go downwards.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in &tree.rust {
        if let Some(inside) = source.path.strip_prefix(CORE)
            && !source.is_test()
        {
            check_file(source, inside, &mut findings);
        }
    }
    for (name, allowed, outside) in CRATES {
        let path = format!("crates/{name}/Cargo.toml");
        match tree.text(&path) {
            Some(manifest) => check_manifest(&path, manifest, allowed, outside, &mut findings),
            None => findings.push(Finding {
                path,
                line: 0,
                what: "a crate named in xtask/src/layers.rs has no manifest".into(),
            }),
        }
    }
    findings
}

fn rank(name: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| *layer == name)
}

fn check_file(source: &Source, inside: &str, findings: &mut Vec<Finding>) {
    let own = inside.split(['/', '.']).next().unwrap_or("");
    let code = source.code_without_tests();
    if own == "lib" {
        return;
    }
    // `sync` and whatever else lies beside the layers is below all of them.
    let own_rank = rank(own);
    for (at, name) in named(&code) {
        let Some(other) = rank(&name) else { continue };
        let down = own_rank.is_some_and(|own| other <= own);
        if !down {
            findings.push(Finding {
                path: source.path.clone(),
                line: source.line_of(at),
                what: format!("layer `{own}` names `{name}`, which is above it"),
            });
        }
    }
}

/// Every `crate::name` and `super::super::name` of the code, also inside braces.
fn named(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for start in ["crate::", "super::super::"] {
        for (at, _) in code.match_indices(start) {
            let rest = &code[at + start.len()..];
            if let Some(group) = rest.strip_prefix('{') {
                found.extend(heads(group).into_iter().map(|name| (at, name)));
            } else {
                found.push((at, identifier(rest)));
            }
        }
    }
    found
}

pub fn identifier(text: &str) -> String {
    text.chars()
        .take_while(|c| c.is_alphanumeric() || *c == '_')
        .collect()
}

/// The first names of the members of a brace group.
pub fn heads(group: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut depth = 0;
    let mut fresh = true;
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => fresh = true,
            c if fresh && !c.is_whitespace() => {
                names.push(identifier(&group[at..]));
                fresh = false;
            }
            _ => {}
        }
    }
    names
}

fn check_manifest(
    path: &str,
    manifest: &str,
    allowed: &[&str],
    outside: bool,
    findings: &mut Vec<Finding>,
) {
    let mut inside = false;
    let mut at = 0;
    for line in manifest.lines() {
        if line.starts_with('[') {
            let table = line.trim().trim_matches(['[', ']']);
            inside = table == "dependencies" || table.ends_with(".dependencies");
        } else if inside && !line.trim_start().starts_with('#') {
            let name = line.split(['.', '=', ' ']).next().unwrap_or("");
            let judged = !outside || name.starts_with("flagstone");
            if judged && !name.is_empty() && !allowed.contains(&name) {
                findings.push(Finding {
                    path: path.to_owned(),
                    line: line_of(manifest, at),
                    what: format!("`{name}` may not be a dependency here"),
                });
            }
        }
        at += line.len() + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        let source = Source::new(&format!("{CORE}{path}"), text);
        let mut findings = Vec::new();
        check_file(&source, path, &mut findings);
        findings.iter().map(Finding::to_string).collect()
    }

    #[test]
    fn the_projects_imports_go_downwards() {
        crate::expect_none(&check(&Tree::read(&crate::tree::root())));
    }

    #[test]
    fn an_import_from_above_is_found_with_its_line() {
        let found = findings(
            "page/zone.rs",
            "use crate::base::Order;\nuse crate::slab::Cache;\n",
        );
        assert_eq!(
            found,
            [
                "crates/flagstone-core/src/page/zone.rs:2: layer `page` names `slab`, which is above it"
            ]
        );
    }

    #[test]
    fn groups_paths_in_code_and_climbing_paths_are_seen() {
        assert_eq!(
            findings("page/a.rs", "use crate::{base::A, heap::{B}, page};").len(),
            1
        );
        assert_eq!(
            findings("base/a.rs", "fn f() { crate::platform::g() }").len(),
            1
        );
        assert_eq!(
            findings("slab/a.rs", "use super::super::heap::Heap;").len(),
            1
        );
        assert_eq!(findings("sync.rs", "use crate::base::A;").len(), 1);
    }

    #[test]
    fn comments_and_tests_may_name_what_they_like() {
        assert!(
            findings(
                "page/a.rs",
                "//! crate::slab\n#[cfg(test)]\nuse crate::verify::x;"
            )
            .is_empty()
        );
        assert!(findings("stats/a.rs", "use crate::{heap::A, slab::B};").is_empty());
    }

    #[test]
    fn nobody_but_tests_names_verify() {
        assert_eq!(findings("stats/a.rs", "use crate::verify::x;").len(), 1);
        assert!(findings("verify/a.rs", "use crate::stats::x;").is_empty());
    }

    #[test]
    fn a_dependency_of_the_core_is_a_finding() {
        let manifest =
            "[dependencies]\nlibc.workspace = true\n[dev-dependencies]\nproptest = \"1\"\n";
        let mut found = Vec::new();
        check_manifest("Cargo.toml", manifest, &["loom"], false, &mut found);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, 2);
        found.clear();
        let manifest = "[dependencies]\nflagstone-linux = { path = \"x\" }\nserde = \"1\"\n";
        check_manifest(
            "Cargo.toml",
            manifest,
            &["flagstone-core"],
            true,
            &mut found,
        );
        assert_eq!(found.len(), 1, "{found:?}");
    }
}
