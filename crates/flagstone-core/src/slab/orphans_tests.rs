use crate::base::NodeId;
use crate::platform::Platform;
use crate::platform::testing::Testing;
use crate::slab::Cache;
use crate::slab::slabs_for_tests::{TestSlabs, built, cache_of, check, cpus};
use crate::sync::Ordering::Relaxed;
use std::ptr::NonNull;
use std::vec::Vec;

use crate::policy::for_tests::SHEAVES as POLICIES;
const OBJECTS: usize = 3000;
const NODE: NodeId = NodeId(0);

/// Allocates until no slab is on the cache's list: a check on top of the list's holder cannot walk it.
fn fill(slabs: &TestSlabs, cache: &Cache) -> Vec<NonNull<u8>> {
    let mut objects = Vec::new();
    while objects.len() < OBJECTS || slabs.node(cache.id(), NODE).nr_partial() > 0 {
        assert!(objects.len() < 2 * OBJECTS, "slabs on the list are taken");
        objects.push(slabs.alloc(cache).expect("memory"));
    }
    objects
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
