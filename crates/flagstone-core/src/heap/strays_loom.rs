//! Huge blocks that handlers free, under loom: pushed while they are taken.

use super::Strays;
use crate::platform::world_loom::explore;
use crate::sync::AtomicPtr;
use crate::sync::followed::Mistake;
use loom::thread;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::vec::Vec;

/// The stack, and the first words of three blocks.
struct Site(Strays, [AtomicPtr<u8>; 3]);

impl Site {
    fn block(&self, index: usize) -> NonNull<u8> {
        NonNull::from(&self.1[index]).cast()
    }

    fn push(&self, index: usize) {
        // SAFETY: 1. a word that may be written, of a block that nobody has.
        unsafe { self.0.push(self.block(index)) };
    }

    fn take(&self) -> Vec<NonNull<u8>> {
        // SAFETY: 1. each was pushed and taken, and nobody frees it.
        let behind = |block: &NonNull<u8>| unsafe { Strays::behind(*block) };
        core::iter::successors(self.0.take(), behind)
            .take(9)
            .collect()
    }
}

/// Two blocks are pushed while those that wait are taken, and one of them is pushed again.
fn pushed_while_taken(head: Mistake) {
    explore(move || {
        let site = Arc::new(Site(Strays::new(), [null_mut(); 3].map(AtomicPtr::new)));
        site.push(2);
        site.0.0.follow_swaps(head);
        site.1.iter().for_each(AtomicPtr::follow);
        let other = Arc::clone(&site);
        let thread = thread::spawn(move || [0, 1].map(|index| other.push(index)));
        let mut taken = site.take();
        if taken.contains(&site.block(2)) {
            taken.retain(|&block| block != site.block(2));
            site.push(2);
        }
        thread.join().unwrap();
        taken.extend(site.take());
        taken.sort_unstable();
        assert_eq!(taken, [0, 1, 2].map(|index| site.block(index)));
        assert!(site.0.is_empty());
    });
}

#[test]
fn loom_every_block_pushed_is_taken_once() {
    pushed_while_taken(Mistake::None);
}

#[test]
#[should_panic]
fn loom_finds_a_stack_of_blocks_that_publishes_no_link() {
    pushed_while_taken(Mistake::Relaxed);
}

#[test]
#[should_panic]
fn loom_finds_a_stack_of_blocks_that_loses_one() {
    pushed_while_taken(Mistake::Torn);
}
