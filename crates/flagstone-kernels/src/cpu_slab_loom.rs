//! The cpu-slab engine under loom: frees into slabs that are full, or that a CPU takes for its own.

use crate::Kernels;
use crate::policy::Named;
use crate::rules::cpu_slab;
use flagstone_core::base::CpuId;
use flagstone_core::platform::world_loom::{explore, run_on};
use flagstone_core::policy::Policy;
use flagstone_core::slab::site_loom::{self, RIGHT, Word, Wrong};
use flagstone_core::sync::followed::Mistake;
use std::ptr::NonNull;
use std::sync::Arc;
use std::vec::Vec;

type Site = site_loom::Site<Kernels>;

/// The slabs on CPUs' lists are frozen, and are not.
const POLICIES: [&str; 2] = ["linux-6.5", "linux-6.12"];

/// Four objects fill a slab.
const QUARTER: usize = 8192;
/// Objects out at first: two full slabs, of which the second is CPU 0's.
const OUT: usize = 8;

/// A site, and two objects of a slab that is full and no CPU's.
fn site(policy: &str) -> (Arc<Site>, [NonNull<u8>; 2]) {
    let site = Site::new(&Policy::parse(policy).expect("a policy"), QUARTER);
    let slab = |object: NonNull<u8>| object.addr().get() / (4 * QUARTER);
    let objects: Vec<_> = (0..OUT).map(|_| alloc(&site)).collect();
    assert_eq!(slab(objects[0]), slab(objects[3]));
    assert_ne!(slab(objects[0]), slab(objects[4]));
    (site, [objects[0], objects[1]])
}

fn alloc(site: &Site) -> NonNull<u8> {
    site.slabs.alloc(site.cache()).expect("memory")
}

fn free(site: &Site, object: NonNull<u8>) {
    // SAFETY: callers pass objects that were taken, each once.
    unsafe { site.slabs.free(site.cache(), object) };
}

fn follow(site: &Site, objects: &[NonNull<u8>], wrong: Wrong) {
    site.follow(objects, wrong);
    for cpu in [CpuId(0), CpuId(1)] {
        let lock = cpu_slab(site.cache(), cpu).lock();
        lock.follow(wrong.of(Word::Local));
    }
}

/// Everything that CPUs keep goes back, and `out` objects are out.
fn settle(site: &Site, out: usize) {
    flagstone_core::sync::followed::forget();
    site.slabs.shrink_cache(site.cache());
    site.settle(out);
}

/// Two CPUs free objects of a full slab: one of them makes it partial.
fn two_frees_of_a_full_slab(policy: &'static str, wrong: Wrong) {
    explore(move || {
        let (site, [a, b]) = site(policy);
        follow(&site, &[a, b], wrong);
        let other = site.spawn(move |site| {
            run_on(1);
            free(site, a);
        });
        free(&site, b);
        other.join().unwrap();
        settle(&site, OUT - 2);
    });
}

#[test]
fn loom_two_frees_of_a_full_slab_find_one_owner() {
    for policy in POLICIES {
        two_frees_of_a_full_slab(policy, RIGHT);
    }
}

/// A CPU takes a slab off the node's list for its own while another frees into it.
fn a_free_and_a_slab_taken_for_a_cpu(policy: &'static str, wrong: Wrong) {
    explore(move || {
        let (site, [a, b]) = site(policy);
        free(&site, b);
        // From CPUs' lists to the node's.
        site.slabs.shrink_cache(site.cache());
        follow(&site, &[a, b], wrong);
        let other = site.spawn(move |site| {
            run_on(1);
            free(site, a);
        });
        alloc(&site);
        other.join().unwrap();
        settle(&site, OUT - 1);
    });
}

#[test]
fn loom_a_cpu_takes_a_slab_while_another_frees_into_it() {
    for policy in POLICIES {
        a_free_and_a_slab_taken_for_a_cpu(policy, RIGHT);
    }
}

#[test]
#[should_panic]
fn loom_finds_a_chain_that_a_cpu_takes_without_its_links() {
    a_free_and_a_slab_taken_for_a_cpu(POLICIES[1], Wrong(Word::State, Mistake::Relaxed));
}
