//! Who looks at a watched heap: a function of the face, which has the heap.

use crate::hook::Hook;

/// Takes figures, called by the slow paths of a watched heap; to be set before it is watched.
pub static OBSERVER: Hook<fn()> = Hook::new();

/// Lets the observer look, if there is one.
pub(crate) fn call() {
    if let Some(observer) = OBSERVER.get() {
        observer();
    }
}
