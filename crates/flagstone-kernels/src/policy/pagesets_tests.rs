use super::*;
use core::ops::{Deref, DerefMut};
use std::vec::Vec;

const BIG: PcpMarks = PcpMarks {
    batch: 63,
    high_min: 5898,
    high_max: 61_440,
};
const SMALL: PcpMarks = PcpMarks {
    batch: 63,
    high_min: 252,
    high_max: 491,
};
const FIXED: PcpMarks = PcpMarks {
    batch: 63,
    high_min: 5898,
    high_max: 5898,
};
const ONE: Order = Order::ZERO;

fn order(order: u32) -> Order {
    Order::new(order).unwrap()
}

/// A pageset's state and the rules on it.
struct Pcp(PcpState);

impl Deref for Pcp {
    type Target = PcpState;

    fn deref(&self) -> &PcpState {
        &self.0
    }
}

impl DerefMut for Pcp {
    fn deref_mut(&mut self) -> &mut PcpState {
        &mut self.0
    }
}

impl Pcp {
    fn new(version: PcpVersion, marks: PcpMarks, scale_max: u8) -> Self {
        let mut state = PcpState::new(version.rule().id, scale_max);
        KernelPages::set_marks(&mut state, marks);
        Self(state)
    }

    fn on_alloc(&mut self, order: Order, count: u32, empty: bool, zone: ZoneFlags) -> u32 {
        KernelPages::on_alloc(&mut self.0, order, count, empty, zone)
    }

    fn on_free(&mut self, order: Order, count: u32, zone: ZoneFlags) -> Option<u32> {
        KernelPages::on_free(&mut self.0, order, count, zone)
    }

    fn decay(&mut self, count: u32) -> Option<u32> {
        KernelPages::decay(&mut self.0, count)
    }
}

fn state(rule: PcpVersion, marks: PcpMarks) -> Pcp {
    Pcp::new(rule, marks, rule.default_scale_max())
}

/// Allocates single pages until `refills` refills happened: (pages fetched, high after).
fn alloc_only(mut pcp: Pcp, refills: usize) -> Vec<(u32, u32)> {
    let mut count = 0;
    let mut seen = Vec::new();
    while seen.len() < refills {
        let fetched = pcp.on_alloc(ONE, count, count == 0, ZoneFlags::NONE);
        if count == 0 {
            assert!(fetched > 0, "an empty list must be refilled");
            seen.push((fetched, pcp.high));
        }
        count = count + fetched - 1;
    }
    seen
}

/// Frees single pages until `drains` drains happened: (number of the free, pages drained, high).
fn free_only(mut pcp: Pcp, drains: usize) -> Vec<(u32, u32, u32)> {
    let mut count = 0;
    let mut seen = Vec::new();
    for free in 1..1_000_000 {
        count += 1;
        if let Some(drained) = pcp.on_free(ONE, count, ZoneFlags::NONE) {
            count -= drained;
            seen.push((free, drained, pcp.high));
            if seen.len() == drains {
                break;
            }
        }
    }
    seen
}

#[test]
fn refills_of_6_7_double_and_raise_high() {
    let expected = [
        (63, 5961),
        (126, 6087),
        (252, 6339),
        (504, 6843),
        (1008, 7851),
        (2016, 9867),
        (2016, 11_883),
        (2016, 13_899),
    ];
    assert_eq!(alloc_only(state(PcpVersion::V6_7, BIG), 8), expected);
}

#[test]
fn drains_of_6_7_take_what_was_freed_in_a_row() {
    let drains = free_only(state(PcpVersion::V6_7, BIG), 3);
    let what: Vec<_> = drains.iter().map(|d| (d.0, d.1)).collect();
    assert_eq!(
        what,
        [(5898, 2016), (5898 + 2016, 2016), (5898 + 4032, 2016)]
    );
}

#[test]
fn a_small_zone_follows_its_own_limits() {
    let drains = free_only(state(PcpVersion::V6_7, SMALL), 4);
    assert_eq!(drains[..2], [(252, 189, 315), (504, 252, 491)]);
    assert_eq!((drains[2].0, drains[2].1), (932, 428));
    assert_eq!((drains[3].0, drains[3].1), (932 + 428, 428));
    let refills = alloc_only(state(PcpVersion::V6_7, SMALL), 5);
    assert_eq!(
        refills,
        [(63, 315), (126, 441), (252, 491), (428, 491), (428, 491)]
    );
}

#[test]
fn drains_before_the_series_double_without_a_cap() {
    let got: Vec<_> = free_only(state(V6_1, FIXED), 9)
        .iter()
        .map(|d| (d.0, d.1))
        .collect();
    let expected = [
        (5898, 63),
        (5961, 126),
        (6087, 252),
        (6339, 504),
        (6843, 1008),
        (7851, 2016),
        (9867, 4032),
        (13_899, 5835),
        (19_734, 5835),
    ];
    assert_eq!(got, expected);
}

#[test]
fn the_fourth_patch_caps_the_doubling() {
    let got: Vec<_> = free_only(state(Series4, FIXED), 8)
        .iter()
        .map(|d| d.1)
        .collect();
    assert_eq!(got, [63, 126, 252, 504, 1008, 2016, 2016, 2016]);
    let stable = Pcp::new(V6_1, FIXED, 5);
    let got: Vec<_> = free_only(stable, 8).iter().map(|d| d.1).collect();
    assert_eq!(got, [63, 126, 252, 504, 1008, 2016, 2016, 2016]);
}

#[test]
fn a_refill_of_larger_blocks_is_scaled_by_order() {
    let mut pcp = state(V6_1, FIXED);
    let got = [0, 1, 2, 3].map(|o| pcp.on_alloc(order(o), 0, true, ZoneFlags::NONE));
    assert_eq!(got, [63, 31, 15, 7]);
    assert_eq!(pcp.on_alloc(order(9), 0, true, ZoneFlags::NONE), 2);
}

#[test]
fn high_grows_by_one_batch_for_a_refill_of_larger_blocks() {
    let mut pcp = state(PcpVersion::V6_7, BIG);
    assert_eq!(pcp.on_alloc(order(2), 0, true, ZoneFlags::NONE), 15);
    assert_eq!((pcp.high, pcp.alloc_factor), (5961, 0));
}

#[test]
fn refills_do_not_double_before_the_fifth_patch_and_do_from_it_on() {
    let fetched = |rule| {
        alloc_only(state(rule, FIXED), 4)
            .iter()
            .map(|r| r.0)
            .collect::<Vec<_>>()
    };
    assert_eq!(fetched(Series4), [63; 4]);
    assert_eq!(fetched(Series5), [63, 126, 252, 504]);
    assert_eq!(fetched(Series6), [63, 126, 252, 504]);
}

#[test]
fn high_moves_only_from_the_seventh_patch_on() {
    let high = |rule| alloc_only(state(rule, BIG), 3).last().unwrap().1;
    assert_eq!(high(Series6), 5898);
    assert_eq!(high(Series7), 6339);
}

#[test]
fn a_zone_below_its_high_mark_shrinks_the_pageset_from_the_eighth_patch_on() {
    let run = |rule| {
        let mut pcp = state(rule, BIG);
        let mut count = 0;
        for _ in 0..20_000 {
            let fetched = pcp.on_alloc(ONE, count, count == 0, ZoneFlags::NONE);
            count = count + fetched - 1;
        }
        let grown = pcp.high;
        let drained = pcp.on_free(ONE, count + 1, ZoneFlags::BELOW_HIGH);
        (grown, pcp.high, drained)
    };
    let (grown, shrunk, drained) = run(PcpVersion::V6_7);
    assert_eq!((shrunk, drained), (grown - 63, None));
    let (grown, kept, _) = run(Series7);
    assert_eq!(kept, grown, "patch 7 does not look at the flag");

    let mut pcp = state(PcpVersion::V6_7, BIG);
    assert_eq!(pcp.on_alloc(ONE, 0, true, ZoneFlags::BELOW_HIGH), 63);
    assert_eq!(pcp.high, 5898, "and it does not grow while the flag is set");
}

#[test]
fn reclaim_limits_what_is_kept_to_four_batches() {
    for rule in [V6_1, PcpVersion::V6_7] {
        let mut pcp = state(rule, BIG);
        assert_eq!(
            pcp.on_free(ONE, 251, ZoneFlags::RECLAIM_ACTIVE),
            None,
            "{rule:?}"
        );
        assert!(
            pcp.on_free(ONE, 252, ZoneFlags::RECLAIM_ACTIVE).is_some(),
            "{rule:?}"
        );
    }
}

#[test]
fn an_order_one_free_drains_everything_before_the_first_patch() {
    let run = |rule| {
        let mut pcp = state(rule, FIXED);
        pcp.free_factor = 1;
        pcp.on_free(order(1), 1000, ZoneFlags::NONE)
    };
    assert_eq!(run(V6_1), Some(1000));
    assert_eq!(run(Series1), None, "the free before it was not high-order");
}

#[test]
fn the_third_patch_waits_for_a_batch_where_the_cache_slice_is_large() {
    let run = |slice: u64| {
        let mut pcp = state(Series3, FIXED);
        pcp.free_factor = 2;
        pcp.set_cache_slice(slice, 12);
        pcp.on_free(order(1), 2, ZoneFlags::NONE);
        pcp.on_free(order(1), 4, ZoneFlags::NONE)
    };
    assert_eq!(
        run(256 << 10),
        Some(4),
        "64 pages of cache are not more than three batches"
    );
    assert_eq!(run(16 << 20), None);
}

#[test]
fn high_order_drains_wait_longer_since_6_16() {
    let run = |rule, marks, frees: i16| {
        let mut pcp = state(rule, marks);
        pcp.free_count = frees;
        pcp.on_free(order(1), 200, ZoneFlags::NONE);
        pcp.on_free(order(1), 202, ZoneFlags::NONE)
    };
    assert_eq!(run(PcpVersion::V6_7, SMALL, 63), Some(202));
    assert_eq!(run(V6_16, SMALL, 63), None);
    assert_eq!(run(V6_16, SMALL, 63 + 126 - 2), Some(202));
    // In a large zone the wait is longer than the count of frees can grow.
    assert_eq!(run(V6_16, BIG, 2016), None);
}

#[test]
fn an_idle_pageset_decays_as_the_sheet_computes_it() {
    let mut pcp = state(PcpVersion::V6_7, BIG);
    pcp.high = 61_440;
    let mut highs = Vec::new();
    while pcp.decay(0).is_some() {
        highs.push(pcp.high);
    }
    assert_eq!(highs[..4], [53_760, 47_040, 41_160, 36_015]);
    assert_eq!((highs.len(), pcp.high), (18 - 1, 5898));

    let mut full = state(PcpVersion::V6_7, BIG);
    (full.high, full.high_max) = (61_440, 61_440);
    assert_eq!(full.decay(61_440), Some(2016));
    assert_eq!(full.high, 59_424);
    assert_eq!(full.decay(59_424), Some(2016));
    assert_eq!(full.high, 57_408);
    assert_eq!(state(V6_1, BIG).decay(100), None);
}

#[test]
fn a_disabled_pageset_keeps_nothing() {
    for rule in [V6_1, PcpVersion::V6_7, V6_19] {
        let mut pcp = Pcp(PcpState::new(rule.rule().id, 5));
        assert_eq!(pcp.on_alloc(ONE, 0, true, ZoneFlags::NONE), 1);
        assert_eq!(pcp.on_free(ONE, 1, ZoneFlags::NONE), Some(1));
    }
}

#[test]
fn another_nodes_pageset_is_drained_after_three_idle_intervals() {
    let mut pcp = state(PcpVersion::V6_7, BIG);
    pcp.remote_used();
    let got = [100, 100, 100, 37, 0].map(|count| pcp.remote_idle(count));
    assert_eq!(got, [None, None, Some(63), Some(37), None]);
}

#[test]
fn the_pageset_of_2007_moves_one_batch_each_way() {
    let marks = PcpMarks {
        batch: 31,
        high_min: 186,
        high_max: 186,
    };
    let got: Vec<_> = free_only(state(Classic, marks), 3)
        .iter()
        .map(|d| (d.0, d.1))
        .collect();
    assert_eq!(got, [(186, 31), (217, 31), (248, 31)]);
    assert_eq!(
        (Classic.rule().largest, V6_1.rule().largest),
        (ONE, order(3))
    );
}

#[test]
fn only_6_19_splits_long_drains() {
    assert_eq!(KernelPages::drain_chunk(&state(V6_19, BIG)), 63);
    assert_eq!(KernelPages::drain_chunk(&state(V6_16, BIG)), u32::MAX);
}

#[test]
fn high_stays_between_its_marks_and_no_answer_exceeds_what_is_there() {
    let mut prng = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move |below: u32| {
        prng ^= prng << 13;
        prng ^= prng >> 7;
        prng ^= prng << 17;
        (prng >> 33) as u32 % below
    };
    let rules = [
        Classic, V6_1, Series1, Series3, Series5, Series7, Series8, Series9, V6_16,
    ];
    for rule in rules {
        for marks in [
            BIG,
            SMALL,
            PcpMarks {
                batch: 1,
                high_min: 4,
                high_max: 30,
            },
        ] {
            let mut pcp = state(rule, marks);
            let mut count = 0u32;
            for _ in 0..30_000 {
                let zone = ZoneFlags(next(4) as u8 & next(4) as u8);
                let order = Order::new(if next(4) == 0 { next(4) } else { 0 }).unwrap();
                let pages = 1 << order.get();
                if next(2) == 0 {
                    let empty = count < pages;
                    let blocks = pcp.on_alloc(order, count, empty, zone);
                    assert_eq!(blocks > 0, empty);
                    count = count + blocks * pages - pages;
                } else {
                    count += pages;
                    if let Some(drained) = pcp.on_free(order, count, zone) {
                        assert!(drained > 0, "{rule:?}");
                        count = count.saturating_sub(drained);
                    }
                }
                if next(1000) == 0 {
                    count -= pcp.decay(count).unwrap_or(0);
                }
                assert!(
                    pcp.high >= marks.high_min && pcp.high <= marks.high_max,
                    "{rule:?}"
                );
            }
        }
    }
}

#[test]
fn a_version_is_found_by_its_number_and_flagstones_rule_is_none_of_them() {
    for version in PcpVersion::ALL {
        assert_eq!(PcpVersion::of(&state(version, BIG)), Some(version));
    }
    let own = PcpState::new(PcpRule::FLAGSTONE.id, 2);
    assert_eq!(PcpVersion::of(&own), None);
    assert_eq!(KernelPages::affords(&own, ONE, 63, 0), 1);
    assert_eq!(
        KernelPages::affords(&state(PcpVersion::V6_7, BIG), ONE, 63, 0),
        63
    );
}

#[test]
fn marks_before_the_seventh_patch_leave_no_room_for_tuning() {
    let zone = PcpZone {
        managed: 4_227_072,
        low: 18_500,
        cpus: 2,
        high_fraction: 0,
        page_size: flagstone_core::base::PageSize::K4,
    };
    let marks = |version: PcpVersion| (version.rule().marks)(&zone);
    let highs = |version| (marks(version).high_min, marks(version).high_max);
    assert_eq!(highs(V6_1), (9250, 9250));
    assert_eq!(highs(V6_16), (9250, 264_192));
    assert_eq!((marks(Classic).batch, highs(Classic)), (31, (186, 186)));
}
