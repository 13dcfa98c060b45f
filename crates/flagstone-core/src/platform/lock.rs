//! Locks of the core: one word that names its holder.
//!
//! ```text
//!   word   0 = free, otherwise the holder's token
//!          token + top bit: taken for a fork, and given back after it
//!          all ones: held for ever, by a thread that this child of a fork does not have
//! ```
//!
//! A signal handler that interrupts the holder and wants the same lock gets `Reentered`, and takes a
//! route without it. How to wait is the platform's.
//!
//! A thread takes locks in ascending [`LockKind`] only (`lock.ascending`), so no circle of waiters
//! closes. A handler on top of a holder breaks that order. Before it yields it asks whether it is one
//! ([`Platform::holds_from`], `held.rs`), and gets `Reentered` too: every circle has such a waiter.
//!
//! A fork takes every lock, so that the child finds all structures whole. What the forking thread holds
//! itself (it forks in a handler) stays with the frame below, in both processes. It waits for a bounded
//! time; a lock that it could not get is out of reach in the child.
//!
//! Invariants
//! - `lock.named`: a non-zero word is the token of the one thread that holds the lock. Tokens have
//!   no top bit.

use super::Platform;
use crate::sync::{AtomicU64, Ordering};
use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};

/// What a lock protects, in the order in which locks may be taken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum LockKind {
    /// The heap's own tables: cache registry, huge blocks.
    Heap,
    /// One CPU's slots where the platform has no restartable sequences.
    Local,
    /// A barn's lists of full and empty sheaves.
    Barn,
    /// A slab's freelist, in the 2007 form of the cpu-slab engine.
    Slab,
    /// A node's partial list: the kernel's `list_lock`.
    List,
    /// A per-CPU pageset; tried, and waited for by upkeep only.
    Pageset,
    /// A zone's free areas: the kernel's `zone->lock`.
    Zone,
}

/// Rounds of waiting before a waiter asks whether it may wait at all. Why 7: with the pauses of
/// Linux it has spun for 2 microseconds by then, and would yield next, for as long as others run. A
/// handler that does so on top of a holder may be followed by the next signal at once, so that the
/// holder never goes on.
pub const ASK_AFTER: u32 = 7;

/// In a word beside the token of a thread that took the lock in order to fork.
const FOR_FORK: u64 = 1 << 63;
/// The word of a lock whose holder is not in this process.
const GONE: u64 = u64::MAX;

/// The caller interrupted the holder of this lock, or of one that comes after it: it must not wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reentered;

/// A lock without data.
#[derive(Debug)]
pub struct RawLock {
    word: AtomicU64,
    kind: LockKind,
}

impl RawLock {
    /// A free lock.
    #[must_use]
    pub fn new(kind: LockKind) -> Self {
        Self {
            word: AtomicU64::new(0),
            kind,
        }
    }

    /// What this lock protects.
    #[must_use]
    pub fn kind(&self) -> LockKind {
        self.kind
    }

    /// The holder's token, or zero.
    #[must_use]
    pub fn holder(&self) -> u64 {
        holder_in(self.word.load(Ordering::Relaxed))
    }

    /// Whether waiting for this lock has no end: the caller interrupted its holder, or that thread
    /// is not in this process.
    #[must_use]
    pub fn is_out_of_reach<P: Platform>(&self) -> bool {
        is_out_of_reach(self.word.load(Ordering::Relaxed), P::token())
    }

    /// Frees the lock whoever held it but the caller: only for the child of a fork, where the
    /// others are gone, and what the lock protects is whole at any time.
    pub fn reset<P: Platform>(&self) {
        if self.holder() != P::token() {
            self.word.store(0, Ordering::Release);
        }
    }

    /// Waits until the one who holds the lock now, if it is not out of reach, has given it back.
    pub fn wait_while_held<P: Platform>(&self) {
        let word = self.word.load(Ordering::Relaxed);
        let mut round = 0;
        while word != 0 && !is_out_of_reach(word, P::token()) {
            P::pause(round);
            round = round.saturating_add(1);
            if self.word.load(Ordering::Relaxed) != word {
                return;
            }
        }
    }

    /// Takes the lock for a fork, unless it is out of reach; asks `go_on` before each
    /// round of waiting.
    pub fn acquire_for_fork<P: Platform>(&self, mut go_on: impl FnMut(u32) -> bool) {
        let mut round = 0;
        while !P::try_acquire(self) {
            if self.is_out_of_reach::<P>() || !go_on(round) {
                return;
            }
            P::pause(round);
            round = round.saturating_add(1);
        }
        self.word.store(P::token() | FOR_FORK, Ordering::Relaxed);
    }

    /// Gives the lock back if it was taken for a fork.
    pub fn release_after_fork<P: Platform>(&self) {
        if self.word.load(Ordering::Relaxed) == P::token() | FOR_FORK {
            P::release_lock(self);
        }
    }

    /// The same in the child; a lock of a thread that is not there is out of reach from now on.
    pub fn settle_in_child<P: Platform>(&self) {
        self.release_after_fork::<P>();
        let holder = self.holder();
        if holder != 0 && holder != P::token() {
            self.word.store(GONE, Ordering::Relaxed);
        }
    }

    /// Whether the holder is no thread of this process.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.word.load(Ordering::Relaxed) == GONE
    }

    /// Takes the lock if it is free: one compare-and-swap.
    #[inline]
    pub fn try_acquire_now<P: Platform>(&self) -> bool {
        P::note_taking(self.kind);
        let taken = self
            .word
            .compare_exchange(0, P::token(), Ordering::Acquire, Ordering::Relaxed)
            .is_ok();
        if !taken {
            P::note_given_back(self.kind);
        }
        taken
    }

    /// Takes the lock, waiting by [`Platform::pause`].
    ///
    /// # Errors
    /// `Reentered` if the lock is out of reach, or the caller interrupted the holder of another
    /// lock and this one does not come free.
    #[inline]
    pub fn acquire_spinning<P: Platform>(&self) -> Result<(), Reentered> {
        match self.try_acquire_now::<P>() {
            true => Ok(()),
            false => self.acquire_contended::<P>(),
        }
    }

    #[cold]
    #[inline(never)]
    fn acquire_contended<P: Platform>(&self) -> Result<(), Reentered> {
        let token = P::token();
        let mut round = 0;
        loop {
            let holder = self.word.load(Ordering::Relaxed);
            if is_out_of_reach(holder, token) || (round == ASK_AFTER && P::holds_from(self.kind)) {
                return Err(Reentered);
            }
            if holder == 0 && self.try_acquire_now::<P>() {
                return Ok(());
            }
            P::pause(round);
            round = round.saturating_add(1);
        }
    }

    /// Frees the lock: one store.
    #[inline]
    pub fn release_now<P: Platform>(&self) {
        self.word.store(0, Ordering::Release);
        P::note_given_back(self.kind);
    }
}

fn holder_in(word: u64) -> u64 {
    match word {
        GONE => GONE,
        _ => word & !FOR_FORK,
    }
}

fn is_out_of_reach(word: u64, token: u64) -> bool {
    word == GONE || holder_in(word) == token
}

/// Data behind a [`RawLock`], reached through the platform `P`.
#[derive(Debug)]
pub struct Lock<T> {
    raw: RawLock,
    data: UnsafeCell<T>,
}

// SAFETY: the lock hands out one exclusive reference at a time (`lock.named`).
unsafe impl<T: Send> Sync for Lock<T> {}
// SAFETY: as above; moving the lock moves the data.
unsafe impl<T: Send> Send for Lock<T> {}

impl<T> Lock<T> {
    /// A free lock around `data`.
    #[must_use]
    pub fn new(kind: LockKind, data: T) -> Self {
        Self {
            raw: RawLock::new(kind),
            data: UnsafeCell::new(data),
        }
    }

    /// The lock without its data, for fork handling and reports.
    #[must_use]
    pub fn raw(&self) -> &RawLock {
        &self.raw
    }

    /// Takes the lock, waiting as long as needed.
    ///
    /// # Errors
    /// `Reentered` if the caller holds it already.
    #[inline]
    pub fn lock<P: Platform>(&self) -> Result<Guard<'_, P, T>, Reentered> {
        P::acquire(&self.raw)?;
        Ok(Guard {
            lock: self,
            world: core::marker::PhantomData,
        })
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock<P: Platform>(&self) -> Option<Guard<'_, P, T>> {
        // Not `then_some`: a guard made for a lock that was not taken would release it.
        P::try_acquire(&self.raw).then(|| Guard {
            lock: self,
            world: core::marker::PhantomData,
        })
    }

    /// The data, without the lock: a racy look for early exits and reports.
    ///
    /// # Safety
    /// 1. The caller reads only fields that are atomics, or owns the whole structure.
    #[must_use]
    pub unsafe fn peek(&self) -> &T {
        // SAFETY: obligation 1.
        unsafe { &*self.data.get() }
    }
}

/// Exclusive use of a lock's data; gives the lock back when dropped.
#[derive(Debug)]
pub struct Guard<'a, P: Platform, T> {
    lock: &'a Lock<T>,
    world: core::marker::PhantomData<P>,
}

impl<P: Platform, T> Deref for Guard<'_, P, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock (`lock.named`).
        unsafe { &*self.lock.data.get() }
    }
}

impl<P: Platform, T> DerefMut for Guard<'_, P, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock, and `&mut self` makes this the only borrow.
        unsafe { &mut *self.lock.data.get() }
    }
}

impl<P: Platform, T> Drop for Guard<'_, P, T> {
    #[inline]
    fn drop(&mut self) {
        P::release_lock(&self.lock.raw);
    }
}

#[cfg(loom)]
impl RawLock {
    /// Has loom follow the lock's word.
    pub fn follow(&self, mistake: crate::sync::followed::Mistake) {
        self.word.follow_swaps(mistake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::CpuId;
    use crate::platform::testing::{Setup, Testing, World, stand_on_top};
    use std::sync::Barrier;

    /// Two threads, each with one lock, each wanting the other's: how both waits end.
    fn crossed(first_on_top: bool, second_on_top: bool) -> [bool; 2] {
        let world = World::enter_new(Setup::default());
        let locks = [LockKind::List, LockKind::Zone].map(RawLock::new);
        let both_hold = Barrier::new(2);
        let side = |own: &RawLock, other: &RawLock, on_top| {
            world.enter(CpuId(0));
            stand_on_top(on_top);
            own.acquire_spinning::<Testing>().expect("free");
            both_hold.wait();
            let got = other.acquire_spinning::<Testing>().is_ok();
            if got {
                other.release_now::<Testing>();
            }
            own.release_now::<Testing>();
            got
        };
        std::thread::scope(|scope| {
            let first = scope.spawn(|| side(&locks[0], &locks[1], first_on_top));
            let second = scope.spawn(|| side(&locks[1], &locks[0], second_on_top));
            [first, second].map(|thread| thread.join().expect("a side of the circle"))
        })
    }

    #[test]
    fn a_handler_that_would_wait_in_a_circle_goes_without_the_lock() {
        assert_eq!(crossed(false, true), [true, false]);
    }

    /// The words of locks after a fork, as the child leaves them: free, held by the forking thread
    /// below its handler, and held by another thread.
    #[test]
    fn a_fork_leaves_a_lock_with_the_frame_below_and_puts_a_strangers_out_of_reach() {
        let world = World::enter_new(Setup::default());
        let locks = [LockKind::Barn, LockKind::List, LockKind::Zone].map(RawLock::new);
        let [free, below, strange] = &locks;
        below.acquire_spinning::<Testing>().expect("free");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                world.enter(CpuId(0));
                strange.acquire_spinning::<Testing>().expect("free");
            });
        });
        let mut waits = 0;
        for lock in &locks {
            lock.acquire_for_fork::<Testing>(|round| {
                waits = round;
                round < 100
            });
        }
        assert_eq!(waits, 100, "it waited for the stranger, and not for ever");
        assert_eq!(free.acquire_spinning::<Testing>(), Err(Reentered));
        let parent = || strange.release_after_fork::<Testing>();
        parent();
        assert_ne!(strange.holder(), 0, "the parent leaves it to its holder");
        locks.iter().for_each(RawLock::settle_in_child::<Testing>);
        assert_eq!(free.holder(), 0);
        assert_eq!(below.holder(), Testing::token());
        assert_eq!(strange.acquire_spinning::<Testing>(), Err(Reentered));
        strange.acquire_for_fork::<Testing>(|_| panic!("a child of the child does not wait"));
    }

    #[test]
    fn of_two_handlers_in_a_circle_both_go_on() {
        let got = crossed(true, true);
        assert!(got.contains(&false), "somebody must give way: {got:?}");
    }
}
