//! Many short-lived threads, one after the other: what a thread costs, and what stays behind.

use super::clock::{pin, process_cpu_ns};
use super::heap::{Dice, check, compare, give, granted, mark, take};
use super::process::resident_exactly;
use super::{Damage, Job, Sample};
use std::ffi::c_void;
use std::ptr;
use std::time::Instant;

const OBJECTS: usize = 1000;
const LIVE: usize = 100;

/// Each thread allocates [`OBJECTS`] objects of 16..1024 B (each doubling equally likely), keeps
/// the last [`LIVE`] and frees all before it ends. The figure is microseconds of wall time per
/// thread, creation and join included.
///
/// Beside it stand what bounds it from below, each of a tenth as many threads: `empty_us`, the same
/// threads without one allocation, and `one_cpu_us` and `one_cpu_empty_us`, both kinds on one CPU,
/// where no thread waits until another CPU has woken up.
///
/// Threads are the C library's own: Rust's give each a signal stack of its own, eight system calls
/// that a program in C or C++ does not make and no allocator has a part in.
pub fn threads(job: Job) -> Result<Sample, Damage> {
    let count = job.scale.pick(10_000, 1_000, 20);
    let mut dice = Dice::new(3);
    let sizes: Vec<usize> = (0..OBJECTS).map(|_| dice.log_uniform(16, 1024)).collect();
    let before = resident_exactly();
    let cpu_before = process_cpu_ns();
    let elapsed = in_threads(count, &sizes)?;
    let cpu = (process_cpu_ns() - cpu_before) as f64;
    let after = resident_exactly();
    let few = count / 10;
    let us = |ns: f64| ns / 1e3 / few as f64;
    let empty = us(in_threads(few, &[])?);
    pin(0);
    let one_cpu_empty = us(in_threads(few, &[])?);
    let one_cpu = us(in_threads(few, &sizes)?);
    let sample = Sample {
        value: elapsed / 1e3 / count as f64,
        ns_per_op: Some(elapsed / (count * OBJECTS) as f64),
        ..Sample::default()
    };
    Ok(sample
        .with("cpu_us", cpu / 1e3 / count as f64)
        .with("empty_us", empty)
        .with("one_cpu_us", one_cpu)
        .with("one_cpu_empty_us", one_cpu_empty)
        .with("rss_before_kib", before as f64 / 1024.0)
        .with("rss_after_kib", after as f64 / 1024.0))
}

/// Wall time of `count` threads, one after the other, in ns.
fn in_threads(count: usize, sizes: &[usize]) -> Result<f64, Damage> {
    let start = Instant::now();
    for _ in 0..count {
        in_a_thread(sizes)?;
    }
    Ok(start.elapsed().as_nanos() as f64)
}

/// What a thread is given, and what it found.
struct Task<'a> {
    sizes: &'a [usize],
    found: Result<(), Damage>,
}

/// Creates a thread that does [`one_thread`], and waits for its end.
fn in_a_thread(sizes: &[usize]) -> Result<(), Damage> {
    extern "C" fn begin(task: *mut c_void) -> *mut c_void {
        // SAFETY: `in_a_thread` lends its task until this thread has ended.
        let task = unsafe { &mut *task.cast::<Task>() };
        task.found = one_thread(task.sizes);
        ptr::null_mut()
    }
    let mut task = Task {
        sizes,
        found: Ok(()),
    };
    let mut thread = 0;
    // SAFETY: the thread uses the task, and is joined before the task ends.
    let refused = unsafe {
        match libc::pthread_create(&mut thread, ptr::null(), begin, (&raw mut task).cast()) {
            0 => libc::pthread_join(thread, ptr::null_mut()),
            refused => refused,
        }
    };
    if refused != 0 {
        return Err(Damage(format!("no thread: error {refused}")));
    }
    task.found
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
        if object.is_null() {
            continue;
        }
        // SAFETY: as above.
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
        for bound in ["empty_us", "one_cpu_us", "one_cpu_empty_us"] {
            assert!(sample.parts[bound] > 0.0, "{bound}");
        }
    }
}
