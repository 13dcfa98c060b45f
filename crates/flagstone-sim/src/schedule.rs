//! Running programs on virtual CPUs: one stack each (fiber.rs), gone on with in order.
//!
//! ```text
//!   ready ─ earliest (timed) or random (interleaved) ─► its stack ─► runs until it gives way,
//!     ▲                                                              blocks, or ends
//!     └─────────────────────────────────────────────────────────────┘
//!   whoever leaves finds out itself who is next, and goes straight there; to the scheduler only when
//!   the observer's time has come, when nobody is runnable, and when something is wrong
//! ```

use crate::costs::Ps;
use crate::fiber::{Place, begin, switch};
use crate::options::{Failure, Gear};
use crate::stack::Shifted;
use crate::thread::State;
use crate::vm::{Vm, current};
use core::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A program for one virtual CPU: loops until [`Vm::stopping`], or ends by itself.
pub type Program<'a> = Box<dyn FnOnce(&Vm) + 'a>;

/// Programs that wait for their thread's first turn.
pub(crate) type Programs<'a> = Vec<Cell<Option<Program<'a>>>>;

/// What the scheduler is to do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// Go on where the running thread's stack was left.
    Turn(Place),
    /// The observer's time has come.
    Look,
    /// No thread is runnable.
    Nobody,
    /// The run is over: something is wrong.
    Failed,
}

/// What a thread's stack begins with.
extern "C" fn live() -> ! {
    let vm = current();
    // SAFETY: threads run while `run` does, which holds the programs; of their lifetime it is only
    // forgotten that it is no longer than that.
    let programs = unsafe { &*vm.programs.get() };
    let program = programs[vm.current() as usize].take();
    let program = program.expect("runnable threads have a program");
    // Nothing may unwind beyond a stack's first function.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| program(vm))) {
        *vm.panicked.borrow_mut() = Some(panic);
        vm.leave_for(Next::Failed);
    }
    vm.end()
}

impl Vm {
    /// Runs each program on its thread until all have ended. `observe` is called between turns,
    /// first at `first_look`, then at the time it returns; `None` ends the run.
    ///
    /// # Errors
    /// What went wrong: a fault of the core, a broken invariant, a deadlock.
    ///
    /// # Panics
    /// If two programs are given for one thread.
    pub fn run(
        &self,
        programs: Vec<(u32, Program<'_>)>,
        first_look: Ps,
        mut observe: impl FnMut(&Self) -> Option<Ps>,
    ) -> Result<(), Failure> {
        let _entered = self.enter();
        self.stopping.set(false);
        self.observe_at.set(first_look);
        let waiting: Programs<'_> = self.threads.iter().map(|_| Cell::new(None)).collect();
        let mut stacks = Vec::new();
        for (index, program) in programs {
            let before = waiting[index as usize].replace(Some(program));
            assert!(before.is_none(), "one program for each thread");
            stacks.push(self.prepare(index));
        }
        self.programs.set((&raw const waiting).cast());
        // What a stack holds in the end is never looked at again: where programs have not ended, the
        // run has failed. Memory they own leaks, which a failed run may.
        let outcome = self.turns(&mut observe);
        self.programs.set(core::ptr::null());
        outcome
    }

    /// Lets every thread's clock start at random within `most`.
    pub fn stagger(&self, most: Ps) {
        for thread in &self.threads {
            let at = (u128::from(self.chance.next()) * u128::from(most)) >> 64;
            thread.clock.set(at as Ps);
        }
    }

    fn prepare(&self, index: u32) -> Shifted {
        let stack = Shifted::new(index);
        let thread = &self.threads[index as usize];
        thread.state.set(State::Runnable);
        self.count_running(thread.cpu.get(), true);
        self.ready.borrow_mut().insert(index, thread.clock.get());
        // SAFETY: 1: a new stack.
        thread.place.set(unsafe { begin(&stack, live) });
        stack
    }

    /// The scheduler's own part: threads pass turns on to each other, and come back here when there
    /// is something else to do.
    fn turns(&self, observe: &mut impl FnMut(&Self) -> Option<Ps>) -> Result<(), Failure> {
        let mut next = self.next();
        loop {
            next = match next {
                Next::Turn(place) => {
                    self.in_task.set(true);
                    self.timed.set(self.options.gear == Gear::Timed);
                    // SAFETY: 1: a cell of ours. 2: the place of a runnable thread, noted when it gave
                    // way or was prepared; `run` holds its stack. 3: one thread runs a machine.
                    unsafe { switch(self.scheduler.as_ptr(), place) };
                    self.in_task.set(false);
                    self.timed.set(false);
                    self.left_for.get()
                }
                Next::Look => {
                    self.now.set(self.observe_at.get());
                    match observe(self) {
                        Some(next) => self.observe_at.set(next.max(self.observe_at.get() + 1)),
                        None => self.stop(),
                    }
                    self.next()
                }
                Next::Nobody if self.wake_for_the_end() => self.next(),
                Next::Nobody => return self.finished(),
                Next::Failed => {
                    if let Some(panic) = self.panicked.take() {
                        std::panic::resume_unwind(panic);
                    }
                    return Err(self.failure.take().expect("a failed run says why"));
                }
            }
        }
    }

    /// Decides what comes next, and makes the thread whose turn it is the running one.
    #[inline]
    fn next(&self) -> Next {
        let Some((index, time)) = self.next_turn() else {
            return Next::Nobody;
        };
        if time >= self.observe_at.get() {
            self.ready.borrow_mut().insert(index, time);
            return Next::Look;
        }
        let thread = &self.threads[index as usize];
        self.current.set(index);
        self.cpu.set(thread.cpu.get());
        self.now.set(time);
        let ready = self.ready.borrow();
        let (next, at) = ready.first().unwrap_or((index, Ps::MAX));
        let second = ready.second();
        drop(ready);
        self.horizon.set(at.min(self.observe_at.get()));
        self.see_siblings();
        self.threads[next as usize].fetch();
        self.threads[second as usize].fetch_first();
        Next::Turn(thread.place.get())
    }

    /// Leaves the running thread, which is in the queue of the ready ones or waits for somebody else;
    /// returns when its turn has come.
    #[inline]
    pub(crate) fn give_way(&self) {
        let me = self.current.get();
        let from = self.thread().place.as_ptr();
        let to = match self.next() {
            // Still the first of all: it never left, and what is noted is where it was before.
            Next::Turn(_) if self.current.get() == me => return,
            Next::Turn(place) => place,
            other => {
                self.left_for.set(other);
                self.scheduler.get()
            }
        };
        // SAFETY: as in `turns`; the scheduler's place was noted there, before any program ran.
        unsafe { switch(from, to) };
    }

    /// Leaves the running thread for the scheduler.
    pub(crate) fn leave_for(&self, what: Next) {
        self.left_for.set(what);
        let from = self.thread().place.as_ptr();
        // SAFETY: as in `give_way`.
        unsafe { switch(from, self.scheduler.get()) };
    }

    /// The running thread's program has ended.
    fn end(&self) -> ! {
        let thread = self.thread();
        thread.clock.set(self.now.get());
        thread.state.set(State::Absent);
        self.count_running(self.cpu.get(), false);
        loop {
            self.give_way();
        }
    }

    fn next_turn(&self) -> Option<(u32, Ps)> {
        let mut ready = self.ready.borrow_mut();
        if self.options.gear == Gear::Timed {
            return ready.take();
        }
        let count = ready.len();
        if count == 0 {
            return None;
        }
        let index = self.chance.below(count);
        let turn = ready.take_nth(index)?;
        self.digest.add(u64::from(turn.0) << 56 ^ turn.1);
        // Time only moves forward, whoever runs.
        Some((turn.0, turn.1.max(self.now.get())))
    }

    /// Asks all programs to end: sleepers wake up and see it.
    fn stop(&self) {
        self.stopping.set(true);
        self.observe_at.set(Ps::MAX);
        self.wake_sleepers();
    }

    fn wake_sleepers(&self) -> bool {
        let mut any = false;
        for index in 0..self.threads.len() as u32 {
            if self.threads[index as usize].state.get() == State::Parked {
                self.unblock(index, self.now.get());
                any = true;
            }
        }
        any
    }

    /// Nobody is runnable: if some only sleep because their partners have ended, end too.
    fn wake_for_the_end(&self) -> bool {
        let ended = self.stopping();
        let anybody_ended = self
            .threads
            .iter()
            .any(|t| t.state.get() == State::Absent && t.clock.get() > 0);
        if !ended && !anybody_ended {
            return false;
        }
        self.stopping.set(true);
        self.observe_at.set(Ps::MAX);
        self.wake_sleepers()
    }

    /// The latest clock of any thread: how long a run to the end took.
    #[must_use]
    pub fn latest(&self) -> Ps {
        let clocks = self.threads.iter().map(|thread| thread.clock.get());
        clocks.max().unwrap_or(0)
    }

    fn finished(&self) -> Result<(), Failure> {
        let stuck = |state| matches!(state, State::Waiting(_) | State::Parked);
        if self.threads.iter().any(|thread| stuck(thread.state.get())) {
            return Err(Failure {
                what: self.describe_stall(),
                seed: self.options.seed,
                at_ns: self.now.get() / 1000,
                thread: self.current.get(),
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::options::Options;

    #[test]
    fn a_thread_that_is_still_the_first_of_all_goes_on_where_it_is() {
        let vm = Vm::new(Machine::named("x86-16").unwrap(), Options::default());
        let program: Program<'_> =
            Box::new(|vm: &Vm| (1..100).for_each(|ns| vm.sleep_until(ns * 1000)));
        vm.run(vec![(0, program)], Ps::MAX, |_| None).unwrap();
        assert_eq!(vm.latest(), 99_000);
    }

    #[test]
    fn a_program_that_panics_ends_the_run_with_its_panic_and_others_never_go_on() {
        let vm = Vm::new(Machine::named("x86-16").unwrap(), Options::default());
        let went_on = Cell::new(false);
        let patient: Program<'_> = Box::new(|vm: &Vm| {
            vm.sleep_until(2_000_000);
            went_on.set(true);
        });
        let hasty: Program<'_> = Box::new(|vm: &Vm| {
            vm.sleep_until(1_000_000);
            panic!("a program's own mistake");
        });
        let late: Program<'_> = Box::new(|_: &Vm| went_on.set(true));
        vm.threads[2].clock.set(3_000_000);
        let programs = vec![(0, patient), (1, hasty), (2, late)];
        let run = || vm.run(programs, Ps::MAX, |_| None);
        let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("it panicked");
        assert_eq!(panic.downcast_ref(), Some(&"a program's own mistake"));
        assert!(!went_on.get());
    }
}
