//! One thread with many small blocks: tables of a stack discipline, numbers of an algebra system, and
//! covers of a logic minimiser.

use super::block::Block;
use super::clock::{fixed_work, pin};
use super::heap::{Dice, compare};
use super::{Damage, Job, Sample};

/// Scopes open at once at most.
const DEPTH: usize = 60;
/// Entries of a table at most.
const ENTRIES: usize = 400;

/// Tables of blocks of 8..256 B, made one inside the other and freed newest first. Real programs:
/// compilers and interpreters, whose scopes open and close like brackets.
pub fn lifo_tables(job: Job) -> Result<Sample, Damage> {
    let blocks = job.scale.pick(18_000_000, 2_000_000, 20_000);
    let mut dice = Dice::new(37);
    pin(0);
    fixed_work(job, blocks, || {
        let mut stack: Vec<Block> = Vec::with_capacity(DEPTH * ENTRIES);
        let mut scopes: Vec<usize> = Vec::with_capacity(DEPTH);
        let mut made = 0;
        while made < blocks {
            // Above the middle closing is as likely as below it opening is.
            if dice.below(DEPTH) < scopes.len() {
                close(&mut stack, scopes.pop().unwrap_or(0))?;
                continue;
            }
            scopes.push(stack.len());
            for _ in 0..=dice.below(ENTRIES) {
                made += 1;
                stack.push(Block::new(8 + dice.below(249), made as u64)?);
            }
        }
        close(&mut stack, 0)
    })
}

fn close(stack: &mut Vec<Block>, down_to: usize) -> Result<(), Damage> {
    while stack.len() > down_to {
        let newest = stack.pop().expect("longer than nothing");
        newest.end_whole()?;
    }
    Ok(())
}

/// Numbers an algebra system holds at once.
const REGISTERS: usize = 20_000;
/// Limbs of a held number at most.
const LIMBS: usize = 6;

/// Numbers of a few limbs are multiplied, added and reduced; two of three results die at once, one
/// replaces a held number now and then. Real programs: computer algebra, provers, big-number arithmetic.
pub fn algebra(job: Job) -> Result<Sample, Damage> {
    let steps = job.scale.pick(3_000_000, 400_000, 5_000);
    let mut dice = Dice::new(41);
    pin(0);
    fixed_work(job, 3 * steps, || {
        let mut held = Vec::with_capacity(REGISTERS);
        for number in 0..REGISTERS as u64 {
            let mut one = Block::of_words(1 + dice.below(LIMBS), number)?;
            one.words().fill(number | 1);
            held.push(one);
        }
        let mut word = REGISTERS as u64;
        for step in 0..steps {
            let [a, b, c] = [(); 3].map(|()| dice.below(REGISTERS));
            word += 3;
            let mut product = product(&mut held, a, b, word)?;
            let mut sum = sum(&mut product, &mut held[c], word + 1)?;
            let reduced = reduced(&mut sum, word + 2)?;
            product.end()?;
            sum.end()?;
            if step % 4 == 0 {
                std::mem::replace(&mut held[a], reduced).end()?;
            } else {
                reduced.end()?;
            }
        }
        held.into_iter().try_for_each(Block::end)
    })
}

fn product(held: &mut [Block], a: usize, b: usize, word: u64) -> Result<Block, Damage> {
    let mut left = [0; LIMBS];
    let length = held[a].words().len();
    left[..length].copy_from_slice(held[a].words());
    let right = held[b].words();
    let mut result = Block::of_words(length + right.len(), word)?;
    let into = result.words();
    into.fill(0);
    for (shift, limb) in right.iter().enumerate() {
        for (at, other) in left[..length].iter().enumerate() {
            into[at + shift] = into[at + shift].wrapping_add(limb.wrapping_mul(*other));
        }
    }
    Ok(result)
}

fn sum(a: &mut Block, b: &mut Block, word: u64) -> Result<Block, Damage> {
    b.intact()?;
    let (a, b) = (a.words(), b.words());
    let mut result = Block::of_words(a.len().max(b.len()), word)?;
    for (at, into) in result.words().iter_mut().enumerate() {
        let limb = |of: &[u64]| of.get(at).copied().unwrap_or(0);
        *into = limb(a).wrapping_add(limb(b));
    }
    Ok(result)
}

fn reduced(number: &mut Block, word: u64) -> Result<Block, Damage> {
    let limbs = number.words();
    let length = 1 + limbs[0] as usize % LIMBS;
    let mut result = Block::of_words(length, word)?;
    let into = result.words();
    into.fill(1);
    for (at, limb) in limbs.iter().enumerate() {
        into[at % length] = into[at % length].wrapping_mul(*limb | 1);
    }
    Ok(result)
}

/// A cover: cubes, each a small block of its own, and the array that holds them.
type Cover = Vec<Block>;
/// Covers kept between the steps.
const COVERS: usize = 300;
/// Words of a cube, from and below.
const CUBE: std::ops::Range<usize> = 2..7;

/// Covers of small bit sets are split in two again and again down to a few cubes, minimised and merged
/// on the way back; some results stay long. Real programs: logic minimisers, SAT solvers, planners.
pub fn logic(job: Job) -> Result<Sample, Damage> {
    let steps = job.scale.pick(4_000, 600, 10);
    let mut dice = Dice::new(43);
    let mut word = 0;
    pin(0);
    let mut sample = fixed_work(job, steps, || {
        let mut kept: Vec<Cover> = Vec::with_capacity(COVERS);
        for step in 0..steps {
            let mut cover = Cover::new();
            let width = CUBE.start + dice.below(CUBE.len());
            for _ in 0..40 + dice.below(80) {
                word += 1;
                let mut cube = Block::of_words(width, word)?;
                cube.words().fill_with(|| dice.next());
                cover.push(cube);
            }
            let result = minimised(&mut cover, 0, &mut word)?;
            drop_cover(cover)?;
            if kept.len() < COVERS {
                kept.push(result);
            } else if step % 3 == 0 {
                drop_cover(std::mem::replace(&mut kept[dice.below(COVERS)], result))?;
            } else {
                drop_cover(result)?;
            }
        }
        kept.into_iter().try_for_each(drop_cover)
    })?;
    sample.ns_per_op = sample.ns_per_op.map(|ns| ns * steps as f64 / word as f64);
    Ok(sample)
}

fn drop_cover(cover: Cover) -> Result<(), Damage> {
    cover.into_iter().try_for_each(Block::end)
}

/// Splits by a variable, minimises both halves and merges what is different.
fn minimised(cover: &mut Cover, variable: usize, word: &mut u64) -> Result<Cover, Damage> {
    let mut result = Cover::new();
    if cover.len() <= 3 || variable > 7 {
        for cube in cover {
            result.push(copy(cube, variable, word)?);
        }
        return Ok(result);
    }
    for side in 0..2 {
        let mut half = Cover::new();
        for cube in cover.iter_mut() {
            // A cube without an opinion on the variable is in both halves.
            let bits = cube.words()[0] >> (2 * variable) & 3;
            if bits == 3 || bits & 1 == side {
                half.push(copy(cube, variable, word)?);
            }
        }
        let mut best = minimised(&mut half, variable + 1, word)?;
        drop_cover(half)?;
        for mut cube in best.drain(..) {
            let same = |other: &mut Block| other.words()[0] == cube.words()[0];
            match result.iter_mut().rev().take(8).any(same) {
                true => cube.end()?,
                false => result.push(cube),
            }
        }
    }
    Ok(result)
}

fn copy(cube: &mut Block, variable: usize, word: &mut u64) -> Result<Block, Damage> {
    cube.intact()?;
    let from = cube.words();
    *word += 1;
    let mut result = Block::of_words(from.len(), *word)?;
    result.words().copy_from_slice(from);
    result.words()[0] |= 1 << (2 * variable);
    compare(from[1], result.words()[1])?;
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_numbers_and_covers_keep_their_words() {
        for work in [lifo_tables, algebra, logic] {
            let sample = work(Job::SMOKE).unwrap();
            assert!(sample.value > 0.0 && sample.ns_per_op > Some(0.0));
        }
    }
}
