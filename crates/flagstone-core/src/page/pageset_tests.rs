//! Pagesets of the default policy, and of one without bounds.

use super::allocator::tests::{Pages, built};
use crate::base::{CpuId, NodeId, Order, PageCount, Pfn};
use crate::page::{PageConfig, Retention};
use crate::platform::testing::{Setup, World};
use crate::policy::Policy;
use crate::policy::for_tests::plain;
use crate::verify::check_pages;
use std::boxed::Box;
use std::sync::Arc;
use std::vec::Vec;

const NODE: NodeId = NodeId(0);

fn with(mut policy: Policy, high_min: u32, high_max: u32) -> (Arc<World>, Box<Pages>) {
    policy.pcp_batch_set = Some(63);
    policy.pcp_high_min_set = Some(high_min);
    policy.pcp_high_max_set = Some(high_max);
    let config = PageConfig {
        span_bytes: 256 << 20,
        span_bytes_min: 256 << 20,
        retention: Retention::KEEP_ALL,
        ..PageConfig::of(&policy)
    };
    built(
        Setup {
            cpus: 2,
            ..Setup::default()
        },
        &config,
    )
}

fn take(pages: &Pages, blocks: usize, order: Order) -> Vec<Pfn> {
    (0..blocks)
        .map(|_| pages.alloc_block(order, NODE).expect("room").pfn)
        .collect()
}

fn refills(pages: &Pages, allocs: usize) -> Vec<u64> {
    let mut seen = 0;
    let mut sizes = Vec::new();
    for _ in 0..allocs {
        let _held = pages.alloc_block(Order::ZERO, NODE).expect("room");
        let set = pages.pageset_snapshot(NODE, CpuId(0)).expect("a pageset");
        if set.counters.refill_pages != seen {
            sizes.push(set.counters.refill_pages - seen);
            seen = set.counters.refill_pages;
        }
    }
    sizes
}

/// Pages drained, and after which free, while CPU 0 frees what CPU 1 allocated.
fn drains(world: &World, pages: &Pages, frees: usize) -> Vec<(usize, u64)> {
    world.run_on(CpuId(1));
    let held = take(pages, frees, Order::ZERO);
    world.run_on(CpuId(0));
    let mut seen = 0;
    let mut sizes = Vec::new();
    for (index, pfn) in held.into_iter().enumerate() {
        // SAFETY: allocated above, freed once.
        unsafe { pages.free_block(pfn, Order::ZERO) };
        let set = pages.pageset_snapshot(NODE, CpuId(0)).expect("a pageset");
        if set.counters.drain_pages != seen {
            sizes.push((index + 1, set.counters.drain_pages - seen));
            seen = set.counters.drain_pages;
        }
    }
    sizes
}

#[test]
fn flagstone_parks_an_eighth_of_what_the_cpu_took() {
    let (_world, pages) = with(Policy::default(), 252, 491);
    let sizes = refills(&pages, 1000);
    let mut taken = 0;
    for size in &sizes {
        assert!(*size <= (taken / 8).max(3), "{size} after {taken}");
        taken += size;
    }
    assert!(sizes.iter().any(|size| *size >= 63), "{sizes:?}");
}

#[test]
fn pages_of_others_that_a_cpu_put_back_do_not_make_its_refills_small() {
    let (world, pages) = with(Policy::default(), 252, 491);
    assert!(!drains(&world, &pages, 3000).is_empty());
    let sizes = refills(&pages, 2000);
    assert!(sizes.iter().any(|size| *size >= 63), "{sizes:?}");
}

#[test]
fn what_long_blocks_were_cut_into_is_joined_again_wherever_and_in_whatever_order_it_is_freed() {
    for (name, policy) in [("flagstone", Policy::default()), ("plain", plain())] {
        let (world, pages) = with(policy, 200, 400);
        let mut held = Vec::new();
        for order in (0..=3).filter_map(Order::new) {
            held.extend(take(&pages, 300, order).into_iter().map(|pfn| (pfn, order)));
        }
        assert_eq!(check_pages(&pages), Ok(()), "{name}");
        // Two strides that share no divisor with the count visit every block once each.
        let count = held.len();
        for (turn, at) in (0..count).map(|i| i * 7 % count).enumerate() {
            world.run_on(CpuId(turn as u32 % 2));
            let (pfn, order) = held[at];
            // SAFETY: allocated above, freed once.
            unsafe { pages.free_block(pfn, order) };
        }
        assert_eq!(check_pages(&pages), Ok(()), "{name}");
        pages.drain_pagesets();
        assert_eq!(check_pages(&pages), Ok(()), "{name}");
        let zone = pages.zone_snapshot(NODE).expect("a zone");
        assert_eq!((zone.in_use_pages, zone.cached_pages), (0, 0), "{name}");
        let whole = 1 << Order::MAX.get();
        let mut blocks = zone.resident_blocks.iter().zip(zone.released_blocks);
        let longest = blocks
            .next_back()
            .map(|(resident, released)| resident + released);
        assert_eq!(
            longest,
            Some((zone.frontier_pages / whole) as u32),
            "{name}"
        );
    }
}

#[test]
fn a_refill_of_flagstone_hands_out_neighbours_and_tells_used_pages_from_untouched_ones() {
    let (_world, pages) = with(Policy::default(), 200, 400);
    let held = take(&pages, 120, Order::ZERO);
    assert!(
        held.windows(2)
            .filter(|pair| pair[1].0 == pair[0].0 + 1)
            .count()
            > 100
    );
    // Every third page stays, so that most free blocks are short and used.
    for pfn in held.iter().copied().filter(|pfn| pfn.0 % 3 != 0) {
        // SAFETY: allocated above, freed once.
        unsafe { pages.free_block(pfn, Order::ZERO) };
    }
    pages.drain_pagesets();
    let last = held.iter().max().copied().expect("pages");
    for _ in 0..200 {
        let block = pages.alloc_block(Order::ZERO, NODE).expect("room");
        let used = held.contains(&block.pfn);
        assert!(!(used && block.zeroed), "{:?}", block.pfn);
        assert!(block.zeroed || block.pfn <= last || used, "{:?}", block.pfn);
    }
    assert_eq!(check_pages(&pages), Ok(()));
}

#[test]
fn the_last_freed_block_is_the_next_allocated_and_the_oldest_is_drained() {
    let (_world, pages) = with(plain(), 100, 200);
    let held = take(&pages, 100, Order::ZERO);
    for &pfn in &held[..80] {
        // SAFETY: allocated above, freed once.
        unsafe { pages.free_block(pfn, Order::ZERO) };
    }
    assert_eq!(
        pages.alloc_block(Order::ZERO, NODE).map(|b| b.pfn),
        Some(held[79])
    );
}

#[test]
fn a_pageset_without_room_passes_everything_to_the_zone() {
    let (_world, pages) = with(plain(), 0, 0);
    let held = take(&pages, 10, Order::ZERO);
    for pfn in held {
        // SAFETY: allocated above, freed once.
        unsafe { pages.free_block(pfn, Order::ZERO) };
    }
    assert_eq!(pages.snapshot().total.cached_pages, 0);
}

#[test]
fn a_zone_below_its_high_watermark_says_so_until_it_is_above_again() {
    let config = PageConfig {
        span_bytes: 64 << 20,
        span_bytes_min: 64 << 20,
        managed_bytes: Some(16 << 20),
        ..PageConfig::default()
    };
    let (_world, pages) = built(Setup::default(), &config);
    let marks = pages.snapshot().total.marks;
    assert!(
        0 < marks.low && marks.low < marks.high && marks.high < 1024,
        "{marks:?}"
    );
    let mut held = Vec::new();
    while !pages.snapshot().total.below_high {
        let pfn = pages
            .alloc_run(PageCount(40), NODE)
            .expect("the span is larger")
            .pfn;
        held.push(pfn);
    }
    assert!(4096 - held.len() * 40 <= marks.high as usize);
    for pfn in held {
        // SAFETY: allocated above, freed once.
        unsafe { pages.free_run(pfn, PageCount(40)) };
    }
    assert!(!pages.snapshot().total.below_high);
}

#[test]
fn a_low_node_lets_another_serve() {
    let config = PageConfig {
        span_bytes: 64 << 20,
        span_bytes_min: 64 << 20,
        managed_bytes: Some(32 << 20),
        retention: Retention::KEEP_ALL,
        ..PageConfig::default()
    };
    let (_world, pages) = built(
        Setup {
            nodes: 2,
            ..Setup::default()
        },
        &config,
    );
    let nodes: Vec<u8> = (0..100)
        .map(|_| pages.alloc_run(PageCount(60), NodeId(1)).expect("room").pfn)
        .map(|pfn| pages.descriptor(pfn).node().0)
        .collect();
    assert_eq!((nodes[0], nodes[99]), (1, 0));
    let local = nodes.iter().filter(|&&node| node == 1).count();
    assert!(local * 60 > 3500 && local * 60 < 4096, "{local} runs near");
}
