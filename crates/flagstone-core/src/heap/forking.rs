//! The fork that is under way: who forks, how deep, and whether a lock was left behind.
#![forbid(unsafe_code)]

use crate::platform::{LockKind, Platform, RawLock};
use crate::sync::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// The fork that is under way.
#[derive(Debug)]
pub(super) struct Forking {
    /// Held from before the first lock until after the last.
    pub(super) lock: RawLock,
    /// Forks within each other, of the lock's holder.
    pub(super) depth: AtomicU32,
    /// Whether the outermost of them began on top of a lock's holder.
    pub(super) on_top: AtomicBool,
    /// This process is the child of a fork that could not get every lock: somebody who is not here has
    /// one for ever.
    pub(super) left: AtomicBool,
}

impl Forking {
    pub(super) fn new() -> Self {
        Self {
            lock: RawLock::new(LockKind::Heap),
            depth: AtomicU32::new(0),
            on_top: AtomicBool::new(false),
            left: AtomicBool::new(false),
        }
    }

    /// Whether a lock is out of everybody's reach.
    pub(super) fn left_something(&self) -> bool {
        self.left.load(Relaxed)
    }

    pub(super) fn begin<P: Platform>(&self, on_top: bool, go_on: impl FnMut(u32) -> bool) {
        self.lock.acquire_for_fork::<P>(go_on);
        if self.lock.holder() == P::token() {
            let depth = self.depth.fetch_add(1, Relaxed);
            self.on_top.store(on_top || depth > 0, Relaxed);
        }
    }

    /// Ends one fork; whether it was the outermost.
    pub(super) fn is_over<P: Platform>(&self) -> bool {
        self.lock.holder() != P::token() || self.depth.fetch_sub(1, Relaxed) == 1
    }
}
