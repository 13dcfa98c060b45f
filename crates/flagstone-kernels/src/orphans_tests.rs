//! What a signal handler leaves on top of a list's holder, under the engines of old kernels.

use crate::engine_tests::{TestSlabs, built, cache_of, check, cpus};
use flagstone_core::base::NodeId;
use flagstone_core::platform::Platform;
use flagstone_core::platform::testing::Testing;
use flagstone_core::slab::Cache;
use flagstone_core::sync::Ordering::Relaxed;
use std::ptr::NonNull;
use std::vec::Vec;

/// Policies whose slabs change by compare-and-swap.
const POLICIES: &[&str] = &[
    "linux-3.16",
    "linux-6.1",
    "linux-6.5+order4",
    "linux-6.12",
    "linux-6.18",
];
const OBJECTS: usize = 3000;
const NODE: NodeId = NodeId(0);

fn fill(slabs: &TestSlabs, cache: &Cache) -> Vec<NonNull<u8>> {
    (0..OBJECTS)
        .map(|_| slabs.alloc(cache).expect("memory"))
        .collect()
}

/// Does `work` as a signal handler does on top of a thread that holds the cache's list.
fn on_top_of_the_holder(slabs: &TestSlabs, cache: &Cache, work: impl FnOnce()) {
    let lock = slabs.node(cache.id(), NODE).raw_lock();
    Testing::acquire(lock).expect("free");
    work();
    Testing::release_lock(lock);
}

fn give(slabs: &TestSlabs, cache: &Cache, objects: impl IntoIterator<Item = NonNull<u8>>) {
    for object in objects {
        // SAFETY: callers pass objects of the cache, each once.
        unsafe { slabs.free(cache, object) };
    }
}

fn nothing_stays(slabs: &TestSlabs, cache: &Cache, name: &str) {
    check(slabs, name);
    assert_eq!(slabs.destroy_cache(cache.id()), Ok(()), "{name}");
    assert_eq!(
        slabs.node(cache.id(), NODE).orphans(slabs.pages()),
        0,
        "{name}"
    );
    assert_eq!(slabs.lost.load(Relaxed), 0, "{name}");
}

#[test]
fn what_is_freed_on_top_of_the_lists_holder_comes_back() {
    for name in POLICIES {
        let (_world, slabs) = built(name, cpus(1));
        let cache = slabs.cache(cache_of(&slabs, 256));
        let objects = fill(&slabs, cache);
        on_top_of_the_holder(&slabs, cache, || {
            give(&slabs, cache, objects);
            slabs.shrink_cache(cache);
        });
        assert!(
            slabs.node(cache.id(), NODE).orphans(slabs.pages()) > 10,
            "{name}: slabs were full"
        );
        nothing_stays(&slabs, cache, name);
    }
}

#[test]
fn slabs_made_on_top_of_the_lists_holder_are_taken_from_later() {
    for name in POLICIES {
        let (_world, slabs) = built(name, cpus(1));
        let cache = slabs.cache(cache_of(&slabs, 256));
        let mut objects = Vec::new();
        on_top_of_the_holder(&slabs, cache, || {
            objects.push(slabs.alloc(cache).expect("memory"));
            slabs.shrink_cache(cache);
        });
        let slabs_now = || u64::from(slabs.node(cache.id(), NODE).slabs.load(Relaxed));
        let before = slabs_now();
        assert_eq!(
            slabs.node(cache.id(), NODE).orphans(slabs.pages()),
            before,
            "{name}"
        );
        objects.push(slabs.alloc(cache).expect("memory"));
        assert_eq!(slabs_now(), before, "{name}: from a slab that was there");
        give(&slabs, cache, objects);
        nothing_stays(&slabs, cache, name);
    }
}

#[test]
fn an_orphan_whose_last_object_is_freed_stays_until_it_is_taken_up() {
    for name in POLICIES {
        let (_world, slabs) = built(name, cpus(1));
        let cache = slabs.cache(cache_of(&slabs, 256));
        let mut objects = fill(&slabs, cache);
        let rest = objects.split_off(1);
        on_top_of_the_holder(&slabs, cache, || {
            give(&slabs, cache, objects);
            slabs.shrink_cache(cache);
            give(&slabs, cache, rest);
            slabs.shrink_cache(cache);
            check(&slabs, name);
        });
        nothing_stays(&slabs, cache, name);
    }
}

/// SLAB lists a slab at each free: one that is an orphan too would be linked twice.
#[test]
fn orphans_of_slab_are_taken_up_before_a_free_lists_them() {
    let name = "slab-2.6.24";
    let (_world, slabs) = built(name, cpus(1));
    let cache = slabs.cache(cache_of(&slabs, 256));
    let mut objects = Vec::new();
    on_top_of_the_holder(&slabs, cache, || {
        let made = || slabs.alloc(cache).expect("memory");
        objects.extend((0..3).map(|_| made()));
    });
    assert_eq!(
        slabs.node(cache.id(), NODE).orphans(slabs.pages()),
        3,
        "{name}"
    );
    give(&slabs, cache, objects);
    slabs.shrink_cache(cache);
    let objects = fill(&slabs, cache);
    check(&slabs, name);
    give(&slabs, cache, objects);
    nothing_stays(&slabs, cache, name);
}
