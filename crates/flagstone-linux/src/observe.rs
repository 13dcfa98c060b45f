//! Who looks at a watched heap, and who knows what this thread holds of its locks: functions of the
//! face, which has the heap.

use crate::hook::Hook;
use crate::thread;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
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

/// Whether this thread holds a lock of `kind` or of a later one, or must not wait for another reason.
pub(crate) fn holds_from(kind: LockKind) -> bool {
    LEAVING.load(Relaxed) == thread::token() || HOLDS_FROM.get().is_some_and(|holds| holds(kind))
}

/// The thread that ends the process; zero for none.
static LEAVING: AtomicU64 = AtomicU64::new(0);

/// From now on the caller goes without a lock that another holds: it ends the process, and the holder may be
/// a thread that ended in the middle of an allocation.
pub fn never_wait() {
    LEAVING.store(thread::token(), Relaxed);
}
