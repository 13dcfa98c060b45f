use super::super::{PcpMarks, PcpRule};
use super::*;
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
const ONE: Order = Order::ZERO;

fn order(order: u32) -> Order {
    Order::new(order).unwrap()
}

fn state(marks: PcpMarks, scale_max: u8) -> PcpState {
    let mut state = PcpState::new(PcpRule::FLAGSTONE.id, scale_max);
    OwnPages::set_marks(&mut state, marks);
    state
}

fn on_alloc(pcp: &mut PcpState, order: Order, count: u32, empty: bool) -> u32 {
    OwnPages::on_alloc(pcp, order, count, empty, ZoneFlags::NONE)
}

fn on_free(pcp: &mut PcpState, order: Order, count: u32) -> Option<u32> {
    OwnPages::on_free(pcp, order, count, ZoneFlags::NONE)
}

#[test]
fn first_refills_are_small_and_a_quiet_second_takes_a_step_back() {
    let mut pcp = state(BIG, 2);
    let refill = |pcp: &mut PcpState| {
        // A free between two refills: nothing doubles but the steps.
        let blocks = on_alloc(pcp, ONE, 0, true);
        assert_eq!(on_free(pcp, ONE, 1), None);
        blocks
    };
    let first: Vec<u32> = (0..6).map(|_| refill(&mut pcp)).collect();
    assert_eq!(first, [3, 7, 15, 31, 63, 63]);
    for _ in 0..2 {
        let _ = OwnPages::decay(&mut pcp, 0);
    }
    assert_eq!(refill(&mut pcp), 15);
    let mut fresh = state(BIG, 2);
    assert_eq!(on_alloc(&mut fresh, order(3), 0, true), 1);
}

#[test]
fn blocks_of_several_pages_gather_to_two_batches() {
    let first_drain = |scale_max| {
        let mut pcp = state(BIG, scale_max);
        pcp.set_cache_slice(1 << 20, 12);
        let mut frees = (1..1000).map(|n| on_free(&mut pcp, order(2), 4 * n));
        frees.find_map(|drained| drained).unwrap()
    };
    assert_eq!(first_drain(2), 132);
    assert_eq!(first_drain(0), 63, "no doublings");
}

#[test]
fn an_idle_pageset_falls_to_a_batch_and_comes_back_when_used() {
    let mut pcp = state(BIG, 2);
    let (mut count, mut seconds) = (5897, 0);
    assert_eq!(on_free(&mut pcp, ONE, count), None);
    while let Some(drain) = OwnPages::decay(&mut pcp, count) {
        count -= drain;
        seconds += 1;
        assert!(seconds < 100, "never comes to rest");
    }
    assert_eq!(count, 63);
    assert_eq!(on_free(&mut pcp, ONE, 64), None);
    assert_eq!(pcp.high, 5898);
}

#[test]
fn a_refill_is_at_most_an_eighth_of_what_its_cpu_has_taken() {
    let pcp = state(BIG, 2);
    let affords = |order, wanted, net| OwnPages::affords(&pcp, order, wanted, net);
    let refill = [0, 10, 25, 100, 251, 504, 10_000].map(|net| affords(ONE, 63, net));
    assert_eq!(refill, [3, 3, 3, 12, 31, 63, 63]);
    assert_eq!(affords(order(3), 1, 0), 1, "one block in any case");
    assert_eq!(affords(order(3), 7, 256), 4);
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
    let tiny = PcpMarks {
        batch: 1,
        high_min: 4,
        high_max: 30,
    };
    for marks in [BIG, SMALL, tiny] {
        let mut pcp = state(marks, 2);
        let mut count = 0u32;
        for _ in 0..30_000 {
            let zone = ZoneFlags(next(4) as u8 & next(4) as u8);
            let order = order(if next(4) == 0 { next(4) } else { 0 });
            let pages = 1 << order.get();
            if next(2) == 0 {
                let empty = count < pages;
                let blocks = OwnPages::on_alloc(&mut pcp, order, count, empty, zone);
                assert_eq!(blocks > 0, empty);
                count = count + blocks * pages - pages;
            } else {
                count += pages;
                if let Some(drained) = OwnPages::on_free(&mut pcp, order, count, zone) {
                    assert!(drained > 0);
                    count = count.saturating_sub(drained);
                }
            }
            if next(1000) == 0 {
                count -= OwnPages::decay(&mut pcp, count).unwrap_or(0);
            }
            let idle = marks.high_min.min(marks.batch);
            assert!(pcp.high >= idle && pcp.high <= marks.high_max);
        }
    }
}
