//! C and C++ programs on the preload library: semantics, life cycle, fork, signals, misuse.
//!
//! Needs a C and a C++ compiler (`cc`, `c++`); without one the tests say so and pass over.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const LIBRARY: &str = concat!(env!("OUT_DIR"), "/libflagstone.so");

/// A program compiled from `tests/abi`, or `None` where there is no compiler.
fn program(directory: &Path, source: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/abi")
        .join(source);
    let (compiler, standard) = if source.ends_with(".cpp") {
        ("c++", "-std=c++17")
    } else {
        ("cc", "-std=gnu11")
    };
    let target = directory.join(source.replace('.', "-"));
    let mut command = Command::new(compiler);
    command.args([standard, "-O1", "-fno-builtin", "-Wno-all", "-w", "-o"]);
    command.arg(&target).arg(path).args(["-lpthread", "-ldl"]);
    let Ok(output) = command.output() else {
        eprintln!("skipped: no {compiler} here");
        return None;
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{source}: {errors}");
    Some(target)
}

/// Runs a program on the library, in the given variation.
fn on_library(program: &Path, variation: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new("sh");
    let script = format!("{variation} exec env LD_PRELOAD=\"$0\" \"$@\"");
    command.arg("-c").arg(script).arg(LIBRARY).arg(program);
    command.args(arguments).output().expect("sh starts")
}

/// The ways in which every program must run: as it is, without restartable sequences, on one
/// CPU, in little address space.
const VARIATIONS: [&str; 4] = [
    "",
    "GLIBC_TUNABLES=glibc.pthread.rseq=0; export GLIBC_TUNABLES;",
    "ulimit -v 1000000;",
    "GLIBC_TUNABLES=glibc.pthread.rseq=0; export GLIBC_TUNABLES; ulimit -v 1000000;",
];

fn runs_everywhere(source: &str) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let Some(program) = program(directory.path(), source) else {
        return;
    };
    for variation in VARIATIONS {
        let output = on_library(&program, variation, &[]);
        let said = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && said == "ok\n" && errors.is_empty(),
            "{source} with '{variation}': {}\n{said}{errors}",
            output.status
        );
    }
}

#[test]
fn the_c_functions_follow_their_standards() {
    runs_everywhere("semantics.c");
}

#[test]
fn the_operators_follow_the_cxx_standard() {
    runs_everywhere("operators.cpp");
}

#[test]
fn a_program_may_fork_while_its_threads_allocate() {
    runs_everywhere("fork.c");
}

#[test]
fn a_signal_handler_may_allocate() {
    runs_everywhere("signals.c");
}

#[test]
fn threads_may_hand_blocks_on_while_another_trims() {
    runs_everywhere("trim.c");
}

#[test]
fn allocation_works_before_and_after_main_and_at_thread_exit() {
    runs_everywhere("lifecycle.c");
}

#[test]
fn a_wrong_free_ends_the_program_with_one_line() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let Some(program) = program(directory.path(), "misuse.c") else {
        return;
    };
    for (kind, expected) in [
        ("double", "double free"),
        ("double-large", "free"),
        ("double-huge", "invalid free"),
        ("misaligned", "invalid free"),
        ("inside-large", "invalid free"),
        ("inside-huge", "invalid free"),
        ("global", "invalid free"),
        ("stack", "invalid free"),
        ("realloc-global", "invalid free"),
    ] {
        let output = on_library(&program, VARIATIONS[0], &[kind]);
        let line = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            output.status.signal(),
            Some(libc::SIGABRT),
            "{kind}: {} {line}",
            output.status
        );
        assert!(
            line.starts_with("flagstone: ") && line.contains(expected) && line.lines().count() == 1,
            "{kind}: {line}"
        );
    }
}

#[test]
fn an_unknown_option_or_bad_value_is_one_line_and_the_default() {
    for (name, value, expected) in [
        (
            "FLAGSTONE_NONSENSE",
            "1",
            "FLAGSTONE_NONSENSE: unknown setting",
        ),
        ("FLAGSTONE_SHEAF_CAPACITY", "many", "must be a whole number"),
        (
            "FLAGSTONE_POLICY",
            "linux-1.0",
            "unknown policy 'linux-1.0'",
        ),
        ("FLAGSTONE_CONF", "sheaf_capacity", "expected name:value"),
        ("FLAGSTONE_CONF", "frob:1", "unknown setting 'frob'"),
        ("FLAGSTONE_VERBOSE", "yes", "must be 0 or 1"),
    ] {
        let output = Command::new("/bin/echo")
            .arg("hello")
            .env("LD_PRELOAD", LIBRARY)
            .env(name, value)
            .output()
            .expect("echo starts");
        let line = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && output.stdout == b"hello\n",
            "{name}={value}"
        );
        assert!(
            line.contains(expected) && line.lines().count() == 1,
            "{name}={value}: {line}"
        );
    }
}

#[test]
fn good_options_are_taken_without_a_word() {
    let output = Command::new("/bin/echo")
        .arg("hello")
        .env("LD_PRELOAD", LIBRARY)
        .env("FLAGSTONE_POLICY", "linux-7.0")
        .env("FLAGSTONE_CONF", "sheaf_capacity:16,min_partial:3")
        .env("FLAGSTONE_RETAIN_BYTES_MIN", "4M")
        .output()
        .expect("echo starts");
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
