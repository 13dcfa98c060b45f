//! Holes in slabs: made by sweeps, filled by allocations, or gone with their slab.

use super::*;
use crate::base::{CpuId, PageCount};
use crate::page::PageConfig;
use crate::platform::Platform;
use crate::platform::testing::{Setup, Testing, World};
use crate::policy::Policy;
use crate::slab::CacheRequest;
use crate::verify::{check_pages, check_slabs};
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use std::boxed::Box;
use std::sync::Arc;
use std::vec::Vec;

const PAGE: usize = 4096;
/// Slabs of 32 KiB hold four of these.
const SIZE: usize = 2 * PAGE;

fn built() -> (Arc<World>, &'static Slabs<Testing>) {
    let world = World::enter_new(Setup::default());
    let policy = Policy::default();
    let config = PageConfig {
        span_bytes: 64 << 20,
        ..PageConfig::of(&policy)
    };
    let place = Box::leak(Box::new(MaybeUninit::uninit()));
    // SAFETY: the place is leaked: ours, and it stays where it is.
    unsafe { Slabs::init(place.as_mut_ptr(), &config, &policy) }.expect("memory");
    // SAFETY: `init` succeeded.
    (world, unsafe { place.assume_init_ref() })
}

fn cache(slabs: &Slabs<Testing>) -> &Cache {
    let id = slabs.create_cache(&CacheRequest::new("test", SIZE));
    slabs.cache(id.expect("a cache"))
}

fn free(slabs: &Slabs<Testing>, cache: &Cache, objects: impl IntoIterator<Item = NonNull<u8>>) {
    for object in objects {
        // SAFETY: callers pass objects of the cache, each once.
        unsafe { slabs.free(cache, object) };
    }
    slabs.shrink_cache(cache);
}

/// A hundred slabs of which each keeps one object, their free pages given back.
fn swept(slabs: &Slabs<Testing>, cache: &Cache) -> Vec<NonNull<u8>> {
    let all: Vec<_> = (0..400)
        .map(|_| slabs.alloc(cache).expect("memory"))
        .collect();
    let mut kept = Vec::new();
    let mut heads = std::collections::BTreeSet::new();
    let mut rest = Vec::new();
    for object in all {
        let pages = slabs.pages();
        let head = pages
            .pfn_of(object.as_ptr())
            .and_then(|pfn| pages.head_of(pfn));
        match heads.insert(head.expect("a slab").0) {
            true => kept.push(object),
            false => rest.push(object),
        }
    }
    free(slabs, cache, rest);
    slabs.sweep();
    kept
}

#[test]
fn a_sweep_gives_back_every_page_without_a_live_object() {
    let (_world, slabs) = built();
    let cache = cache(slabs);
    let kept = swept(slabs, cache);
    let dead = kept.len() * (cache.geometry().slab_bytes() - SIZE) / PAGE;
    assert_eq!(slabs.pages().holes(), PageCount(dead));
    assert_eq!(check_slabs(slabs), Ok(()));
    free(slabs, cache, kept);
}

#[test]
fn a_slab_that_goes_back_with_holes_is_no_regret_and_its_holes_are_not_resident() {
    let (_world, slabs) = built();
    let cache = cache(slabs);
    let kept = swept(slabs, cache);
    let live = kept.len() * SIZE / PAGE;
    slabs.pages().trim(0);
    free(slabs, cache, kept);
    slabs.pages().drain_pagesets();
    assert_eq!(slabs.pages().holes(), PageCount(0));
    assert!(
        slabs.pages().budget().sweeps.affords(Testing::now()),
        "no hole was charged"
    );
    let resident = slabs.pages().snapshot().total.free_resident_pages;
    // Of 800 pages 600 are holes; a few more were the sheaves'.
    assert!(resident <= live + 8, "{resident} pages of {live}");
    assert_eq!(check_pages(slabs.pages()), Ok(()));
}

#[test]
fn holes_that_objects_are_handed_out_of_count_as_wanted_again() {
    let (world, slabs) = built();
    let cache = cache(slabs);
    let kept = swept(slabs, cache);
    let holes = slabs.pages().holes().0;
    world.enter(CpuId(0));
    let soon = Testing::now() + 1;
    assert!(slabs.pages().budget().sweeps.affords(soon));
    let more: Vec<_> = (0..kept.len())
        .map(|_| slabs.alloc(cache).expect("memory"))
        .collect();
    assert!(
        !slabs.pages().budget().sweeps.affords(soon),
        "holes are charged"
    );
    assert!(slabs.pages().holes().0 < holes);
    free(slabs, cache, kept.into_iter().chain(more));
}
