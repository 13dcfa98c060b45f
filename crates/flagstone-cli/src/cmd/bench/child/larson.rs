//! Larson and Krishnan's server: each thread replaces random objects of its array, and a new
//! thread inherits the array, so that most frees are of another thread's objects.

use super::clock::loop_time;
use super::heap::{Dice, check, compare, give, granted, mark, take};
use super::{Damage, Job, Sample};
use std::time::Instant;

const SLOTS: usize = 1000;
const OPS_PER_GENERATION: usize = 20_000;

struct Desk {
    /// Address and word of each live object; zero where there is none yet.
    slots: Vec<(usize, u64)>,
    dice: Dice,
    word: u64,
}

/// Wall nanoseconds per replaced object of one thread; sizes 16..1024 B, uniform.
pub fn larson(job: Job) -> Result<Sample, Damage> {
    let mut desks: Vec<Desk> = (0..job.threads as u64)
        .map(|seed| Desk {
            slots: vec![(0, 0); SLOTS],
            dice: Dice::new(seed),
            word: seed << 40,
        })
        .collect();
    generation(&mut desks)?;
    let (start, mut generations) = (Instant::now(), 0);
    while generations == 0 || start.elapsed() < loop_time(job.scale) {
        generation(&mut desks)?;
        desks.rotate_left(1);
        generations += 1;
    }
    let ns = start.elapsed().as_nanos() as f64 / (generations * OPS_PER_GENERATION) as f64;
    Ok(Sample::of_ns(ns))
}

fn generation(desks: &mut [Desk]) -> Result<(), Damage> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = desks
            .iter_mut()
            .map(|desk| scope.spawn(|| work(desk)))
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().expect("a thread ends"))
    })
}

fn work(desk: &mut Desk) -> Result<(), Damage> {
    let mut difference = 0;
    for _ in 0..OPS_PER_GENERATION {
        let index = desk.dice.below(SLOTS);
        let size = 16 + desk.dice.below(1024 - 16);
        desk.word += 1;
        let (address, wrote) = &mut desk.slots[index];
        // SAFETY: a non-zero slot is a live, marked object that only this desk knows.
        unsafe {
            if *address != 0 {
                let object = std::ptr::with_exposed_provenance_mut(*address);
                difference |= check(object) ^ *wrote;
                give(object);
            }
            let object = granted(take(size), size)?;
            mark(object, desk.word);
            (*address, *wrote) = (object.expose_provenance(), desk.word);
        }
    }
    compare(0, difference)
}

#[cfg(test)]
mod tests {
    use super::super::Scale;
    use super::*;

    #[test]
    fn two_threads_inherit_each_others_objects_intact() {
        let job = Job {
            threads: 2,
            scale: Scale::Smoke,
        };
        assert!(larson(job).unwrap().value > 0.0);
    }
}
