//! The figures of each kernel version, as the rule sheet states them.

use crate::array_cache::array_fill as fill;
use crate::cpu_slab::WithLock;
use crate::engine_tests::*;
use crate::host::Host;
use crate::policy::Named;
use crate::rules;
use crate::state::GuestState;
use crate::{EngineCounts, Kernels, counts};
use flagstone_core::base::{CpuId, NodeId, Pfn};
use flagstone_core::platform::Platform;
use flagstone_core::platform::testing::TestingWith;
use flagstone_core::policy::Policy;
use flagstone_core::slab::{Cache, CacheRequest, CpuHeld, ObjectEngine, Slab, SlabState, SlabView};
use flagstone_core::sync::Ordering::Relaxed;
use std::ptr::NonNull;
use std::vec::Vec;

fn take(slabs: &TestSlabs, cache: &Cache, count: u32) -> Vec<NonNull<u8>> {
    (0..count)
        .map(|_| slabs.alloc(cache).expect("memory"))
        .collect()
}

fn give(slabs: &TestSlabs, cache: &Cache, objects: impl IntoIterator<Item = NonNull<u8>>) {
    for object in objects {
        // SAFETY: each object is live and given up.
        unsafe { slabs.free(cache, object) };
    }
}

fn nr_partial(slabs: &TestSlabs, cache: &Cache) -> u32 {
    slabs.node(cache.id(), NodeId(0)).nr_partial()
}

fn slabs_of(slabs: &TestSlabs, cache: &Cache) -> usize {
    SlabView::heads(slabs, cache).count()
}

/// `count` full slabs' objects, grouped by slab, allocated on CPU 0.
fn full_slabs(slabs: &TestSlabs, cache: &Cache, count: u32) -> Vec<Vec<NonNull<u8>>> {
    let per_slab = cache.geometry().objects();
    (0..count).map(|_| take(slabs, cache, per_slab)).collect()
}

/// Slabs on the node's list with one object free each, put there past the CPUs' lists.
fn list_of_partial_slabs(slabs: &TestSlabs, cache: &Cache, count: u32) -> Vec<Vec<NonNull<u8>>> {
    let mut groups = full_slabs(slabs, cache, count);
    for group in &mut groups {
        give(slabs, cache, group.pop());
    }
    Kernels::flush(slabs, cache);
    assert_eq!(nr_partial(slabs, cache), count);
    groups
}

#[test]
fn a_cpu_that_only_frees_drains_seven_slabs_of_256_bytes_at_a_time() {
    for name in ["linux-6.1", "linux-6.5", "linux-6.7", "linux-6.12"] {
        let (world, slabs) = built(name, cpus(2));
        let cache = slabs.cache(cache_of(&slabs, 256));
        assert_eq!(cache.geometry().objects(), 16);
        let groups = full_slabs(&slabs, cache, 40);
        // The last full slab is still CPU 0's: one more allocation gives it up.
        let _extra = take(&slabs, cache, 1);
        world.run_on(CpuId(1));
        let mut drained_at = Vec::new();
        for (number, group) in groups.iter().enumerate() {
            let before = nr_partial(&slabs, cache);
            give(&slabs, cache, group.first().copied());
            if nr_partial(&slabs, cache) != before {
                assert_eq!(nr_partial(&slabs, cache) - before, 7, "{name}");
                drained_at.push(number);
            }
        }
        assert_eq!(drained_at, [7, 14, 21, 28, 35], "{name}");
        let counts = counts(cache);
        assert_eq!((counts.drains, counts.drained), (5, 35), "{name}");
        check(&slabs, name);
    }
}

#[test]
fn a_refill_takes_one_slab_and_four_for_the_cpu() {
    for name in ["linux-6.1", "linux-6.12"] {
        let (_world, slabs) = built(name, cpus(2));
        let cache = slabs.cache(cache_of(&slabs, 256));
        let _groups = list_of_partial_slabs(&slabs, cache, 12);
        let before = counts(cache);
        let _one = take(&slabs, cache, 1);
        let after = counts(cache);
        assert_eq!(after.slabs_taken - before.slabs_taken, 5, "{name}");
        assert_eq!(after.list_visits - before.list_visits, 1, "{name}");
        assert_eq!(nr_partial(&slabs, cache), 7, "{name}");
        let held = rules::cpu_slab(cache, CpuId(0));
        assert_eq!(held.partial_slabs(), 4, "{name}");
        // The four serve the next allocations without the list.
        let _four = take(&slabs, cache, 4);
        assert_eq!(counts(cache).list_visits, after.list_visits);
        check(&slabs, name);
    }
}

#[test]
fn a_limit_of_zero_takes_two_slabs_until_6_7_and_one_since() {
    for (name, expected) in [("linux-6.1", 2), ("linux-6.12", 1)] {
        let mut policy = Policy::parse(name).expect("known");
        policy.set("cpu_partial", "0").expect("accepted");
        let (_world, slabs) = built_with(&policy, cpus(2));
        let cache = slabs.cache(cache_of(&slabs, 256));
        let _groups = list_of_partial_slabs(&slabs, cache, 6);
        let before = counts(cache).slabs_taken;
        let _one = take(&slabs, cache, 1);
        let taken = counts(cache).slabs_taken - before;
        assert_eq!(taken, expected, "{name}");
    }
}

#[test]
fn before_5_16_limits_count_objects() {
    let (world, slabs) = built("linux-3.16", cpus(2));
    let cache = slabs.cache(cache_of(&slabs, 256));
    // 13 objects for 256 bytes: a refill stops above six, a drain comes above thirteen.
    let groups = list_of_partial_slabs(&slabs, cache, 12);
    let before = counts(cache).slabs_taken;
    let extra = take(&slabs, cache, 1);
    assert_eq!(counts(cache).slabs_taken - before, 7);
    give(&slabs, cache, extra);
    drop(groups);

    let groups = full_slabs(&slabs, cache, 40);
    let _extra = take(&slabs, cache, 1);
    world.run_on(CpuId(1));
    let drains = counts(cache).drains;
    // Slabs enter the list with one free object each: the fifteenth finds fourteen there.
    for group in &groups[..14] {
        give(&slabs, cache, group.first().copied());
    }
    assert_eq!(counts(cache).drains, drains);
    give(&slabs, cache, groups[14].first().copied());
    assert_eq!(counts(cache).drains, drains + 1);
    check(&slabs, "linux-3.16");
}

/// Empty slabs a node keeps: all objects of `count` slabs on its list are freed.
fn kept_of(name: &str, count: u32) -> (u32, usize) {
    let (_world, slabs) = built(name, cpus(1));
    let cache = slabs.cache(cache_of(&slabs, 256));
    let groups = list_of_partial_slabs(&slabs, cache, count);
    for group in groups {
        give(&slabs, cache, group);
    }
    check(&slabs, name);
    (nr_partial(&slabs, cache), slabs_of(&slabs, cache))
}

#[test]
fn the_list_keeps_min_partial_empty_slabs_by_each_version_s_comparison() {
    // The list still counts the slab that becomes empty: with `>= 5` the fifth one left goes
    // too, with `> 5` it stays.
    assert_eq!(kept_of("linux-6.12", 12), (4, 4));
    assert_eq!(kept_of("linux-6.1", 12), (4, 4));
    assert_eq!(kept_of("linux-3.16", 12), (5, 5));
    // In 2007 a free that empties a slab never asks.
    assert_eq!(kept_of("linux-2.6.24", 12), (0, 0));
}

#[test]
fn in_2007_only_a_slab_given_up_empty_asks_min_partial() {
    for (name, size, kept) in [
        ("linux-2.6.24", 1024, 5),
        ("linux-2.6.24+dynamic-min-partial", 1024, 10),
        ("linux-2.6.24+dynamic-min-partial", 64, 6),
    ] {
        let (world, slabs) = built(name, cpus(16));
        let cache = slabs.cache(cache_of(&slabs, size));
        // Every CPU has a slab of its own with all objects free.
        for cpu in 0..16 {
            world.run_on(CpuId(cpu));
            let one = take(&slabs, cache, 1);
            give(&slabs, cache, one);
        }
        assert_eq!(slabs_of(&slabs, cache), 16);
        Kernels::flush(&*slabs, cache);
        assert_eq!(nr_partial(&slabs, cache), kept, "{name}, {size} bytes");
        assert_eq!(slabs_of(&slabs, cache), kept as usize);
        check(&slabs, name);
    }
}

#[test]
fn in_2007_every_visit_of_the_list_yields_one_slab() {
    let (_world, slabs) = built("linux-2.6.24", cpus(2));
    let cache = slabs.cache(cache_of(&slabs, 256));
    let groups = full_slabs(&slabs, cache, 6);
    let _extra = take(&slabs, cache, cache.geometry().objects());
    let visits = counts(cache).list_visits;
    for group in &groups {
        give(&slabs, cache, group.first().copied());
    }
    assert_eq!(nr_partial(&slabs, cache), 6);
    assert_eq!(counts(cache).list_visits - visits, 6);
    let _again = take(&slabs, cache, 6);
    let after = counts(cache);
    assert_eq!((after.list_visits - visits, after.slabs_taken), (12, 6));
    assert_eq!(nr_partial(&slabs, cache), 0);
    check(&slabs, "linux-2.6.24");
}

#[test]
fn the_slab_allocator_refills_sixteen_when_cold_and_drains_half_an_array() {
    let (world, slabs) = built("slab-2.6.24", cpus(2));
    let cache = slabs.cache(cache_of(&slabs, 64));
    let limit = rules::rules(cache).queues.limit;
    assert_eq!(limit, 120);
    let first = take(&slabs, cache, 1);
    assert_eq!(fill(cache, CpuId(0)), 15);
    let more = take(&slabs, cache, 199);
    world.run_on(CpuId(1));
    let all: Vec<_> = first.into_iter().chain(more).collect();
    give(&slabs, cache, all[..120].iter().copied());
    assert_eq!(fill(cache, CpuId(1)), 120);
    assert_eq!(counts(cache).drains, 0);
    give(&slabs, cache, [all[120]]);
    assert_eq!(fill(cache, CpuId(1)), 61);
    // The drained sixty lie in the shared array, from where CPU 0 gets them in one batch.
    let refills = counts(cache).refills;
    world.run_on(CpuId(0));
    let left = fill(cache, CpuId(0));
    let _rest = take(&slabs, cache, left + 1);
    assert_eq!(counts(cache).refills, refills + 1);
    assert_eq!(fill(cache, CpuId(0)), 59);
    check(&slabs, "slab-2.6.24");
}

#[test]
fn the_slab_allocator_keeps_free_limit_objects_in_empty_slabs() {
    let (_world, slabs) = built("slab-2.6.24", cpus(1));
    let cache = slabs.cache(cache_of(&slabs, 2048));
    let objects = take(&slabs, cache, 1000);
    give(&slabs, cache, objects);
    // One CPU: no shared array; limit 24, batch 12, free_limit (1 + 1) * 12 + objects per slab.
    let limit = 24 + cache.geometry().objects();
    let free = Host(&slabs).shared(cache, NodeId(0)).free_objects();
    assert!(free <= limit, "{free} above {limit}");
    assert!(free + 2 > limit, "{free} far below {limit}");
    check(&slabs, "slab-2.6.24");
}

#[test]
fn frees_put_aside_come_back_in_one_batch_or_when_memory_is_wanted() {
    for name in [
        "linux-2.6.24+defer-contended-free",
        "linux-6.12+defer-contended-free",
    ] {
        let (_world, slabs) = built(name, cpus(2));
        let cache = slabs.cache(cache_of(&slabs, 256));
        let objects = take(&slabs, cache, 64);
        for &object in &objects[..29] {
            Host(&slabs).defer(cache, object);
        }
        assert_eq!(CpuHeld::of(&slabs, cache).deferred_objects, 29, "{name}");
        assert_eq!(live(&slabs, cache), 35, "{name}");
        check(&slabs, name);
        Host(&slabs).defer(cache, objects[29]);
        assert_eq!(CpuHeld::of(&slabs, cache).deferred_objects, 0, "{name}");
        Host(&slabs).defer(cache, objects[30]);
        assert_eq!(live(&slabs, cache), 33, "{name}");
        // 33 are out, so some allocation of the next 64 finds no slab at hand and looks here.
        let more = take(&slabs, cache, 64);
        assert_eq!(CpuHeld::of(&slabs, cache).deferred_objects, 0, "{name}");
        assert_eq!(counts(cache).deferred, 31, "{name}");
        check(&slabs, name);
        give(&slabs, cache, more);
        give(&slabs, cache, objects[31..].iter().copied());
        assert_eq!(slabs.destroy_cache(cache.id()), Ok(()), "{name}");
        check(&slabs, name);
    }
}

#[test]
fn a_cache_can_be_ended_with_frees_of_full_slabs_put_aside() {
    for name in [
        "linux-6.5+defer-contended-free",
        "linux-6.12+defer-contended-free",
    ] {
        let (world, slabs) = built(name, cpus(2));
        // One object to a slab: each of these frees makes a full slab empty.
        let cache = slabs.cache(cache_of(&slabs, 30_000));
        let objects = take(&slabs, cache, 6);
        for (number, object) in objects.into_iter().enumerate() {
            world.run_on(CpuId(number as u32 % 2));
            Host(&slabs).defer(cache, object);
        }
        assert_eq!(slabs.destroy_cache(cache.id()), Ok(()), "{name}");
        check(&slabs, name);
    }
}

#[test]
fn a_free_that_finds_its_slab_locked_is_put_aside() {
    let (world, slabs) = built("linux-2.6.24+defer-contended-free", cpus(2));
    let cache = slabs.cache(cache_of(&slabs, 256));
    let objects = take(&slabs, cache, cache.geometry().objects());
    let _next = take(&slabs, cache, 1);
    let head = slabs.pages().pfn_of(objects[0].as_ptr());
    let head = head
        .and_then(|pfn| slabs.pages().head_of(pfn))
        .expect("a slab");
    // SAFETY: a live slab of this cache.
    let slab = unsafe { Slab::at(&slabs, cache, head) };
    let lock = slab.lock_2007();
    let taken = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            world.enter(CpuId(1));
            lock.try_acquire_now::<TestingWith<Kernels>>()
        });
        other.join().expect("no panic")
    });
    assert!(taken, "the other thread holds the slab's lock now");
    give(&slabs, cache, [objects[0]]);
    assert_eq!(CpuHeld::of(&slabs, cache).deferred_objects, 1);
    lock.reset::<TestingWith<Kernels>>();
    give(&slabs, cache, [objects[1]]);
    assert_eq!(CpuHeld::of(&slabs, cache).deferred_objects, 1);
    Kernels::flush(&*slabs, cache);
    assert_eq!(CpuHeld::of(&slabs, cache).deferred_objects, 0);
    check(&slabs, "deferred");
}

/// A fork takes sections and lists, not the locks of slabs, of which there may be thousands: a child
/// whose slab is locked by a thread that it does not have would wait for ever at the next free.
#[test]
fn a_fork_that_waits_for_sections_waits_for_whoever_holds_a_slabs_lock() {
    let (world, slabs) = built("linux-2.6.24", cpus(1));
    let cache = slabs.cache(cache_of(&slabs, 256));
    let object = slabs.alloc(cache).expect("memory");
    let section = rules::cpu_slab(cache, CpuId(0)).lock();
    let list = slabs.node(cache.id(), NodeId(0)).raw_lock();
    let head = slabs.pages().pfn_of(object.as_ptr());
    let head = head
        .and_then(|pfn| slabs.pages().head_of(pfn))
        .expect("a slab");
    // SAFETY: a live slab of this cache.
    let slab = unsafe { Slab::at(&slabs, cache, head) };
    let lock = slab.lock_2007();
    // As a fork does, which got the lists while a shrink is on its way to one.
    TestingWith::<Kernels>::acquire(list).expect("free");
    std::thread::scope(|scope| {
        let shrink = scope.spawn(|| {
            world.enter(CpuId(0));
            slabs.shrink_cache(cache);
        });
        while lock.holder() == 0 {
            std::thread::yield_now();
        }
        let holders = (section.holder(), lock.holder());
        TestingWith::<Kernels>::release_lock(list);
        shrink.join().expect("no panic");
        assert_eq!(holders.0, holders.1, "the fork would wait");
    });
    give(&slabs, cache, [object]);
    check(&slabs, "after the shrink");
}

#[test]
fn a_slab_that_frees_contend_for_is_given_up_and_passed_over_once() {
    for name in [
        "linux-2.6.24+avoid-contended-slab",
        "linux-6.5+avoid-contended-slab",
        "linux-6.12+avoid-contended-slab",
    ] {
        let (world, slabs) = built(name, cpus(2));
        let cache = slabs.cache(cache_of(&slabs, 256));
        let objects = take(&slabs, cache, cache.geometry().objects());
        let own = rules::cpu_slab(cache, CpuId(0)).slab();
        // Another CPU frees into CPU 0's slab, and meets somebody there.
        world.run_on(CpuId(1));
        give(&slabs, cache, [objects[0], objects[1]]);
        contend(&slabs, own);
        world.run_on(CpuId(0));
        let next = take(&slabs, cache, 1);
        let now = rules::cpu_slab(cache, CpuId(0)).slab();
        assert_ne!(now, own, "{name}: the contended slab was given up");
        let state = state_of(&slabs, own);
        assert!(!state.frozen(), "{name}");
        assert!(!state.contended(), "{name}: passed over, once");
        assert_eq!(nr_partial(&slabs, cache), 1, "{name}");
        check(&slabs, name);
        world.run_on(CpuId(1));
        let other = take(&slabs, cache, 1);
        assert_eq!(rules::cpu_slab(cache, CpuId(1)).slab(), own, "{name}");
        give(
            &slabs,
            cache,
            objects[2..].iter().chain(&next).chain(&other).copied(),
        );
        assert_eq!(slabs.destroy_cache(cache.id()), Ok(()), "{name}");
    }
}

fn state_of(slabs: &TestSlabs, pfn: Pfn) -> SlabState {
    SlabState(slabs.pages().descriptor(pfn).state.load(Relaxed))
}

fn contend(slabs: &TestSlabs, pfn: Pfn) {
    let contended = state_of(slabs, pfn).with_contended(true);
    slabs
        .pages()
        .descriptor(pfn)
        .state
        .store(contended.0, Relaxed);
}

#[test]
fn freeing_twice_is_noticed_by_every_engine() {
    for name in POLICIES {
        let (_world, slabs) = built(name, cpus(2));
        let cache = slabs.cache(cache_of(&slabs, 256));
        let objects = take(&slabs, cache, 3);
        give(&slabs, cache, [objects[0]]);
        let again = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            give(&slabs, cache, [objects[0]]);
        }));
        let text = again.expect_err(name);
        let text = text.downcast_ref::<std::string::String>().expect("a text");
        assert!(text.starts_with("double free"), "{name}: {text}");
        core::mem::forget(slabs);
    }
}

#[test]
fn memory_that_is_refused_fails_the_allocation_and_nothing_else() {
    for name in POLICIES {
        let (world, slabs) = built(name, cpus(2));
        let cache = slabs.cache(cache_of(&slabs, 1024));
        let mut objects = take(&slabs, cache, 10);
        world.set_budget(world.committed_bytes());
        while let Some(object) = slabs.alloc(cache) {
            objects.push(object);
        }
        assert_eq!(slabs.alloc(cache), None, "{name}");
        check(&slabs, name);
        assert_eq!(live(&slabs, cache), objects.len(), "{name}");
        let back = objects.len() / 2;
        give(&slabs, cache, objects.drain(..back));
        objects.push(slabs.alloc(cache).expect("freed memory serves again"));
        give(&slabs, cache, objects);
        let id = cache.id();
        assert_eq!(slabs.destroy_cache(id), Ok(()), "{name}");
        check(&slabs, name);
    }
}

#[test]
fn a_cache_made_anew_finds_its_cpus_empty() {
    for name in POLICIES {
        let (_world, slabs) = built(name, cpus(3));
        let first = cache_of(&slabs, 128);
        let objects = take(&slabs, slabs.cache(first), 100);
        give(&slabs, slabs.cache(first), objects);
        assert_eq!(slabs.destroy_cache(first), Ok(()));
        let second = cache_of(&slabs, 512);
        assert_eq!(second, first, "the entry is used again");
        assert_eq!(counts(slabs.cache(second)), EngineCounts::default());
        let objects = take(&slabs, slabs.cache(second), 100);
        check(&slabs, name);
        give(&slabs, slabs.cache(second), objects);
        assert_eq!(slabs.destroy_cache(second), Ok(()));
    }
}

#[test]
fn every_object_is_constructed_once_and_keeps_it_while_free() {
    unsafe extern "C" fn construct(object: *mut u8) {
        // SAFETY: the cache's objects have 40 bytes.
        unsafe { object.write_bytes(0x5A, 40) };
    }
    for name in POLICIES {
        let (_world, slabs) = built(name, cpus(2));
        let mut request = CacheRequest::new("made", 40);
        request.ctor = Some(construct);
        let cache = slabs.cache(slabs.create_cache(&request).expect("a cache"));
        for _ in 0..3 {
            let objects = take(&slabs, cache, 300);
            for object in &objects {
                // SAFETY: live, 40 bytes.
                let bytes = unsafe { std::slice::from_raw_parts(object.as_ptr(), 40) };
                assert!(bytes.iter().all(|&b| b == 0x5A), "{name}");
            }
            give(&slabs, cache, objects);
        }
    }
}
