//! Who waits for which lock, and who gets it next.

use crate::chance::Chance;
use crate::hash::ByAddress;
use crate::machine::Queueing;
use std::collections::VecDeque;

/// The waiters of all contended locks. An uncontended lock leaves no trace here.
#[derive(Debug, Default)]
pub struct Waiters {
    queues: ByAddress<VecDeque<u32>>,
}

impl Waiters {
    /// `cpu` waits for the lock at `lock` from now on.
    pub fn join(&mut self, lock: usize, cpu: u32) {
        self.queues.entry(lock).or_default().push_back(cpu);
    }

    /// How many wait for `lock`.
    #[must_use]
    pub fn waiting(&self, lock: usize) -> usize {
        self.queues.get(&lock).map_or(0, VecDeque::len)
    }

    /// Who waits longest for `lock` and how many wait.
    #[must_use]
    pub fn first(&self, lock: usize) -> Option<(u32, usize)> {
        let queue = self.queues.get(&lock)?;
        Some((*queue.front()?, queue.len()))
    }

    /// Takes whose turn it is at `lock`: the first in a queue, a random one where all spin on the
    /// same line.
    pub fn next(&mut self, lock: usize, how: Queueing, chance: &Chance) -> Option<u32> {
        let queue = self.queues.get_mut(&lock)?;
        if queue.is_empty() {
            return None;
        }
        let index = match how {
            Queueing::Queued => 0,
            Queueing::Spinning => chance.below(queue.len() as u32) as usize,
        };
        // `remove` keeps the order of arrival; queues are as long as there are CPUs at most.
        queue.remove(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn winners(how: Queueing) -> Vec<u32> {
        let (mut waiters, chance) = (Waiters::default(), Chance::new(1));
        (0..20).for_each(|cpu| waiters.join(64, cpu));
        core::iter::from_fn(|| waiters.next(64, how, &chance)).collect()
    }

    #[test]
    fn a_queue_is_fair_and_spinning_is_not() {
        let fair: Vec<_> = (0..20).collect();
        assert_eq!(winners(Queueing::Queued), fair);
        let mut unfair = winners(Queueing::Spinning);
        assert_ne!(unfair, fair);
        unfair.sort_unstable();
        assert_eq!(unfair, fair, "everybody gets it in the end");
    }
}
