//! Start, end, threads, forks and signals.

use crate::SCRATCH;
use flagstone_tests::{
    LIMIT, compile, compile_with, finish, is_flagstone, other_library, preloaded, skip, succeed,
};

#[test]
fn memory_works_before_main_after_main_in_plugins_and_at_thread_exit() {
    let plugin = compile_with(SCRATCH, "preload/plugin.c", &["-shared", "-fPIC"]);
    let program = compile(SCRATCH, "preload/lifecycle.c");
    let finished = succeed(preloaded(program).arg(plugin), LIMIT);
    assert_eq!(finished.stdout, "done\n");
}

#[test]
fn two_thousand_forks_from_eight_allocating_threads_leave_working_children() {
    let program = compile(SCRATCH, "preload/fork_from_threads.c");
    let finished = succeed(preloaded(program).arg("2000"), LIMIT);
    assert_eq!(finished.stdout, "2000 forks\n");
}

#[test]
fn forks_do_not_hang_while_streams_are_read_and_flushed() {
    let program = compile(SCRATCH, "preload/fork_while_streams_flush.c");
    let finished = succeed(preloaded(program).arg("1000"), LIMIT);
    assert_eq!(finished.stdout, "1000 forks\n");
}

#[test]
fn fork_handlers_registered_before_the_library_was_initialised_may_allocate() {
    let early = compile_with(SCRATCH, "preload/early_handlers.c", &["-shared", "-fPIC"]);
    let early = early.to_str().expect("a path of text");
    let program = compile_with(
        SCRATCH,
        "preload/early_forks.c",
        &["-Wl,--no-as-needed", early],
    );
    let finished = succeed(&mut preloaded(program), LIMIT);
    assert_eq!(finished.stdout, "50 forks\n");
}

#[test]
fn a_signal_handler_that_allocates_does_not_disturb_the_code_it_interrupts() {
    let program = compile(SCRATCH, "preload/signal_handler.c");
    let finished = succeed(preloaded(program).arg("5000"), LIMIT);
    assert_eq!(finished.stdout, "done\n");
}

/// Also without restartable sequences and in little address space: each has its own slow paths.
pub(crate) fn says_ok_everywhere(source: &str) {
    says_ok_everywhere_with(source, "");
}

pub(crate) fn says_ok_everywhere_with(source: &str, arguments: &str) {
    let program = compile(SCRATCH, source);
    for tunables in ["", "glibc.pthread.rseq=0"] {
        for limit in ["", "ulimit -v 1000000;"] {
            let mut command = preloaded("sh");
            let script = format!("{limit} exec {} {arguments}", program.display());
            command
                .arg("-c")
                .arg(script)
                .env("GLIBC_TUNABLES", tunables);
            let finished = succeed(&mut command, LIMIT);
            assert_eq!(finished.stdout, "ok\n", "{source} {tunables} {limit}");
            assert_eq!(finished.stderr, "", "{source} {tunables} {limit}");
        }
    }
}

#[test]
fn signal_handlers_that_allocate_do_not_disturb_threads() {
    says_ok_everywhere("preload/signals.c");
}

#[test]
fn signal_handlers_on_top_of_slow_paths_neither_hang_nor_go_without_memory() {
    says_ok_everywhere("preload/handlers_on_slow_paths.c");
}

#[test]
fn forks_in_signal_handlers_leave_the_code_below_its_locks_in_both_processes() {
    says_ok_everywhere_with("preload/fork_in_handlers.c", "100");
}

#[test]
fn threads_that_fork_in_handlers_on_top_of_what_others_want_do_not_hang() {
    let program = compile(SCRATCH, "preload/fork_in_handlers.c");
    let finished = succeed(preloaded(program).args(["100", "together"]), LIMIT);
    assert_eq!(finished.stdout, "ok\n");
    assert_eq!(finished.stderr, "");
}

#[test]
fn threads_may_hand_blocks_on_while_another_trims() {
    says_ok_everywhere("preload/trim.c");
}

/// At each instruction until the thread that builds the heap has named itself, and at some later ones.
#[test]
fn a_signal_during_start_up_does_not_wait_for_ever() {
    if !is_flagstone() {
        return other_library();
    }
    let program = compile(SCRATCH, "preload/signal_at_start.c");
    for range in [["0", "1000", "1"], ["1000", "20000", "997"]] {
        let finished = finish(preloaded(&program).args(range), LIMIT);
        if finished.status.code() == Some(77) {
            return skip("no process may be traced here");
        }
        assert_eq!(finished.stdout, "ok\n", "{range:?}");
    }
}

#[test]
fn plugins_that_bind_to_their_own_libraries_first_share_the_heap() {
    let plugin = compile_with(SCRATCH, "preload/deepbind_plugin.c", &["-shared", "-fPIC"]);
    let folder = plugin.parent().expect("a folder").display();
    let name = plugin.file_name().expect("a name");
    let run_path = format!("-Wl,--enable-new-dtags,-rpath,{folder}");
    let program = compile_with(SCRATCH, "preload/deepbind.c", &[&run_path]);
    let finished = succeed(preloaded(program).arg(name), LIMIT);
    assert_eq!(finished.stdout, "done\n");
}

#[test]
fn huge_blocks_freed_and_wanted_again_are_not_faulted_in_anew() {
    let program = compile(SCRATCH, "preload/huge_loop.c");
    let finished = succeed(&mut preloaded(program), LIMIT);
    let faults: i64 = finished.stdout.trim().parse().expect("a count");
    // Ninety rounds of 2048 pages; a second of a busy machine may pass and give one back.
    assert!(faults < 20 * 2048, "{faults} faults");
}

#[test]
fn a_threaded_cpp_program_with_sized_deletes_runs() {
    let program = compile_with(
        SCRATCH,
        "preload/threads.cpp",
        &["-pthread", "-fsized-deallocation"],
    );
    let finished = succeed(&mut preloaded(program), LIMIT);
    assert!(
        finished
            .stdout
            .trim()
            .parse::<i64>()
            .is_ok_and(|sum| sum > 0),
        "{finished:?}"
    );
}
