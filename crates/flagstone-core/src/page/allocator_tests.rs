//! The page allocator in the test world.

use super::*;
use crate::page::PageConfig;
use crate::page::Retention;
use crate::page::buddy::TAILS_MAX;
use crate::platform::OutOfMemory;
use crate::platform::testing::{Setup, Testing, World};
use crate::verify::check_pages;
use core::mem::MaybeUninit;
use std::boxed::Box;
use std::sync::Arc;
use std::vec::Vec;

pub(crate) type Pages = PageAllocator<Testing>;

pub(crate) fn built(setup: Setup, config: &PageConfig) -> (Arc<World>, Box<Pages>) {
    let world = World::enter_new(setup);
    let mut place = Box::<Pages>::new_uninit();
    // SAFETY: the box is ours.
    unsafe { Pages::init(place.as_mut_ptr(), config) }.expect("the world grants the span");
    // SAFETY: `init` succeeded.
    (world, unsafe { place.assume_init() })
}

pub(crate) fn small(span: usize) -> PageConfig {
    PageConfig {
        span_bytes: span,
        span_bytes_min: span,
        retention: Retention {
            min_bytes: 1 << 20,
            share: 0,
        },
        ..PageConfig::default()
    }
}

const NODE: NodeId = NodeId(0);

#[test]
fn a_run_has_exactly_its_pages_and_every_page_knows_the_head() {
    let (_world, pages) = built(Setup::default(), &small(16 << 20));
    let run = pages.alloc_run(PageCount(5), NODE).expect("there is room");
    assert!(run.zeroed);
    for page in 0..5 {
        assert_eq!(pages.head_of(run.pfn.plus(PageCount(page))), Some(run.pfn));
    }
    assert_eq!(pages.head_of(run.pfn.plus(PageCount(5))), None);
    assert_eq!(pages.snapshot().total.in_use_pages, 5);
    // SAFETY: the run is ours and live.
    unsafe { pages.free_run(run.pfn, PageCount(5)) };
    let after = pages.snapshot().total;
    assert_eq!((after.in_use_pages, after.free_resident_pages), (0, 5));
    assert_eq!(after.resident_blocks[10] + after.released_blocks[10], 1);
}

#[test]
fn a_run_grows_into_free_pages_behind_it_and_shrinks_again() {
    let (_world, pages) = built(Setup::default(), &small(16 << 20));
    let run = pages.alloc_run(PageCount(3), NODE).expect("room").pfn;
    // SAFETY: the run is ours and live throughout.
    unsafe {
        assert!(pages.grow_run(run, PageCount(3), PageCount(700)));
        assert_eq!(pages.head_of(run), Some(run));
        pages.shrink_run(run, PageCount(700), PageCount(2));
        let next = pages.alloc_run(PageCount(1), NODE).expect("room").pfn;
        assert!(!pages.grow_run(run, PageCount(2), PageCount(1024)) || next.0 > run.0 + 1024);
        pages.free_run(next, PageCount(1));
        pages.free_run(run, PageCount(2));
    }
    pages.drain_pagesets();
    assert_eq!(pages.snapshot().total.in_use_pages, 0);
}

#[test]
fn when_everything_is_freed_only_the_minimum_stays_resident() {
    let (world, pages) = built(Setup::default(), &small(64 << 20));
    let runs: Vec<_> = (0..200)
        .map(|i| PageCount(1 + i % 60))
        .map(|n| (pages.alloc_run(n, NODE).expect("room").pfn, n))
        .collect();
    for (pfn, n) in runs {
        // SAFETY: each run is ours and freed once.
        unsafe { pages.free_run(pfn, n) };
    }
    let after = pages.snapshot().total;
    assert_eq!(after.in_use_pages, after.cached_pages);
    assert!(after.free_resident_pages <= 256, "{after:?}");
    assert!(world.decommitted().0 > 0);
    assert!(pages.trim(0) > 0);
    assert_eq!(pages.snapshot().total.free_resident_pages, 0);
}

#[test]
fn own_memory_is_zeroed_also_when_it_was_used_before() {
    let (_world, pages) = built(Setup::default(), &small(16 << 20));
    let run = pages.alloc_run(PageCount(2), NODE).expect("room").pfn;
    // SAFETY: the run is ours.
    unsafe {
        pages.address(run).write_bytes(9, 8192);
        pages.free_run(run, PageCount(2));
    }
    let own = pages.alloc_own(5000).expect("room");
    // SAFETY: two whole pages are ours.
    let bytes = unsafe { core::slice::from_raw_parts(own.as_ptr(), 8192) };
    assert!(bytes.iter().all(|&b| b == 0));
    assert!(
        pages.alloc_own(5 << 20).is_some(),
        "more than a block comes from the system"
    );
    assert_eq!(pages.snapshot().own_bytes, 8192 + (5 << 20));
}

#[test]
fn a_smaller_span_is_taken_when_the_wished_one_is_refused() {
    let setup = Setup {
        reserve_limit: 40 << 20,
        ..Setup::default()
    };
    let config = PageConfig {
        span_bytes: 1 << 30,
        span_bytes_min: 4 << 20,
        ..small(1 << 30)
    };
    let (_world, pages) = built(setup, &config);
    assert_eq!(pages.span_bytes(), 32 << 20);
    let mut tiny = MaybeUninit::<Pages>::uninit();
    let config = PageConfig {
        span_bytes_min: 64 << 20,
        ..config
    };
    // SAFETY: the place is ours.
    // SAFETY: the place is ours.
    let refused = unsafe { Pages::init(tiny.as_mut_ptr(), &config) };
    assert_eq!(refused, Err(OutOfMemory));
}

#[test]
fn every_page_size_works_alike() {
    for page_size in [PageSize::K4, PageSize::K16, PageSize::K64] {
        let setup = Setup {
            page_size,
            ..Setup::default()
        };
        let config = small(2 * page_size.block_bytes(Order::MAX));
        let (_world, pages) = built(setup, &config);
        let runs: Vec<_> = [1, 3, 8, 100, 1024]
            .map(|n| {
                (
                    pages.alloc_run(PageCount(n), NODE).expect("room").pfn,
                    PageCount(n),
                )
            })
            .into();
        for (pfn, n) in runs {
            // The tails of longer runs name no head.
            let known = if n.0 > TAILS_MAX { 1 } else { n.0 };
            let address = pages.address(pfn.plus(PageCount(known - 1)));
            assert_eq!(
                pages
                    .pfn_of(address.as_ptr())
                    .and_then(|p| pages.head_of(p)),
                Some(pfn)
            );
            // SAFETY: allocated above, freed once.
            unsafe { pages.free_run(pfn, n) };
        }
        pages.trim(0);
        assert_eq!(check_pages(&pages), Ok(()));
        let after = pages.snapshot();
        assert_eq!(
            (after.page_bytes, after.total.in_use_pages),
            (page_size.bytes(), 0)
        );
    }
}

#[test]
fn an_address_outside_what_was_ever_used_belongs_to_no_page() {
    let (_world, pages) = built(Setup::default(), &small(16 << 20));
    assert_eq!(pages.pfn_of(pages.base().as_ptr()), None);
    let run = pages.alloc_run(PageCount(1), NODE).expect("room").pfn;
    let inside = pages.address(run).as_ptr();
    assert_eq!(pages.pfn_of(inside.wrapping_add(4095)), Some(run));
    assert_eq!(pages.pfn_of(pages.base().as_ptr().wrapping_sub(1)), None);
    assert_eq!(
        pages.pfn_of(pages.base().as_ptr().wrapping_add(8 << 20)),
        None
    );
    assert_eq!(pages.pfn_of(core::ptr::null()), None);
}

#[test]
fn a_long_run_writes_one_descriptor_and_a_long_slab_says_where_its_pages_belong() {
    let (_world, pages) = built(Setup::default(), &small(32 << 20));
    let whole = Order::MAX.pages();
    let run = pages.alloc_run(whole, NODE).expect("room").pfn;
    let inner = || (1..whole.0).map(|distance| run.plus(PageCount(distance)));
    assert!(inner().all(|pfn| pages.descriptor(pfn).kind() == PageKind::Unused));
    pages.name_tails(run, whole);
    assert!(inner().all(|pfn| pages.head_of(pfn) == Some(run)));
    // SAFETY: allocated above, freed once.
    unsafe { pages.free_run(run, whole) };
    assert_eq!(check_pages(&pages), Ok(()));
    let short = PageCount(TAILS_MAX);
    let run = pages.alloc_run(whole, NODE).expect("room").pfn;
    // SAFETY: allocated above, shortened and freed once.
    unsafe {
        pages.shrink_run(run, whole, short);
        assert_eq!(pages.head_of(run.plus(PageCount(TAILS_MAX - 1))), Some(run));
        assert_eq!(check_pages(&pages), Ok(()));
        pages.free_run(run, short);
    }
    assert_eq!(check_pages(&pages), Ok(()));
}

#[test]
fn freed_blocks_that_nobody_touched_leave_no_descriptors() {
    let (_world, pages) = built(Setup::default(), &small(512 << 20));
    for round in 0..2 {
        let take = |_| pages.alloc_run(Order::MAX.pages(), NODE).expect("room").pfn;
        let blocks: Vec<_> = (0..100).map(take).collect();
        assert_eq!(check_pages(&pages), Ok(()));
        for pfn in blocks {
            // SAFETY: allocated above, freed once.
            unsafe { pages.free_run(pfn, Order::MAX.pages()) };
        }
        pages.trim(0);
        assert_eq!(check_pages(&pages), Ok(()));
        let after = pages.snapshot();
        assert_eq!(
            (after.total.idle_blocks, after.total.in_use_pages),
            (100, 0),
            "{round}"
        );
        // A byte and a bit for each page, and nothing else.
        assert_eq!(after.memmap_resident_bytes, 100 * 1024 * 9 / 8);
    }
}
