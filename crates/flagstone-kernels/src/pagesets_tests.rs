//! Pagesets of kernels in the page layer, against the rule sheet's own examples (docs: linux-policies 6.4).

use crate::Kernels;
use crate::policy::PcpVersion;
use flagstone_core::base::{CpuId, NodeId, Order, Pfn};
use flagstone_core::page::{PageAllocator, PageConfig, Retention, TICK_NS};
use flagstone_core::platform::testing::{Setup, TestingWith, World};
use flagstone_core::policy::Policy;
use flagstone_core::verify::check_pages;
use proptest::prelude::*;
use std::boxed::Box;
use std::sync::Arc;
use std::vec::Vec;

type Pages = PageAllocator<TestingWith<Kernels>>;

const NODE: NodeId = NodeId(0);

fn built(config: &PageConfig) -> (Arc<World>, Box<Pages>) {
    let world = World::enter_new(Setup {
        cpus: 2,
        ..Setup::default()
    });
    let mut place = Box::<Pages>::new_uninit();
    // SAFETY: the box is ours.
    unsafe { Pages::init(place.as_mut_ptr(), config) }.expect("the world grants the span");
    // SAFETY: `init` succeeded.
    (world, unsafe { place.assume_init() })
}

/// The default policy with the pagesets of a kernel and no bounds.
fn under(version: PcpVersion) -> Policy {
    Policy {
        pcp_rule: version.rule(),
        pcp_batch_scale_max: version.default_scale_max(),
        limits: flagstone_core::policy::FlagstoneLimits::NONE,
        ..Policy::default()
    }
}

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
    built(&config)
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
fn consecutive_allocations_fetch_twice_as_many_each_time() {
    let (_world, pages) = with(under(PcpVersion::V6_7), 5898, 61440);
    assert_eq!(
        refills(&pages, 6100),
        [63, 126, 252, 504, 1008, 2016, 2016, 2016]
    );
    let (_world, small) = with(under(PcpVersion::V6_7), 252, 491);
    assert_eq!(refills(&small, 1000), [63, 126, 252, 428, 428]);
}

#[test]
fn consecutive_frees_drain_as_the_rule_of_6_7_says() {
    let (world, pages) = with(under(PcpVersion::V6_7), 5898, 61440);
    assert_eq!(
        drains(&world, &pages, 10_000),
        [(5898, 2016), (7914, 2016), (9930, 2016)]
    );
    assert_eq!(check_pages(&pages), Ok(()));
    let (world, small) = with(under(PcpVersion::V6_7), 252, 491);
    let expected = [(252, 189), (504, 252), (932, 428), (1360, 428)];
    assert_eq!(drains(&world, &small, 1500), expected);
}

#[test]
fn the_pageset_before_the_series_doubles_its_drains() {
    let (world, pages) = with(under(PcpVersion::V6_1), 5898, 5898);
    let expected = [
        (5898, 63),
        (5961, 126),
        (6087, 252),
        (6339, 504),
        (6843, 1008),
        (7851, 2016),
    ];
    assert_eq!(drains(&world, &pages, 8000), expected);
}

#[test]
fn consecutive_high_order_frees_empty_the_pageset_and_are_counted() {
    let (world, pages) = with(under(PcpVersion::V6_7), 5898, 61440);
    let order = Order::COSTLY;
    world.run_on(CpuId(1));
    let held = take(&pages, 40, order);
    world.run_on(CpuId(0));
    for pfn in held {
        // SAFETY: allocated above, freed once.
        unsafe { pages.free_block(pfn, order) };
    }
    let set = pages.pageset_snapshot(NODE, CpuId(0)).expect("a pageset");
    assert!(set.counters.free_high > 0 && set.counters.free_high == set.counters.drains);
    assert_eq!(u64::from(set.count) + set.counters.drain_pages, 40 * 8);
}

#[test]
fn an_idle_pageset_gives_its_pages_to_the_zone_second_by_second() {
    let (world, pages) = with(under(PcpVersion::V6_7), 63, 61440);
    let held = take(&pages, 9000, Order::ZERO);
    for pfn in held {
        // SAFETY: allocated above, freed once.
        unsafe { pages.free_block(pfn, Order::ZERO) };
    }
    let mut before = pages.snapshot().total.cached_pages;
    assert!(before > 1000, "{before}");
    pages.tick();
    for _ in 0..60 {
        world.advance(TICK_NS);
        pages.tick();
        let now = pages.snapshot().total.cached_pages;
        assert!(now <= before && before - now <= 2016);
        before = now;
    }
    assert!(before <= 63, "{before} pages stay");
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 64 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_programs_of_blocks_keep_every_invariant_under_every_version(
        version in 0..PcpVersion::ALL.len(),
        steps in proptest::collection::vec((0u32..10, 0u32..4, any::<usize>()), 1..400),
    ) {
        let mut config = PageConfig {
            span_bytes: 4 << 20,
            span_bytes_min: 4 << 20,
            ..PageConfig::of(&under(PcpVersion::ALL[version]))
        };
        config.policy.pcp_batch_set = Some(3);
        config.policy.pcp_high_min_set = Some(12);
        config.policy.pcp_high_max_set = Some(40);
        let (world, pages) = built(&config);
        let mut live = Vec::new();
        for (what, order, which) in steps {
            match what {
                0..5 => {
                    let order = Order::new(order).expect("small");
                    live.extend(pages.alloc_block(order, NODE).map(|block| (block.pfn, order)));
                }
                5..8 if !live.is_empty() => {
                    let (pfn, order) = live.swap_remove(which % live.len());
                    // SAFETY: allocated above, freed once.
                    unsafe { pages.free_block(pfn, order) };
                }
                8 => {
                    world.advance(TICK_NS);
                    pages.tick();
                }
                _ => world.run_on(CpuId(order % 2)),
            }
            prop_assert_eq!(check_pages(&pages), Ok(()));
        }
        pages.drain_pagesets();
        prop_assert_eq!(check_pages(&pages), Ok(()));
        prop_assert_eq!(pages.snapshot().total.cached_pages, 0);
    }
}
