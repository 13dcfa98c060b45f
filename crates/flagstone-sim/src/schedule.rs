//! Running programs on virtual CPUs: one stackful coroutine each, resumed in order.
//!
//! ```text
//!   ready ─ earliest (timed) or random (interleaved) ─► resume ─► runs until it gives way,
//!     ▲                                                           blocks, or ends
//!     └──────────────────────────────────────────────────────────┘
//!   between two turns the observer looks at the machine at the times it asked for
//! ```

use crate::ahead::fetch;
use crate::costs::Ps;
use crate::stack::Shifted;
use crate::vm::{Failure, Gear, State, Vm};
use corosensei::{Coroutine, CoroutineResult};

/// A program for one virtual CPU: loops until [`Vm::stopping`], or ends by itself.
pub type Program<'a> = Box<dyn FnOnce(&Vm) + 'a>;

type Turn = Coroutine<(), (), (), Shifted>;

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
        let mut turns: Vec<Option<Turn>> = Vec::new();
        turns.resize_with(self.threads.len(), || None);
        for (index, program) in programs {
            assert!(
                turns[index as usize].is_none(),
                "one program for each thread"
            );
            turns[index as usize] = Some(self.prepare(index, program));
        }
        let outcome = self.turns(&mut turns, &mut observe);
        for turn in turns.iter_mut().flatten().filter(|turn| !turn.done()) {
            // SAFETY: what such a stack still holds is never looked at again: the run has failed
            // and its programs are lost. Memory they own leaks, which a failed run may.
            unsafe { turn.force_reset() };
        }
        outcome
    }

    /// Lets every thread's clock start at random within `most`.
    pub fn stagger(&self, most: Ps) {
        for thread in &self.threads {
            let at = (u128::from(self.chance.next()) * u128::from(most)) >> 64;
            thread.clock.set(at as Ps);
        }
    }

    fn prepare(&self, index: u32, program: Program<'_>) -> Turn {
        let stack = Shifted::new(index);
        let this: *const Self = self;
        let thread = &self.threads[index as usize];
        thread.state.set(State::Runnable);
        let core = &self.core_running[self.topology.core_of(thread.cpu.get())];
        core.set(core.get() + 1);
        self.ready.borrow_mut().insert(index, thread.clock.get());
        let body = move |yielder: &corosensei::Yielder<(), ()>, ()| {
            // SAFETY: `run` borrows the machine until every coroutine has ended or is reset.
            let vm = unsafe { &*this };
            vm.threads[index as usize].yielder.set(yielder);
            program(vm);
        };
        // SAFETY: all that `body` borrows outlives `run`, in which the coroutine ends or is reset.
        unsafe { Coroutine::with_stack_unchecked(stack, body) }
    }

    fn turns(
        &self,
        turns: &mut [Option<Turn>],
        observe: &mut impl FnMut(&Self) -> Option<Ps>,
    ) -> Result<(), Failure> {
        loop {
            let Some((index, time)) = self.next_turn() else {
                if self.wake_for_the_end() {
                    continue;
                }
                return self.finished();
            };
            if time >= self.observe_at.get() {
                self.ready.borrow_mut().insert(index, time);
                self.now.set(self.observe_at.get());
                match observe(self) {
                    Some(next) => self.observe_at.set(next.max(self.observe_at.get() + 1)),
                    None => self.stop(),
                }
                continue;
            }
            let thread = &self.threads[index as usize];
            self.current.set(index);
            self.cpu.set(thread.cpu.get());
            self.now.set(time);
            let next = self.ready.borrow().first();
            let (next, at) = next.unwrap_or((index, Ps::MAX));
            self.horizon.set(at.min(self.observe_at.get()));
            self.wants[next as usize].fetch();
            fetch(core::ptr::from_ref(&self.threads[next as usize]) as usize);
            self.in_task.set(true);
            self.timed.set(self.options.gear == Gear::Timed);
            let turn = turns[index as usize]
                .as_mut()
                .expect("runnable threads have a program");
            let result = turn.resume(());
            self.in_task.set(false);
            self.timed.set(false);
            thread.clock.set(self.now.get());
            if matches!(result, CoroutineResult::Return(())) {
                thread.state.set(State::Absent);
                let core = &self.core_running[self.topology.core_of(self.cpu.get())];
                core.set(core.get() - 1);
            }
            if self.failed.get()
                && let Some(failure) = self.failure.borrow_mut().take()
            {
                return Err(failure);
            }
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
