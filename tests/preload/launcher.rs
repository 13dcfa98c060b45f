//! `flagstone run`: what it passes through, and what it must refuse in one line.

use crate::SCRATCH;
use flagstone_tests::{
    Finished, LIMIT, build_program, compile, compile_with, finish, is_flagstone, library,
    other_library, without,
};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Runs `flagstone run -- words`; with another library than Flagstone there is nothing to test.
fn launch(words: &[&str]) -> Option<Finished> {
    if !is_flagstone() {
        other_library();
        return None;
    }
    let mut command = without(build_program());
    command
        .env("FLAGSTONE_LIB", library())
        .args(["run", "--"])
        .args(words);
    Some(finish(&mut command, LIMIT))
}

fn refused(finished: &Finished, code: i32) {
    assert_eq!(finished.status.code(), Some(code), "{finished:?}");
    assert_eq!(finished.stderr.lines().count(), 1, "{finished:?}");
    assert!(finished.stderr.starts_with("flagstone: "), "{finished:?}");
    assert!(finished.stdout.is_empty(), "{finished:?}");
}

#[test]
fn stdout_and_the_exit_status_are_the_commands_own() {
    let Some(finished) = launch(&["sh", "-c", "echo out; exit 37"]) else {
        return;
    };
    assert_eq!(
        (finished.stdout.as_str(), finished.status.code()),
        ("out\n", Some(37))
    );
    assert!(!finished.stderr.is_empty(), "the report is on stderr");
}

#[test]
fn a_program_that_is_not_there_is_127() {
    let Some(finished) = launch(&["/nowhere/program"]) else {
        return;
    };
    refused(&finished, 127);
}

#[test]
fn a_static_program_is_refused_because_nothing_can_be_preloaded_into_it() {
    let program = compile_with(SCRATCH, "misuse/nothing.c", &["-static"]);
    let Some(finished) = launch(&[program.to_str().expect("a plain path")]) else {
        return;
    };
    refused(&finished, 2);
    assert!(finished.stderr.contains("static"), "{finished:?}");
}

#[test]
fn a_setuid_program_is_refused_because_the_loader_would_ignore_the_preload() {
    let built = compile(SCRATCH, "misuse/nothing.c");
    let program = Path::new(SCRATCH).join(format!("setuid-{}", std::process::id()));
    std::fs::copy(built, &program).expect("a copy");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).expect("the bit");
    let Some(finished) = launch(&[program.to_str().expect("a plain path")]) else {
        return;
    };
    refused(&finished, 2);
    assert!(
        finished.stderr.contains("set-user") || finished.stderr.contains("setuid"),
        "{finished:?}"
    );
}

/// The engines of old kernels: a handler on top of the list's holder left SLAB a slab that frees then linked twice.
#[test]
fn handlers_on_slow_paths_get_blocks_under_the_engines_of_kernels_too() {
    if !is_flagstone() {
        return;
    }
    let program = compile(SCRATCH, "preload/handlers_on_slow_paths.c");
    for policy in [
        "slab-2.6.24",
        "linux-2.6.24",
        "linux-6.5",
        "linux-6.18",
        "linux-7.0",
    ] {
        let mut command = without(build_program());
        command
            .args(["run", "--quiet", "--policy", policy, "--"])
            .arg(&program)
            .arg("1000");
        let finished = finish(&mut command, LIMIT);
        assert!(finished.status.success(), "{policy}: {finished:?}");
    }
}
