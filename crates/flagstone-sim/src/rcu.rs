//! Deferred frees: what is handed over now comes back after a grace period, in bounded batches.
//!
//! ```text
//!   defer at t ──► current grace period ends ──► a full one passes ──► ready, batch by batch
//! ```
//!
//! Grace periods of the whole machine end at multiples of their length. The batch grows with the
//! backlog, as the kernel's does (a 128th of it when that is more), so that a flood drains.

use crate::ahead::fetch;
use crate::costs::Ps;
use crate::tagged::Tagged;
use std::collections::VecDeque;

/// An object waiting for its grace period: an opaque kind for the workload, and its address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deferred {
    /// The workload's own word: which cache, which callback.
    pub kind: u16,
    /// The object: below 2^48, as all addresses of programs are.
    pub address: usize,
}

impl Deferred {
    fn of(item: Tagged) -> Self {
        Self {
            kind: item.tag(),
            address: item.address(),
        }
    }
}

#[derive(Debug, Default)]
struct Queue {
    items: VecDeque<Tagged>,
    /// When how many of them are ready, the first ones first.
    segments: VecDeque<(u64, usize)>,
    /// Left of the batch that is being run.
    batch: u32,
}

/// All CPUs' deferred frees.
#[derive(Debug)]
pub struct Rcu {
    grace: Ps,
    batch: u32,
    queues: Vec<Queue>,
}

impl Rcu {
    /// Nothing deferred, on `cpus` CPUs with grace periods `grace` long.
    #[must_use]
    pub fn new(cpus: u32, grace: Ps, batch: u32) -> Self {
        Self {
            grace,
            batch,
            queues: (0..cpus).map(|_| Queue::default()).collect(),
        }
    }

    /// Length of a grace period.
    #[must_use]
    pub fn grace(&self) -> Ps {
        self.grace
    }

    /// Defers a free on `cpu`.
    #[inline]
    pub fn defer(&mut self, cpu: u32, now: Ps, item: Deferred) {
        let ready = now / self.grace + 2;
        let queue = &mut self.queues[cpu as usize];
        match queue.segments.back_mut() {
            Some((at, count)) if *at == ready => *count += 1,
            _ => queue.segments.push_back((ready, 1)),
        }
        queue.items.push_back(Tagged::new(item.kind, item.address));
        // The line of the next ones was looked at a grace period ago.
        if let Some(last) = queue.items.back() {
            fetch(core::ptr::from_ref(last) as usize + 64);
        }
    }

    /// Starts a pass on `cpu`: afterwards [`Rcu::take`] gives at most one batch.
    pub fn begin_pass(&mut self, cpu: u32) {
        let queue = &mut self.queues[cpu as usize];
        queue.batch = self.batch.max(queue.items.len() as u32 >> 7);
        // Written a grace period ago, a few to a line: all lines of a usual batch at once.
        for index in (0..self.batch as usize).step_by(8) {
            if let Some(item) = queue.items.get(index) {
                fetch(core::ptr::from_ref(item) as usize);
            }
        }
    }

    /// The next ready item of the pass.
    #[inline]
    pub fn take(&mut self, cpu: u32, now: Ps) -> Option<Deferred> {
        let period = now / self.grace;
        let queue = &mut self.queues[cpu as usize];
        let (ready, _) = *queue.segments.front()?;
        if ready > period || queue.batch == 0 {
            return None;
        }
        queue.batch -= 1;
        queue.pop()
    }

    /// What a CPU deferred longest ago, ready or not.
    #[inline]
    pub(crate) fn first(&self, cpu: u32) -> Option<Deferred> {
        self.queues[cpu as usize]
            .items
            .front()
            .map(|item| Deferred::of(*item))
    }

    /// Items that wait on all CPUs: a backlog that only grows is a livelock.
    #[must_use]
    pub fn backlog(&self) -> usize {
        self.queues.iter().map(|queue| queue.items.len()).sum()
    }

    /// Takes everything, ready or not: the end of a run.
    pub fn drain(&mut self, cpu: u32) -> Option<Deferred> {
        self.queues[cpu as usize].pop()
    }
}

impl Queue {
    /// The first of all, ready or not.
    #[inline]
    fn pop(&mut self) -> Option<Deferred> {
        let item = self.items.pop_front()?;
        if let Some((_, count)) = self.segments.front_mut() {
            *count -= 1;
            if *count == 0 {
                self.segments.pop_front();
            }
        }
        Some(Deferred::of(item))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_comes_back_after_a_full_grace_period_and_in_batches() {
        let mut rcu = Rcu::new(1, 100, 10);
        for address in 0..25 {
            rcu.defer(0, 150, Deferred { kind: 0, address });
        }
        let mut pass = |now| {
            rcu.begin_pass(0);
            core::iter::from_fn(|| rcu.take(0, now)).count()
        };
        assert_eq!(pass(299), 0, "the period that began at 200 is not over");
        assert_eq!([pass(300), pass(300), pass(300), pass(300)], [10, 10, 5, 0]);
    }

    #[test]
    fn the_batch_grows_with_the_backlog() {
        let mut rcu = Rcu::new(1, 100, 10);
        (0..12800).for_each(|address| rcu.defer(0, 0, Deferred { kind: 0, address }));
        rcu.begin_pass(0);
        assert_eq!(core::iter::from_fn(|| rcu.take(0, 1000)).count(), 100);
    }
}
