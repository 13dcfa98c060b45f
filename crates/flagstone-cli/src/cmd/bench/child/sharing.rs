//! False sharing: small blocks that two threads write at once. An allocator that puts blocks of two
//! threads into one cache line makes each write wait for the line.
//!
//! Real programs: workers that count or accumulate in small objects of their own.

use super::block::Block;
use super::clock::{fixed_work, pin};
use super::team::team;
use super::{Damage, Job, Sample};
use std::sync::{Barrier, Mutex};

/// Bytes of a block: several share a line.
const SIZE: usize = 8;
/// Blocks each thread writes in a round, one after the other.
const BLOCKS: usize = 20;

/// Where the blocks come from that threads write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Neighbours that one thread allocated are handed to several, which free them and use what they
    /// get in their place.
    Passive,
    /// Each thread allocates its own.
    Active,
}

/// Each thread writes one block after the other, many times each.
pub fn sharing(job: Job, kind: Sharing) -> Result<Sample, Damage> {
    let rounds = job.scale.pick(100, 20, 2);
    let writes = job.scale.pick(100_000u64, 50_000, 200);
    let handed: Vec<Mutex<Option<Block>>> = (0..job.threads).map(|_| Mutex::default()).collect();
    let ops = rounds * job.threads * BLOCKS * writes as usize;
    fixed_work(job, ops, || {
        for round in 0..rounds as u64 {
            if kind == Sharing::Passive {
                for (index, slot) in (0u64..).zip(&handed) {
                    let block = Block::new(SIZE, round << 8 | index)?;
                    *slot.lock().expect("no thread panics") = Some(block);
                }
            }
            let gate = Barrier::new(job.threads);
            team(job.threads, |index| {
                pin(index);
                gate.wait();
                if let Some(block) = handed[index].lock().expect("no thread panics").take() {
                    block.end()?;
                }
                for number in 0..BLOCKS as u64 {
                    let mut block = Block::new(SIZE, number)?;
                    block.hammer(writes);
                    block.end()?;
                }
                Ok(())
            })?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::super::Scale;
    use super::*;

    #[test]
    fn blocks_that_several_threads_write_beside_each_other_keep_their_words() {
        for kind in [Sharing::Passive, Sharing::Active] {
            for threads in [1, 2, 3] {
                let scale = Scale::Smoke;
                assert!(sharing(Job { threads, scale }, kind).unwrap().value > 0.0);
            }
        }
    }
}
