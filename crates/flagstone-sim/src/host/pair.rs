//! What two CPUs of this host do to each other's lines, and the figures of a profile that say it.
//!
//! A hypervisor moves its CPUs: on one cluster of cores a line is on its way a fifth of the time it
//! is between two. So all of it is measured together, and again where it matters.

use super::way::is_same;
use super::{between, probe, steps};
use crate::machine::Machine;
use std::time::Duration;

/// How two CPUs hang together.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// A line's way from one to the other, in ns.
    pub way_ns: f64,
    /// One of several lines under way at once, in ns.
    pub overlapped_ns: f64,
    /// One of several free objects in a row, of one line and of two, each of which says where the next
    /// one is, in ns.
    pub in_row_ns: [f64; 2],
    /// A line that the other one wrote is this one's own once it was read.
    pub migrates: bool,
    /// Nanoseconds of a locked addition by either, while both do nothing but that to one line and
    /// work on their own before each: how long that takes, and how long both together.
    pub words_ns: [(f64, f64); 3],
    /// An acquisition by either of a lock both want all the time, in ns.
    pub lock_ns: f64,
}

/// Links of idle work between two steps of a CPU: none, and what an allocator's fast paths take.
const PAUSES: [u32; 3] = [0, 4, 12];

/// How often all of it is begun anew, because the CPUs do not come back to where they were.
const STARTS: u32 = 4;

/// How often one figure is.
const TRIES: u32 = 6;

/// Two CPUs where a line takes so long between them.
struct Place {
    cpus: [usize; 2],
    way_ns: f64,
    /// Answers nothing rather than a figure of another place.
    patient: bool,
}

impl Place {
    fn pair(&self, budget: Duration) -> Option<Pair> {
        let [a, b] = self.cpus;
        let mut words_ns = [(0.0, 0.0); 3];
        for (word, rounds) in words_ns.iter_mut().zip(PAUSES) {
            let both = self.here(|| between::contended_atomic(a, b, rounds, budget / 3))?;
            *word = (probe::pause(rounds), both);
        }
        Some(Pair {
            way_ns: self.way_ns,
            overlapped_ns: self.here(|| between::overlapped(a, b))?,
            in_row_ns: [
                self.here(|| between::in_row(a, b, 1))?,
                self.here(|| between::in_row(a, b, 2))?,
            ],
            migrates: self.here(|| between::upgrade(a, b))? < self.way_ns / 2.0,
            words_ns,
            lock_ns: self.here(|| between::hand_off(a, b, budget))?,
        })
    }

    /// What `measure` answers while the CPUs stay here; `None` if they are elsewhere too often.
    fn here(&self, measure: impl Fn() -> f64) -> Option<f64> {
        let [a, b] = self.cpus;
        let is_here = || is_same(between::transfer_now(a, b), self.way_ns);
        for _ in 0..TRIES {
            if is_here() {
                let figure = measure();
                if is_here() {
                    return Some(figure);
                }
            }
        }
        (!self.patient).then(measure)
    }
}

impl Pair {
    /// Measures CPUs `a` and `b`; the two loops in which both are in each other's way take `budget`
    /// each.
    #[must_use]
    pub fn of(a: usize, b: usize, budget: Duration) -> Self {
        let mut found = None;
        for last in (0..STARTS).map(|start| start + 1 == STARTS) {
            let place = Place {
                cpus: [a, b],
                way_ns: between::transfer(a, b),
                patient: !last,
            };
            found = place.pair(budget);
            if found.is_some() {
                break;
            }
        }
        found.expect("the last start takes what it gets")
    }

    /// The part of a line's way that is waited for where several are under way at once.
    #[must_use]
    pub fn overlap(&self) -> f64 {
        (self.overlapped_ns / self.way_ns).min(1.0)
    }

    /// The same where they follow each other and each says where the next one is.
    #[must_use]
    pub fn in_row(&self) -> [f64; 2] {
        self.in_row_ns.map(|ns| (ns / self.way_ns).min(1.0))
    }

    /// Gives `machine` lines that behave so: their way between any two cores of a package, how
    /// much of it is waited for, and the two figures that are solved for.
    pub fn rule(&self, machine: &mut Machine) {
        let latency = &mut machine.latency_ns;
        latency.socket = self.way_ns;
        latency.cluster = latency.cluster.map(|_| self.way_ns);
        latency.overlap = Some(self.overlap());
        latency.in_row = Some(self.in_row());
        latency.migrates = Some(self.migrates);
        self.solve(machine);
    }

    /// Finds how long a line lingers with its last owner, and how late a waiter notices that a lock
    /// is free: the values with which two virtual CPUs take what these two do.
    pub fn solve(&self, machine: &mut Machine) {
        let steps = (0..=20).map(|step| f64::from(step) / 20.0);
        let linger = nearest(machine, steps, |machine, linger| {
            machine.latency_ns.linger = Some(linger);
            let words = self.words_ns.iter();
            words
                .map(|&(pause, ns)| off(steps::simulated_atomic(machine, pause), ns))
                .sum()
        });
        machine.latency_ns.linger = Some(linger);
        // From a quarter to 64 line ways until a waiter notices.
        let steps = (0..=24).map(|step| 0.25 * 2f64.powf(f64::from(step) / 3.0));
        let handoff = nearest(machine, steps, |machine, handoff| {
            machine.locks.handoff = handoff;
            off(steps::simulated_hand_off(machine), self.lock_ns)
        });
        machine.locks.handoff = handoff;
    }
}

/// How far `simulated` is from `measured`, whichever is more.
fn off(simulated: f64, measured: f64) -> f64 {
    (simulated / measured).ln().abs()
}

/// Of `values` the one with which `machine` is least `off`.
fn nearest(
    machine: &mut Machine,
    values: impl Iterator<Item = f64>,
    off: impl Fn(&mut Machine, f64) -> f64,
) -> f64 {
    let tried = values.map(|value| (off(machine, value), value));
    let best = tried.min_by(|a, b| a.0.total_cmp(&b.0));
    best.map_or(0.0, |best| best.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_solved_for_make_two_virtual_cpus_take_what_two_real_ones_did() {
        let mut machine = Machine::named("this-machine").unwrap();
        // Two cores of different clusters, as measured.
        let pair = Pair {
            way_ns: 128.0,
            overlapped_ns: 6.4,
            in_row_ns: [12.0, 40.0],
            migrates: true,
            words_ns: [(0.0, 8.2), (4.0, 11.6), (11.0, 16.8)],
            lock_ns: 10.0,
        };
        pair.rule(&mut machine);
        let latency = &machine.latency_ns;
        assert_eq!((latency.socket, latency.cluster), (128.0, Some(128.0)));
        let overlap = latency.overlap.unwrap();
        assert!((overlap - 0.05).abs() < 1e-9 && latency.migrates == Some(true));
        for (pause, ns) in pair.words_ns {
            let word = steps::simulated_atomic(&machine, pause);
            // Steps follow each other a little faster here, where each waits for the last one.
            assert!(off(word, ns) < 0.45, "{word} ns after {pause}, not {ns}");
        }
        let lock = steps::simulated_hand_off(&machine);
        assert!(off(lock, 10.0) < 0.7, "{lock}");
    }
}
