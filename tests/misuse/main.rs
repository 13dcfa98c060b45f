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
    let Some(finished) = run("double_free_between") else {
        return;
    };
    assert_eq!(finished.stdout, "written\n");
}

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
            let mut known = vec!["nothing", "write_after_free", "double_free_apart", $(stringify!($name)),+];
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
    // Noticed when the program ends.
    double_free_between => DOUBLE;
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

#[test]
fn with_checks_a_double_free_is_noticed_at_once_whatever_lies_between() {
    if !is_flagstone() {
        return other_library();
    }
    let program = compile(env!("CARGO_TARGET_TMPDIR"), "misuse/double_free_apart.c");
    for size in ["16", "100", "1000", "4096", "20000"] {
        for apart in ["1", "2", "10", "100", "1000"] {
            for thread in ["0", "1"] {
                let case = format!("{size} bytes, {apart} apart, thread {thread}");
                let mut command = preloaded(&program);
                command.env("FLAGSTONE_CHECK", "1");
                let finished = finish(command.args([size, apart, thread]), LIMIT);
                assert_eq!(
                    finished.signal(),
                    Some(libc::SIGABRT),
                    "{case}: {finished:?}"
                );
                assert_eq!(finished.stdout, "", "{case}");
                let line = finished.stderr.trim_end();
                assert!(
                    GONE.iter().any(|phrase| line.contains(phrase)),
                    "{case}: {line}"
                );
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
