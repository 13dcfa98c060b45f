//! Who looks at a watched heap: one function, set once by the face that wants figures.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};

struct Observer {
    set: AtomicBool,
    function: UnsafeCell<Option<fn()>>,
}

// SAFETY: the cell is written once, before `set` says so, and only read afterwards.
unsafe impl Sync for Observer {}

static OBSERVER: Observer = Observer {
    set: AtomicBool::new(false),
    function: UnsafeCell::new(None),
};

/// Makes `function` the observer.
///
/// # Safety
/// 1. Called at most once, by one thread, before the heap is watched.
pub unsafe fn set(function: fn()) {
    // SAFETY: obligation 1: nobody reads or writes the cell now.
    unsafe { OBSERVER.function.get().write(Some(function)) };
    OBSERVER.set.store(true, Ordering::Release);
}

/// Lets the observer look, if there is one.
pub(crate) fn call() {
    if OBSERVER.set.load(Ordering::Acquire) {
        // SAFETY: `set` was stored after the cell was written for the last time.
        if let Some(function) = unsafe { *OBSERVER.function.get() } {
            function();
        }
    }
}
