//! A thread of execution: in the timed gear, what is known of one virtual CPU.
//!
//! ```text
//!   line of the host   0: what a turn begins with · 1: what most turns look at · 2 ..: counters
//! ```

use crate::ahead::{Wants, fetch};
use crate::costs::Ps;
use crate::fiber::Place;
use crate::interrupt::Handler;
use crate::tally::Tally;
use core::cell::{Cell, RefCell};
use flagstone_core::platform::{Function, LockKind};

/// What a thread of execution is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// Not started, or finished.
    Absent,
    /// Running, or waiting for its turn.
    Runnable,
    /// In the queue of the lock at this address.
    Waiting(usize),
    /// Asleep until somebody wakes it.
    Parked,
}

/// What is known of a thread of execution. What a turn begins with comes first, on one line of the
/// host; then what most turns look at, on another; then counters.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Thread {
    /// Where its stack was left.
    pub(crate) place: Cell<Place>,
    /// What its next turn begins with looking at.
    pub(crate) wants: Wants,
    /// The CPU it runs on.
    pub(crate) cpu: Cell<u32>,
    pub(crate) function: Cell<Function>,
    /// Somebody woke it while it was not asleep.
    pub(crate) woken: Cell<bool>,
    /// To whom its time belongs, and until when it is booked.
    pub(crate) booked_to: Cell<Ps>,
    /// What may come in the middle of an allocation; see interrupt.rs.
    pub(crate) handler: Cell<Option<Handler>>,
    /// Time in them so far.
    pub(crate) interrupted: Cell<Ps>,
    pub(crate) state: Cell<State>,
    pub(crate) since: Cell<Ps>,
    pub(crate) tally: Tally,
    pub(crate) held: RefCell<Vec<LockKind>>,
    /// How many of those are held below the handler that runs.
    pub(crate) held_below: Cell<usize>,
    /// When it begins, then when it ended.
    pub(crate) clock: Cell<Ps>,
}

const _: () = assert!(
    core::mem::offset_of!(Thread, booked_to) == 64 && core::mem::offset_of!(Thread, tally) == 128,
    "what a turn begins with lies on one line, and what most look at on the next"
);

impl Thread {
    /// One that runs nothing yet, on `cpu`.
    pub(crate) fn new(cpu: u32) -> Self {
        Self {
            place: Cell::new(0),
            wants: Wants::default(),
            cpu: Cell::new(cpu),
            function: Cell::new(Function::Rest),
            woken: Cell::new(false),
            booked_to: Cell::new(0),
            handler: Cell::new(None),
            interrupted: Cell::new(0),
            state: Cell::new(State::Absent),
            since: Cell::new(0),
            tally: Tally::default(),
            held: RefCell::new(Vec::new()),
            held_below: Cell::new(0),
            clock: Cell::new(0),
        }
    }

    /// Its next turn is near: asks for what tells what that begins with.
    #[inline]
    pub(crate) fn fetch_first(&self) {
        fetch(core::ptr::from_ref(self) as usize);
    }

    /// Its turn is the next: asks for all it begins with.
    #[inline]
    pub(crate) fn fetch(&self) {
        self.wants.fetch(self.place.get());
        let first = core::ptr::from_ref(self) as usize;
        // What most turns look at, and two lines of counters.
        for line in [64, 128, 192] {
            fetch(first + line);
        }
    }
}
