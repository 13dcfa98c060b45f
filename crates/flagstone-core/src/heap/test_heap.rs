//! Heaps for this crate's tests.

use crate::heap::{Heap, HeapConfig};
use crate::platform::testing::{Setup, Testing, World};
use std::boxed::Box;
use std::sync::Arc;

/// Address space of a heap under test: as much as a megabyte-sized program of a test may want.
pub(crate) const SPAN_BYTES: usize = 256 << 20;

/// A heap under the policy called `policy`, in a world of its own.
pub(crate) fn heap_in(policy: &str, setup: Setup) -> (Arc<World>, Box<Heap<Testing>>) {
    let world = World::enter_new(setup);
    let heap = Box::new(Heap::new());
    let config = HeapConfig {
        policy: crate::policy::for_tests::named(policy),
        span_bytes: SPAN_BYTES,
    };
    heap.init(&config).expect("memory for the tables");
    (world, heap)
}

/// A heap under the default policy, in a world like any other.
pub(crate) fn heap() -> (Arc<World>, Box<Heap<Testing>>) {
    heap_in("flagstone", Setup::default())
}
