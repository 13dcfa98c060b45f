//! Clocks, pinning, and the loop that turns rounds of operations into nanoseconds per operation.

use super::{Damage, Job, Sample, Scale};
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// How long a small loop is measured, after a warm-up of a fifth of it.
pub fn loop_time(scale: Scale) -> Duration {
    Duration::from_millis(scale.pick(300, 80, 2))
}

/// CPU time this thread has used, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a valid timespec for the call to fill.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// CPU time of this process so far, all threads, user and system, in nanoseconds.
pub fn process_cpu_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a valid timespec for the call to fill.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The part of it that the system spent, in nanoseconds.
fn process_system_ns() -> u64 {
    // SAFETY: a rusage of zeroes is valid, and the call fills it.
    let used = unsafe {
        let mut used: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut used);
        used
    };
    used.ru_stime.tv_sec as u64 * 1_000_000_000 + used.ru_stime.tv_usec as u64 * 1000
}

/// Does a fixed amount of work, `ops` operations of all threads together. The figure is milliseconds:
/// of CPU for one thread, so that other work on the machine does not count, of wall time for several,
/// so that waiting for each other does. `wall_ms`, `cpu_ms` and the system's part of the latter,
/// `sys_ms`, stand beside it.
pub fn fixed_work(
    job: Job,
    ops: usize,
    work: impl FnOnce() -> Result<(), Damage>,
) -> Result<Sample, Damage> {
    let (cpu, system, start) = (process_cpu_ns(), process_system_ns(), Instant::now());
    work()?;
    let wall = start.elapsed().as_nanos() as u64;
    let [cpu, system] = [process_cpu_ns() - cpu, process_system_ns() - system];
    let [wall, cpu, system] = [wall, cpu, system].map(|ns| ns as f64 / 1e6);
    let value = if job.threads == 1 { cpu } else { wall };
    let sample = Sample {
        value,
        ns_per_op: Some(value * 1e6 / ops as f64),
        ..Sample::default()
    };
    Ok(sample
        .with("wall_ms", wall)
        .with("cpu_ms", cpu)
        .with("sys_ms", system))
}

/// Pins this thread to the `index`-th CPU it may run on, so that the scheduler does not move it
/// in the middle of a loop. Does nothing where there are fewer CPUs than threads.
pub fn pin(index: usize) {
    // SAFETY: a cpu_set_t of zeroes is an empty set, and both calls get its true size.
    unsafe {
        let mut allowed: libc::cpu_set_t = std::mem::zeroed();
        let size = size_of::<libc::cpu_set_t>();
        if libc::sched_getaffinity(0, size, &mut allowed) != 0 {
            return;
        }
        let cpus = (0..libc::CPU_SETSIZE as usize)
            .rev()
            .filter(|&cpu| libc::CPU_ISSET(cpu, &allowed));
        if let Some(cpu) = cpus.clone().nth(index) {
            let mut one: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(cpu, &mut one);
            libc::sched_setaffinity(0, size, &one);
        }
    }
}

/// Repeats `round`, which does `ops` operations, and returns nanoseconds per operation.
///
/// One thread is pinned and charged its own CPU time, so that other work on the machine does not
/// count. Several threads run until the same moment and are charged wall time, so that waiting
/// for each other does count; the answer is then per operation of one thread.
pub fn ns_per_op<R>(job: Job, ops: usize, make: impl Fn(usize) -> R + Sync) -> Result<f64, Damage>
where
    R: FnMut() -> Result<(), Damage>,
{
    let time = loop_time(job.scale);
    if job.threads == 1 {
        pin(0);
        let mut round = make(0);
        repeat(time / 5, &mut round)?;
        let start = thread_cpu_ns();
        let rounds = repeat(time, &mut round)?;
        return Ok((thread_cpu_ns() - start) as f64 / (rounds * ops) as f64);
    }
    let gate = Barrier::new(job.threads);
    let results: Vec<Result<f64, Damage>> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..job.threads)
            .map(|index| {
                let (gate, make) = (&gate, &make);
                scope.spawn(move || {
                    pin(index);
                    let mut round = make(index);
                    let warm = repeat(time / 5, &mut round);
                    gate.wait();
                    warm?;
                    let start = Instant::now();
                    let rounds = repeat(time, &mut round)?;
                    Ok(start.elapsed().as_nanos() as f64 / (rounds * ops) as f64)
                })
            })
            .collect();
        handles
            .into_iter()
            .map(|handle| handle.join().expect("a measured thread ends"))
            .collect()
    });
    let mut sum = 0.0;
    for result in results {
        sum += result?;
    }
    Ok(sum / job.threads as f64)
}

fn repeat(time: Duration, round: &mut impl FnMut() -> Result<(), Damage>) -> Result<usize, Damage> {
    let start = Instant::now();
    let mut rounds = 0;
    loop {
        round()?;
        rounds += 1;
        if start.elapsed() >= time {
            return Ok(rounds);
        }
    }
}
