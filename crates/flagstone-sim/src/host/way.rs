//! How long a line is on its way between two CPUs just now.
//!
//! A hypervisor moves its CPUs, in the middle of a run as well: on one cluster of cores a line takes
//! a quarter of the time it does between two. So beside the CPU's pace a stretch notes what a few lines
//! took that the other CPU was the last to write.

use super::probe::Padded;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Lines walked in a look: 2 µs on two clusters.
const LINES: usize = 16;

/// Two ways within this factor of each other are one: threads of one core, cores of one cluster and of
/// two are 5, 34 and 130 ns apart (AMD family 25).
const SAME: f64 = 1.9;

/// Lines that two CPUs write in turns. Each says where the next one is, so that one journey ends before
/// the next begins.
#[derive(Debug)]
pub struct Trail {
    /// Who wrote it last, from [`WRITER`] on, and below that the next line's number; each on a page of
    /// its own and on another line of it.
    lines: Vec<Padded<AtomicUsize>>,
}

/// From one line of a trail to the next, in lines: a page and one.
const APART: usize = 33;

/// First bit of a line's last writer, counted from one: zero is nobody.
const WRITER: u32 = 8;

impl Trail {
    /// Written by nobody.
    #[must_use]
    pub fn new() -> Self {
        let line = |at| Padded(AtomicUsize::new(after(at / APART)));
        Self {
            lines: (0..LINES * APART).map(line).collect(),
        }
    }

    /// Nanoseconds of a line's way to `task`, as [`transfer`](super::probe::transfer) counts it; `None`
    /// unless the other one wrote every line last.
    #[must_use]
    pub fn look(&self, task: usize) -> Option<f64> {
        let start = Instant::now();
        let others = self.walk(task);
        let there = start.elapsed();
        self.walk(task);
        let both = start.elapsed();
        let way = there.saturating_sub(both.saturating_sub(there));
        (others == LINES).then_some(way.as_secs_f64() * 1e9 / LINES as f64)
    }

    /// Writes all lines; how many were the other one's.
    fn walk(&self, task: usize) -> usize {
        let (mut at, mut others) = (0, 0);
        for _ in 0..LINES {
            let line = &self.lines[at * APART].0;
            let last = line.swap((task + 1) << WRITER | after(at), Ordering::AcqRel);
            at = last & ((1 << WRITER) - 1);
            let writer = last >> WRITER;
            others += usize::from(writer != 0 && writer != task + 1);
        }
        others
    }
}

/// The line after this one: 7 and the count have no common divisor, so all are met, in an order no
/// prefetcher guesses.
fn after(line: usize) -> usize {
    (line + 7) % LINES
}

impl Default for Trail {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether a way of `ns` is the one of `than` nanoseconds.
#[must_use]
pub fn is_same(ns: f64, than: f64) -> bool {
    let ratio = ns.max(0.1) / than.max(0.1);
    ratio.max(1.0 / ratio) <= SAME
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_counts_only_lines_that_the_other_one_wrote() {
        let trail = Trail::new();
        assert!(trail.look(0).is_none(), "nobody's");
        assert!(trail.look(1).is_some());
        assert!(trail.look(1).is_none(), "its own");
        assert!(trail.look(0).is_some());
    }

    #[test]
    fn near_and_far_are_two_ways() {
        assert!(is_same(34.0, 36.0) && is_same(120.0, 135.0));
        assert!(!is_same(34.0, 120.0) && !is_same(120.0, 34.0));
    }
}
