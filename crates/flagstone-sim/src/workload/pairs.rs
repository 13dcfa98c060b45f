//! Pairs of a sender and a receiver that stay near each other, as the scheduler's wake-ups do, and
//! change places now and then, as its balancing does.
//!
//! ```text
//!   turn 0   CPU a sends ── stream 0 ──► CPU b receives
//!   turn 1   CPU a receives ◄── stream 1 ── CPU b sends           and so on
//! ```
//!
//! A place that changes matters to pagesets: the one that grew under allocations now takes frees.

use super::Env;
use crate::costs::US;
use crate::fifo::Mailbox;
use crate::vm::Vm;
use std::rc::Rc;

/// Microseconds until the scheduler moves a pair's tasks, on average: a choice; its balancing runs
/// every few tens of milliseconds and seldom finds something to move.
const STAY_US: f64 = 100_000.0;

/// The tasks' CPUs as pairs on one socket where possible.
pub(super) fn pairs(env: &Env<'_>) -> Vec<(u32, u32)> {
    let topology = &env.vm.topology;
    let mut cpus = env.cpus.to_vec();
    cpus.sort_by_key(|cpu| (topology.socket_of(*cpu), *cpu / topology.cores(), *cpu));
    cpus.chunks_exact(2)
        .map(|pair| (pair[0], pair[1]))
        .collect()
}

/// A message, and whether its sender moves after it.
pub(super) struct Parcel<T> {
    pub(super) item: T,
    moves: bool,
}

/// Both directions of a pair.
pub(super) struct Streams<T>([Mailbox<Parcel<T>>; 2]);

impl<T> Streams<T> {
    pub(super) fn new(window: usize) -> Rc<Self> {
        Rc::new(Self([Mailbox::new(window), Mailbox::new(window)]))
    }

    /// Runs the side `me` of a pair until the run ends. `make` builds one message, `take` deals with
    /// one; `discard` frees one that could not be sent.
    pub(super) fn run(
        &self,
        vm: &Vm,
        me: usize,
        mut make: impl FnMut() -> T,
        mut take: impl FnMut(T),
        discard: impl Fn(T),
    ) {
        let mut sends = me == 0;
        while !vm.stopping() {
            if sends {
                let leave = vm.now() + vm.chance.exponential(STAY_US) * US;
                let mut moves = false;
                while !moves {
                    let item = make();
                    moves = vm.now() >= leave;
                    if let Err(parcel) = self.0[me].send(vm, Parcel { item, moves }) {
                        return discard(parcel.item);
                    }
                }
            } else {
                let mut moves = false;
                while !moves {
                    let Some(parcel) = self.0[1 - me].receive(vm) else {
                        return;
                    };
                    moves = parcel.moves;
                    take(parcel.item);
                }
            }
            sends = !sends;
        }
    }
}
