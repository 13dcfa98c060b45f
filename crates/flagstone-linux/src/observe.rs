//! Who is called by slow paths: functions of the face, which has the heap.

use crate::hook::Hook;

/// Takes figures, called by the slow paths of a watched heap; to be set before it is watched.
pub static OBSERVER: Hook<fn()> = Hook::new();

/// Does what the process was told from outside; to be set when the heap is built.
pub static LISTENER: Hook<fn()> = Hook::new();

/// Lets the listener hear and the observer look, as far as there are any.
pub(crate) fn call() {
    if let Some(listener) = LISTENER.get() {
        listener();
    }
    if let Some(observer) = OBSERVER.get() {
        observer();
    }
}
