//! Pinned threads, and time that nobody else took.
//!
//! A stretch of work is *undisturbed* when wall time and the thread's CPU time agree. Of many
//! stretches the lower quartile of the undisturbed ones is quoted: interrupts and neighbours only
//! ever add. Between stretches is a look at the CPU's pace; quoted are those at the best pace that a
//! tenth of them had, together with it.

use super::pace;
use super::way::is_same;
use core::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How much longer than its CPU time an undisturbed stretch may take.
const SLACK: f64 = 1.03;

/// How much slower than the best pace of a tenth of all a stretch may be to be quoted.
const BAND: f64 = 1.08;

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
    /// Start of the look at the pace before it, from a common origin.
    pub from: Duration,
    /// End of the look after it.
    pub to: Duration,
    /// CPU time between the two.
    pub cpu: Duration,
    /// Wall time of the work alone.
    pub work: Duration,
    /// What the looks before and after it took for a step, in ns.
    pub pace: f64,
    /// What a line took on its way from the other CPU before and after it, in ns, where that is known.
    pub ways: [Option<f64>; 2],
    /// Operations done.
    pub operations: u64,
}

impl Stretch {
    /// Nobody else ran on its CPU.
    #[must_use]
    pub fn is_undisturbed(&self) -> bool {
        let wall = self.to.saturating_sub(self.from);
        wall.as_secs_f64() <= self.cpu.as_secs_f64() * SLACK
    }

    /// The CPUs were where a line takes `way` nanoseconds, as far as is known.
    #[must_use]
    pub fn went(&self, way: Option<f64>) -> bool {
        let mut ways = self.ways.iter().flatten();
        way.is_none_or(|way| ways.all(|ns| is_same(*ns, way)))
    }

    /// Wall nanoseconds of one operation.
    #[must_use]
    pub fn ns(&self) -> f64 {
        self.work.as_secs_f64() * 1e9 / self.operations.max(1) as f64
    }
}

/// Cuts a thread's time into stretches.
#[derive(Debug)]
pub struct Watch {
    origin: Instant,
    /// When the last look began, with the CPU time until then, and what it showed.
    from: Duration,
    cpu: Duration,
    pace: f64,
    way: Option<f64>,
    /// When the work began.
    since: Duration,
}

impl Watch {
    /// Starts now; times count from `origin`.
    #[must_use]
    pub fn start(origin: Instant) -> Self {
        let (cpu, from) = (cpu_time(), origin.elapsed());
        Self {
            origin,
            from,
            cpu,
            pace: pace::look(),
            way: None,
            since: origin.elapsed(),
        }
    }

    /// Ends a stretch in which `operations` were done, and begins the next.
    pub fn cut(&mut self, operations: u64) -> Stretch {
        self.cut_on_way(operations, || None)
    }

    /// The same with a look at a line's way, which need not succeed.
    pub fn cut_on_way(&mut self, operations: u64, way: impl FnOnce() -> Option<f64>) -> Stretch {
        let (end, cpu) = (self.origin.elapsed(), cpu_time());
        let (pace, way) = (pace::look(), way());
        let (to, cpu_after) = (self.origin.elapsed(), cpu_time());
        let stretch = Stretch {
            from: self.from,
            to,
            cpu: cpu_after.saturating_sub(self.cpu),
            work: end.saturating_sub(self.since),
            pace: f64::midpoint(self.pace, pace),
            ways: [self.way, way],
            operations,
        };
        (self.from, self.cpu, self.pace) = (end, cpu, pace);
        self.way = way.or(self.way);
        self.since = self.origin.elapsed();
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
pub fn time(operations: u64, budget: Duration, body: impl FnMut()) -> f64 {
    time_at_pace(operations, budget, body).ns
}

/// The same with the CPU's pace meanwhile.
pub fn time_at_pace(operations: u64, budget: Duration, mut body: impl FnMut()) -> Paced {
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

/// A figure, and the pace of the CPU that it is of.
#[derive(Clone, Copy, Debug)]
pub struct Paced {
    /// Nanoseconds of one operation.
    pub ns: f64,
    /// What a step of the look at the pace took, in ns.
    pub pace: f64,
}

impl Paced {
    /// The figure as it would be where a step of the look takes `step_ns`, if it goes with this power
    /// of the step.
    #[must_use]
    pub fn at(self, step_ns: f64, power: f64) -> f64 {
        self.ns * (step_ns / self.pace).powf(power)
    }
}

/// The figure quoted of many stretches: the lower quartile of the undisturbed ones at the best pace,
/// of all if there are none.
#[must_use]
pub fn quoted(stretches: &[Stretch]) -> Paced {
    let clean = stretches.iter().filter(|stretch| stretch.is_undisturbed());
    let mut from: Vec<Stretch> = clean.copied().collect();
    if from.is_empty() {
        from = stretches.to_vec();
    }
    let from = at_best_pace(from, |stretch| stretch.pace);
    Paced {
        ns: lower_quartile(from.iter().map(Stretch::ns).collect()),
        pace: median(from.iter().map(|stretch| stretch.pace).collect()),
    }
}

/// Those of `all` whose pace is about the best that a tenth of them had: of two paces that take turns
/// the faster one, if it was there for a tenth of the time.
#[must_use]
pub fn at_best_pace<T>(mut all: Vec<T>, pace: impl Fn(&T) -> f64) -> Vec<T> {
    let mut paces: Vec<f64> = all.iter().map(&pace).collect();
    paces.sort_by(f64::total_cmp);
    if let Some(best) = paces.get(paces.len() / 10) {
        all.retain(|one| pace(one) <= best * BAND);
    }
    all
}

/// Of each task's stretches those during which no task was disturbed. Stretches of a task must
/// follow each other without gaps, so that a task that does not run shows as a disturbed one.
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
            work: Duration::from_micros(wall_us),
            pace: 2.0,
            ways: [None; 2],
            operations: 1000,
        }
    }

    #[test]
    fn a_stretch_that_lost_its_cpu_is_not_quoted() {
        let quiet = [stretch(10, 10), stretch(11, 11), stretch(12, 12)];
        let mut all = vec![stretch(5, 2); 20];
        all.extend(quiet);
        assert!((quoted(&all).ns - 10.0).abs() < 1e-9);
        assert!((quoted(&all[..20]).ns - 5.0).abs() < 1e-9, "nothing better");
    }

    #[test]
    fn of_two_paces_the_better_one_is_quoted_with_its_figure() {
        let at = |us, pace| Stretch {
            pace,
            ..stretch(us, us)
        };
        let mut all = vec![at(14, 3.5); 80];
        all.extend([at(10, 2.5); 20]);
        let quoted = quoted(&all);
        assert!((quoted.ns - 10.0).abs() < 1e-9 && (quoted.pace - 2.5).abs() < 1e-9);
        assert!(
            (quoted.at(3.5, 1.0) - 14.0).abs() < 1e-9,
            "as the slower ones"
        );
    }

    #[test]
    fn a_stretch_counts_only_while_the_other_thread_ran_too() {
        let at = |from: u64, cpu: u64| Stretch {
            from: Duration::from_micros(from),
            to: Duration::from_micros(from + 10),
            cpu: Duration::from_micros(cpu),
            work: Duration::from_micros(10),
            pace: 2.0,
            ways: [None; 2],
            operations: 10,
        };
        let kept = together_by_task(&[vec![at(0, 10), at(10, 10)], vec![at(0, 10), at(10, 3)]]);
        assert!(kept.iter().all(|task| task.len() == 1));
        assert!(kept.iter().flatten().all(|stretch| stretch.from.is_zero()));
    }

    #[test]
    fn at_least_one_cpu_is_ours_and_threads_answer_in_order() {
        let cpus = allowed();
        assert!(!cpus.is_empty());
        let same = [cpus[0]; 3];
        assert_eq!(on_each(&same, |index| index * 2), [0, 2, 4]);
    }
}
