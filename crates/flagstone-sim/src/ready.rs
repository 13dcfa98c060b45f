//! Which virtual CPU runs next: the earliest by (time, sequence, CPU).
//!
//! A tournament tree with one leaf per CPU: a change costs one walk from leaf to root, and the
//! earliest time is always at hand, so that the running CPU can ask "is anybody earlier than I
//! am?" by one comparison.

use crate::costs::Ps;

/// `time << 64 | sequence << 16 | cpu`; all ones: not runnable.
type Key = u128;
const NEVER: Key = Key::MAX;

/// The runnable virtual CPUs, earliest first.
#[derive(Debug)]
pub struct Ready {
    tree: Vec<Key>,
    leaves: usize,
    sequence: u64,
    waiting: u32,
}

impl Ready {
    /// Nobody is runnable, of `cpus`.
    #[must_use]
    pub fn new(cpus: u32) -> Self {
        let leaves = (cpus as usize).next_power_of_two().max(2);
        Self {
            tree: vec![NEVER; 2 * leaves],
            leaves,
            sequence: 0,
            waiting: 0,
        }
    }

    /// Makes `cpu` runnable at `time`.
    #[inline]
    pub fn insert(&mut self, cpu: u32, time: Ps) {
        debug_assert_eq!(self.tree[self.leaves + cpu as usize], NEVER, "once only");
        self.sequence += 1;
        self.waiting += 1;
        let key = Key::from(time) << 64 | Key::from(self.sequence) << 16 | Key::from(cpu);
        self.replace(cpu as usize, key);
    }

    /// Takes the earliest CPU: its number and its time.
    #[inline]
    pub fn take(&mut self) -> Option<(u32, Ps)> {
        let key = self.tree[1];
        if key == NEVER {
            return None;
        }
        let cpu = (key & 0xffff) as u32;
        self.waiting -= 1;
        self.replace(cpu as usize, NEVER);
        Some((cpu, (key >> 64) as Ps))
    }

    /// The time of the earliest; `Ps::MAX` when there is none.
    #[inline]
    #[must_use]
    pub fn earliest(&self) -> Ps {
        (self.tree[1] >> 64) as Ps
    }

    /// How many CPUs are runnable.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.waiting
    }

    /// Takes the runnable CPU with this index among them, in CPU order.
    pub fn take_nth(&mut self, index: u32) -> Option<(u32, Ps)> {
        let mut seen = 0;
        for cpu in 0..self.leaves {
            let key = self.tree[self.leaves + cpu];
            if key == NEVER {
                continue;
            }
            if seen == index {
                self.waiting -= 1;
                self.replace(cpu, NEVER);
                return Some((cpu as u32, (key >> 64) as Ps));
            }
            seen += 1;
        }
        None
    }

    #[inline]
    fn replace(&mut self, leaf: usize, key: Key) {
        let mut at = self.leaves + leaf;
        self.tree[at] = key;
        while at > 1 {
            at /= 2;
            let winner = self.tree[2 * at].min(self.tree[2 * at + 1]);
            if self.tree[at] == winner {
                return;
            }
            self.tree[at] = winner;
        }
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
