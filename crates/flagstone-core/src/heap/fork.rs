//! The heap around a fork: the child finds every structure whole and every lock free.
//!
//! ```text
//!   prepare   every lock is taken, in order, by one thread at a time
//!   parent    they are given back
//!   child     the same; what threads that are not there had begun is finished
//! ```
//!
//! A fork in a signal handler on top of a lock's holder is the odd one: that lock stays the
//! holder's, which goes on after the handler in both processes (`platform/lock.rs`).

use super::heap::Heap;
use super::ready::Ready;
use crate::platform::RawLock;
use crate::slab::Engines;
use crate::sync::Ordering::Relaxed;

/// Rounds for which a fork on top of a lock's holder waits for other locks: about 50 ms. Who holds
/// them may wait for what the thread below the handler holds, and then the wait would have no end.
const PATIENCE: u32 = 100;

/// Rounds for which any other fork waits for one lock with those before it held: as long as the
/// pauses of Linux spin and yield, which is enough for a holder that runs.
const GIVES_WAY_AFTER: u32 = 38;

impl<P: Engines> Ready<P> {
    /// Before a fork: takes every lock, so that the child finds all structures whole. One thread at
    /// a time; a fork inside a fork (in a signal handler) takes what is still missing.
    ///
    /// `false` where a lock does not come free soon: nothing is held then, so that whoever has the
    /// lock, and may need another one first, goes on; the caller lets go of what it holds itself,
    /// [waits](Self::fork_wait) and begins again. A thread on top of a lock's holder cannot give way
    /// like that.
    pub fn fork_prepare(&self) -> bool {
        let on_top = self.is_on_top();
        let mut patience = PATIENCE;
        let mut gives_way = false;
        let mut go_on = |round: u32| {
            patience = patience.saturating_sub(u32::from(on_top));
            gives_way |= !on_top && round >= GIVES_WAY_AFTER;
            patience > 0 && !gives_way
        };
        self.forking.begin::<P>(on_top, &mut go_on);
        self.each_lock(|lock| lock.acquire_for_fork::<P>(&mut go_on));
        if gives_way {
            self.fork_parent();
        }
        !gives_way
    }

    /// Waits, with nothing held, until whoever has a lock now has given it back. Waiting with locks
    /// held, over and over, would slow down the handlers on top of the holder, and so keep it from
    /// going on.
    pub fn fork_wait(&self) {
        self.forking.lock.wait_while_held::<P>();
        self.each_lock(RawLock::wait_while_held::<P>);
    }

    /// After a fork, in the parent: gives the locks back.
    pub fn fork_parent(&self) {
        self.fork_end(RawLock::release_after_fork::<P>);
    }

    /// After a fork, in the child: gives the locks back, and finishes what other threads had begun.
    pub fn fork_child(&self) {
        let alone = self.forking.lock.holder() == P::token();
        let on_top = !alone || self.forking.on_top.load(Relaxed);
        if self.fork_end(RawLock::settle_in_child::<P>) {
            self.each_lock(|lock| {
                if lock.is_gone() {
                    self.forking.left.store(true, Relaxed);
                }
            });
            if !on_top {
                self.slabs.pages().recover_after_fork();
            }
        }
    }

    /// Ends a fork; if it was the outermost, lets `give_back` have all locks.
    fn fork_end(&self, give_back: fn(&RawLock)) -> bool {
        let over = self.forking.is_over::<P>();
        if over {
            self.each_lock(give_back);
            give_back(&self.forking.lock);
        }
        over
    }
}

impl<P: Engines> Heap<P> {
    /// See [`Ready::fork_prepare`].
    pub fn fork_prepare(&self) -> bool {
        self.ready_if_built().is_none_or(Ready::fork_prepare)
    }

    /// See [`Ready::fork_wait`].
    pub fn fork_wait(&self) {
        if let Some(ready) = self.ready_if_built() {
            ready.fork_wait();
        }
    }

    /// See [`Ready::fork_parent`].
    pub fn fork_parent(&self) {
        if let Some(ready) = self.ready_if_built() {
            ready.fork_parent();
        }
    }

    /// See [`Ready::fork_child`].
    pub fn fork_child(&self) {
        if let Some(ready) = self.ready_if_built() {
            ready.fork_child();
        }
    }
}

#[cfg(test)]
#[path = "fork_tests.rs"]
mod tests;
