//! Many short-lived threads, one after the other: what a thread costs, and what stays behind.

use super::heap::{Dice, check, compare, give, granted, mark, take};
use super::process::resident_bytes;
use super::{Damage, Job, Sample};
use std::time::Instant;

const OBJECTS: usize = 1000;
const LIVE: usize = 100;

/// Each thread allocates [`OBJECTS`] objects of 16..1024 B (each doubling equally likely), keeps
/// the last [`LIVE`] and frees all before it ends. The figure is microseconds of wall time per
/// thread, creation and join included.
pub fn threads(job: Job) -> Result<Sample, Damage> {
    let count = job.scale.pick(10_000, 1_000, 20);
    let mut dice = Dice::new(3);
    let sizes: Vec<usize> = (0..OBJECTS).map(|_| dice.log_uniform(16, 1024)).collect();
    let before = resident_bytes();
    let start = Instant::now();
    for _ in 0..count {
        std::thread::scope(|scope| scope.spawn(|| one_thread(&sizes)).join())
            .expect("a short thread ends")?;
    }
    let elapsed = start.elapsed().as_nanos() as f64;
    let after = resident_bytes();
    let sample = Sample {
        value: elapsed / 1e3 / count as f64,
        ns_per_op: Some(elapsed / (count * OBJECTS) as f64),
        ..Sample::default()
    };
    Ok(sample
        .with("rss_before_kib", before as f64 / 1024.0)
        .with("rss_after_kib", after as f64 / 1024.0))
}

fn one_thread(sizes: &[usize]) -> Result<(), Damage> {
    let mut live = [(std::ptr::null_mut::<u8>(), 0u64); LIVE];
    let mut difference = 0;
    for (number, &size) in sizes.iter().enumerate() {
        let (object, wrote) = &mut live[number % LIVE];
        // SAFETY: a non-null slot is a live, marked object of this thread.
        unsafe {
            if !object.is_null() {
                difference |= check(*object) ^ *wrote;
                give(*object);
            }
            *object = granted(take(size), size)?;
            mark(*object, number as u64);
        }
        *wrote = number as u64;
    }
    for (object, wrote) in live {
        // SAFETY: OBJECTS is more than LIVE, so every slot holds a live, marked object.
        unsafe {
            difference |= check(object) ^ wrote;
            give(object);
        }
    }
    compare(0, difference)
}

#[cfg(test)]
mod tests {
    use super::super::Scale;
    use super::*;

    #[test]
    fn short_threads_leave_a_figure_and_a_resident_size() {
        let sample = threads(Job {
            threads: 1,
            scale: Scale::Smoke,
        })
        .unwrap();
        assert!(sample.value > 0.0);
        assert!(sample.parts["rss_after_kib"] > 0.0);
    }
}
