//! Invariant names: stated in a module's documentation, cited in `SAFETY` comments, checked in
//! the core's `verify`.
//!
//! ```text
//!   //! - `slot.len-bounded`: `len <= capacity`.        states it
//!   // SAFETY: `slot.len-bounded` gives ...             cites it
//!   ensure(len <= capacity, "slot.len-bounded")         checks it
//! ```

use crate::source::Source;
use crate::tree::{Finding, Tree};
use crate::unsafe_files::backticked;
use std::collections::BTreeSet;

const VERIFY: &str = "crates/flagstone-core/src/verify/";

/// Every cited or checked name that no module states.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let stated: BTreeSet<&str> = tree.rust.iter().flat_map(stated).collect();
    let mut findings = Vec::new();
    for source in &tree.rust {
        let mut names = cited(source);
        if source.path.starts_with(VERIFY) {
            names.extend(checked(source));
        }
        for (line, name) in names {
            if !stated.contains(name) {
                findings.push(Finding {
                    path: source.path.clone(),
                    line,
                    what: format!("no module states the invariant `{name}`"),
                });
            }
        }
    }
    findings
}

fn stated(source: &Source) -> impl Iterator<Item = &str> {
    let lines = source.comments.iter().map(|comment| comment.text.as_str());
    lines
        .filter(|text| text.starts_with("//! - `"))
        .flat_map(backticked)
        .filter(|name| is_name(name))
}

/// The names in comments that begin with SAFETY, with their lines.
fn cited(source: &Source) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut last = None;
    for comment in &source.comments {
        let starts = comment.text.contains("SAFETY:");
        let goes_on = last.is_some_and(|line| line + 1 == comment.line);
        if starts || goes_on {
            let names = backticked(&comment.text).filter(|name| is_name(name));
            found.extend(names.map(|name| (comment.line, name)));
            last = Some(comment.line);
        } else {
            last = None;
        }
    }
    found
}

/// The names in literals: what a check says is broken.
fn checked(source: &Source) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut at = 0;
    for part in source.text.split('"') {
        // In code both quotes of a literal are left; in a comment neither is.
        let opens = at > 0 && source.code.as_bytes()[at - 1] == b'"';
        if opens && is_name(part) {
            found.push((source.line_of(at), part));
        }
        at += part.len() + 1;
    }
    found
}

/// `owner.what-holds`, and not the name of a file.
fn is_name(text: &str) -> bool {
    let part =
        |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b == b'-');
    text.split_once('.').is_some_and(|(owner, what)| {
        part(owner) && part(what) && !["rs", "md", "so", "toml"].contains(&what)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(text: &str) -> Vec<usize> {
        findings_in("a.rs", text)
    }

    fn findings_in(path: &str, text: &str) -> Vec<usize> {
        let tree = Tree {
            rust: vec![Source::new(path, text)],
            ..Tree::default()
        };
        check(&tree).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_cited_name_must_be_stated() {
        let stated = "//! - `slot.len-bounded`: short.\n";
        let cite = "// SAFETY: see `slot.len-bounded`.\n";
        assert!(findings(&format!("{stated}{cite}")).is_empty());
        assert_eq!(findings(cite), [1]);
    }

    #[test]
    fn a_safety_comment_may_be_several_lines_long() {
        assert_eq!(findings("// SAFETY: because\n// of `slot.gone`.\n"), [2]);
        assert!(findings("// SAFETY: because.\n\n// of `slot.gone`.\n").is_empty());
    }

    #[test]
    fn what_verify_reports_must_be_stated_too() {
        let check = "fn f() {\n    ensure(ok, \"zone.whole\", \"no name\");\n}\n";
        assert_eq!(findings_in(&format!("{VERIFY}page.rs"), check), [2]);
        assert!(findings(check).is_empty());
    }

    #[test]
    fn files_and_methods_are_no_names() {
        assert!(findings("// SAFETY: `state.rs`, `self.len()`, `Slab::at`.\n").is_empty());
    }
}
