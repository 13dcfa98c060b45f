//! Programs that confine themselves, or are not what a C library makes of a process: filters, children that share memory,
//! threads that the C library does not know.

use crate::SCRATCH;
use flagstone_tests::{LIMIT, compile, preloaded, succeed};
use std::path::Path;

/// The filter ends the program at any other call, so reaching the end is the test.
#[test]
fn a_program_that_allows_only_the_calls_of_a_malloc_lives() {
    let program = compile(SCRATCH, "preload/confined.c");
    let off = "glibc.pthread.rseq=0";
    for (arguments, tunables) in [
        ("0 prctl", ""),
        ("3 seccomp", ""),
        ("3 prctl used", ""),
        ("3 prctl", off),
        ("3 inherited", ""),
    ] {
        let mut command = preloaded(&program);
        command
            .args(arguments.split(' '))
            .env("GLIBC_TUNABLES", tunables);
        let finished = succeed(&mut command, LIMIT);
        assert_eq!(finished.stdout, "done\n", "{arguments} {tunables}");
    }
}

/// Both with restartable sequences, where who shares a thread's storage matters most, and without.
fn says_ok(program: &Path, arguments: &[&str], runs: usize) {
    for _ in 0..runs {
        for tunables in ["", "glibc.pthread.rseq=0"] {
            let mut command = preloaded(program);
            command.args(arguments).env("GLIBC_TUNABLES", tunables);
            let finished = succeed(&mut command, LIMIT);
            assert_eq!(finished.stdout, "ok\n", "{arguments:?} {tunables}");
            assert_eq!(finished.stderr, "", "{arguments:?} {tunables}");
        }
    }
}

#[test]
fn children_that_share_memory_may_allocate_while_other_threads_do() {
    let program = compile(SCRATCH, "preload/vfork.c");
    for way in ["vfork", "clone"] {
        says_ok(&program, &[way, "100"], 1);
    }
}

#[test]
fn children_made_past_the_c_library_may_exit() {
    let program = compile(SCRATCH, "preload/bare_children.c");
    for way in ["_Fork", "clone"] {
        says_ok(&program, &[way, "200"], 1);
    }
}

#[test]
fn threads_that_the_c_library_does_not_know_may_allocate() {
    says_ok(&compile(SCRATCH, "preload/bare_threads.c"), &[], 4);
}

#[test]
fn threads_may_register_areas_of_restartable_sequences_of_their_own() {
    says_ok(&compile(SCRATCH, "preload/own_rseq.c"), &[], 4);
}

/// At any time four threads hold twenty blocks of 4 KB at most; the rest is the C library's. Sheaves lost on their
/// way made it 550 to 640 KB.
#[test]
fn a_child_forked_while_stores_are_emptied_loses_nothing() {
    let program = compile(SCRATCH, "preload/fork_while_trimming.c");
    let finished = succeed(preloaded(program).arg("1000"), LIMIT);
    let most: usize = finished.stdout.trim().parse().expect("bytes");
    assert!(
        most <= 400_000,
        "{most} bytes are in use in a child that has none"
    );
}

#[test]
fn threads_may_be_moved_between_cpus_while_they_allocate() {
    says_ok(&compile(SCRATCH, "preload/affinity.c"), &[], 1);
}
