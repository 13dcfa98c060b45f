//! Which virtual CPU runs next: the earliest by (time, sequence, CPU).
//!
//! A tournament tree with one leaf per CPU: a change costs one walk from leaf to root, and the
//! earliest time is always at hand, so that the running CPU can ask "is anybody earlier than I
//! am?" by one comparison.

use crate::costs::Ps;
use crate::machine::MAX_CPUS;

/// Not runnable.
const NEVER: Ps = Ps::MAX;

/// Places of the tree of the largest machine. A fixed size: indexes need no check.
const SLOTS: usize = 2 * MAX_CPUS as usize;

/// The runnable virtual CPUs, earliest first.
#[derive(Debug)]
pub struct Ready {
    /// The earliest time below each place, and whose it is.
    times: Box<[Ps; SLOTS]>,
    whose: Box<[u32; SLOTS]>,
    /// When each CPU became runnable, as a running number: ties go in order of arrival.
    arrival: Box<[u64; SLOTS]>,
    leaves: usize,
    sequence: u64,
    waiting: u32,
}

impl Ready {
    /// Nobody is runnable, of `cpus`.
    ///
    /// # Panics
    /// Beyond [`MAX_CPUS`].
    #[must_use]
    pub fn new(cpus: u32) -> Self {
        let leaves = (cpus as usize).next_power_of_two().max(2);
        assert!(2 * leaves <= SLOTS, "no machine has so many CPUs");
        Self {
            times: Box::new([NEVER; SLOTS]),
            whose: Box::new([0; SLOTS]),
            arrival: Box::new([0; SLOTS]),
            leaves,
            sequence: 0,
            waiting: 0,
        }
    }

    /// Makes `cpu` runnable at `time`.
    #[inline]
    pub fn insert(&mut self, cpu: u32, time: Ps) {
        let mut at = self.leaves + cpu as usize;
        debug_assert_eq!(self.times[at % SLOTS], NEVER, "once only");
        self.sequence += 1;
        self.waiting += 1;
        self.arrival[cpu as usize % SLOTS] = self.sequence;
        self.times[at % SLOTS] = time;
        self.whose[at % SLOTS] = cpu;
        // Whoever came before wins a tie: the walk ends where somebody is not later.
        while at > 1 {
            at /= 2;
            if self.times[at % SLOTS] <= time {
                return;
            }
            self.times[at % SLOTS] = time;
            self.whose[at % SLOTS] = cpu;
        }
    }

    /// Takes the earliest CPU: its number and its time.
    #[inline]
    pub fn take(&mut self) -> Option<(u32, Ps)> {
        let (time, cpu) = (self.times[1], self.whose[1]);
        if time == NEVER {
            return None;
        }
        self.waiting -= 1;
        self.clear(cpu as usize);
        Some((cpu, time))
    }

    /// The time of the earliest; `Ps::MAX` when there is none.
    #[inline]
    #[must_use]
    pub fn earliest(&self) -> Ps {
        self.times[1]
    }

    /// How many CPUs are runnable.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.waiting
    }

    /// Takes the runnable CPU with this index among them, in CPU order.
    pub fn take_nth(&mut self, index: u32) -> Option<(u32, Ps)> {
        let runnable = |cpu: &usize| self.times[self.leaves + cpu] != NEVER;
        let cpu = (0..self.leaves).filter(runnable).nth(index as usize)?;
        let time = self.times[self.leaves + cpu];
        self.waiting -= 1;
        self.clear(cpu);
        Some((cpu as u32, time))
    }

    /// A leaf is empty now; its path learns who leads without it.
    #[inline]
    fn clear(&mut self, leaf: usize) {
        let mut at = self.leaves + leaf;
        let (mut time, mut leader) = (NEVER, 0);
        self.times[at % SLOTS] = NEVER;
        while at > 1 {
            let beside = (at ^ 1) % SLOTS;
            let (other, who) = (self.times[beside], self.whose[beside]);
            if other < time || other == time && self.arrived_first(who, leader) {
                (time, leader) = (other, who);
            }
            at /= 2;
            self.times[at % SLOTS] = time;
            self.whose[at % SLOTS] = leader;
        }
    }

    #[cold]
    fn arrived_first(&self, one: u32, other: u32) -> bool {
        self.arrival[one as usize % SLOTS] < self.arrival[other as usize % SLOTS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_comes_first_and_ties_go_in_order_of_arrival() {
        let mut ready = Ready::new(5);
        for (cpu, time) in [(4, 30), (0, 20), (3, 10), (1, 20), (2, 20)] {
            ready.insert(cpu, time);
        }
        assert_eq!(ready.earliest(), 10);
        let order: Vec<_> = core::iter::from_fn(|| ready.take()).collect();
        assert_eq!(order, [(3, 10), (0, 20), (1, 20), (2, 20), (4, 30)]);
        assert_eq!((ready.earliest(), ready.len()), (Ps::MAX, 0));
    }

    #[test]
    fn the_tree_agrees_with_a_sorted_list_over_a_random_program() {
        let chance = crate::chance::Chance::new(3);
        let (mut ready, mut model) = (Ready::new(37), Vec::new());
        for step in 0..10_000u64 {
            let idle: Vec<u32> = (0..37)
                .filter(|c| !model.iter().any(|m: &(Ps, u64, u32)| m.2 == *c))
                .collect();
            if !idle.is_empty() && (model.is_empty() || chance.happens(1, 2)) {
                let cpu = idle[chance.below(idle.len() as u32) as usize];
                let time = u64::from(chance.below(50));
                ready.insert(cpu, time);
                model.push((time, step, cpu));
            } else {
                model.sort_unstable();
                let (time, _, cpu) = model.remove(0);
                assert_eq!(ready.take(), Some((cpu, time)));
            }
        }
    }
}
