use crate::heap::refusals::{Refusals, SPARED};
use crate::heap::test_heap::heap;
use crate::platform::testing::Refusal;
use core::ptr::NonNull;
use std::vec::Vec;

const MIB: usize = 1 << 20;

#[test]
fn a_refused_request_gets_what_sheaves_and_pagesets_keep() {
    let (world, heap) = heap();
    let blocks: Vec<NonNull<u8>> = (0..2000)
        .map(|_| heap.alloc(2048).expect("memory"))
        .collect();
    world.refuse(Refusal::From(world.memory_calls()));
    let mut others = Vec::new();
    while let Some(block) = heap.alloc(4096) {
        others.push(block);
    }
    for block in &blocks {
        // SAFETY: allocated above, freed once.
        unsafe { heap.free(block.as_ptr()) };
    }
    let mut got = 0;
    while let Some(block) = heap.alloc(4096) {
        others.push(block);
        got += 1;
    }
    // But for what a slab of 4096 bytes does not fill.
    assert!(got >= 900, "{got} blocks of 4096 bytes out of 1000");
    for block in others {
        // SAFETY: allocated above, freed once.
        unsafe { heap.free(block.as_ptr()) };
    }
}

#[test]
fn kept_huge_blocks_go_before_a_request_is_refused() {
    let (world, heap) = heap();
    let swing = || {
        for block in [(); 4].map(|()| heap.alloc(8 * MIB).expect("memory")) {
            // SAFETY: allocated above, freed once.
            unsafe { heap.free(block.as_ptr()) };
        }
    };
    // Kept from the third swing on.
    for _ in 0..4 {
        swing();
    }
    let reserved = world.reserved_bytes();
    world.limit_address_space(reserved);
    let block = heap.alloc(20 * MIB).expect("what is kept is given up");
    // SAFETY: allocated above, freed once.
    unsafe { heap.free(block.as_ptr()) };
}

#[test]
fn on_top_of_a_holder_nothing_is_given_up() {
    let (world, heap) = heap();
    let block = heap.alloc(2 * MIB).expect("memory");
    // SAFETY: allocated above, freed once.
    unsafe { heap.free(block.as_ptr()) };
    let before = world.decommitted();
    let ready = heap.ready_if_built().expect("built");
    let held = ready.huge_table().expect("free");
    assert!(heap.alloc(1 << 40).is_none());
    assert_eq!(world.decommitted(), before);
    drop(held);
    assert!(heap.alloc(1 << 40).is_none());
    assert_ne!(world.decommitted(), before);
}

#[test]
fn what_no_address_space_has_room_for_is_refused_without_a_reclaim() {
    let (world, heap) = heap();
    let block = heap.alloc(2 * MIB).expect("memory");
    // SAFETY: allocated above, freed once.
    unsafe { heap.free(block.as_ptr()) };
    let (calls, before) = (world.memory_calls(), world.decommitted());
    for size in [1 << 50, isize::MAX as usize, usize::MAX - 4096, usize::MAX] {
        assert!(heap.alloc(size).is_none() && heap.alloc_zeroed(size).is_none());
        assert!(heap.alloc_aligned(1 << 16, size).is_none());
    }
    assert_eq!((world.memory_calls(), world.decommitted()), (calls, before));
}

#[test]
fn refusals_without_slow_paths_between_them_share_a_reclaim() {
    let last = Refusals::default();
    let mut calls = 100;
    let mut due = 0;
    for _ in 0..10 * SPARED {
        calls += 1;
        due += usize::from(last.is_due(calls));
    }
    assert!((10..=12).contains(&due), "{due} reclaims");
    calls += 2;
    assert!(last.is_due(calls), "a slow path may have left something");
}
