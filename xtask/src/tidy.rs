//! House rules a program can check; `docs/STYLE.md` gives their reasons.

use crate::source::{Source, words};
use crate::tree::{Finding, Text, Tree};
use crate::{documents, invariants, links, unsafe_files};

/// Lines of a file. A good one has 80 to 400; one longer than this hides two.
const LINES_MAX: usize = 700;
/// What must not be left behind.
const LEFTOVERS: [&str; 3] = ["TODO", "FIXME", "XXX"];
/// Macros that must not be left behind.
const LEFT_MACROS: [&str; 3] = ["todo", "unimplemented", "dbg"];
/// Where rules are pure arithmetic.
const POLICY: &str = "crates/flagstone-core/src/policy/";

/// The core, and the files that choose between the machine's atomics and the model checker's.
const CORE: &str = "crates/flagstone-core/src/";
const SYNC: [&str; 2] = [
    "crates/flagstone-core/src/sync.rs",
    "crates/flagstone-core/src/sync_loom.rs",
];

/// Every broken rule.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in &tree.rust {
        length(&source.path, &source.text, &mut findings);
        leftovers(source, &mut findings);
        safe_policy(source, &mut findings);
        atomics(source, &mut findings);
    }
    for text in &tree.other {
        if !text.path.ends_with(".md") && !text.path.ends_with(".toml") {
            length(&text.path, &text.text, &mut findings);
        }
        left_words(&text.path, 1, &text.text, &mut findings);
    }
    for document in tree.with_ending(".md") {
        titles(document, &mut findings);
    }
    findings.extend(documents::check(tree));
    findings.extend(unsafe_files::check(tree));
    findings.extend(invariants::check(tree));
    findings.extend(links::check(tree));
    findings
}

fn length(path: &str, text: &str, findings: &mut Vec<Finding>) {
    let lines = text.lines().count();
    if lines > LINES_MAX {
        findings.push(Finding {
            path: path.to_owned(),
            line: 0,
            what: format!("{lines} lines, at most {LINES_MAX}: split it"),
        });
    }
}

fn left_words(path: &str, first_line: usize, text: &str, findings: &mut Vec<Finding>) {
    for (index, line) in text.lines().enumerate() {
        for word in LEFTOVERS {
            if words(line, word).next().is_some() {
                findings.push(Finding {
                    path: path.to_owned(),
                    line: first_line + index,
                    what: format!("{word} left behind: do it, or open an issue"),
                });
            }
        }
    }
}

fn leftovers(source: &Source, findings: &mut Vec<Finding>) {
    for comment in &source.comments {
        left_words(&source.path, comment.line, &comment.text, findings);
    }
    for name in LEFT_MACROS {
        for at in words(&source.code, name) {
            if source.code[at + name.len()..].starts_with('!') {
                findings.push(Finding {
                    path: source.path.clone(),
                    line: source.line_of(at),
                    what: format!("{name}! left behind"),
                });
            }
        }
    }
}

fn safe_policy(source: &Source, findings: &mut Vec<Finding>) {
    let forbids = source.code.contains("#![forbid(unsafe_code)]");
    if source.path.starts_with(POLICY) && !source.is_test() && !forbids {
        findings.push(Finding {
            path: source.path.clone(),
            line: 1,
            what: "a policy file starts with #![forbid(unsafe_code)]".into(),
        });
    }
}

fn atomics(source: &Source, findings: &mut Vec<Finding>) {
    if !source.path.starts_with(CORE) || SYNC.contains(&source.path.as_str()) {
        return;
    }
    for (at, _) in source.code.match_indices("core::sync::atomic") {
        findings.push(Finding {
            path: source.path.clone(),
            line: source.line_of(at),
            what: "atomics of the core come from crate::sync".into(),
        });
    }
}

fn titles(document: &Text, findings: &mut Vec<Finding>) {
    let count = outside_fences(&document.text)
        .filter(|(_, line)| line.starts_with("# "))
        .count();
    if count != 1 {
        findings.push(Finding {
            path: document.path.clone(),
            line: 0,
            what: format!("{count} titles (lines that start with one #), want one"),
        });
    }
}

/// The lines of a document that are not in fenced code, counted from 1.
pub fn outside_fences(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((index + 1, line))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_source(path: &str, text: &str) -> Vec<Finding> {
        let tree = Tree {
            rust: vec![Source::new(path, text)],
            ..Tree::default()
        };
        let mut found = check(&tree);
        found.retain(|finding| finding.path == path);
        found
    }

    fn of_text(path: &str, text: &str) -> Vec<Finding> {
        let tree = Tree {
            other: vec![Text {
                path: path.into(),
                text: text.into(),
            }],
            ..Tree::default()
        };
        let mut found = check(&tree);
        found.retain(|finding| finding.path == path);
        found
    }

    #[test]
    fn the_project_is_tidy() {
        crate::expect_none(&check(&Tree::read(&crate::tree::root())));
    }

    #[test]
    fn a_file_of_701_lines_is_one_too_long() {
        assert!(of_source("a.rs", &"\n".repeat(700)).is_empty());
        assert_eq!(of_source("a.rs", &"\n".repeat(701)).len(), 1);
    }

    #[test]
    fn what_was_left_behind_is_found_in_comments_and_code_but_not_in_words() {
        let found = of_source("a.rs", "fn a() {}\n// TODO: more\nfn b() { todo!() }\n");
        let lines: Vec<_> = found.iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [2, 3]);
        assert!(of_source("a.rs", "// MASTODON\nconst A: &str = \"TODO\";\n").is_empty());
        assert_eq!(of_text("a.c", "int a;\n/* FIXME */\n")[0].line, 2);
    }

    #[test]
    fn a_policy_file_must_forbid_unsafe_code_and_its_tests_need_not() {
        let path = |name: &str| format!("{POLICY}{name}.rs");
        assert_eq!(of_source(&path("order"), "fn a() {}").len(), 1);
        assert!(of_source(&path("order"), "#![forbid(unsafe_code)]").is_empty());
        assert!(of_source(&path("order_tests"), "fn a() {}").is_empty());
    }

    #[test]
    fn atomics_of_the_core_are_named_in_one_file() {
        let code = "use core::sync::atomic::AtomicU8;\n";
        let of = |file: &str| of_source(&format!("{CORE}{file}"), code).len();
        assert_eq!([of("slab/barn.rs"), of("sync.rs")], [1, 0]);
        assert!(of_source("crates/flagstone-sim/src/a.rs", code).is_empty());
    }

    #[test]
    fn a_document_has_one_title_and_fenced_lines_are_none() {
        assert!(of_text("a.md", "# A\n\n```sh\n# not a title\n```\n## B\n").is_empty());
        assert_eq!(of_text("a.md", "# A\n# B\n").len(), 1);
        assert_eq!(of_text("a.md", "text\n").len(), 1);
    }
}
