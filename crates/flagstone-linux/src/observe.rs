//! Who looks at a watched heap, and who knows what this thread holds of its locks: functions of the
//! face, which has the heap.

use crate::hook::Hook;
use flagstone_core::platform::LockKind;

/// Takes figures, called by the slow paths of a watched heap; to be set before it is watched.
pub static OBSERVER: Hook<fn()> = Hook::new();

/// `Platform::holds_from` over the locks of the one heap.
pub static HOLDS_FROM: Hook<fn(LockKind) -> bool> = Hook::new();

/// Lets the observer look, if there is one.
pub(crate) fn call() {
    if let Some(observer) = OBSERVER.get() {
        observer();
    }
}

/// Whether this thread holds a lock of `kind` or of a later one.
pub(crate) fn holds_from(kind: LockKind) -> bool {
    HOLDS_FROM.get().is_some_and(|holds| holds(kind))
}
