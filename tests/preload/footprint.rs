//! What the library costs a program that hardly uses it: resident memory, in KiB as the kernel
//! counts it. No time is measured.
//!
//! Pages of the C library are not counted: how many of them a fault brings along depends on where
//! it happens to lie, by more than what is measured here.

use crate::SCRATCH;
use flagstone_tests::{LIMIT, compile, is_flagstone, preloaded, succeed, without};
use std::process::Command;

/// The bound for a program that allocates nothing: measured are 125 to 145
/// (250 before code was laid out).
const ALONE_KIB: i64 = 190;

/// The bound for the pages of the library itself in a program that allocates a little: measured
/// are 145 to 170, and half a window more is let pass.
const LIBRARY_KIB: i64 = 210;

/// Resident memory of a process, in KiB.
#[derive(Debug)]
struct Resident {
    /// Pages of the library's mappings, its zeroed data excepted.
    library: i64,
    /// Pages of no file, in the library's mappings and outside.
    anonymous: i64,
    /// Those of them that lie in the library's mappings.
    both: i64,
}

impl Resident {
    fn of(mut command: Command) -> Self {
        let finished = succeed(&mut command, LIMIT);
        let mut sum = Self {
            library: 0,
            anonymous: 0,
            both: 0,
        };
        let mut ours = false;
        for line in finished.stdout.lines() {
            let Some((name, rest)) = line.split_once(char::is_whitespace) else {
                continue;
            };
            let kib = || rest.trim().trim_end_matches(" kB").parse::<i64>().unwrap();
            match name {
                "Rss:" if ours => sum.library += kib(),
                "Anonymous:" => {
                    sum.anonymous += kib();
                    sum.both += if ours { kib() } else { 0 };
                }
                name if name.ends_with(':') => {}
                _ => ours = rest.contains("libflagstone"),
            }
        }
        sum
    }
}

#[test]
fn a_program_that_allocates_nothing_pays_little_for_the_library() {
    if !is_flagstone() {
        return;
    }
    let program = compile(SCRATCH, "preload/resident.c");
    let plain = Resident::of(without(&program));
    let with = Resident::of(preloaded(&program));
    assert_eq!(plain.library, 0);
    assert!(plain.anonymous > 0 && with.library > 0, "{with:?}");
    let cost = with.library + with.anonymous - with.both - plain.anonymous;
    assert!(
        cost <= ALONE_KIB,
        "{cost} KiB, at most {ALONE_KIB}: {with:?}"
    );
}

#[test]
fn cold_code_of_the_library_is_not_resident_in_a_small_program() {
    if !is_flagstone() {
        return;
    }
    let mut cat = preloaded("cat");
    cat.arg("/proc/self/smaps");
    let kib = Resident::of(cat).library;
    assert!(kib > 0, "the library is preloaded");
    assert!(
        kib <= LIBRARY_KIB,
        "{kib} KiB of the library, at most {LIBRARY_KIB}"
    );
}
