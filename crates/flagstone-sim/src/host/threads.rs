//! Pinned threads, and time that nobody else took.
//!
//! A stretch of work is *undisturbed* when wall time and the thread's CPU time agree. Of many
//! stretches the lower quartile of the undisturbed ones is quoted: interrupts and neighbours only
//! ever add.

use core::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How much longer than its CPU time an undisturbed stretch may take.
const SLACK: f64 = 1.03;

/// The CPUs this process may use, ascending; at least one.
#[must_use]
pub fn allowed() -> Vec<usize> {
    // SAFETY: an all-zero CPU set is an empty one.
    let mut set: libc::cpu_set_t = unsafe { core::mem::zeroed() };
    // SAFETY: the kernel writes at most the size given.
    let got = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) };
    let cpus: Vec<usize> = (0..libc::CPU_SETSIZE as usize)
        // SAFETY: the index is below the set's size.
        .filter(|&cpu| got == 0 && unsafe { libc::CPU_ISSET(cpu, &set) })
        .collect();
    if cpus.is_empty() { vec![0] } else { cpus }
}

/// Keeps the calling thread on `cpu`. A refusal is no error: the figures are merely noisier.
pub fn pin(cpu: usize) {
    // SAFETY: an all-zero CPU set is an empty one.
    let mut set: libc::cpu_set_t = unsafe { core::mem::zeroed() };
    // SAFETY: the index comes from `allowed`, below the set's size.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the kernel reads the set.
    unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) };
}

/// Asks for the calling thread to be preferred to others for as long as it lives: what is measured
/// needs its CPU for a few milliseconds at a time. A refusal is no error, as above.
fn prefer() {
    /// Short of what only the system's own threads use.
    const NICE: i32 = -15;
    // SAFETY: no pointers; zero is the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
}

/// Runs `body(index)` on one pinned, preferred thread for each of `cpus`; their answers in that order.
pub fn on_each<T: Send>(cpus: &[usize], body: impl Fn(usize) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let body = &body;
        let threads: Vec<_> = cpus
            .iter()
            .enumerate()
            .map(|(index, &cpu)| {
                scope.spawn(move || {
                    pin(cpu);
                    prefer();
                    body(index)
                })
            })
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, T>| match thread.join() {
            Ok(answer) => answer,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        threads.into_iter().map(join).collect()
    })
}

/// CPU time of the calling thread.
#[must_use]
pub fn cpu_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A stretch of work: when it began and ended, what CPU time it had, what it did.
#[derive(Clone, Copy, Debug)]
pub struct Stretch {
    /// Start, from a common origin.
    pub from: Duration,
    /// End.
    pub to: Duration,
    /// CPU time inside.
    pub cpu: Duration,
    /// Operations done.
    pub operations: u64,
}

impl Stretch {
    /// Nobody else ran on its CPU.
    #[must_use]
    pub fn is_undisturbed(&self) -> bool {
        self.wall().as_secs_f64() <= self.cpu.as_secs_f64() * SLACK
    }

    fn wall(&self) -> Duration {
        self.to.saturating_sub(self.from)
    }

    /// Wall nanoseconds of one operation.
    #[must_use]
    pub fn ns(&self) -> f64 {
        self.wall().as_secs_f64() * 1e9 / self.operations.max(1) as f64
    }
}

/// Cuts a thread's time into stretches.
#[derive(Debug)]
pub struct Watch {
    origin: Instant,
    from: Duration,
    cpu: Duration,
}

impl Watch {
    /// Starts now; times count from `origin`.
    #[must_use]
    pub fn start(origin: Instant) -> Self {
        Self {
            origin,
            cpu: cpu_time(),
            from: origin.elapsed(),
        }
    }

    /// Ends a stretch in which `operations` were done, and begins the next.
    pub fn cut(&mut self, operations: u64) -> Stretch {
        let (to, cpu) = (self.origin.elapsed(), cpu_time());
        let stretch = Stretch {
            from: self.from,
            to,
            cpu: cpu.saturating_sub(self.cpu),
            operations,
        };
        (self.from, self.cpu) = (to, cpu);
        stretch
    }
}

/// The lower quartile; 0 of nothing.
#[must_use]
pub fn lower_quartile(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 4).copied().unwrap_or(0.0)
}

/// The middle one; 0 of nothing.
#[must_use]
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Nanoseconds of one operation: `body` does `operations` of them each time it is called; it is
/// called until `budget` is over, at least five times.
pub fn time(operations: u64, budget: Duration, mut body: impl FnMut()) -> f64 {
    let origin = Instant::now();
    body();
    let mut stretches = Vec::new();
    let mut watch = Watch::start(origin);
    while stretches.len() < 5 || origin.elapsed() < budget {
        body();
        stretches.push(watch.cut(operations));
    }
    quoted(&stretches)
}

/// The figure quoted of many stretches: the lower quartile of the undisturbed ones, of all if
/// there are none.
#[must_use]
pub fn quoted(stretches: &[Stretch]) -> f64 {
    let clean = stretches.iter().filter(|stretch| stretch.is_undisturbed());
    let clean: Vec<f64> = clean.map(Stretch::ns).collect();
    if clean.is_empty() {
        return lower_quartile(stretches.iter().map(Stretch::ns).collect());
    }
    lower_quartile(clean)
}

/// Of each task's stretches those during which no task was disturbed. Stretches of a task must
/// follow each other without gaps, so that a task that does not run shows as a disturbed one.
#[must_use]
pub fn together(tasks: &[Vec<Stretch>]) -> Vec<Stretch> {
    together_by_task(tasks).concat()
}

/// The same, task by task.
#[must_use]
pub fn together_by_task(tasks: &[Vec<Stretch>]) -> Vec<Vec<Stretch>> {
    let all = tasks.iter().flatten();
    let rough: Vec<&Stretch> = all.filter(|s| !s.is_undisturbed()).collect();
    let calm = |stretch: &&Stretch| {
        stretch.is_undisturbed()
            && !rough
                .iter()
                .any(|other| other.from < stretch.to && stretch.from < other.to)
    };
    let kept = |task: &Vec<Stretch>| task.iter().filter(calm).copied().collect();
    tasks.iter().map(kept).collect()
}

/// A place where threads wait for each other without sleeping: afterwards all of them run.
#[derive(Debug)]
pub struct Meeting {
    parties: u64,
    arrived: AtomicU64,
}

impl Meeting {
    /// For so many threads.
    #[must_use]
    pub fn of(parties: usize) -> Self {
        Self {
            parties: parties as u64,
            arrived: AtomicU64::new(0),
        }
    }

    /// Waits until all have come as often as this one.
    pub fn wait(&self) {
        let mine = self.arrived.fetch_add(1, Ordering::AcqRel);
        let full = (mine / self.parties + 1) * self.parties;
        let mut round = 0u32;
        while self.arrived.load(Ordering::Acquire) < full {
            round += 1;
            if round.is_multiple_of(4096) {
                // Whoever is missing may need this CPU.
                std::thread::yield_now();
            }
            core::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stretch(wall_us: u64, cpu_us: u64) -> Stretch {
        Stretch {
            from: Duration::ZERO,
            to: Duration::from_micros(wall_us),
            cpu: Duration::from_micros(cpu_us),
            operations: 1000,
        }
    }

    #[test]
    fn a_stretch_that_lost_its_cpu_is_not_quoted() {
        let quiet = [stretch(10, 10), stretch(11, 11), stretch(12, 12)];
        let mut all = vec![stretch(5, 2); 20];
        all.extend(quiet);
        assert!((quoted(&all) - 10.0).abs() < 1e-9);
        assert!((quoted(&all[..20]) - 5.0).abs() < 1e-9, "nothing better");
    }

    #[test]
    fn a_stretch_counts_only_while_the_other_thread_ran_too() {
        let at = |from: u64, cpu: u64| Stretch {
            from: Duration::from_micros(from),
            to: Duration::from_micros(from + 10),
            cpu: Duration::from_micros(cpu),
            operations: 10,
        };
        let kept = together(&[vec![at(0, 10), at(10, 10)], vec![at(0, 10), at(10, 3)]]);
        assert_eq!(kept.len(), 2, "both of the first ten microseconds");
        assert!(kept.iter().all(|stretch| stretch.from.is_zero()));
    }

    #[test]
    fn at_least_one_cpu_is_ours_and_threads_answer_in_order() {
        let cpus = allowed();
        assert!(!cpus.is_empty());
        let same = [cpus[0]; 3];
        assert_eq!(on_each(&same, |index| index * 2), [0, 2, 4]);
    }
}
