//! Giving back, and the child of a fork that happens in the middle of it.

use super::*;
use crate::base::{CpuId, NodeId};
use crate::page::allocator::tests::{built, small};
use crate::page::{PageAllocator, PageConfig, Retention};
use crate::platform::testing::{Setup, Testing, World};
use crate::verify::check_pages;
use std::boxed::Box;
use std::sync::Arc;
use std::vec::Vec;

const NODE: NodeId = NodeId(0);

/// Sixteen MiB of pages, of which nothing goes back by itself.
fn keeping() -> (Arc<World>, Box<PageAllocator<Testing>>) {
    let config = PageConfig {
        retention: Retention::KEEP_ALL,
        ..small(16 << 20)
    };
    built(Setup::default(), &config)
}

/// A block freed and parked by a giver, who does not come to the end.
fn parked(pages: &PageAllocator<Testing>) -> (&Zone<Testing>, Round) {
    let run = pages.alloc_run(PageCount(16), NODE).expect("room").pfn;
    // SAFETY: allocated above, freed once.
    unsafe { pages.free_run(run, PageCount(16)) };
    let zone = pages.zones().next().expect("a zone");
    let round = zone.park(pages.memmap(), &|_, _| 0, &mut usize::MAX.clone());
    (zone, round.expect("blocks"))
}

#[test]
fn the_child_of_a_fork_finds_the_blocks_that_a_giver_had_parked() {
    let (world, pages) = keeping();
    let runs: Vec<_> = (0..20)
        .map(|_| pages.alloc_run(PageCount(16), NODE).expect("room").pfn)
        .collect();
    for &pfn in runs.iter().step_by(2) {
        // SAFETY: allocated above, freed once.
        unsafe { pages.free_run(pfn, PageCount(16)) };
    }
    let park = || {
        world.enter(CpuId(0));
        let zone = pages.zones().next().expect("a zone");
        let round = zone.park(pages.memmap(), &|_, _| 0, &mut usize::MAX.clone());
        assert!(round.is_some_and(|round| round.len >= 10));
    };
    std::thread::scope(|scope| {
        scope.spawn(park);
    });
    assert!(check_pages(&pages).is_err(), "a giver is at work");
    assert_eq!(pages.trim(0), 0, "and the only one");
    pages.recover_after_fork();
    assert_eq!(check_pages(&pages), Ok(()));
    assert_eq!(pages.trim(0), 160 * 4096);
}

#[test]
fn a_giver_that_forks_in_a_signal_handler_goes_on_in_the_child() {
    let (_world, pages) = keeping();
    let (zone, round) = parked(&pages);
    pages.recover_after_fork();
    assert!(zone.unpark(pages.memmap(), &round));
    assert_eq!(check_pages(&pages), Ok(()));
}

#[test]
fn blocks_that_a_giver_could_not_put_back_are_put_back_by_the_next() {
    let (_world, pages) = keeping();
    let (zone, round) = parked(&pages);
    zone.raw().acquire_spinning::<Testing>().expect("free");
    assert!(!zone.unpark(pages.memmap(), &round));
    zone.raw().release_now::<Testing>();
    assert_eq!(pages.trim(0), 16 * 4096);
    assert_eq!(check_pages(&pages), Ok(()));
}

#[test]
fn neighbours_are_given_back_in_one_call() {
    let (world, pages) = keeping();
    let runs: Vec<_> = (0..3)
        .map(|_| pages.alloc_run(PageCount(16), NODE).expect("room").pfn)
        .collect();
    // The second and third blocks adjoin but are no buddies.
    assert_eq!((runs[1].0, runs[2].0), (runs[0].0 + 16, runs[0].0 + 32));
    for &pfn in &runs[1..] {
        // SAFETY: allocated above, freed once.
        unsafe { pages.free_run(pfn, PageCount(16)) };
    }
    let before = world.decommitted();
    assert_eq!(pages.trim(0), 32 * 4096);
    // One call for the pages; the others for the descriptors of the two long blocks beside them.
    assert_eq!(world.decommitted().1, before.1 + 3);
}

#[test]
fn a_swing_leaves_the_bound_while_its_faults_are_owed_and_the_floor_once_they_are_paid() {
    let config = PageConfig {
        retention: Retention {
            min_bytes: 8 << 20,
            share: 0,
        },
        ..small(64 << 20)
    };
    let (world, pages) = built(Setup::default(), &config);
    let swing = || {
        let runs: Vec<_> = (0..8)
            .map(|_| pages.alloc_run(PageCount(1024), NODE).expect("room").pfn)
            .collect();
        for pfn in runs {
            // SAFETY: allocated above, freed once.
            unsafe { pages.free_run(pfn, PageCount(1024)) };
        }
        pages.settle();
        pages.snapshot().total.free_resident_pages * 4096
    };
    assert!(swing() <= 1 << 20, "nothing was owed");
    for _ in 0..5 {
        let left = swing();
        assert!(left > 1 << 20 && left <= 8 << 20, "{left}");
    }
    world.advance(crate::page::TICK_NS);
    pages.tick();
    pages.settle();
    let left = pages.snapshot().total.free_resident_pages * 4096;
    assert!(left <= 1 << 20, "{left}");
}

#[test]
fn whole_blocks_given_back_lose_their_descriptors_and_serve_again() {
    let (world, pages) = built(
        Setup {
            poison: true,
            ..Setup::default()
        },
        &small(32 << 20),
    );
    let take_and_free = || {
        let held: Vec<_> = (0..5000)
            .map(|_| pages.alloc_run(PageCount(1), NODE).expect("room").pfn)
            .collect();
        assert_eq!(check_pages(&pages), Ok(()));
        for pfn in held {
            // SAFETY: allocated above, freed once.
            unsafe { pages.free_run(pfn, PageCount(1)) };
        }
    };
    for _ in 0..3 {
        let before = world.decommitted().0;
        take_and_free();
        assert_eq!(pages.trim(0) % 4096, 0);
        assert_eq!(check_pages(&pages), Ok(()));
        let after = pages.snapshot();
        assert_eq!(after.total.idle_blocks * 1024, after.total.frontier_pages);
        // Five blocks: their pages, and all pages of their descriptors.
        let descriptors = 5 * 1024 * pages.spacing().bytes();
        assert!(world.decommitted().0 - before >= 5000 * 4096 + descriptors);
        assert!(after.memmap_resident_bytes < 16 << 10, "{after:?}");
    }
}
