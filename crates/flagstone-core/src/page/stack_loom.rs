//! The stack under loom: a thread leaves pages while another takes them and leaves one again.

use super::PageStack;
use crate::base::Pfn;
use crate::sync::plain::AtomicU32;
use loom::sync::Arc;
use loom::thread;
use std::vec::Vec;

#[test]
fn loom_every_page_left_is_taken_once() {
    loom::model(|| {
        let shared = Arc::new((PageStack::new(), [7, 7, 7].map(AtomicU32::new)));
        let push = |shared: &(PageStack, [AtomicU32; 3]), page: u32| {
            shared.0.push(|pfn| &shared.1[pfn.index()], Pfn(page));
        };
        push(&shared, 2);
        let other = Arc::clone(&shared);
        let thread = thread::spawn(move || [0, 1].map(|page| push(&other, page)));
        let take = |shared: &(PageStack, [AtomicU32; 3])| {
            let taken = shared.0.take(|pfn| &shared.1[pfn.index()]);
            taken.map(|pfn| pfn.0).collect::<Vec<u32>>()
        };
        let mut taken = take(&shared);
        if taken.contains(&2) {
            push(&shared, 2);
            taken.retain(|&page| page != 2);
        }
        thread.join().unwrap();
        taken.extend(take(&shared));
        taken.sort_unstable();
        assert_eq!(taken, [0, 1, 2]);
        assert!(shared.0.is_empty());
    });
}
