//! One tiny program per misuse: each must end with one fixed line on stderr and SIGABRT, never
//! with a hang, a crash elsewhere or silence.
//!
//! The words expected are those of the C surface's faults; a program passes when its line holds
//! any of the phrases beside it.

use flagstone_tests::{Finished, compile, finish, is_flagstone, other_library, preloaded};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

const NOT_A_BLOCK: &str = "not the start of a block of this allocator";
const DOUBLE: &[&str] = &["double free"];
const NOT_OURS: &[&str] = &[NOT_A_BLOCK];
const INSIDE: &[&str] = &[NOT_A_BLOCK, "the address is misaligned for any block"];
/// The block itself may be gone by the second free, and with it the memory of the first.
const GONE: &[&str] = &[NOT_A_BLOCK, "double free"];
const SIZE: &[&str] = &["size"];

/// Runs the program; nothing where another library is under test.
fn run(source: &str) -> Option<Finished> {
    if !is_flagstone() {
        other_library();
        return None;
    }
    let program = compile(env!("CARGO_TARGET_TMPDIR"), &format!("misuse/{source}.c"));
    Some(finish(&mut preloaded(program), LIMIT))
}

fn dies_with(source: &str, phrases: &[&str]) {
    let Some(finished) = run(source) else { return };
    assert_eq!(
        finished.signal(),
        Some(libc::SIGABRT),
        "{source}: {finished:?}"
    );
    let line = finished.stderr.trim_end();
    assert_eq!(line.lines().count(), 1, "{source}: {line}");
    assert!(line.starts_with("flagstone: "), "{source}: {line}");
    assert!(
        phrases.iter().any(|phrase| line.contains(phrase)),
        "{source}: {line}"
    );
}

#[test]
fn what_a_program_wrote_is_out_before_the_last_look_ends_it() {
    let Some(finished) = run("double_free_of_overwritten") else {
        return;
    };
    assert_eq!(finished.stdout, "written\n");
}

/// Programs with tests of their own, below.
const OTHERS: [&str; 5] = [
    "double_free_matrix",
    "double_free_ways",
    "no_misuse_marks",
    "nothing",
    "write_after_free",
];

/// One test per program, named after what the program does wrong.
macro_rules! misuse {
    ($($name:ident => $phrases:expr;)+) => {
        $(#[test]
        fn $name() {
            dies_with(stringify!($name), $phrases);
        })+

        /// Every program in the folder has its test.
        #[test]
        fn no_misuse_program_is_forgotten() {
            let mut known = OTHERS.to_vec();
            known.extend([$(stringify!($name)),+]);
            let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("misuse");
            let mut found: Vec<String> = std::fs::read_dir(folder)
                .expect("the folder of misuse programs")
                .map(|entry| entry.expect("an entry").path())
                .filter(|path| path.extension().is_some_and(|ending| ending == "c"))
                .map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned())
                .collect();
            known.sort_unstable();
            found.sort_unstable();
            assert_eq!(found, known);
        }
    };
}

misuse! {
    double_free_at_once => DOUBLE;
    // By then its slab may be gone altogether.
    double_free_later => GONE;
    double_free_other_thread => DOUBLE;
    double_free_between => DOUBLE;
    // Noticed when the program ends.
    double_free_of_overwritten => DOUBLE;
    double_free_twenty_later => DOUBLE;
    double_free_large => GONE;
    double_free_huge => GONE;
    double_delete_cpp => DOUBLE;
    realloc_of_freed => DOUBLE;
    realloc_in_place_of_freed => DOUBLE;
    usable_size_of_freed => GONE;
    free_stack => NOT_OURS;
    free_static => NOT_OURS;
    free_foreign_mapping => NOT_OURS;
    free_wild => NOT_OURS;
    free_never_allocated => GONE;
    free_interior => INSIDE;
    free_interior_large => INSIDE;
    free_interior_huge => INSIDE;
    free_misaligned => INSIDE;
    realloc_interior => INSIDE;
    free_sized_wrong => SIZE;
    free_sized_wrong_large => SIZE;
}

fn ended_by_a_double_free(finished: &Finished, said: &str, case: &str) {
    assert_eq!(
        finished.signal(),
        Some(libc::SIGABRT),
        "{case}: {finished:?}"
    );
    assert_eq!(finished.stdout, said, "{case}");
    let line = finished.stderr.trim_end();
    assert_eq!(line.lines().count(), 1, "{case}: {line}");
    assert!(
        GONE.iter().any(|phrase| line.contains(phrase)),
        "{case}: {line}"
    );
}

#[test]
fn a_double_free_is_noticed_at_once_whatever_lies_between_and_is_wanted_after() {
    if !is_flagstone() {
        return other_library();
    }
    let program = compile(env!("CARGO_TARGET_TMPDIR"), "misuse/double_free_matrix.c");
    for size in ["16", "64", "256", "1000", "4096", "20000"] {
        for apart in ["1", "10", "100", "1000", "10000"] {
            for thread in ["0", "1"] {
                for wanted in ["0", "5", "20"] {
                    let arguments = [size, apart, thread, wanted];
                    let finished = finish(preloaded(&program).args(arguments), LIMIT);
                    ended_by_a_double_free(&finished, "", &arguments.join(" "));
                }
            }
        }
    }
}

#[test]
fn without_restartable_sequences_too() {
    if !is_flagstone() {
        return other_library();
    }
    let program = compile(env!("CARGO_TARGET_TMPDIR"), "misuse/double_free_matrix.c");
    for size in ["16", "64", "256", "1000", "4096", "20000"] {
        for apart in ["1", "10", "100", "1000", "10000"] {
            let mut command = preloaded(&program);
            command.env("GLIBC_TUNABLES", "glibc.pthread.rseq=0");
            let finished = finish(command.args([size, apart, "1", "20"]), LIMIT);
            ended_by_a_double_free(&finished, "", &format!("{size} bytes, {apart} apart"));
        }
    }
}

/// How a block may be got, by the name of the function.
const GOT_BY: [&str; 12] = [
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "aligned_alloc",
    "memalign",
    "posix_memalign",
    "valloc",
    "_Znwm",
    "_Znam",
    "_ZnwmRKSt9nothrow_t",
    "_ZnamSt11align_val_t",
];

/// How it may be given back.
const GIVEN_TO: [&str; 12] = [
    "free",
    "cfree",
    "realloc",
    "reallocarray",
    "free_sized",
    "free_aligned_sized",
    "_ZdlPv",
    "_ZdaPv",
    "_ZdlPvm",
    "_ZdaPvm",
    "_ZdlPvRKSt9nothrow_t",
    "_ZdlPvmSt11align_val_t",
];

#[test]
fn a_block_got_and_given_back_in_any_way_is_known_to_be_free() {
    if !is_flagstone() {
        return other_library();
    }
    let program = compile(env!("CARGO_TARGET_TMPDIR"), "misuse/double_free_ways.c");
    let dies = |got: &str, once: &str, again: &str| {
        for size in ["64", "448"] {
            let arguments = [size, got, once, again];
            let finished = finish(preloaded(&program).args(arguments), LIMIT);
            ended_by_a_double_free(&finished, "once\n", &arguments.join(" "));
        }
    };
    // What `valloc` gives is a page and more, which no sized free of less may name.
    for got in GOT_BY {
        dies(got, "free", "free");
        dies(got, "_ZdlPv", "malloc_usable_size");
    }
    for once in GIVEN_TO {
        for again in GIVEN_TO {
            dies("malloc", once, again);
        }
    }
}

#[test]
fn live_blocks_full_of_marks_are_freed_like_any_others() {
    if !is_flagstone() {
        return other_library();
    }
    let program = compile(env!("CARGO_TARGET_TMPDIR"), "misuse/no_misuse_marks.c");
    for (name, value) in [
        ("FLAGSTONE_CHECK", "0"),
        ("FLAGSTONE_CHECK", "1"),
        ("GLIBC_TUNABLES", "glibc.pthread.rseq=0"),
    ] {
        let finished = finish(preloaded(&program).env(name, value), LIMIT);
        assert!(finished.status.success(), "{name}={value}: {finished:?}");
        assert_eq!(finished.stdout, "sound\n", "{name}={value}");
    }
}

#[test]
fn with_checks_a_double_free_is_noticed_at_once_whatever_lies_between() {
    if !is_flagstone() {
        return other_library();
    }
    let program = compile(env!("CARGO_TARGET_TMPDIR"), "misuse/double_free_matrix.c");
    for size in ["16", "100", "1000", "4096", "20000"] {
        for apart in ["1", "2", "10", "100", "1000"] {
            for thread in ["0", "1"] {
                let case = format!("{size} bytes, {apart} apart, thread {thread}");
                let mut command = preloaded(&program);
                command.env("FLAGSTONE_CHECK", "1");
                let finished = finish(command.args([size, apart, thread, "0"]), LIMIT);
                ended_by_a_double_free(&finished, "", &case);
            }
        }
    }
}

#[test]
fn write_after_free_does_no_damage_or_is_named() {
    let Some(finished) = run("write_after_free") else {
        return;
    };
    if finished.status.success() {
        assert_eq!(finished.stdout, "sound\n");
        return;
    }
    assert_eq!(finished.signal(), Some(libc::SIGABRT), "{finished:?}");
    assert!(finished.stderr.starts_with("flagstone: "), "{finished:?}");
    assert_eq!(finished.stderr.lines().count(), 1, "{finished:?}");
}
