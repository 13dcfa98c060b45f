//! Locks in virtual time.
//!
//! ```text
//!   acquire   everybody earlier first · the lock's line comes · free? take it : join the waiters
//!   release   everybody earlier first · next waiter? hand over (cost by distance) : clear
//!             spinning locks: clear, and the next waiter asks again when it has noticed
//! ```
//!
//! The core's own lock word stays the truth (it names the holder); here is only who waits, in
//! which order, and how long. An arriving waiter moves the lock's line away from the holder, as a
//! real one does, so that what the holder touches on that line costs a journey again.

use crate::costs::Ps;
use crate::machine::Queueing;
use crate::options::Gear;
use crate::predictor::Step;
use crate::tally::{bump, lock_index};
use crate::thread::State;
use crate::vm::Vm;
use crate::world::Virtual;
use flagstone_core::platform::{LockKind, Platform, RawLock, Reentered};

/// Locks that only their own CPU takes in the ordinary course of things.
#[inline]
fn is_private(kind: LockKind) -> bool {
    matches!(kind, LockKind::Local | LockKind::Pageset)
}

fn address(lock: &RawLock) -> usize {
    core::ptr::from_ref(lock) as usize
}

impl Vm {
    /// Takes `lock`, waiting in virtual time.
    #[inline]
    pub(crate) fn acquire(&self, lock: &RawLock) -> Result<(), Reentered> {
        if lock.holder() == Virtual::token() {
            return Err(Reentered);
        }
        if !self.timed.get() {
            return self.acquire_untimed(lock);
        }
        self.decided(|| Step::of_lock(lock.kind()));
        let tally = self.tally();
        bump(&tally.lock_taken[lock_index(lock.kind())], 1);
        if is_private(lock.kind()) {
            self.pass(self.costs.private(lock.kind()));
        } else {
            self.sync_for(address(lock));
            self.take_lock_line(lock);
        }
        if !lock.try_acquire_now::<Virtual>() {
            self.wait_for(lock);
        }
        Ok(())
    }

    /// Takes `lock` if it is free.
    #[inline]
    pub(crate) fn try_acquire(&self, lock: &RawLock) -> bool {
        if !self.timed.get() {
            self.point();
        } else if is_private(lock.kind()) {
            self.pass(self.costs.private(lock.kind()));
        } else {
            self.sync_for(address(lock));
            self.take_lock_line(lock);
        }
        let taken = lock.try_acquire_now::<Virtual>();
        if taken {
            bump(&self.tally().lock_taken[lock_index(lock.kind())], 1);
            if self.options.gear == Gear::Interleaved && self.in_task.get() {
                self.note_held(lock.kind());
            }
        }
        taken
    }

    /// Gives `lock` back, to the next waiter if there is one.
    #[inline]
    pub(crate) fn release(&self, lock: &RawLock) {
        if !self.timed.get() {
            self.release_untimed(lock);
            return;
        }
        if is_private(lock.kind()) {
            let nobody = self.private_waiters.get() == 0
                || self.waiters.borrow().waiting(address(lock)) == 0;
            if nobody {
                lock.release_now::<Virtual>();
                return;
            }
        } else {
            self.sync_for(address(lock));
            self.own_lock_line(lock);
        }
        let how = self.costs.queueing();
        let next = self
            .waiters
            .borrow_mut()
            .next(address(lock), how, &self.chance);
        lock.release_now::<Virtual>();
        if let Some(winner) = next {
            self.watch(lock);
            self.hand_over(lock, winner);
        }
    }

    /// The lock's line comes here, with the price of an atomic instruction.
    #[inline]
    fn take_lock_line(&self, lock: &RawLock) {
        self.own_lock_line(lock);
        self.now.set(self.now.get() + self.costs.atomic);
    }

    #[inline]
    fn own_lock_line(&self, lock: &RawLock) {
        let (cpu, now) = (self.cpu.get(), self.now.get());
        let mut lines = self.lines.borrow_mut();
        let home = lines.home(address(lock));
        let end = lines.write(home, cpu, now, &self.topology, &self.costs);
        self.now.set(end);
        self.digest
            .add(end ^ u64::from(home) << 44 ^ u64::from(cpu) << 34);
    }

    /// Tells the lock's line who spins on it, where that makes a difference.
    #[inline]
    fn watch(&self, lock: &RawLock) {
        if self.costs.watching_costs() && !is_private(lock.kind()) {
            self.watch_line(lock);
        }
    }

    #[cold]
    fn watch_line(&self, lock: &RawLock) {
        let first = self.waiters.borrow().first(address(lock));
        let (watcher, crowd) = first.unwrap_or((0, 0));
        let cpu = self.threads[watcher as usize].cpu.get();
        let mut lines = self.lines.borrow_mut();
        let home = lines.home(address(lock));
        lines.watch(home, cpu, crowd);
    }

    #[cold]
    fn wait_for(&self, lock: &RawLock) {
        let me = self.current.get();
        let since = self.now.get();
        let thread = &self.threads[me as usize];
        let private = u32::from(is_private(lock.kind()));
        self.private_waiters
            .set(self.private_waiters.get() + private);
        loop {
            thread.since.set(self.now.get());
            self.waiters.borrow_mut().join(address(lock), me);
            self.watch(lock);
            self.block(State::Waiting(address(lock)));
            if lock.holder() == Virtual::token() {
                break;
            }
            // A spinning lock: nobody handed it over.
            self.take_lock_line(lock);
            if lock.try_acquire_now::<Virtual>() {
                break;
            }
        }
        self.private_waiters
            .set(self.private_waiters.get() - private);
        let kind = lock_index(lock.kind());
        bump(&thread.tally.lock_wait[kind], self.now.get() - since);
        bump(&thread.tally.lock_waited[kind], 1);
        let waited = self.now.get() - since;
        thread.booked_to.set(thread.booked_to.get() + waited);
    }

    #[cold]
    fn hand_over(&self, lock: &RawLock, winner: u32) {
        let other = &self.threads[winner as usize];
        let distance = self.topology.distance(self.cpu.get(), other.cpu.get());
        let cost = self.costs.handoff(distance);
        let at = (self.now.get() + cost).max(other.since.get());
        if self.costs.queueing() == Queueing::Spinning {
            self.unblock(winner, at);
            return;
        }
        let me = self.current.replace(winner);
        let taken = lock.try_acquire_now::<Virtual>();
        self.current.set(me);
        debug_assert!(taken, "released just now");
        if !is_private(lock.kind()) {
            let mut lines = self.lines.borrow_mut();
            let home = lines.home(address(lock));
            lines.give(home, other.cpu.get(), at);
        }
        self.unblock(winner, at);
    }

    /// While nobody runs a lock is free or it is not: an observer never waits, and is told what a
    /// signal handler on top of the holder is told.
    ///
    /// In the interleaved gear whoever runs first takes it; all waiters may try again.
    #[cold]
    fn acquire_untimed(&self, lock: &RawLock) -> Result<(), Reentered> {
        if !self.in_task.get() {
            let taken = lock.try_acquire_now::<Virtual>();
            return taken.then_some(()).ok_or(Reentered);
        }
        self.point();
        let thread = self.thread();
        // What is held below a handler is in no order with what it takes itself.
        let held = thread.held.borrow()[thread.held_below.get()..].to_vec();
        if let Some(higher) = held.iter().find(|kind| **kind > lock.kind()) {
            self.fail(format!(
                "lock.ascending: {:?} taken while {higher:?} is held",
                lock.kind()
            ));
        }
        let mut asked = false;
        while !lock.try_acquire_now::<Virtual>() {
            if self.is_on_top_from(lock.kind()) {
                if asked {
                    return Err(Reentered);
                }
                asked = true;
                self.switch();
                continue;
            }
            self.waiters
                .borrow_mut()
                .join(address(lock), self.current.get());
            self.block(State::Waiting(address(lock)));
        }
        self.note_held(lock.kind());
        Ok(())
    }

    fn note_held(&self, kind: LockKind) {
        self.threads[self.current.get() as usize]
            .held
            .borrow_mut()
            .push(kind);
    }

    #[cold]
    fn release_untimed(&self, lock: &RawLock) {
        if !self.in_task.get() {
            lock.release_now::<Virtual>();
            return;
        }
        if lock.holder() != Virtual::token() {
            self.fail("lock.named: a lock is given back by somebody who does not hold it");
        }
        let mut held = self.threads[self.current.get() as usize].held.borrow_mut();
        if let Some(at) = held.iter().rposition(|kind| *kind == lock.kind()) {
            held.remove(at);
        }
        drop(held);
        lock.release_now::<Virtual>();
        loop {
            let next =
                self.waiters
                    .borrow_mut()
                    .next(address(lock), Queueing::Queued, &self.chance);
            match next {
                Some(waiter) => self.unblock(waiter, self.now.get()),
                None => break,
            }
        }
        self.point();
    }

    /// The time a waiter would have started to wait at, for reports of stalls.
    pub(crate) fn describe_stall(&self) -> String {
        let mut waiting = 0;
        let mut parked = 0;
        for thread in &self.threads {
            match thread.state.get() {
                State::Waiting(_) => waiting += 1,
                State::Parked => parked += 1,
                State::Absent | State::Runnable => {}
            }
        }
        let now: Ps = self.now.get() / 1000;
        format!(
            "deadlock: {waiting} threads wait for locks, {parked} sleep, nobody runs at {now} ns"
        )
    }
}
