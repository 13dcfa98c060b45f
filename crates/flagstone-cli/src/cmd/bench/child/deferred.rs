//! Blocks of random sizes, of which a third is freed later by another thread, in rounds.
//!
//! Real programs: games and simulations, where jobs of a frame leave results for other threads, which
//! free them in the next.

use super::block::Block;
use super::clock::fixed_work;
use super::heap::Dice;
use super::team::team;
use super::{Damage, Job, Sample};
use std::sync::{Barrier, Mutex};

/// Live blocks of a thread besides those on their way to others.
const LIVE: usize = 1500;
/// Blocks a thread allocates in a round.
const MADE: usize = 3000;
/// Of so many blocks one goes to another thread.
const EACH: usize = 3;
/// Teams of threads, one after the other: the second inherits what the first made resident.
const TEAMS: usize = 3;

/// Sizes are 16 B..16 KiB, each doubling equally likely.
pub fn deferred(job: Job) -> Result<Sample, Damage> {
    let rounds = (job.scale.pick(480, 48, 4) / job.threads).max(2);
    let mut dice = Dice::new(23);
    let sizes: Vec<usize> = (0..8192).map(|_| dice.log_uniform(16, 16 << 10)).collect();
    let letters: Vec<Mutex<Vec<Block>>> = (0..job.threads).map(|_| Mutex::default()).collect();
    let ops = TEAMS * rounds * job.threads * MADE;
    fixed_work(job, ops, || {
        for number in 0..TEAMS {
            let gate = Barrier::new(job.threads);
            team(job.threads, |own| {
                let mut member = Member {
                    own,
                    letters: &letters,
                    sizes: &sizes,
                    dice: Dice::new((number * 64 + own) as u64),
                    word: (own as u64) << 40,
                    kept: Vec::with_capacity(LIVE),
                    out: Vec::with_capacity(MADE / EACH + 1),
                };
                for round in 0..rounds {
                    member.round(round)?;
                    gate.wait();
                }
                member.leave()
            })?;
        }
        Ok(())
    })
}

struct Member<'a> {
    own: usize,
    /// What others left for each thread.
    letters: &'a [Mutex<Vec<Block>>],
    sizes: &'a [usize],
    dice: Dice,
    word: u64,
    kept: Vec<Block>,
    out: Vec<Block>,
}

impl Member<'_> {
    fn round(&mut self, round: usize) -> Result<(), Damage> {
        self.read_letters()?;
        for made in 0..MADE {
            self.word += 1;
            let size = self.sizes[self.dice.below(self.sizes.len())];
            let block = Block::new(size, self.word)?;
            if made % EACH == 0 {
                self.out.push(block);
            } else if self.kept.len() < LIVE {
                self.kept.push(block);
            } else {
                let at = self.dice.below(LIVE);
                std::mem::replace(&mut self.kept[at], block).end_whole()?;
            }
        }
        let others = self.letters.len().max(2) - 1;
        let to = (self.own + 1 + round % others) % self.letters.len();
        let mut letters = self.letters[to].lock().expect("no thread panics");
        letters.append(&mut self.out);
        Ok(())
    }

    fn read_letters(&mut self) -> Result<(), Damage> {
        let mut letters = self.letters[self.own].lock().expect("no thread panics");
        let got = std::mem::take(&mut *letters);
        drop(letters);
        got.into_iter().try_for_each(Block::end_whole)
    }

    fn leave(mut self) -> Result<(), Damage> {
        self.read_letters()?;
        self.kept.into_iter().try_for_each(Block::end_whole)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Scale;
    use super::*;

    #[test]
    fn blocks_freed_by_others_rounds_later_are_intact() {
        for threads in [1, 2, 5] {
            let scale = Scale::Smoke;
            assert!(deferred(Job { threads, scale }).unwrap().value > 0.0);
        }
    }
}
