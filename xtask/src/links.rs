//! Documents name files that exist.

use crate::tidy::outside_fences;
use crate::tree::{Finding, Text, Tree};
use crate::unsafe_files::backticked;
use std::path::Path;

/// Folders at the top: a backticked path that starts with one of them must exist.
const TOPS: [&str; 6] = ["crates/", "docs/", "tests/", "bench/", "xtask/", ".ci/"];

/// Every link and every path that leads nowhere.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let documents = tree.with_ending(".md");
    documents
        .flat_map(|document| broken(&tree.root, document))
        .collect()
}

fn broken(root: &Path, document: &Text) -> Vec<Finding> {
    let home = Path::new(&document.path).parent().unwrap_or(Path::new(""));
    let mut findings = Vec::new();
    for (line, text) in outside_fences(&document.text) {
        let linked = links(text).map(|target| (target, root.join(home).join(target)));
        let named = backticked(text)
            .filter(|path| TOPS.iter().any(|top| path.starts_with(top)))
            .filter(|path| !path.contains(['*', '{', '<', ' ', ':', '…']))
            .map(|path| (path, root.join(path)));
        for (target, path) in linked.chain(named) {
            if !path.exists() {
                findings.push(Finding {
                    path: document.path.clone(),
                    line,
                    what: format!("{target} does not exist"),
                });
            }
        }
    }
    findings
}

/// Targets of a line's links that are files.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| {
        let target = rest.split([')', '#']).next()?;
        (!target.is_empty() && !target.contains("://")).then_some(target)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(text: &str) -> usize {
        let document = Text {
            path: "docs/a.md".into(),
            text: text.into(),
        };
        broken(&crate::tree::root(), &document).len()
    }

    #[test]
    fn a_link_is_followed_from_its_document() {
        assert_eq!(findings("[rules](STYLE.md#names) [home](../README.md)"), 0);
        assert_eq!(findings("[gone](README.md)"), 1);
        assert_eq!(
            findings("[out](https://example.org/x.md) [here](#names)"),
            0
        );
    }

    #[test]
    fn a_path_in_backticks_is_followed_from_the_top() {
        assert_eq!(
            findings("`xtask/src/main.rs`, `crates/*/src`, `main.rs`"),
            0
        );
        assert_eq!(findings("`crates/none/src/lib.rs`"), 1);
        assert_eq!(findings("```text\n`crates/none`\n```"), 0);
    }
}
