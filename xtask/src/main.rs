//! The project's own rules as a program: `cargo xtask <check>`.
//!
//! ```text
//!   layers    imports go downwards, in the core and between crates
//!   tidy      lengths, unsafe files, leftovers, titles, links, invariant names
//!   options   docs/options.md says what the code says (`options --write` writes it)
//!   shape     the core's lines, circles of imports and spread of types, each with its limit
//!   deny      cargo-deny: licences, sources and advisories of the dependencies
//!   check     all of them
//!   install   libraries, headers and the command, for others to build against
//!   deb       Debian packages of what is installed, with man pages and completions
//!   wheel     the Python package, with the command and the library inside
//!   man       man pages and shell completions, for packagers
//!   portable  not among them: builds and runs for musl and aarch64, as far as the tools are there
//! ```
//!
//! The same checks are ordinary tests of this package, so that `cargo test --workspace` runs
//! them too. Exit status: 0 nothing found, 1 findings, 2 usage.

mod deb;
mod deny;
mod documents;
mod install;
mod invariants;
mod layers;
mod links;
mod man;
mod options;
mod portable;
mod programs;
mod shape;
mod source;
mod tidy;
mod tree;
mod unsafe_files;
mod wheel;

use std::path::Path;
use std::process::ExitCode;
#[cfg(test)]
use tree::Finding;
use tree::Tree;

const USAGE: &str = "usage: cargo xtask layers | tidy | options [--write] | shape | deny | check | man DIR | portable | install ... | deb ... | wheel ...";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let root = tree::root();
    if words == ["options", "--write"] {
        return write_options(&root);
    }
    if words == ["portable"] {
        return portable(&root);
    }
    if let ["install", words @ ..] = &words[..] {
        return install(&root, words);
    }
    if let ["deb", words @ ..] = &words[..] {
        return outcome("deb", deb::run(&root, words));
    }
    if let ["wheel", words @ ..] = &words[..] {
        return outcome("wheel", wheel::run(&root, words));
    }
    if let ["man", to] = words[..] {
        return outcome("man", man::write(&root, Path::new(to)));
    }
    let tree = Tree::read(&root);
    let findings = match words[..] {
        ["layers"] => layers::check(&tree),
        ["tidy"] => tidy::check(&tree),
        ["options"] => options::check(&tree),
        ["deny"] => deny::check(&tree),
        ["shape"] => {
            print!("{}", shape::report(&tree));
            shape::check(&tree)
        }
        ["check"] => {
            let checks = [
                layers::check,
                tidy::check,
                options::check,
                shape::check,
                deny::check,
            ];
            checks.iter().flat_map(|check| check(&tree)).collect()
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    for finding in &findings {
        println!("{finding}");
    }
    ExitCode::from(u8::from(!findings.is_empty()))
}

fn write_options(root: &Path) -> ExitCode {
    match std::fs::write(root.join(options::PATH), options::document()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error}", options::PATH);
            ExitCode::from(2)
        }
    }
}

fn install(root: &Path, words: &[&str]) -> ExitCode {
    outcome("install", install::run(root, words))
}

fn outcome(name: &str, result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(line) => {
            eprintln!("{name}: {line}");
            ExitCode::from(2)
        }
    }
}

fn portable(root: &Path) -> ExitCode {
    let failures = portable::check(root);
    for failure in &failures {
        println!("{failure}");
    }
    ExitCode::from(u8::from(!failures.is_empty()))
}

/// Fails with every finding, one a line.
#[cfg(test)]
fn expect_none(findings: &[Finding]) {
    let lines: Vec<String> = findings.iter().map(Finding::to_string).collect();
    assert!(lines.is_empty(), "\n{}", lines.join("\n"));
}
