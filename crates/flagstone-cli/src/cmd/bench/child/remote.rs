//! One thread allocates, N other threads free: the test of Lameter's slab report of 2007, for a
//! process.
//!
//! ```text
//! producer --- ring of 4 batches ---> consumer 0
//!          --- ring of 4 batches ---> consumer 1 ...
//! ```
//!
//! Charged are only the allocating loop and the freeing loop, each by the CPU time of its thread:
//! waiting, handing over and the writes and reads that check the memory are not.

use super::clock::{pin, thread_cpu_ns};
use super::heap::{check, compare, give, granted, mark, take};
use super::process::peak_rss_kib;
use super::{Damage, Job, Sample};
use std::sync::{Condvar, Mutex};

/// Object sizes, bytes; the figure is their geometric mean.
pub const SIZES: [usize; 10] = [8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096];
const BATCH: usize = 1000;
const RING: usize = 4;

/// Batches that are full and batches that are empty again; none is ever reallocated.
struct Ring {
    state: Mutex<RingState>,
    moved: Condvar,
}

struct RingState {
    full: Vec<Vec<usize>>,
    empty: Vec<Vec<usize>>,
    closed: bool,
}

impl Ring {
    fn new() -> Ring {
        let mut full = Vec::new();
        full.reserve_exact(RING);
        let empty = (0..RING).map(|_| Vec::with_capacity(BATCH)).collect();
        let state = Mutex::new(RingState {
            full,
            empty,
            closed: false,
        });
        Ring {
            state,
            moved: Condvar::new(),
        }
    }

    fn take_empty(&self) -> Vec<usize> {
        let mut state = self.state.lock().expect("no thread panics with the ring");
        loop {
            if let Some(batch) = state.empty.pop() {
                return batch;
            }
            state = self
                .moved
                .wait(state)
                .expect("no thread panics with the ring");
        }
    }

    fn take_full(&self) -> Option<Vec<usize>> {
        let mut state = self.state.lock().expect("no thread panics with the ring");
        loop {
            if !state.full.is_empty() {
                return Some(state.full.remove(0));
            }
            if state.closed {
                return None;
            }
            state = self
                .moved
                .wait(state)
                .expect("no thread panics with the ring");
        }
    }

    fn put_full(&self, batch: Vec<usize>) {
        self.state
            .lock()
            .expect("no thread panics with the ring")
            .full
            .push(batch);
        self.moved.notify_all();
    }

    fn put_empty(&self, batch: Vec<usize>) {
        self.state
            .lock()
            .expect("no thread panics with the ring")
            .empty
            .push(batch);
        self.moved.notify_all();
    }

    fn close(&self) {
        self.state
            .lock()
            .expect("no thread panics with the ring")
            .closed = true;
        self.moved.notify_all();
    }
}

/// Geometric mean over [`SIZES`] of allocation plus free, nanoseconds of CPU per object.
pub fn one_alloc(job: Job, freeing: usize) -> Result<Sample, Damage> {
    let batches = job.scale.pick(600, 150, 6);
    let mut sample = Sample::default();
    let mut log_sum = 0.0;
    for size in SIZES {
        let ns = one_size(size, freeing, batches)?;
        log_sum += ns.ln();
        sample.parts.insert(format!("{size}"), ns);
    }
    let mean = (log_sum / SIZES.len() as f64).exp();
    sample.value = mean;
    sample.ns_per_op = Some(mean);
    sample.peak_rss_kib = peak_rss_kib();
    Ok(sample)
}

fn one_size(size: usize, freeing: usize, batches: usize) -> Result<f64, Damage> {
    let rings: Vec<Ring> = (0..freeing).map(|_| Ring::new()).collect();
    let warm = batches / 5;
    std::thread::scope(|scope| {
        let producer = scope.spawn(|| produce(size, &rings, batches, warm));
        let consumers: Vec<_> = (0..freeing)
            .map(|index| {
                let ring = &rings[index];
                scope.spawn(move || consume(ring, index, freeing, warm))
            })
            .collect();
        let (alloc_ns, wrote) = producer.join().expect("the producer ends")?;
        let (mut free_ns, mut found) = (0, 0u64);
        for consumer in consumers {
            let (ns, sum) = consumer.join().expect("a consumer ends");
            free_ns += ns;
            found = found.wrapping_add(sum);
        }
        compare(wrote, found)?;
        Ok((alloc_ns + free_ns) as f64 / ((batches - warm) * BATCH) as f64)
    })
}

fn produce(size: usize, rings: &[Ring], batches: usize, warm: usize) -> Result<(u64, u64), Damage> {
    if rings.len() == 1 {
        pin(0);
    }
    let (mut spent, mut sum, mut refused) = (0, 0u64, Ok(()));
    for number in 0..batches {
        let ring = &rings[number % rings.len()];
        let mut batch = ring.take_empty();
        batch.clear();
        let start = thread_cpu_ns();
        for _ in 0..BATCH {
            // SAFETY: every size is at least eight; a consumer gives each object once.
            batch.push(unsafe { take(size) }.addr());
        }
        let end = thread_cpu_ns();
        if number >= warm {
            spent += end - start;
        }
        if batch.contains(&0) {
            refused = granted(std::ptr::null_mut(), size).map(drop);
            break;
        }
        for (index, &object) in batch.iter().enumerate() {
            let word = (number * BATCH + index) as u64;
            // SAFETY: just allocated, at least eight bytes.
            unsafe { mark(std::ptr::with_exposed_provenance_mut(object), word) };
            sum = sum.wrapping_add(word);
        }
        ring.put_full(batch);
    }
    rings.iter().for_each(Ring::close);
    refused.map(|()| (spent, sum))
}

/// Batch `k` of consumer `i` is batch `i + k * freeing` of the producer, so the warm-up of both
/// sides is the same batches.
fn consume(ring: &Ring, index: usize, freeing: usize, warm: usize) -> (u64, u64) {
    if freeing == 1 {
        pin(1);
    }
    let (mut spent, mut sum, mut number) = (0, 0u64, index);
    while let Some(batch) = ring.take_full() {
        for &object in &batch {
            // SAFETY: the producer marked it and nobody has given it yet.
            sum = sum.wrapping_add(unsafe { check(std::ptr::with_exposed_provenance_mut(object)) });
        }
        let start = thread_cpu_ns();
        for &object in &batch {
            // SAFETY: each object reaches exactly one consumer, once.
            unsafe { give(std::ptr::with_exposed_provenance_mut(object)) };
        }
        let end = thread_cpu_ns();
        if number >= warm {
            spent += end - start;
        }
        number += freeing;
        ring.put_empty(batch);
    }
    (spent, sum)
}

#[cfg(test)]
mod tests {
    use super::super::Scale;
    use super::*;

    #[test]
    fn every_object_reaches_a_consumer_with_its_word() {
        for freeing in [1, 2, 7] {
            let job = Job {
                threads: 1 + freeing,
                scale: Scale::Smoke,
            };
            let sample = one_alloc(job, freeing).unwrap();
            assert_eq!(sample.parts.len(), SIZES.len());
            assert!(sample.value > 0.0);
        }
    }
}
