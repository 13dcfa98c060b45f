//! What the library costs a program that hardly uses it: resident memory, in KiB as the kernel
//! counts it. No time is measured.

use crate::SCRATCH;
use flagstone_tests::{LIMIT, compile, is_flagstone, preloaded, succeed, without};
use std::process::Command;

/// The design's bound for a program that allocates nothing, over the C library alone: measured
/// are 160 to 210, as the kernel happens to place libraries.
const OVER_GLIBC_KIB: i64 = 300;

/// The bound for the pages of the library itself in a program that allocates a little: measured
/// are 150 to 170, and half a window more is let pass.
const LIBRARY_KIB: i64 = 210;

/// The `Rss:` lines of a `smaps` or `smaps_rollup`, summed.
fn resident_kib<'t>(lines: impl Iterator<Item = &'t str>) -> i64 {
    let fields = lines.filter_map(|line| line.strip_prefix("Rss:"));
    let kib = fields.map(|field| field.trim().trim_end_matches(" kB").parse::<i64>());
    kib.map(|kib| kib.expect("a number of KiB")).sum()
}

/// The median of some runs: where libraries lie, and so which of their pages a fault brings along,
/// differs from run to run.
fn median_resident_kib(mut command: impl FnMut() -> Command) -> i64 {
    let mut sizes: Vec<i64> = (0..9)
        .map(|_| resident_kib(succeed(&mut command(), LIMIT).stdout.lines()))
        .collect();
    sizes.sort_unstable();
    sizes[sizes.len() / 2]
}

#[test]
fn a_program_that_allocates_nothing_pays_little_for_the_library() {
    if !is_flagstone() {
        return;
    }
    let program = compile(SCRATCH, "preload/resident.c");
    let plain = median_resident_kib(|| without(&program));
    let with = median_resident_kib(|| preloaded(&program));
    assert!(plain > 0, "the kernel counts something");
    assert!(
        with - plain <= OVER_GLIBC_KIB,
        "{} KiB over the C library's {plain}, at most {OVER_GLIBC_KIB}",
        with - plain
    );
}

#[test]
fn cold_code_of_the_library_is_not_resident_in_a_small_program() {
    if !is_flagstone() {
        return;
    }
    let finished = succeed(preloaded("cat").arg("/proc/self/smaps"), LIMIT);
    let mut ours = false;
    let of_library = finished.stdout.lines().filter(|line| {
        let is_header = line.split_once(' ').is_some_and(|(range, _)| {
            range
                .split_once('-')
                .is_some_and(|(start, _)| u64::from_str_radix(start, 16).is_ok())
        });
        if is_header {
            ours = line.contains("libflagstone");
        }
        ours
    });
    let kib = resident_kib(of_library);
    assert!(kib > 0, "the library is preloaded");
    assert!(
        kib <= LIBRARY_KIB,
        "{kib} KiB of the library, at most {LIBRARY_KIB}"
    );
}
