//! One size at a time: malloc and free in pairs, in batches by three orders of freeing, and a
//! window of mixed sizes.

use super::clock::ns_per_op;
use super::heap::{Dice, check, compare, give, granted, mark, take};
use super::{Damage, Job, Sample};

/// Objects of a batch.
pub const BATCH: usize = 1000;

/// The order in which a batch is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreeOrder {
    /// Newest first.
    Lifo,
    /// Oldest first.
    Fifo,
    /// A different random order each round, of sixteen prepared ones.
    Shuffle,
}

/// `free(malloc(size))`, a word written in between.
pub fn pair(job: Job, size: usize) -> Result<Sample, Damage> {
    let ns = ns_per_op(job, BATCH, |_| {
        move || {
            let mut found = 0u64;
            for word in 0..BATCH as u64 {
                // SAFETY: `size` is at least eight; each object is given once.
                unsafe {
                    let object = granted(take(size), size)?;
                    mark(object, word);
                    found += std::hint::black_box(check(object));
                    give(object);
                }
            }
            compare((BATCH * (BATCH - 1) / 2) as u64, found)
        }
    })?;
    Ok(Sample::of_ns(ns))
}

/// Allocates [`BATCH`] objects, then frees them all.
pub fn batch(job: Job, size: usize, order: FreeOrder) -> Result<Sample, Damage> {
    let ns = ns_per_op(job, BATCH, |thread| {
        let orders = orders(order, thread);
        let mut objects = vec![std::ptr::null_mut::<u8>(); BATCH];
        let mut round = 0u64;
        move || {
            round += 1;
            for (index, slot) in objects.iter_mut().enumerate() {
                // SAFETY: `size` is at least eight.
                unsafe {
                    *slot = granted(take(size), size)?;
                    mark(*slot, round * BATCH as u64 + index as u64);
                }
            }
            let mut found = 0u64;
            for &index in &orders[round as usize % orders.len()] {
                // SAFETY: every order names each object exactly once, and all are marked.
                unsafe {
                    let object = objects[usize::from(index)];
                    found += check(object);
                    give(object);
                }
            }
            let wrote = round * (BATCH * BATCH) as u64 + (BATCH * (BATCH - 1) / 2) as u64;
            compare(wrote, found)
        }
    })?;
    Ok(Sample::of_ns(ns))
}

fn orders(order: FreeOrder, thread: usize) -> Vec<Vec<u16>> {
    let forward: Vec<u16> = (0..BATCH as u16).collect();
    match order {
        FreeOrder::Fifo => vec![forward],
        FreeOrder::Lifo => vec![forward.into_iter().rev().collect()],
        FreeOrder::Shuffle => {
            let mut dice = Dice::new(thread as u64 + 1);
            let shuffled = |_| {
                let mut one = forward.clone();
                dice.shuffle(&mut one);
                one
            };
            (0..16).map(shuffled).collect()
        }
    }
}

/// A window of [`BATCH`] live objects of 16..4096 B (each doubling equally likely); one operation
/// frees a random one and allocates another in its place.
pub fn mixed(job: Job) -> Result<Sample, Damage> {
    const PLAN: usize = 8192;
    let ns = ns_per_op(job, PLAN, |thread| {
        let mut dice = Dice::new(thread as u64 + 11);
        let plan: Vec<(u16, u16)> = (0..PLAN)
            .map(|_| (dice.below(BATCH) as u16, dice.log_uniform(16, 4096) as u16))
            .collect();
        let mut window = vec![(std::ptr::null_mut::<u8>(), 0u64); BATCH];
        let mut word = 0u64;
        move || {
            let mut difference = 0u64;
            for &(index, size) in &plan {
                let (object, wrote) = &mut window[usize::from(index)];
                word += 1;
                // SAFETY: an object in the window is live and marked; sizes are 16 or more.
                unsafe {
                    if !object.is_null() {
                        difference |= check(*object) ^ *wrote;
                        give(*object);
                    }
                    *object = granted(take(usize::from(size)), usize::from(size))?;
                    mark(*object, word);
                    *wrote = word;
                }
            }
            compare(0, difference)
        }
    })?;
    Ok(Sample::of_ns(ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_batches_and_mixed_sizes_run_and_find_what_they_wrote() {
        assert!(pair(Job::SMOKE, 16).unwrap().value > 0.0);
        for order in [FreeOrder::Lifo, FreeOrder::Fifo, FreeOrder::Shuffle] {
            assert!(batch(Job::SMOKE, 64, order).unwrap().value > 0.0);
        }
        assert!(mixed(Job::SMOKE).unwrap().value > 0.0);
    }

    #[test]
    fn two_threads_run_the_same_loop() {
        let job = Job {
            threads: 2,
            ..Job::SMOKE
        };
        assert!(batch(job, 256, FreeOrder::Shuffle).unwrap().value > 0.0);
    }

    #[test]
    fn every_order_frees_each_object_once() {
        for order in [FreeOrder::Lifo, FreeOrder::Fifo, FreeOrder::Shuffle] {
            for mut one in orders(order, 0) {
                one.sort_unstable();
                assert_eq!(one, (0..BATCH as u16).collect::<Vec<u16>>());
            }
        }
    }
}
