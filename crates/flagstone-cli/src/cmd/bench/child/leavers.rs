//! Thousands of threads in small groups that each leave one block behind, and large blocks replaced at
//! random: what stays when threads go, and memory that is too large for any cache.

use super::block::Block;
use super::clock::{fixed_work, pin};
use super::heap::Dice;
use super::team::team;
use super::{Damage, Job, Sample};
use std::sync::Mutex;

/// Blocks a thread allocates; all but one are freed by it.
const BLOCKS: usize = 24;
/// Large blocks alive at once.
const LARGE: usize = 15;
const MIB: usize = 1 << 20;

/// Each thread leaves one block of its 24, of 16..1024 B, each doubling equally likely; all that was
/// left is freed in the end by the first thread. Real programs: pools that start and end workers with
/// the load, whose results outlive them.
pub fn leavers(job: Job) -> Result<Sample, Damage> {
    let groups = job.scale.pick(12_000, 1_200, 32) / job.threads;
    let mut dice = Dice::new(29);
    let sizes: Vec<usize> = (0..4096).map(|_| dice.log_uniform(16, 1024)).collect();
    let left = Mutex::new(Vec::with_capacity(groups * job.threads));
    fixed_work(job, groups * job.threads * BLOCKS, || {
        for group in 0..groups {
            team(job.threads, |index| {
                let block = stay_shortly((group * job.threads + index) as u64, &sizes)?;
                left.lock().expect("no thread panics").push(block);
                Ok(())
            })?;
        }
        let mut left = left.lock().expect("no thread panics");
        left.drain(..).try_for_each(Block::end_whole)
    })
}

/// One thread's life; the block it leaves.
fn stay_shortly(number: u64, sizes: &[usize]) -> Result<Block, Damage> {
    let make = |nth: usize| {
        let word = number << 16 | nth as u64;
        Block::new(sizes[(word as usize).wrapping_mul(31) % sizes.len()], word)
    };
    let left = make(0)?;
    let mut own: [Option<Block>; BLOCKS - 1] = std::array::from_fn(|_| None);
    for (nth, slot) in own.iter_mut().enumerate() {
        *slot = Some(make(nth + 1)?);
    }
    for block in own.into_iter().flatten() {
        block.end_whole()?;
    }
    Ok(left)
}

/// Fifteen blocks of 5..25 MiB alive, a random one freed and another allocated and filled in its
/// place. Real programs: image and video editors, numeric code with temporary matrices.
pub fn large(job: Job) -> Result<Sample, Damage> {
    let replaced = job.scale.pick(160, 40, 3);
    let mut dice = Dice::new(31);
    if job.threads == 1 {
        pin(0);
    }
    let (low, high) = job
        .scale
        .pick((5 * MIB, 25 * MIB), (5 * MIB, 25 * MIB), (5 * MIB, 6 * MIB));
    fixed_work(job, replaced + LARGE, || {
        let mut blocks = Vec::with_capacity(LARGE);
        for number in 0..LARGE + replaced {
            let size = low + dice.below(high - low);
            if number < LARGE {
                blocks.push(Block::full(size, number as u64)?);
                continue;
            }
            // Freed first: no program needs both at once.
            blocks.swap_remove(dice.below(LARGE)).end_whole()?;
            blocks.push(Block::full(size, number as u64)?);
        }
        blocks.into_iter().try_for_each(Block::end_whole)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_threads_left_is_intact_after_them() {
        for threads in [1, 8] {
            let job = Job {
                threads,
                ..Job::SMOKE
            };
            assert!(leavers(job).unwrap().value > 0.0);
        }
    }

    #[test]
    fn large_blocks_are_replaced_intact() {
        assert!(large(Job::SMOKE).unwrap().value > 0.0);
    }
}
