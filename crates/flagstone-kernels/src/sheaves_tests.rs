//! Sheaves of 6.18 to 7.2, step by step as the rule sheet states them (docs: linux-policies 5).

use crate::engine_tests::*;
use crate::rules;
use crate::{Deferral, Kernels, after_grace, counts, free_rcu, give_back, prefill};
use flagstone_core::base::{CpuId, NodeId, Pfn};
use flagstone_core::platform::Platform;
use flagstone_core::platform::testing::{Setup, TestingWith, World};
use flagstone_core::slab::{Cache, CacheRequest, CpuHeld, Node, OwnSheaf, Slab};
use flagstone_core::sync::Ordering::Relaxed;
use std::boxed::Box;
use std::ptr::NonNull;
use std::sync::Arc;
use std::vec::Vec;

/// Both double and single layer, for a cache of 256 bytes, sixteen to a slab, that asked for `capacity`.
fn opted(name: &str, setup: Setup, capacity: u32) -> (Arc<World>, Box<TestSlabs>) {
    let (world, slabs) = built(name, setup);
    let mut request = CacheRequest::new("maple_node", 256);
    request.sheaf_capacity = capacity;
    let id = slabs.create_cache(&request).expect("a cache");
    assert_eq!(slabs.cache(id).geometry().objects(), 16);
    (world, slabs)
}

fn cache(slabs: &TestSlabs) -> &Cache {
    slabs
        .live_caches()
        .find(|cache| cache.name() == "maple_node")
        .expect("made by `opted`")
}

fn take(slabs: &TestSlabs, count: u32) -> Vec<NonNull<u8>> {
    let cache = cache(slabs);
    (0..count)
        .map(|_| slabs.alloc(cache).expect("memory"))
        .collect()
}

fn give(slabs: &TestSlabs, objects: impl IntoIterator<Item = NonNull<u8>>) {
    for object in objects {
        // SAFETY: each object is live and given up.
        unsafe { slabs.free(cache(slabs), object) };
    }
}

fn node(slabs: &TestSlabs) -> &Node {
    slabs.node(cache(slabs).id(), NodeId(0))
}

/// Slabs of node 0's list with their free objects, from the head.
fn list(slabs: &TestSlabs) -> Vec<(Pfn, u32)> {
    let cache = cache(slabs);
    let mut pfn = slabs
        .node(cache.id(), NodeId(0))
        .first_partial::<TestingWith<Kernels>>();
    let mut found = Vec::new();
    while pfn.is_some() {
        // SAFETY: slabs on the list are live slabs of the cache.
        let slab = unsafe { Slab::at(slabs, cache, pfn) };
        found.push((pfn, slab.state().free()));
        pfn = Pfn(slab.descriptor.next.load(Relaxed));
    }
    found
}

fn slab_of(slabs: &TestSlabs, object: NonNull<u8>) -> Pfn {
    // SAFETY: callers pass objects of the cache that are handed out.
    unsafe { Slab::holding(slabs, cache(slabs), object) }.0.pfn
}

/// All free objects back in slabs, all slabs on the list.
fn shrunk(slabs: &TestSlabs) {
    slabs.shrink_cache(cache(slabs));
    check(slabs, "after shrinking");
}

#[test]
fn only_caches_that_ask_have_sheaves_under_6_18_and_nearly_all_under_7_0() {
    for (name, asked, others) in [
        ("linux-6.12", 0, 0),
        ("linux-6.18", 32, 0),
        ("linux-6.19", 32, 0),
        ("linux-7.0", 32, 28),
        ("linux-7.2", 32, 28),
    ] {
        let (_world, slabs) = opted(name, cpus(2), 32);
        assert_eq!(cache(&slabs).sheaf_capacity(), asked, "{name}");
        let other = slabs.cache(cache_of(&slabs, 256));
        assert_eq!(other.sheaf_capacity(), others, "{name}");
        // Below the sheaves of 6.18 the CPU's own slab goes on.
        let _one = take(&slabs, 1);
        let slab = rules::cpu_slab(cache(&slabs), CpuId(0)).slab();
        assert_eq!(slab.is_some(), others == 0, "{name}");
        check(&slabs, name);
    }
}

#[test]
fn the_first_allocation_of_6_18_fills_a_sheaf_from_the_cpus_slab() {
    let (_world, slabs) = opted("linux-6.18", cpus(2), 32);
    let _one = take(&slabs, 1);
    // Two slabs of sixteen: the second is the CPU's own, all of it in the sheaf.
    let did = counts(cache(&slabs));
    assert_eq!((did.new_slabs, did.list_visits), (2, 0));
    let _rest = take(&slabs, 31);
    assert_eq!(counts(cache(&slabs)).new_slabs, 2);
    let _more = take(&slabs, 1);
    assert_eq!(counts(cache(&slabs)).new_slabs, 4);
    check(&slabs, "linux-6.18");
}

#[test]
fn the_first_allocation_of_7_0_fills_a_sheaf_from_new_slabs_and_lists_the_rest() {
    let (_world, slabs) = opted("linux-7.0", cpus(2), 0);
    let _one = take(&slabs, 1);
    // Sixteen and twelve objects: four are left, on the list.
    let did = counts(cache(&slabs));
    assert_eq!((did.new_slabs, did.list_visits), (2, 1));
    assert_eq!(list(&slabs)[0].1, 4);
    let _rest = take(&slabs, 27);
    assert_eq!(counts(cache(&slabs)).new_slabs, 2);
    // The four, then 24 of two new slabs.
    let _more = take(&slabs, 1);
    let did = counts(cache(&slabs));
    assert_eq!((did.new_slabs, did.list_visits, did.slabs_taken), (4, 3, 1));
    assert_eq!(list(&slabs).len(), 1);
    assert_eq!(list(&slabs)[0].1, 8);
    check(&slabs, "linux-7.0");
}

#[test]
fn a_refill_takes_the_slab_it_unlinked_last_first_and_since_7_2_last() {
    refill("linux-7.0", |_| 0);
    refill("linux-7.1", |_| 0);
    refill("linux-7.2", |needed| needed - 1);
}

/// Fills a sheaf of 28 from slabs with a few free objects. The objects put last are those of the slab taken last,
/// and so is what is over; `last` tells which of the unlinked ones that is.
fn refill(name: &str, last: impl Fn(usize) -> usize) {
    let (_world, slabs) = opted(name, cpus(1), 0);
    // Four sheaves of 28 are seven slabs.
    let objects = take(&slabs, 112);
    let mut groups: Vec<Vec<_>> = Vec::new();
    for object in objects {
        match groups
            .iter_mut()
            .find(|group| slab_of(&slabs, group[0]) == slab_of(&slabs, object))
        {
            Some(group) => group.push(object),
            None => groups.push(Vec::from([object])),
        }
    }
    shrunk(&slabs);
    // Slabs with 10, 10, 12 and 9 free objects, the others full.
    for (group, free) in groups.iter_mut().zip([10, 10, 12, 9]) {
        give(&slabs, group.split_off(16 - free));
    }
    shrunk(&slabs);
    let before = list(&slabs);
    assert_eq!(before.len(), 4, "{name}");
    // As many from the head as hold 28.
    let mut held = 0;
    let needed = before.iter().take_while(|(_, free)| {
        let wanted = held < 28;
        held += free;
        wanted
    });
    let needed = needed.count();
    let held: u32 = before[..needed].iter().map(|(_, free)| free).sum();
    let last = before[last(needed)].0;
    let did = counts(cache(&slabs));
    let one = take(&slabs, 1);
    assert_eq!(slab_of(&slabs, one[0]), last, "{name}");
    let taken = counts(cache(&slabs)).slabs_taken - did.slabs_taken;
    assert_eq!(taken, needed as u64, "{name}");
    let mut expected = before[needed..].to_vec();
    if held > 28 {
        expected.push((last, held - 28));
    }
    assert_eq!(list(&slabs), expected, "{name}");
    check(&slabs, name);
}

#[test]
fn frees_fill_main_then_spare_then_the_barn_and_the_main_sheaf_goes_there() {
    for (name, capacity) in [("linux-6.18", 32), ("linux-7.0", 28)] {
        let (_world, slabs) = opted(name, cpus(1), if capacity == 32 { 32 } else { 0 });
        let n = capacity as usize;
        let mut objects = take(&slabs, 14 * capacity);
        let later = objects.split_off(2 * n + 1);
        give(&slabs, objects.iter().copied());
        // main 0 is spare, main 1 went to the barn, and the last object lies in a new sheaf.
        assert_eq!(
            (node(&slabs).barn.full(), node(&slabs).barn.empty()),
            (1, 0),
            "{name}"
        );
        let again = take(&slabs, 2 * capacity + 1);
        let (first, second) = (&objects[..n], &objects[n..2 * n]);
        let order = objects[2 * n..].iter();
        let order = order.chain(first.iter().rev()).chain(second.iter().rev());
        assert!(again.iter().eq(order), "{name}");
        assert_eq!(node(&slabs).barn.full(), 0, "{name}");

        // Twelve sheaves full: two here, ten in the barn. One object more flushes the spare.
        give(&slabs, again);
        give(&slabs, later[..10 * n - 1].iter().copied());
        assert_eq!(node(&slabs).barn.full(), 10, "{name}");
        let slabs_before = list(&slabs).len();
        give(&slabs, [later[10 * n - 1]]);
        assert_eq!(node(&slabs).barn.full(), 10, "{name}");
        check(&slabs, name);
        let free: u32 = list(&slabs).iter().map(|(_, free)| free).sum();
        assert!(
            name == "linux-6.18" || free >= capacity,
            "{name}: {slabs_before} slabs"
        );
        give(&slabs, later[10 * n..].iter().copied());
        shrunk(&slabs);
        assert_eq!(slabs.destroy_cache(cache(&slabs).id()), Ok(()), "{name}");
    }
}

#[test]
fn an_object_of_another_node_goes_past_all_sheaves_to_its_slab() {
    let setup = Setup {
        cpus: 4,
        nodes: 2,
        ..Setup::default()
    };
    let far = (0..4)
        .map(CpuId)
        .find(|&cpu| {
            let _world = World::enter_new(setup);
            TestingWith::<Kernels>::node_of(cpu) == NodeId(1)
        })
        .expect("a CPU on the second node");
    for name in ["linux-6.18", "linux-7.0"] {
        let (world, slabs) = opted(name, setup, 32);
        // The slabs are full but for what sheaves hold.
        let objects = take(&slabs, 64);
        let listed = list(&slabs).len();
        world.run_on(far);
        give(&slabs, objects[..16].iter().copied());
        let held = CpuHeld::of(&slabs, cache(&slabs));
        match name {
            // One slab became partial by the first free, and empty by the last.
            "linux-7.0" => assert_eq!(list(&slabs).len(), listed + 1, "{name}"),
            // A CPU's partial list has it, whatever node it is of.
            _ => assert_eq!((held.slabs, list(&slabs).len()), (2, listed), "{name}"),
        }
        assert_eq!(slabs.node(cache(&slabs).id(), NodeId(1)).barn.full(), 0);
        // The next object here is of this node: nothing of what was freed was kept.
        let one = take(&slabs, 1);
        assert!(!objects.contains(&one[0]), "{name}");
        check(&slabs, name);
    }
}

fn rcu(slabs: &TestSlabs, object: NonNull<u8>) -> Option<OwnSheaf> {
    // SAFETY: callers give the object up.
    match unsafe { free_rcu(slabs, cache(slabs), object) } {
        Deferral::Kept => None,
        Deferral::Full(sheaf) => Some(sheaf),
        Deferral::Refused => panic!("an object of this node, of a cache with sheaves"),
    }
}

#[test]
fn deferred_frees_gather_in_a_sheaf_and_come_back_through_the_barn() {
    for name in ["linux-6.18", "linux-7.0"] {
        let (_world, slabs) = opted(name, cpus(1), 32);
        let mut objects = take(&slabs, 32 * 13);
        for round in 0..12 {
            let group = objects.split_off(objects.len() - 32);
            let mut full = group.iter().filter_map(|&object| rcu(&slabs, object));
            let sheaf = full.next().expect("the 32nd object fills it");
            assert!(full.next().is_none(), "{name}");
            let empty = node(&slabs).barn.empty();
            after_grace(&slabs, cache(&slabs), sheaf);
            // Ten stay full; the others are flushed and stay empty.
            assert_eq!(node(&slabs).barn.full(), (round + 1).min(10), "{name}");
            assert_eq!(
                node(&slabs).barn.empty() - empty,
                u32::from(round >= 10),
                "{name}"
            );
            check(&slabs, name);
        }
        assert_eq!(rcu(&slabs, objects[0]).map(drop), None);
        assert_eq!(
            CpuHeld::of(&slabs, cache(&slabs)).deferred_objects,
            1,
            "{name}"
        );
        check(&slabs, name);
        assert_eq!(live(&slabs, cache(&slabs)), 31, "{name}");
        give(&slabs, objects.drain(1..));
        shrunk(&slabs);
        assert_eq!(slabs.destroy_cache(cache(&slabs).id()), Ok(()), "{name}");
    }
}

#[test]
fn a_prefilled_sheaf_has_what_was_asked_for_and_becomes_spare() {
    for name in ["linux-6.18", "linux-7.0"] {
        let (_world, slabs) = opted(name, cpus(1), 32);
        let other = slabs.cache(cache_of(&slabs, 64));
        let small = prefill(&slabs, other, 3);
        assert_eq!(small.is_some(), name == "linux-7.0");
        small
            .into_iter()
            .for_each(|small| give_back(&slabs, other, small));
        let mut sheaf = prefill(&slabs, cache(&slabs), 7).expect("memory");
        assert_eq!(sheaf.objects(), 32, "{name}");
        let used: Vec<_> = (0..7)
            .filter_map(|_| sheaf.take::<TestingWith<Kernels>>())
            .collect();
        let made = counts(cache(&slabs)).new_slabs;
        give_back(&slabs, cache(&slabs), sheaf);
        // It is the spare now: 25 allocations take of it.
        let next = take(&slabs, 25);
        assert_eq!(counts(cache(&slabs)).new_slabs, made, "{name}");
        check(&slabs, name);

        // More than a sheaf holds: one of its own size, which nobody keeps.
        let large = prefill(&slabs, cache(&slabs), 50).expect("memory");
        assert_eq!(large.objects(), 50, "{name}");
        give_back(&slabs, cache(&slabs), large);
        assert_eq!(
            (node(&slabs).barn.full(), node(&slabs).barn.empty()),
            (0, 0),
            "{name}"
        );
        check(&slabs, name);
        give(&slabs, used.into_iter().chain(next));
        shrunk(&slabs);
        assert_eq!(slabs.destroy_cache(cache(&slabs).id()), Ok(()), "{name}");
    }
}
