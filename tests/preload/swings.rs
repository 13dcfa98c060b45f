//! A heap that fills and empties: what stays resident when a swing ends, whatever the program does
//! next. KiB and page faults are counted; no time is measured.

use crate::SCRATCH;
use flagstone_tests::{LIMIT, compile, is_flagstone, preloaded, succeed};

/// What may stay of a swing, in KiB: the budget of 10 MiB, and what a page map, small pagesets and
/// slabs in part come to.
const LEFT_KIB: i64 = 12 << 10;

/// A swing of more than 40 MB may leave its descriptors and partial slabs besides.
const LEFT_OF_WIDE_KIB: i64 = 15 << 10;

/// What may stay where frees come in a random order: the budget, and as much in slabs that cached objects hold.
const LEFT_OF_SHUFFLED_KIB: i64 = 20 << 10;

/// A bound in KiB, with one page of 2 MiB where the system gives those to everybody: what nobody touched of it is resident too.
fn with_huge_page(bound: i64) -> i64 {
    let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    let always = setting.is_ok_and(|setting| setting.contains("[always]"));
    bound + if always { 2 << 10 } else { 0 }
}

/// Page faults of six swings, KiB left after each, and KiB left at last.
fn swings(kib: u32, count: u32, block: u32, then: &str) -> (i64, Vec<i64>) {
    swings_in_order(kib, count, block, &[then])
}

fn swings_in_order(kib: u32, count: u32, block: u32, then: &[&str]) -> (i64, Vec<i64>) {
    let program = compile(SCRATCH, "preload/swings.c");
    let mut command = preloaded(&program);
    command
        .args([&kib, &count, &block].map(u32::to_string))
        .args(then);
    let finished = succeed(&mut command, LIMIT);
    let mut figures = finished
        .stdout
        .split_whitespace()
        .map(|word| word.parse::<i64>().expect("a figure"));
    let faults = figures.next().expect("the faults");
    (faults, figures.collect())
}

#[test]
fn a_program_that_swung_is_near_its_start_where_the_swing_ends_whatever_it_does_next() {
    if !is_flagstone() {
        return;
    }
    for then in ["sit", "small", "huge", "many"] {
        for block in [0, 64, 4096, 100_000] {
            let (_, left) = swings(40_000, 6, block, then);
            let most = left.iter().max().expect("figures");
            assert!(
                *most <= with_huge_page(LEFT_KIB),
                "blocks of {block}, then {then}: {left:?}"
            );
        }
    }
}

/// Free objects that lie in sheaves and barns hold whole slabs then, which hides the fall from who counts pages.
#[test]
fn blocks_freed_in_a_random_order_leave_little_too() {
    if !is_flagstone() {
        return;
    }
    for block in [0, 1, 64, 1500] {
        let (_, left) = swings_in_order(60_000, 6, block, &["sit", "shuffled"]);
        let last = *left.last().expect("figures");
        assert!(
            last <= with_huge_page(LEFT_OF_SHUFFLED_KIB),
            "blocks of {block}, shuffled: {left:?}"
        );
    }
}

#[test]
fn wider_swings_leave_little_more() {
    if !is_flagstone() {
        return;
    }
    for kib in [38 << 10, 61 << 10, 114 << 10] {
        for block in [0, 64] {
            let (_, left) = swings(kib, 8, block, "sit");
            let most = left.iter().max().expect("figures");
            assert!(
                *most <= with_huge_page(LEFT_OF_WIDE_KIB),
                "{kib} KiB of {block}: {left:?}"
            );
        }
    }
}

/// Giving back costs some hundred thousand faults and its share of the time, then it stops: without that bound
/// these swings take 1,080,000.
#[test]
fn a_program_that_goes_on_swinging_pays_for_some_swings_and_then_keeps_one() {
    if !is_flagstone() {
        return;
    }
    let kib = 114 << 10;
    let (faults, left) = swings(kib, 40, 4096, "sit");
    assert!(faults < 700_000, "{faults} faults of 40 swings");
    let most = *left.iter().max().expect("figures");
    assert!(most < i64::from(kib) * 5 / 4 + LEFT_KIB, "{left:?}");
}

#[test]
fn a_swing_within_the_budget_costs_no_faults() {
    if !is_flagstone() {
        return;
    }
    // 1500 pages each time, but for the first and for a fall that is followed once in a while.
    let (faults, _) = swings(6000, 60, 4096, "sit");
    assert!(faults < 20 * 1500, "{faults} faults of 60 swings");
}
