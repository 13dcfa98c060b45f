//! How sheaves and barns grow, and what they leave behind.

use super::slabs_for_tests::{TestSlabs, built, built_with, cache_of, cpus};
use crate::base::{CacheId, CpuId, NodeId};
use crate::platform::testing::{Setup, World, slow_visits};
use crate::policy::Policy;
use crate::verify;
use core::ptr::NonNull;
use std::vec::Vec;

fn take(slabs: &TestSlabs, id: CacheId, count: usize) -> Vec<NonNull<u8>> {
    let cache = slabs.cache(id);
    (0..count)
        .map(|_| slabs.alloc(cache).expect("memory"))
        .collect()
}

fn give(slabs: &TestSlabs, id: CacheId, objects: Vec<NonNull<u8>>) {
    for object in objects {
        // SAFETY: taken from this cache by `take`, given once.
        unsafe { slabs.free(slabs.cache(id), object) };
    }
}

/// One CPU takes `batch` objects, the other gives them back, `rounds` times.
fn pass_over(slabs: &TestSlabs, world: &World, id: CacheId, batch: usize, rounds: usize) {
    for _ in 0..rounds {
        world.run_on(CpuId(0));
        let objects = take(slabs, id, batch);
        world.run_on(CpuId(1));
        give(slabs, id, objects);
    }
    world.run_on(CpuId(0));
}

fn flushes(slabs: &TestSlabs, id: CacheId) -> u64 {
    let node = slabs.node(id, NodeId(0));
    node.flushes.load(crate::sync::Ordering::Relaxed)
}

#[test]
fn objects_that_go_round_end_in_the_largest_sheaves_and_touch_no_slab_any_more() {
    let (world, slabs) = built("flagstone", cpus(2));
    let id = cache_of(&slabs, 4096);
    pass_over(&slabs, &world, id, 1000, 60);
    let quiet = slabs.policy().limits.sheaf_bytes_max / 4096;
    let capacity = slabs.cache(id).sheaf_capacity() as usize;
    assert!(capacity > 6 * quiet, "{capacity}");
    let before = flushes(&slabs, id);
    pass_over(&slabs, &world, id, 1000, 20);
    assert_eq!(flushes(&slabs, id), before);
    verify::check_slabs(&slabs).expect("whole");
}

#[test]
fn sheaves_stay_small_while_fewer_objects_live_than_they_would_hold() {
    let (world, slabs) = built("flagstone", cpus(2));
    let id = cache_of(&slabs, 4096);
    pass_over(&slabs, &world, id, 8, 2000);
    let capacity = slabs.cache(id).sheaf_capacity();
    assert!(capacity <= 8, "{capacity}");
}

/// Takes `step` objects and gives them back, `rounds` times, from a state in which one sheaf's worth is at hand; answers the
/// slow-path visits.
fn swing(slabs: &TestSlabs, id: CacheId, step: usize, rounds: usize) -> u64 {
    let before = slow_visits();
    for _ in 0..rounds {
        let objects = take(slabs, id, step);
        give(slabs, id, objects);
    }
    slow_visits() - before
}

#[test]
fn a_swing_about_the_end_of_a_sheaf_does_not_come_back_at_every_turn() {
    let (_world, slabs) = built("flagstone", cpus(1));
    let id = cache_of(&slabs, 64);
    let capacity = slabs.cache(id).sheaf_capacity() as usize;
    // Wherever the swing begins, its turns come to the slow path a few times at most.
    for at_hand in 0..=2 * capacity {
        let out = take(&slabs, id, 2 * capacity);
        give(&slabs, id, out);
        let held = take(&slabs, id, at_hand);
        let visits = swing(&slabs, id, 5, 100);
        assert!(visits <= 4, "{at_hand} taken first: {visits} visits");
        give(&slabs, id, held);
    }
    verify::check_slabs(&slabs).expect("whole");
}

#[test]
fn short_sheaves_grow_until_they_hold_the_swing_and_no_further() {
    let (_world, slabs) = built("flagstone", cpus(1));
    let id = cache_of(&slabs, 4096);
    let _live = take(&slabs, id, 30);
    swing(&slabs, id, 6, 1000);
    let capacity = slabs.cache(id).sheaf_capacity();
    assert!((6..=16).contains(&capacity), "{capacity}");
    assert_eq!(swing(&slabs, id, 6, 1000), 0);
}

#[test]
fn turns_far_apart_grow_nothing() {
    let (world, slabs) = built("flagstone", cpus(1));
    let id = cache_of(&slabs, 4096);
    let first = slabs.cache(id).sheaf_capacity();
    for _ in 0..200 {
        world.advance(1_000_000);
        swing(&slabs, id, 2 * first as usize, 1);
    }
    assert_eq!(slabs.cache(id).sheaf_capacity(), first);
}

#[test]
fn visits_far_apart_grow_nothing() {
    let (world, slabs) = built("flagstone", cpus(2));
    let id = cache_of(&slabs, 256);
    let first = slabs.cache(id).sheaf_capacity();
    for _ in 0..500 {
        world.advance(1_000_000);
        pass_over(&slabs, &world, id, 2 * first as usize, 1);
    }
    assert_eq!(slabs.cache(id).sheaf_capacity(), first);
}

#[test]
fn a_shrink_starts_small_again() {
    let (world, slabs) = built("flagstone", cpus(2));
    let id = cache_of(&slabs, 4096);
    let first = slabs.cache(id).sheaf_capacity();
    pass_over(&slabs, &world, id, 2000, 60);
    slabs.shrink_all();
    assert_eq!(slabs.cache(id).sheaf_capacity(), first);
    assert_eq!(slabs.node(id, NodeId(0)).barn.stored(), 0);
    verify::check_slabs(&slabs).expect("whole");
}

#[test]
fn more_flushed_in_one_go_than_a_barn_may_hold_is_an_end_and_raises_nothing() {
    let (_world, slabs) = built("flagstone", cpus(1));
    let id = cache_of(&slabs, 32 << 10);
    let quiet = slabs.policy().limits.barns_bytes_quiet;
    for _ in 0..6 {
        let objects = take(&slabs, id, 1500);
        give(&slabs, id, objects);
    }
    let stored = slabs.node(id, NodeId(0)).barn.stored() as usize * (32 << 10);
    assert!(stored <= 2 * quiet, "{stored}");
}

#[test]
fn a_full_sheaf_goes_to_the_barn_of_the_node_its_objects_came_from() {
    let setup = Setup {
        nodes: 2,
        ..cpus(2)
    };
    let (world, slabs) = built("flagstone", setup);
    let id = cache_of(&slabs, 256);
    pass_over(&slabs, &world, id, 200, 4);
    assert_eq!(slabs.node(id, NodeId(1)).barn.full(), 0);
    assert!(slabs.node(id, NodeId(0)).barn.full() > 0);
    verify::check_slabs(&slabs).expect("whole");
}

#[test]
fn a_barn_nobody_takes_from_makes_room_for_one_that_is_short() {
    let (world, slabs) = built("flagstone", cpus(2));
    let cold = cache_of(&slabs, 2048);
    let hot = cache_of(&slabs, 4096);
    pass_over(&slabs, &world, cold, 4000, 60);
    let parked = slabs.node(cold, NodeId(0)).barn.stored();
    assert!(parked > 1000, "{parked}");
    pass_over(&slabs, &world, hot, 4000, 60);
    assert!(slabs.node(cold, NodeId(0)).barn.stored() < parked);
    verify::check_slabs(&slabs).expect("whole");
}

#[test]
fn nothing_is_left_of_a_cache_whose_barns_held_objects_of_both_nodes() {
    let setup = Setup {
        nodes: 2,
        ..cpus(2)
    };
    let (world, slabs) = built("flagstone", setup);
    let id = cache_of(&slabs, 256);
    world.run_on(CpuId(0));
    let near = take(&slabs, id, 100);
    world.run_on(CpuId(1));
    let mut far = take(&slabs, id, 400);
    for object in near {
        let few = far.split_off(far.len() - 4);
        give(&slabs, id, few);
        give(&slabs, id, Vec::from([object]));
    }
    assert!(slabs.node(id, NodeId(1)).barn.full() > 0);
    assert_eq!(slabs.destroy_cache(id), Ok(()));
    verify::check_slabs(&slabs).expect("whole");
}

/// Full sheaves that came to the barn in each of 2000 rounds, in which CPU 0 takes an object for each
/// of 32 others, which free it.
fn sheaves_by_round(spread: u32) -> Vec<u32> {
    let mut policy = Policy::default();
    policy.limits.sheaf_spread = spread;
    let (world, slabs) = built_with(&policy, cpus(33));
    sheaves_by_round_in(&world, &slabs, 32)
}

fn sheaves_by_round_in(world: &World, slabs: &TestSlabs, others: u32) -> Vec<u32> {
    let id = cache_of(slabs, 64);
    let barn = &slabs.node(id, NodeId(0)).barn;
    let mut rounds = Vec::new();
    for _ in 0..2000 {
        world.run_on(CpuId(0));
        let objects = take(slabs, id, others as usize);
        let before = barn.full();
        for (cpu, object) in (1..).zip(objects) {
            world.run_on(CpuId(cpu));
            give(slabs, id, Vec::from([object]));
        }
        rounds.push(barn.full().saturating_sub(before));
    }
    world.run_on(CpuId(0));
    verify::check_slabs(slabs).expect("whole");
    rounds
}

#[test]
fn what_sheaves_differ_by_does_not_depend_on_where_the_heap_lies() {
    let mut policy = Policy::default();
    // One of seven lengths, which is no part of the distance between two heaps.
    policy.limits.sheaf_spread = 9;
    let (one, other) = (built_with(&policy, cpus(9)), built_with(&policy, cpus(9)));
    assert_ne!(one.1.pages().base(), other.1.pages().base());
    let [one, other] = [one, other].map(|(world, slabs)| {
        world.enter(CpuId(0));
        sheaves_by_round_in(&world, &slabs, 8)
    });
    assert_eq!(one, other);
}

#[test]
fn cpus_that_are_served_in_turn_do_not_come_to_the_barn_all_at_once() {
    let [alike, spread] = [0, 8].map(|spread| {
        let rounds = sheaves_by_round(spread);
        rounds.into_iter().max().expect("rounds")
    });
    assert!(alike >= 24, "{alike}: else this shows nothing");
    assert!(spread <= 12, "{spread}");
}

/// Slots of the sheaves after CPU 0 took 20 objects and, `pause` ns later, each of `others` freed one.
fn capacity_after_first_frees(others: u32, pause: u64) -> [u32; 2] {
    let (world, slabs) = built("flagstone", cpus(8));
    let id = cache_of(&slabs, 128);
    let first = slabs.cache(id).sheaf_capacity();
    world.run_on(CpuId(0));
    let objects = take(&slabs, id, 20);
    world.advance(pause);
    for (cpu, object) in (1..=others).zip(objects) {
        world.run_on(CpuId(cpu));
        give(&slabs, id, Vec::from([object]));
    }
    verify::check_slabs(&slabs).expect("whole");
    [first, slabs.cache(id).sheaf_capacity()]
}

#[test]
fn several_cpus_that_are_fed_by_one_begin_with_large_sheaves() {
    let [first, now] = capacity_after_first_frees(2, 0);
    assert_eq!((first, now), (29, 253));
    let [first, two_cpus] = capacity_after_first_frees(1, 0);
    assert_eq!(two_cpus, first, "two are no crowd");
    let [first, later] = capacity_after_first_frees(7, 2_000_000);
    assert_eq!(later, first, "nobody is being fed");
}

#[test]
fn cpus_that_take_before_they_free_begin_with_small_sheaves() {
    let (world, slabs) = built("flagstone", cpus(8));
    let id = cache_of(&slabs, 128);
    let first = slabs.cache(id).sheaf_capacity();
    for cpu in 0..8 {
        world.run_on(CpuId(cpu));
        let mut objects = take(&slabs, id, 2);
        objects.extend(take(&slabs, id, 2));
        give(&slabs, id, objects);
    }
    assert_eq!(slabs.cache(id).sheaf_capacity(), first);
}

#[test]
fn a_barn_has_room_for_a_sheaf_of_each_cpu_of_a_crowd() {
    let (world, slabs) = built("flagstone", cpus(33));
    let id = cache_of(&slabs, 1024);
    for _ in 0..63 * 3 {
        world.run_on(CpuId(0));
        let objects = take(&slabs, id, 32);
        for (cpu, object) in (1..).zip(objects) {
            world.run_on(CpuId(cpu));
            give(&slabs, id, Vec::from([object]));
        }
    }
    assert_eq!(flushes(&slabs, id), 0);
    verify::check_slabs(&slabs).expect("whole");
}

#[test]
fn kernels_and_sizes_set_by_hand_have_sheaves_that_are_all_alike() {
    let mut by_hand = Policy::default();
    by_hand.set("sheaf_capacity", "60").expect("a key");
    let kernel = crate::policy::for_tests::plain();
    for policy in [by_hand, kernel] {
        let (_world, slabs) = built_with(&policy, cpus(2));
        let cache = slabs.cache(cache_of(&slabs, 64));
        let target = cache.sheaf_capacity();
        assert!(target > 8);
        assert!((0..100).all(|nth| cache.nth_capacity(target, nth) == target));
    }
}
