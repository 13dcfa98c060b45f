//! Programs that are correct and ask for trouble: handlers at a thread's first malloc, filters, limits, ends of threads,
//! libraries that come and go, children that execute programs.

use crate::SCRATCH;
use crate::lifecycle::{says_ok_everywhere, says_ok_everywhere_with};
use flagstone_tests::{LIMIT, compile, compile_with, preloaded, succeed};

#[test]
fn handlers_on_top_of_a_threads_first_malloc_and_of_realloc_do_no_harm() {
    says_ok_everywhere_with("preload/handlers_in_new_threads.c", "3000");
}

#[test]
fn a_program_that_leaves_itself_the_calls_of_a_malloc_and_no_other_lives() {
    let program = compile(SCRATCH, "preload/confined_to_memory.c");
    for arguments in [&[][..], &["used"]] {
        let finished = succeed(preloaded(&program).args(arguments), LIMIT);
        assert_eq!(finished.stdout, "done\n", "{arguments:?}");
    }
}

#[test]
fn destructors_of_threads_may_allocate_however_the_thread_ends() {
    says_ok_everywhere("preload/thread_ends.c");
}

#[test]
fn libraries_with_thread_local_memory_come_and_go() {
    let plugin = compile_with(SCRATCH, "preload/plugin_with_tls.c", &["-shared", "-fPIC"]);
    let arguments = format!("{} 100", plugin.display());
    says_ok_everywhere_with("preload/plugins_with_tls.c", &arguments);
}

#[test]
fn children_that_execute_programs_leave_their_parents_heap_whole() {
    says_ok_everywhere("preload/execs.c");
}

#[test]
fn a_limit_set_on_a_heap_in_use_refuses_growth_and_nothing_else() {
    let program = compile(SCRATCH, "preload/limit_while_live.c");
    for spare in ["24", "64", "400"] {
        let finished = succeed(preloaded(&program).arg(spare), LIMIT);
        assert_eq!(finished.stdout, "ok\n", "{spare} MiB to spare");
    }
}
