//! How long a line is on its way between two CPUs just now.
//!
//! A hypervisor moves its CPUs, in the middle of a run as well: on one cluster of cores a line takes
//! a quarter of the time it does between two. So beside the CPU's pace a stretch notes what a few lines
//! took that the other CPU was the last to write.

use super::between::Field;
use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};

/// Lines walked in a look: 2 µs on two clusters.
const LINES: usize = 16;

/// Two ways within this factor of each other are one: threads of one core, cores of one cluster and of
/// two are 5, 34 and 130 ns apart (AMD family 25).
const SAME: f64 = 1.9;

/// Lines that two CPUs write in turns; the upper half of a word says who wrote it last, counted from
/// one.
#[derive(Debug)]
pub struct Trail(Field<LINES>);

impl Trail {
    /// Written by nobody.
    #[must_use]
    pub fn new() -> Self {
        Self(Field::new())
    }

    /// Nanoseconds of a line's way to `task`, as [`transfer`](super::between::transfer) counts it; `None`
    /// unless the other one wrote every line last.
    #[must_use]
    pub fn look(&self, task: usize) -> Option<f64> {
        let own = task as u64 + 1;
        let others = Cell::new(0);
        let write = |word: &AtomicU64, next| {
            let last = word.swap(own << 32 | next, Ordering::AcqRel);
            let writer = last >> 32;
            others.set(others.get() + usize::from(writer != 0 && writer != own));
            last
        };
        let there = self.0.walk(write);
        let way = (there - self.0.walk(write)).max(0.0);
        (others.get() == LINES).then_some(way)
    }
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
