//! Time on a virtual CPU: spending it, keeping order with the others, waiting.
//!
//! A CPU runs ahead of the others while it does private work, but by no more than a quantum;
//! before it looks at shared state, everybody who is earlier runs first ([`Vm::sync`]). So shared
//! events happen in the order of virtual time, and most work costs no switch at all.

use crate::ahead::fetch;
use crate::costs::{Ps, US};
use crate::rcu::Deferred;
use crate::tally::bump;
use crate::thread::{State, Thread};
use crate::vm::Vm;
use flagstone_core::platform::Function;

/// How far private work may run ahead. Why 1 µs: without a bound, programs that poll each other
/// see stale worlds (a build's lock share then falls by a third); shorter ones only cost switches.
const QUANTUM: Ps = US;

/// Virtual time by which every program of the interleaved gear has ended: a point takes a
/// nanosecond, and programs take some hundred thousand.
const LIVELOCK: Ps = 10_000 * US;

impl Vm {
    /// Private work: takes longer while a sibling thread runs.
    #[inline]
    pub fn spend(&self, ps: Ps) {
        self.pass(self.stretch.get().of(ps));
    }

    /// Looks at what the core's other threads are doing: they do nothing else until the next turn.
    #[inline]
    pub(crate) fn see_siblings(&self) {
        let core = self.topology.core_of(self.cpu.get());
        let running = self.core_running[core].get();
        self.stretch.set(self.costs.stretch(running));
    }

    /// Lets time pass on this CPU.
    #[inline]
    pub(crate) fn pass(&self, ps: Ps) {
        let now = self.now.get() + ps;
        self.now.set(now);
        if now > self.horizon.get().saturating_add(QUANTUM) {
            self.switch_amid();
        }
    }

    /// The running thread's time belongs to `function` from now on; answers to whom it belonged.
    /// What it waits for locks belongs to nobody. Changes no figure but the booked ones.
    #[inline]
    pub(crate) fn book(&self, function: Function) -> Function {
        if !self.timed.get() {
            return function;
        }
        let thread = self.thread();
        let now = self.now.get();
        let before = thread.function.replace(function);
        let since = thread.booked_to.replace(now);
        bump(&thread.tally.function_ps[before as usize], now - since);
        before
    }

    /// Lets everybody who is earlier run first: afterwards this CPU is the earliest.
    #[inline]
    pub fn sync(&self) {
        if self.now.get() > self.horizon.get() {
            self.switch();
        }
    }

    /// As [`Vm::sync`], before the shared line at `address` is looked at: both it and its entry in
    /// the directory are asked for before this CPU's turn comes.
    #[inline]
    pub(crate) fn sync_for(&self, address: usize) {
        if self.now.get() > self.horizon.get() {
            self.switch_for(address);
        }
    }

    #[cold]
    #[inline(never)]
    fn switch_for(&self, address: usize) {
        let entry = self.lines.borrow().place_of(address);
        self.thread().wants.set_first([address, entry]);
        self.switch();
    }

    /// Gives way amid private work, which will probably go on with the slot it used last.
    #[cold]
    #[inline(never)]
    fn switch_amid(&self) {
        self.thread().wants.set_first(self.used.get());
        self.switch();
    }

    /// The running thread.
    #[inline]
    pub(crate) fn thread(&self) -> &Thread {
        &self.threads[self.current.get() as usize]
    }

    /// A scheduling point of the interleaved gear: perhaps somebody else, perhaps elsewhere.
    #[cold]
    pub(crate) fn point(&self) {
        if !self.in_task.get() {
            return;
        }
        let faults = self.options.faults;
        self.now.set(self.now.get() + 1000);
        if self.now.get() > LIVELOCK {
            self.fail("livelock: no program takes so long");
        }
        if self.chance.happens(faults.switch, 1024) {
            self.switch();
        }
        if self.chance.happens(faults.migrate, 1024) {
            self.migrate(self.chance.below(self.topology.cpus()));
        }
        if faults.handler != 0 && self.chance.happens(faults.handler, 1024) {
            self.interrupt();
        }
    }

    fn migrate(&self, cpu: u32) {
        self.count_running(self.cpu.get(), false);
        self.count_running(cpu, true);
        self.thread().cpu.set(cpu);
        self.cpu.set(cpu);
        self.see_siblings();
    }

    /// Gives way and comes back when it is this CPU's turn.
    #[cold]
    #[inline(never)]
    pub(crate) fn switch(&self) {
        if !self.in_task.get() {
            return;
        }
        self.ready
            .borrow_mut()
            .insert(self.current.get(), self.now.get());
        self.give_way();
    }

    /// Leaves the CPU without being runnable: somebody else makes it runnable again. Private work
    /// of the sibling is not stretched meanwhile.
    pub(crate) fn block(&self, state: State) {
        let thread = &self.threads[self.current.get() as usize];
        thread.state.set(state);
        self.count_running(self.cpu.get(), false);
        self.give_way();
        self.count_running(self.cpu.get(), true);
        self.see_siblings();
    }

    /// Counts one running thread of the core of `cpu` more, or one less.
    pub(crate) fn count_running(&self, cpu: u32, more: bool) {
        let running = &self.core_running[self.topology.core_of(cpu)];
        running.set(if more {
            running.get() + 1
        } else {
            running.get() - 1
        });
    }

    /// Makes a blocked thread runnable at `at` (its own clock if that is later).
    pub(crate) fn unblock(&self, thread: u32, at: Ps) {
        let other = &self.threads[thread as usize];
        other.state.set(State::Runnable);
        let at = at.max(other.since.get());
        let mut ready = self.ready.borrow_mut();
        ready.insert(thread, at);
        self.horizon
            .set(ready.earliest().min(self.observe_at.get()));
    }

    /// Sleeps until somebody calls [`Vm::unpark`] (or already has), or the run ends.
    pub fn park(&self) {
        let thread = &self.threads[self.current.get() as usize];
        if thread.woken.replace(false) || self.stopping() {
            return;
        }
        let since = self.now.get();
        thread.since.set(since);
        self.block(State::Parked);
        bump(&thread.tally.idle_ps, self.now.get() - since);
    }

    /// Wakes `thread`, which pays the price of waking up; nothing if it is awake, except that its
    /// next [`Vm::park`] returns at once.
    pub fn unpark(&self, thread: u32) {
        self.unpark_after(thread, self.costs.wake);
    }

    /// Lets a thread that spins on a line of its own (parked, as far as time goes) see the change:
    /// it pays a line transfer.
    pub fn release_spinner(&self, thread: u32) {
        let cpu = self.threads[thread as usize].cpu.get();
        let journey = self.costs.line(self.topology.distance(self.cpu.get(), cpu));
        self.unpark_after(thread, journey);
    }

    fn unpark_after(&self, thread: u32, delay: Ps) {
        let other = &self.threads[thread as usize];
        if other.state.get() == State::Parked {
            self.unblock(thread, self.now.get() + delay);
        } else {
            other.woken.set(true);
        }
    }

    /// Sleeps until `at`.
    pub fn sleep_until(&self, at: Ps) {
        let thread = &self.threads[self.current.get() as usize];
        let now = self.now.get();
        if at > now {
            bump(&thread.tally.idle_ps, at - now);
            self.now.set(at);
            self.switch();
        }
    }

    /// One operation of the workload is done.
    #[inline]
    pub fn count_op(&self) {
        bump(&self.tally().ops, 1);
    }

    /// Hands an object over until a grace period has passed.
    #[inline]
    pub fn defer(&self, item: Deferred) {
        self.rcu
            .borrow_mut()
            .defer(self.cpu.get(), self.now.get(), item);
    }

    /// Runs this CPU's deferred frees whose grace period is over.
    #[inline]
    pub fn run_deferred(&self, mut free: impl FnMut(Deferred)) {
        let cpu = self.cpu.get();
        loop {
            let mut rcu = self.rcu.borrow_mut();
            let item = rcu.take(cpu, self.now.get());
            let after = rcu.first(cpu);
            drop(rcu);
            if let Some(after) = after {
                fetch(after.address);
                self.expect_object(after.address as *const u8);
            }
            match item {
                Some(item) => free(item),
                None => return,
            }
        }
    }

    /// Takes all deferred frees of one CPU, ready or not: for the end of a run.
    pub fn drain_deferred(&self, cpu: u32, mut free: impl FnMut(Deferred)) {
        loop {
            let item = self.rcu.borrow_mut().drain(cpu);
            match item {
                Some(item) => free(item),
                None => return,
            }
        }
    }

    /// Objects whose grace period is not over or not yet acted on.
    #[must_use]
    pub fn deferred_backlog(&self) -> usize {
        self.rcu.borrow().backlog()
    }

    /// Length of a grace period.
    #[must_use]
    pub fn grace(&self) -> Ps {
        self.rcu.borrow().grace()
    }
}
