//! `unsafe` only where ARCHITECTURE.md lists the file.
//!
//! ```text
//!   ## Files that may contain `unsafe`
//!   - `crates/flagstone-core/src/page/`: `buddy.rs`, `zone.rs`
//! ```
//!
//! Files of tests and benches are not listed. A listed file without the word is a finding, so
//! that the list shrinks when code gets safer.

use crate::source::words;
use crate::tree::{Finding, Tree};
use std::collections::BTreeSet;

const DOCUMENT: &str = "ARCHITECTURE.md";
const HEADING: &str = "## Files that may contain `unsafe`";

/// Files that contain `unsafe` and are not listed, or the other way round.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let listed = listed(tree.text(DOCUMENT).unwrap_or(""));
    let mut findings = Vec::new();
    for source in tree.rust.iter().filter(|source| !source.is_test()) {
        let first = words(&source.code_without_tests(), "unsafe").next();
        match (first, listed.contains(&source.path)) {
            (Some(at), false) => findings.push(Finding {
                path: source.path.clone(),
                line: source.line_of(at),
                what: format!("unsafe in a file that {DOCUMENT} does not list"),
            }),
            (None, true) => findings.push(Finding {
                path: source.path.clone(),
                line: 0,
                what: format!("listed in {DOCUMENT} for unsafe and has none: take it off"),
            }),
            _ => {}
        }
    }
    findings
}

fn listed(document: &str) -> BTreeSet<String> {
    let mut files = BTreeSet::new();
    let section = document.lines().skip_while(|line| *line != HEADING).skip(1);
    let mut folder = String::new();
    for line in section.take_while(|line| !line.starts_with("## ")) {
        for name in backticked(line) {
            if name.ends_with('/') {
                folder = name.to_owned();
            } else if name.ends_with(".rs") {
                files.insert(format!("{folder}{name}"));
            }
        }
    }
    files
}

/// What stands between backticks in a line.
pub fn backticked(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Source;
    use crate::tree::Text;

    fn findings(list: &str, code: &str) -> usize {
        let tree = Tree {
            rust: vec![Source::new("crates/x/src/a.rs", code)],
            other: vec![Text {
                path: DOCUMENT.into(),
                text: format!("# A\n\n{HEADING}\n\n- `crates/x/src/`: {list}\n\n## Next `b.rs`\n"),
            }],
            ..Tree::default()
        };
        check(&tree).len()
    }

    #[test]
    fn unsafe_outside_the_list_is_a_finding_and_so_is_an_idle_entry() {
        assert_eq!(findings("`b.rs`", "unsafe fn f() {}"), 1);
        assert_eq!(findings("`a.rs`, `b.rs`", "unsafe fn f() {}"), 0);
        assert_eq!(findings("`a.rs`", "fn f() {}"), 1);
    }

    #[test]
    fn only_the_word_in_code_counts() {
        assert_eq!(findings("`b.rs`", "#![forbid(unsafe_code)] // unsafe"), 0);
        assert_eq!(
            findings("`b.rs`", "#[cfg(test)]\nmod t { unsafe fn f() {} }"),
            0
        );
    }
}
