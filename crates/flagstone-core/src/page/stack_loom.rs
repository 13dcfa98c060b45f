//! The stack under loom: a thread leaves pages while another takes them and leaves one again.

use super::PageStack;
use crate::base::Pfn;
use crate::platform::world_loom::explore;
use crate::sync::AtomicU32;
use crate::sync::followed::Mistake;
use loom::thread;
use std::sync::Arc;
use std::vec::Vec;

/// The stack, and the links of three pages.
struct Site(PageStack, [AtomicU32; 3]);

impl Site {
    fn push(&self, page: u32) {
        self.0.push(|pfn| &self.1[pfn.index()], Pfn(page));
    }

    fn take(&self) -> Vec<u32> {
        let taken = self.0.take(|pfn| &self.1[pfn.index()]);
        taken.take(9).map(|pfn| pfn.0).collect()
    }
}

fn pushed_while_taken(head: Mistake) {
    explore(move || {
        let site = Arc::new(Site(PageStack::new(), [7, 7, 7].map(AtomicU32::new)));
        site.push(2);
        site.0.follow(head);
        site.1.iter().for_each(AtomicU32::follow);
        let other = Arc::clone(&site);
        let thread = thread::spawn(move || [0, 1].map(|page| other.push(page)));
        let mut taken = site.take();
        if taken.contains(&2) {
            site.push(2);
            taken.retain(|&page| page != 2);
        }
        thread.join().unwrap();
        taken.extend(site.take());
        taken.sort_unstable();
        assert_eq!(taken, [0, 1, 2]);
        assert!(site.0.is_empty());
    });
}

#[test]
fn loom_every_page_left_is_taken_once() {
    pushed_while_taken(Mistake::None);
}

#[test]
#[should_panic]
fn loom_finds_a_stack_of_pages_that_publishes_no_link() {
    pushed_while_taken(Mistake::Relaxed);
}

#[test]
#[should_panic]
fn loom_finds_a_stack_of_pages_that_loses_one() {
    pushed_while_taken(Mistake::Torn);
}
