//! The first documents keep up with the project: crates, commands and the test command.

use crate::tree::{Finding, Tree};
use std::fs;

const TESTS: &str = "cargo test --workspace";

/// What README.md and ARCHITECTURE.md do not mention.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let readme = tree.text("README.md").unwrap_or("");
    let map = tree.text("ARCHITECTURE.md").unwrap_or("");
    let mut findings = Vec::new();
    let mut missing = |path: &str, what: String| {
        findings.push(Finding {
            path: path.to_owned(),
            line: 0,
            what,
        });
    };
    for name in crates(tree) {
        if !map.contains(&format!("`crates/{name}`")) {
            missing("ARCHITECTURE.md", format!("the map lacks crates/{name}"));
        }
    }
    for name in commands(tree) {
        if !readme.contains(&format!("| `flagstone {name} "))
            && !readme.contains(&format!("| `flagstone {name}`"))
        {
            missing("README.md", format!("the table lacks the command {name}"));
        }
    }
    let script = fs::read_to_string(tree.root.join(".ci/run")).unwrap_or_default();
    for (path, text) in [("README.md", readme), (".ci/run", script.as_str())] {
        if !text.contains(TESTS) {
            missing(path, format!("does not run the tests by `{TESTS}`"));
        }
    }
    findings
}

/// The crates, by their manifests.
fn crates(tree: &Tree) -> impl Iterator<Item = &str> {
    tree.other.iter().filter_map(|text| {
        let name = text.path.strip_prefix("crates/")?;
        name.strip_suffix("/Cargo.toml")
    })
}

/// The subcommands: variants of `enum Command` in the command's main file.
fn commands(tree: &Tree) -> Vec<String> {
    let main = "crates/flagstone-cli/src/main.rs";
    let source = tree.rust.iter().find(|source| source.path == main);
    let code = source.map_or("", |source| source.code.as_str());
    let body = code.split("enum Command {").nth(1).unwrap_or("");
    let body = body.split('}').next().unwrap_or("");
    let variants = body.lines().filter_map(|line| line.trim().split_once('('));
    variants
        .map(|(name, _)| name.to_ascii_lowercase())
        .filter(|name| name.chars().all(char::is_alphabetic) && !name.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Source;
    use crate::tree::Text;

    #[test]
    fn the_commands_are_read_from_the_code() {
        let tree = Tree::read(&crate::tree::root());
        let found = commands(&tree);
        assert!(found.contains(&"run".to_owned()), "{found:?}");
        assert!(crates(&tree).any(|name| name == "flagstone-core"));
    }

    #[test]
    fn what_a_document_lacks_is_named() {
        let text = |path: &str, text: &str| Text {
            path: path.into(),
            text: text.into(),
        };
        let tree = Tree {
            rust: vec![Source::new(
                "crates/flagstone-cli/src/main.rs",
                "enum Command {\n    Run(A),\n    #[command(hide = true)]\n    Top(B),\n}\n",
            )],
            other: vec![
                text("README.md", "| `flagstone run -- CMD` |\n"),
                text("ARCHITECTURE.md", "`crates/one`\n"),
                text("crates/one/Cargo.toml", ""),
                text("crates/two/Cargo.toml", ""),
            ],
            root: crate::tree::root(),
        };
        let found: Vec<_> = check(&tree)
            .into_iter()
            .map(|finding| finding.what)
            .collect();
        assert_eq!(
            found,
            [
                "the map lacks crates/two",
                "the table lacks the command top",
                "does not run the tests by `cargo test --workspace`",
            ]
        );
    }
}
