//! The process confines itself to some system calls: from then on the heap makes none but those for memory.

use crate::{fork, profile, report};
use flagstone_core::heap::Heap;
use flagstone_linux::filter;

/// A filter is installed next. What takes other calls is done for the last time: the heap is built, and looks at
/// what the process may use; then permits end ([`flagstone_linux::filter`]). In a process that is not the heap's
/// own (the child of a `vfork`) nothing is looked at: other threads use the heap.
pub fn begin() {
    if fork::in_its_process() {
        report::before_filter();
        profile::before_filter();
        if let Some(ready) = crate::heap().and_then(Heap::ready_if_built) {
            ready.slabs().fit_to_means();
        }
    }
    filter::close();
}

/// Takes [`begin`] back: there is no filter.
pub fn refused() {
    filter::open();
}
