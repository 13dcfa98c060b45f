//! The slab layer under loom: frees against takers, handlers and a take-over, on the code that ships.
//!
//! ```text
//!   a cache of slabs of two or four objects, built with no word followed
//!   ─► the words that the threads will meet on are named ─► threads ─► joined ─► verify
//! ```
//!
//! Each case runs as it is, and with a mistake in one word, which it must find.

use super::sheaf::OwnSheaf;
use super::site_loom::{self, RIGHT, Word, Wrong};
use crate::platform::SheavesOnly;
use crate::platform::world_loom::{explore, plant, run_on, stand_on_top};
use crate::sync::Ordering::Relaxed;
use crate::sync::followed::Mistake;
use core::ptr::NonNull;
use std::sync::Arc;
use std::vec::Vec;

type Site = site_loom::Site<SheavesOnly>;

impl Site {
    fn named(policy: &str, size: usize) -> Arc<Self> {
        Self::new(&crate::policy::for_tests::named(policy), size)
    }

    /// All objects of one more slab, which is full then.
    fn fill(&self) -> Vec<NonNull<u8>> {
        let mut objects = Vec::new();
        while objects.is_empty() || self.part().node.nr_partial() > 0 {
            objects.push(self.part().take_one().expect("memory"));
        }
        objects
    }

    fn free(&self, object: NonNull<u8>) {
        // SAFETY: callers pass objects that were taken, each once.
        unsafe { self.slabs.put_one(self.cache(), object) };
    }
}

/// Sizes whose links lie aside in the descriptors, and inside the objects.
const ASIDE: usize = 8192;
const INSIDE: usize = 128;
/// Sheaves have room for four of these.
const IN_SHEAVES: usize = 1024;
/// Two of these fill a slab.
const HALF: usize = 16384;

#[repr(align(64))]
struct SheafMemory(#[expect(dead_code, reason = "memory")] [u64; 8]);

impl SheafMemory {
    fn sheaf(&mut self, slots: u32) -> OwnSheaf {
        // SAFETY: enough for five slots, and the test's own.
        unsafe { OwnSheaf::create(NonNull::from(self).cast(), slots) }
    }
}

/// Two threads free into a slab from which its owner takes what was free before.
fn two_frees_and_a_take(size: usize, wrong: Wrong) {
    explore(move || {
        let site = Site::named("bare", size);
        let held = site.fill();
        let [a, b, c] = [held[0], held[1], held[2]];
        site.free(c);
        site.follow(&[a, b, c], wrong);
        let frees = [a, b].map(|object| site.spawn(move |site| site.free(object)));
        let mut memory = SheafMemory([0; 8]);
        assert_eq!(site.part().refill(&mut memory.sheaf(1)), 1);
        frees.into_iter().for_each(|thread| thread.join().unwrap());
        site.settle(held.len() - 2);
    });
}

#[test]
fn loom_two_frees_and_a_take_of_one_slab() {
    two_frees_and_a_take(ASIDE, RIGHT);
}

#[test]
fn loom_two_frees_and_a_take_of_one_slab_with_links_inside() {
    two_frees_and_a_take(INSIDE, RIGHT);
}

#[test]
#[should_panic]
fn loom_finds_a_state_that_publishes_no_link() {
    two_frees_and_a_take(ASIDE, Wrong(Word::State, Mistake::Relaxed));
}

#[test]
#[should_panic]
fn loom_finds_a_state_that_publishes_no_link_inside() {
    two_frees_and_a_take(INSIDE, Wrong(Word::State, Mistake::Relaxed));
}

#[test]
#[should_panic]
fn loom_finds_a_state_that_is_stored_where_it_should_be_compared() {
    two_frees_and_a_take(ASIDE, Wrong(Word::State, Mistake::Torn));
}

/// Two frees empty a full slab: one of them lists it, one gives it back.
fn two_frees_of_a_full_slab(wrong: Wrong) {
    explore(move || {
        let site = Site::named("bare", HALF);
        let held = site.fill();
        let [a, b] = held[..] else {
            panic!("two objects fill a slab: {}", held.len())
        };
        site.follow(&held, wrong);
        let other = site.spawn(move |site| site.free(a));
        site.free(b);
        other.join().unwrap();
        site.settle(0);
        let slabs = site.part().node.slabs.load(Relaxed);
        assert_eq!(slabs, 0, "the empty slab was given back");
    });
}

#[test]
fn loom_two_frees_of_a_full_slab_find_one_owner() {
    two_frees_of_a_full_slab(RIGHT);
}

#[test]
#[should_panic]
fn loom_finds_a_list_lock_that_orders_nothing() {
    two_frees_of_a_full_slab(Wrong(Word::ListLock, Mistake::Relaxed));
}

#[test]
#[should_panic]
fn loom_finds_a_list_lock_with_two_holders() {
    two_frees_of_a_full_slab(Wrong(Word::ListLock, Mistake::Torn));
}

/// A refill isolates a slab while the last object that is out is freed.
fn a_refill_and_the_last_free(wrong: Wrong) {
    explore(move || {
        let site = Site::named("bare", HALF);
        let held = site.fill();
        site.free(held[1]);
        site.follow(&held, wrong);
        let last = held[0];
        let other = site.spawn(move |site| site.free(last));
        let mut memory = SheafMemory([0; 8]);
        let got = site.part().refill(&mut memory.sheaf(2));
        other.join().unwrap();
        assert!((1..=2).contains(&got));
        site.settle(got as usize);
    });
}

#[test]
fn loom_a_refill_meets_the_free_that_empties_the_slab() {
    a_refill_and_the_last_free(RIGHT);
}

#[test]
#[should_panic]
fn loom_finds_a_slab_given_back_under_a_refill() {
    a_refill_and_the_last_free(Wrong(Word::State, Mistake::Torn));
}

/// A handler, which must not wait, frees into the slab whose last object is taken under the lock.
fn a_take_under_the_lock_and_a_handlers_free(another_look: bool) {
    explore(move || {
        plant(another_look);
        let site = Site::named("bare", HALF);
        let held = site.fill();
        site.free(held[1]);
        site.follow(&held, RIGHT);
        let freed = held[0];
        let handler = site.spawn(move |site| {
            stand_on_top();
            site.free(freed);
        });
        assert!(site.part().take_one().is_some());
        handler.join().unwrap();
        site.settle(1);
    });
}

#[test]
fn loom_a_handlers_free_meets_a_take_under_the_lock() {
    a_take_under_the_lock_and_a_handlers_free(false);
}

#[test]
#[should_panic]
fn loom_finds_the_look_that_gives_a_slab_two_homes() {
    a_take_under_the_lock_and_a_handlers_free(true);
}

/// A handler leaves two slabs while holders of the list take up what was left.
fn two_slabs_left_while_a_holder_takes_them(wrong: Wrong) {
    explore(move || {
        let site = Site::named("bare", HALF);
        let left = [site.fill()[0], site.fill()[0]];
        site.follow(&left, wrong);
        let handler = site.spawn(move |site| {
            stand_on_top();
            left.into_iter().for_each(|object| site.free(object));
        });
        drop(site.part().node.hold(site.slabs.pages()));
        handler.join().unwrap();
        site.settle(2);
        assert_eq!(site.part().node.nr_partial(), 2);
    });
}

#[test]
fn loom_slabs_that_a_handler_leaves_are_listed_once() {
    two_slabs_left_while_a_holder_takes_them(RIGHT);
}

#[test]
#[should_panic]
fn loom_finds_a_stack_of_slabs_that_publishes_no_link() {
    two_slabs_left_while_a_holder_takes_them(Wrong(Word::Orphans, Mistake::Relaxed));
}

#[test]
#[should_panic]
fn loom_finds_a_stack_of_slabs_that_loses_one() {
    two_slabs_left_while_a_holder_takes_them(Wrong(Word::Orphans, Mistake::Torn));
}

/// A CPU frees through its slots while another takes the sheaves of all CPUs.
fn a_free_and_a_take_over(wrong: Wrong) {
    explore(move || {
        let site = Site::named("flagstone", IN_SHEAVES);
        let alloc = || site.slabs.alloc(site.cache()).expect("memory");
        let objects = [alloc(), alloc(), alloc()];
        // SAFETY: an object of the cache, given up. Now CPU 0 has a sheaf.
        unsafe { site.slabs.free(site.cache(), objects[0]) };
        site.follow(&objects, wrong);
        site.follow_slots(wrong);
        let freed = objects[1];
        let other = site.spawn(move |site| {
            // SAFETY: as above.
            unsafe { site.slabs.free(site.cache(), freed) };
        });
        run_on(1);
        site.slabs.shrink_cache(site.cache());
        other.join().unwrap();
        site.settle(1);
        site.free(objects[2]);
        assert_eq!(site.slabs.destroy_cache(site.id), Ok(()));
    });
}

#[test]
fn loom_a_free_meets_a_take_over_of_its_cpus_slots() {
    a_free_and_a_take_over(RIGHT);
}

#[test]
#[should_panic]
fn loom_finds_a_free_into_a_sheaf_that_was_taken_over() {
    a_free_and_a_take_over(Wrong(Word::Local, Mistake::Relaxed));
}
