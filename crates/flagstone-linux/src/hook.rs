//! A function of the face that this world calls: set once, absent until then.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};

/// Room for a function of type `F`.
#[derive(Debug)]
pub struct Hook<F> {
    set: AtomicBool,
    function: UnsafeCell<Option<F>>,
}

// SAFETY: the cell is written once, before `set` says so, and only read afterwards.
unsafe impl<F: Send + Sync> Sync for Hook<F> {}

impl<F: Copy> Hook<F> {
    /// No function.
    pub(crate) const fn new() -> Self {
        Self {
            set: AtomicBool::new(false),
            function: UnsafeCell::new(None),
        }
    }

    /// Makes `function` the one that is called.
    ///
    /// # Safety
    /// 1. Called at most once for this hook.
    pub unsafe fn set(&self, function: F) {
        // SAFETY: obligation 1, and nobody reads the cell before `set` is stored.
        unsafe { self.function.get().write(Some(function)) };
        self.set.store(true, Ordering::Release);
    }

    /// The function, if there is one.
    pub(crate) fn get(&self) -> Option<F> {
        if !self.set.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: `set` was stored after the cell was written for the last time.
        unsafe { *self.function.get() }
    }
}
