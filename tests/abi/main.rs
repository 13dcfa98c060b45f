//! The C and C++ surface: each program checks one part of it against C23, POSIX, C++17 and glibc.

use flagstone_tests::{
    LIMIT, compile, is_flagstone, library, other_library, preloaded, skip, succeed,
};

const SCRATCH: &str = env!("CARGO_TARGET_TMPDIR");

fn holds(source: &str) {
    let program = compile(SCRATCH, source);
    let finished = succeed(&mut preloaded(program), LIMIT);
    if finished.stderr.starts_with("skipped") {
        skip(finished.stderr.trim_start_matches("skipped:").trim());
    }
}

#[test]
fn malloc_calloc_and_free_keep_their_word_on_every_size() {
    holds("abi/sizes.c");
}

#[test]
fn realloc_keeps_the_content_and_a_refused_one_keeps_the_block() {
    holds("abi/realloc.c");
}

#[test]
fn aligned_memory_is_aligned_and_bad_alignments_are_refused_as_documented() {
    holds("abi/alignment.c");
}

#[test]
fn usable_bytes_are_the_callers_own_and_sized_frees_take_them_back() {
    holds("abi/usable.c");
}

#[test]
fn statistics_count_what_is_live_and_have_glibcs_shape() {
    holds("abi/statistics.c");
}

#[test]
fn a_limit_is_never_exceeded_and_the_program_is_asked() {
    holds("abi/limit.c");
}

#[test]
fn every_form_of_new_and_delete_works() {
    holds("abi/operators.cpp");
}

#[test]
fn a_refused_new_calls_the_handler_and_throws() {
    holds("abi/new_handler.cpp");
}

#[test]
fn a_handler_that_throws_passes_through_new_and_is_swallowed_by_nothrow() {
    holds("abi/new_handler_throws.cpp");
}

#[test]
fn the_whole_surface_comes_from_the_library() {
    if !is_flagstone() {
        other_library();
        return;
    }
    let program = compile(SCRATCH, "abi/surface.c");
    succeed(preloaded(program).arg(library()), LIMIT);
}
