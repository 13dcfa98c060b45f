//! Heap profiles of programs that do their worst: nothing hangs, nothing breaks, and a file is left.

use crate::SCRATCH;
use flagstone_tests::{
    LIMIT, compile_with, is_flagstone, library, need, other_library, preloaded, succeed, without,
};
use std::process::Command;

fn profiled(mut command: Command, folder: &tempfile::TempDir, interval: &str) -> Command {
    command
        .env("FLAGSTONE_PROFILE", folder.path().join("raw"))
        .env("FLAGSTONE_PROFILE_INTERVAL", interval);
    command
}

/// The words of a raw profile's head.
fn head(folder: &tempfile::TempDir) -> Vec<u64> {
    let bytes = std::fs::read(folder.path().join("raw")).expect("a profile was left");
    let words = bytes[..192].chunks(8);
    words
        .map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes")))
        .collect()
}

const SAMPLES: usize = 6;
const ALLOCATED: usize = 10;
const LIVE: usize = 11;

/// libbcc, and so bpftrace, computes a semaphore's place in the file from the section `.probes` and no other.
#[test]
fn semaphores_of_the_static_probes_lie_where_tracers_look() {
    if !is_flagstone() {
        return other_library();
    }
    let Some(readelf) = need("readelf", "binutils") else {
        return;
    };
    let shown = |what: &str| succeed(without(&readelf).arg(what).arg(library()), LIMIT).stdout;
    let hex = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).expect("hex");
    let sections = shown("-SW");
    let line = sections.lines().find(|line| line.contains(" .probes "));
    let words: Vec<&str> = line.expect("the section").split_whitespace().collect();
    let at = words
        .iter()
        .position(|word| *word == ".probes")
        .expect("it")
        + 2;
    let (start, bytes) = (hex(words[at]), hex(words[at + 2]));
    let notes = shown("-n");
    let semaphores: Vec<u64> = notes
        .lines()
        .filter_map(|line| line.split_once("Semaphore: "))
        .map(|(_, address)| hex(address.trim()))
        .collect();
    assert!(semaphores.len() >= 2, "{notes}");
    for semaphore in semaphores {
        assert!(
            (start..start + bytes).contains(&semaphore),
            "{semaphore:#x} {sections}"
        );
    }
}

/// A sample at every other allocation, threads, a handler that allocates, a library that comes and goes, and ten
/// thousand forks.
#[test]
fn forks_signals_and_loading_go_on_while_a_profile_is_taken() {
    if !is_flagstone() {
        return other_library();
    }
    let program = compile_with(SCRATCH, "preload/profile_storm.c", &["-pthread", "-O2"]);
    let plugin = compile_with(
        SCRATCH,
        "preload/profile_plugin.c",
        &["-shared", "-fPIC", "-O2"],
    );
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = profiled(preloaded(&program), &folder, "4K");
    let done = succeed(command.arg(&plugin).arg("10000"), LIMIT);
    assert_eq!((&*done.stdout, &*done.stderr), ("done\n", ""));
    assert!(head(&folder)[SAMPLES] > 10_000);
    let children = std::fs::read_dir(folder.path()).expect("there").count();
    assert!(
        children > 100,
        "children with samples of their own leave a profile: {children}"
    );
}

/// What a sampled block is to the functions that take one.
#[test]
fn sampled_blocks_keep_every_promise() {
    if !is_flagstone() {
        return other_library();
    }
    let program = compile_with(SCRATCH, "preload/profile_promises.c", &["-O1"]);
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = profiled(preloaded(&program), &folder, "4K");
    let done = succeed(&mut command, LIMIT);
    assert_eq!((&*done.stdout, &*done.stderr), ("done\n", ""));
    assert!(head(&folder)[SAMPLES] > 1000);
}

/// 64 MiB in samples of 16 KiB are known within 1.6 % (one standard deviation).
#[test]
fn every_way_to_ask_is_counted_once_and_every_free_is_found() {
    if !is_flagstone() {
        return other_library();
    }
    let program = compile_with(SCRATCH, "preload/profile_counts.c", &["-O1"]);
    for way in ["malloc", "calloc", "realloc"] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = profiled(preloaded(&program), &folder, "16K");
        succeed(command.arg(way), LIMIT);
        let head = head(&folder);
        let of_all = head[ALLOCATED] as f64 / f64::from(64 << 20);
        assert!(
            (0.9..1.1).contains(&of_all),
            "{way}: {of_all} of what it took"
        );
        let live = head[LIVE];
        assert!(live < 1 << 20, "{way}: {live} bytes are still live");
    }
}
