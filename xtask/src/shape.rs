//! The core's shape: how long it is, which of its modules import each other in circles, and over how
//! many files one type's methods are spread.
//!
//! ```text
//!   lines     code and comment of the product, tests and guests apart
//!   circles   modules of one folder that reach each other by their imports
//!   spread    files with an `impl` of the same type
//! ```
//!
//! Each figure has a limit here that it may not pass; the goals stand beside them. Who lowers a figure
//! lowers its limit in the same commit, who must raise one says why in the commit.

use crate::source::Source;
use crate::tree::{Finding, Tree};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

const CORE: &str = "crates/flagstone-core/src/";
const GUESTS: &str = "crates/flagstone-kernels/src/";
/// The simulator with its calibration, the lab, and the commands over them.
const LAB: [&str; 4] = [
    "crates/flagstone-sim/src/",
    "crates/flagstone-lab/src/",
    "crates/flagstone-cli/src/cmd/sim/",
    "crates/flagstone-cli/src/cmd/reproduce/",
];

/// Lines of code and comment of the product's core.
const LINES_MAX: usize = 17_359;
const LINES_GOAL: usize = 11_000;

/// Of the lab.
const LAB_MAX: usize = 25_078;
/// Two thirds of what simulator, calibration and reproduce had in November 2026 (18,065).
const LAB_GOAL: usize = 12_043;

/// Modules in circles, for each folder that has some: none.
const CIRCLES_MAX: &[(&str, usize)] = &[];

/// Files with an `impl` of a type, for each type above the goal.
const SPREAD_MAX: &[(&str, usize)] = &[];
const SPREAD_GOAL: usize = 6;

/// The figures as a table.
pub fn report(tree: &Tree) -> String {
    let mut out = String::new();
    let lines = Lines::of(tree);
    for (folder, count) in &lines.by_folder {
        let _ = writeln!(out, "{count:>7}  {CORE}{folder}");
    }
    let (core, max) = (lines.core(), LINES_MAX);
    let _ = writeln!(
        out,
        "{core:>7}  product core, code and comment; limit {max}, goal {LINES_GOAL}"
    );
    let _ = writeln!(out, "{:>7}  its tests", lines.tests);
    let _ = writeln!(out, "{:>7}  guests, without their tests", lines.guests);
    let lab = lines.lab;
    let _ = writeln!(
        out,
        "{lab:>7}  simulator and lab, without their tests; limit {LAB_MAX}, goal {LAB_GOAL}"
    );
    for (folder, circles) in circles(tree) {
        for circle in circles {
            let names = circle.join(", ");
            let _ = writeln!(
                out,
                "{:>7}  modules in a circle of {folder}: {names}",
                circle.len()
            );
        }
    }
    for (name, files) in spread(tree) {
        if files.len() > SPREAD_GOAL {
            let _ = writeln!(out, "{:>7}  files with an impl of {name}", files.len());
        }
    }
    out
}

/// Figures above their limits.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |path: &str, what: String| {
        findings.push(Finding {
            path: path.to_owned(),
            line: 0,
            what,
        });
    };
    let lines = Lines::of(tree);
    let counted = [
        (CORE, lines.core(), LINES_MAX),
        (LAB[0], lines.lab, LAB_MAX),
    ];
    for (path, lines, max) in counted {
        if lines > max {
            find(
                path,
                format!("{lines} lines, above {max} (xtask/src/shape.rs)"),
            );
        }
    }
    for (folder, circles) in circles(tree) {
        let found = circles.iter().map(Vec::len).sum::<usize>();
        let max = limit(CIRCLES_MAX, &folder, 0);
        if found > max {
            let what = format!("{found} modules in circles, above {max}: {circles:?}");
            find(&format!("{CORE}{folder}"), what);
        }
    }
    for (name, files) in spread(tree) {
        let max = limit(SPREAD_MAX, &name, SPREAD_GOAL);
        if files.len() > max {
            let what = format!(
                "an impl of {name} in {} files, above {max}: {files:?}",
                files.len()
            );
            find(CORE, what);
        }
    }
    findings
}

fn limit(table: &[(&str, usize)], name: &str, otherwise: usize) -> usize {
    let row = table.iter().find(|(of, _)| *of == name);
    row.map_or(otherwise, |(_, max)| *max)
}

/// Lines that are not blank.
#[derive(Default)]
struct Lines {
    /// The product's, by folder or file beside the folders.
    by_folder: BTreeMap<String, usize>,
    tests: usize,
    guests: usize,
    lab: usize,
}

impl Lines {
    fn of(tree: &Tree) -> Self {
        let mut lines = Self::default();
        for source in &tree.rust {
            let (all, product) = count(source);
            if let Some(inside) = source.path.strip_prefix(CORE) {
                let folder = inside.split('/').next().unwrap_or(inside);
                *lines.by_folder.entry(folder.to_owned()).or_default() += product;
                lines.tests += all - product;
            } else if source.path.starts_with(GUESTS) {
                lines.guests += product;
            } else if LAB.iter().any(|folder| source.path.starts_with(folder)) {
                lines.lab += product;
            }
        }
        lines
    }

    fn core(&self) -> usize {
        self.by_folder.values().sum()
    }
}

/// Lines of a file that are not blank, and those of them that are the product's. The world for tests
/// counts as a test.
fn count(source: &Source) -> (usize, usize) {
    let all = source.text.lines().filter(|line| !line.trim().is_empty());
    let all = all.count();
    if source.is_test() || source.path.ends_with("/testing.rs") {
        return (all, 0);
    }
    let tests = source.test_lines();
    let product = source.text.lines().enumerate();
    let product = product.filter(|(at, line)| !line.trim().is_empty() && !tests.contains(at));
    (all, product.count())
}

/// The product's files of the core, by folder: module name and source.
fn folders(tree: &Tree) -> BTreeMap<String, Vec<(String, &Source)>> {
    let mut found: BTreeMap<String, Vec<(String, &Source)>> = BTreeMap::new();
    for source in tree.rust.iter().filter(|source| !source.is_test()) {
        let inside = source.path.strip_prefix(CORE);
        if let Some((folder, file)) = inside.and_then(|inside| inside.split_once('/')) {
            let module = file.split(['/', '.']).next().unwrap_or(file);
            let modules = found.entry(folder.to_owned()).or_default();
            modules.push((module.to_owned(), source));
        }
    }
    found
}

/// Circles of each folder that has some, each in the order of its modules' names.
fn circles(tree: &Tree) -> BTreeMap<String, Vec<Vec<String>>> {
    let mut found = BTreeMap::new();
    for (folder, files) in folders(tree) {
        let circles = circles_among(&folder, &files);
        if !circles.is_empty() {
            found.insert(folder, circles);
        }
    }
    found
}

fn circles_among(folder: &str, files: &[(String, &Source)]) -> Vec<Vec<String>> {
    let names: BTreeSet<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    let given: BTreeMap<String, String> = files
        .iter()
        .filter(|(name, _)| name == "mod")
        .flat_map(|(_, source)| handed_on(&source.code_without_tests()))
        .collect();
    let mut reach: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (name, source) in files.iter().filter(|(name, _)| name != "mod") {
        let code = source.code_without_tests();
        let depth = source.path[CORE.len()..].matches('/').count();
        let out = reach.entry(name).or_default();
        for word in imported(&code, folder, depth) {
            let module = given.get(&word).unwrap_or(&word);
            if let Some(&other) = names.get(module.as_str())
                && other != name
                && other != "mod"
            {
                out.insert(other);
            }
        }
    }
    strongly_connected(&close(&reach))
}

/// Everything that can be reached, from what is named directly.
fn close<'a>(
    direct: &BTreeMap<&'a str, BTreeSet<&'a str>>,
) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    let mut all = direct.clone();
    for _ in 0..direct.len() {
        let before = all.clone();
        for far in all.values_mut() {
            let next = far.iter().filter_map(|name| before.get(name)).flatten();
            let next: Vec<&str> = next.copied().collect();
            far.extend(next);
        }
        if all == before {
            break;
        }
    }
    all
}

fn strongly_connected(reach: &BTreeMap<&str, BTreeSet<&str>>) -> Vec<Vec<String>> {
    let mut circles: BTreeSet<Vec<String>> = BTreeSet::new();
    for (name, far) in reach.iter().filter(|(name, far)| far.contains(**name)) {
        let back = |other: &&&str| reach.get(**other).is_some_and(|back| back.contains(name));
        let circle = far.iter().filter(back).map(ToString::to_string);
        circles.insert(circle.collect());
    }
    circles.into_iter().collect()
}

/// Names that a folder's `mod.rs` hands on, with the module each is from.
fn handed_on(code: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for statement in code.split(';').map(str::trim) {
        let Some(at) = statement.rfind("use ") else {
            continue;
        };
        if let Some((module, names)) = statement[at + 4..].split_once("::") {
            for name in names.split(|c: char| !c.is_alphanumeric() && c != '_') {
                if !name.is_empty() {
                    found.push((name.to_owned(), module.trim().to_owned()));
                }
            }
        }
    }
    found
}

/// First names behind the folder's path in the code of a file so many folders below the crate.
fn imported(code: &str, folder: &str, depth: usize) -> Vec<String> {
    let starts = [format!("crate::{folder}::"), "super::".repeat(depth)];
    let mut found = Vec::new();
    for start in starts.iter().filter(|start| !start.is_empty()) {
        for (at, _) in code.match_indices(start.as_str()) {
            let before = code[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == ':' || c == '_') {
                continue;
            }
            let rest = &code[at + start.len()..];
            match rest.strip_prefix('{') {
                Some(group) => found.extend(crate::layers::heads(group)),
                None => found.push(crate::layers::identifier(rest)),
            }
        }
    }
    found
}

/// Files with an inherent `impl`, by type.
fn spread(tree: &Tree) -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in tree.rust.iter().filter(|source| !source.is_test()) {
        let Some(inside) = source.path.strip_prefix(CORE) else {
            continue;
        };
        for name in implemented(&source.code_without_tests()) {
            found.entry(name).or_default().insert(inside.to_owned());
        }
    }
    found
}

/// Types with an inherent `impl` at the start of a line.
fn implemented(code: &str) -> Vec<String> {
    let heads = code.lines().filter_map(|line| line.strip_prefix("impl"));
    let mut found = Vec::new();
    for head in heads.filter(|head| !head.contains(" for ")) {
        let mut depth = 0_i32;
        let behind = head.char_indices().find(|(_, c)| {
            depth += i32::from(*c == '<') - i32::from(*c == '>');
            depth == 0 && *c == ' '
        });
        if let Some((at, _)) = behind {
            found.push(crate::layers::identifier(&head[at + 1..]));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn core(path: &str, text: &str) -> Source {
        Source::new(&format!("{CORE}{path}"), text)
    }

    #[test]
    fn no_figure_is_above_its_limit() {
        crate::expect_none(&check(&Tree::read(&crate::tree::root())));
    }

    #[test]
    fn blank_lines_and_tests_are_not_counted() {
        let text = "//! A.\n\nfn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n";
        assert_eq!(count(&core("base/a.rs", text)), (7, 3));
        assert_eq!(count(&core("base/a_tests.rs", text)), (7, 0));
    }

    #[test]
    fn a_circle_is_found_through_names_that_the_folder_hands_on() {
        let tree = Tree {
            rust: vec![
                core(
                    "slab/mod.rs",
                    "mod a;\nmod b;\nmod c;\npub use b::{Bee, Boo};\n",
                ),
                core("slab/a.rs", "use super::Bee;\n"),
                core("slab/b.rs", "use crate::slab::c::See;\n"),
                core(
                    "slab/c.rs",
                    "fn f(x: super::a::A) {}\n#[cfg(test)]\nuse super::d::D;\n",
                ),
                core("slab/d.rs", "use super::{a, b::Bee};\n"),
            ],
            ..Tree::default()
        };
        let found = circles(&tree);
        assert_eq!(found["slab"], [["a", "b", "c"]]);
    }

    #[test]
    fn files_with_an_impl_of_a_type_are_counted_and_those_of_a_trait_are_not() {
        let code = "impl<P: Engines<Engine = A>> Slabs<P> {\n}\nimpl Cache {\n}\nimpl Drop for Guard {\n}\n";
        assert_eq!(implemented(code), ["Slabs", "Cache"]);
    }
}
