//! Producers and consumers in pairs: batches of small blocks go through a bounded queue, and the
//! consumer frees them together with the array that carried them.
//!
//! Real programs: pipelines, loggers and message brokers, where one thread parses and another writes.

use super::block::Block;
use super::clock::fixed_work;
use super::heap::Dice;
use super::team::team;
use super::{Damage, Job, Sample};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex};

/// Blocks of a batch.
const BATCH: usize = 100;
/// Batches a queue holds at most.
const ROOM: usize = 32;

/// A queue of batches; its producers are counted down, so that consumers know the end.
struct Queue {
    state: Mutex<State>,
    filled: Condvar,
    drained: Condvar,
}

struct State {
    batches: VecDeque<Vec<Block>>,
    producers: usize,
}

impl Queue {
    fn new(producers: usize) -> Queue {
        let batches = VecDeque::with_capacity(ROOM);
        Queue {
            state: Mutex::new(State { batches, producers }),
            filled: Condvar::new(),
            drained: Condvar::new(),
        }
    }

    fn put(&self, batch: Vec<Block>) {
        let mut state = self.state.lock().expect("no thread panics with a queue");
        while state.batches.len() == ROOM {
            state = self
                .drained
                .wait(state)
                .expect("no thread panics with a queue");
        }
        state.batches.push_back(batch);
        self.filled.notify_one();
    }

    fn take(&self) -> Option<Vec<Block>> {
        let mut state = self.state.lock().expect("no thread panics with a queue");
        loop {
            if let Some(batch) = state.batches.pop_front() {
                self.drained.notify_one();
                return Some(batch);
            }
            if state.producers == 0 {
                return None;
            }
            state = self
                .filled
                .wait(state)
                .expect("no thread panics with a queue");
        }
    }

    fn leave(&self) {
        let mut state = self.state.lock().expect("no thread panics with a queue");
        state.producers -= 1;
        self.filled.notify_all();
    }
}

/// Half of the threads produce, half consume, each producer into one queue; with an odd count one
/// queue has two producers. Sizes are 16..1024 B, each doubling equally likely.
pub fn queue(job: Job) -> Result<Sample, Damage> {
    let consumers = job.threads / 2;
    if consumers == 0 {
        return Err(Damage("queue needs two threads or more".into()));
    }
    let producers = job.threads - consumers;
    let batches = job.scale.pick(80_000, 8_000, 40) / producers;
    let mut dice = Dice::new(17);
    let sizes: Vec<usize> = (0..4096).map(|_| dice.log_uniform(16, 1024)).collect();
    let feeds = |queue: usize| (0..producers).filter(move |producer| producer % consumers == queue);
    let queues: Vec<Queue> = (0..consumers)
        .map(|queue| Queue::new(feeds(queue).count()))
        .collect();
    fixed_work(job, batches * producers * BATCH, || {
        team(job.threads, |index| {
            if index < consumers {
                return consume(&queues[index]);
            }
            let producer = index - consumers;
            produce(
                &queues[producer % consumers],
                &sizes,
                batches,
                producer as u64,
            )
        })
    })
}

fn produce(queue: &Queue, sizes: &[usize], batches: usize, seed: u64) -> Result<(), Damage> {
    let mut word = seed << 40;
    for _ in 0..batches {
        let mut batch = Vec::with_capacity(BATCH);
        for _ in 0..BATCH {
            word += 1;
            batch.push(Block::new(sizes[word as usize % sizes.len()], word)?);
        }
        queue.put(batch);
    }
    queue.leave();
    Ok(())
}

fn consume(queue: &Queue) -> Result<(), Damage> {
    while let Some(batch) = queue.take() {
        for block in batch {
            block.end_whole()?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::Scale;
    use super::*;

    #[test]
    fn every_batch_is_consumed_whoever_produces_it() {
        for threads in [2, 3, 8] {
            let scale = Scale::Smoke;
            assert!(queue(Job { threads, scale }).unwrap().value > 0.0);
        }
        let alone = Job {
            threads: 1,
            scale: Scale::Smoke,
        };
        assert!(queue(alone).unwrap_err().0.contains("two threads"));
    }
}
