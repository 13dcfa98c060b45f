//! Deferred frees: what is handed over now comes back after a grace period.
//!
//! ```text
//!   defer at t ──► current grace period ends ──► a full one passes ──► ready, all at once
//! ```
//!
//! Grace periods of the whole machine end at multiples of their length. A kernel runs callbacks by
//! tens, but asks for the next ten at once: what is ready is freed before its CPU goes on.

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
}

/// All CPUs' deferred frees.
#[derive(Debug)]
pub struct Rcu {
    grace: Ps,
    queues: Vec<Queue>,
}

impl Rcu {
    /// Nothing deferred, on `cpus` CPUs with grace periods `grace` long.
    #[must_use]
    pub fn new(cpus: u32, grace: Ps) -> Self {
        Self {
            grace,
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

    /// The next item that is ready.
    #[inline]
    pub fn take(&mut self, cpu: u32, now: Ps) -> Option<Deferred> {
        let period = now / self.grace;
        let queue = &mut self.queues[cpu as usize];
        let (ready, _) = *queue.segments.front()?;
        if ready > period {
            return None;
        }
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
    fn an_object_comes_back_after_a_full_grace_period() {
        let mut rcu = Rcu::new(1, 100);
        for address in 0..25 {
            rcu.defer(0, 150, Deferred { kind: 0, address });
        }
        let mut ready = |now| core::iter::from_fn(|| rcu.take(0, now)).count();
        assert_eq!(ready(299), 0, "the period that began at 200 is not over");
        assert_eq!([ready(300), ready(300)], [25, 0]);
    }
}
