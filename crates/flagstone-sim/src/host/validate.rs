//! The same programs on real threads and on the virtual machine.
//!
//! What a program costs outside the allocator is measured with no allocator under it and given
//! to the virtual one as think time. How long a line is on its way between the two CPUs is
//! measured again around each real run, because a hypervisor moves its CPUs: on one core they are
//! ten nanoseconds apart, on two many times that. Everything else comes from the profile.

use super::ground::{Ground, Hall, Nothing, Paced, Really, Source};
use super::probe;
use super::threads::{Meeting, Stretch, allowed, median, on_each, quoted, together};
use crate::machine::Machine;
use crate::scenario::{NamedPolicy, Scenario};
use crate::window::Plan;
use crate::workload::one_alloc_n_free::{self, COUNT};
use crate::workload::stage::Stage;
use crate::workload::{Params, Workload, larson, random_mix};
use core::cell::Cell;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use serde::Serialize;
use std::time::{Duration, Instant};

/// One policy of each engine that is compared: sheaf, cpu-slab.
pub const POLICIES: [&str; 2] = ["flagstone", "linux-6.12"];

/// How far simulation may be from measurement to count as within.
pub const WITHIN: f64 = 0.25;

/// How far, as a logarithm, a line's way may change during a real run.
const STILL: f64 = 0.2;

/// How far the middle stretch of a real run may be above the one quoted: beyond it neighbours decide
/// the figure.
const SPREAD: f64 = 0.25;

/// Undisturbed stretches a real run needs.
const CLEAN: usize = 8;

/// Real runs of one comparison at most, for want of one during which the line's way stayed and the
/// figures lie together.
const TRIES: u32 = 8;

/// Wall time, in spans of a run, after which no further one is begun: on a busy host none may ever
/// be calm.
const PATIENCE: u32 = 12;

/// Most CPUs that are compared.
pub const CPUS_MOST: usize = 2;

/// Operations of a stretch: some tenths of a millisecond.
const STRETCH: u64 = 4_000;

/// Rounds of one-alloc-n-free: the first half only warms memory up.
const ROUNDS: u32 = 16;

/// One comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The workload, with its side where it has two.
    pub workload: String,
    /// The policy.
    pub policy: &'static str,
    /// CPUs and tasks.
    pub cpus: usize,
    /// Nanoseconds of one operation of one task on real threads.
    pub measured_ns: f64,
    /// The same on the virtual machine.
    pub simulated_ns: f64,
    /// Nanoseconds of it outside the allocator, measured without one.
    pub program_ns: f64,
    /// Simulated over measured.
    pub ratio: f64,
    /// Whether the ratio is within [`WITHIN`] of one.
    pub within: bool,
    /// Percent of the real stretches nobody disturbed.
    pub undisturbed: f64,
    /// How far the middle one of them is above the one quoted, in percent.
    pub spread: f64,
    /// Real runs until one was calm; the calmest is quoted.
    pub runs: u32,
    /// Nanoseconds of a line's way between the two CPUs, before and after the real run; absent
    /// for one CPU.
    pub line_ns: Option<[f64; 2]>,
    /// Whether that way stayed the same: if not, the host moved its CPUs meanwhile and the row
    /// says little.
    pub still: bool,
}

/// What a real run showed.
#[derive(Clone, Copy)]
struct Seen {
    ns: f64,
    undisturbed: f64,
    /// Undisturbed stretches.
    clean: usize,
    /// The middle one over the one quoted, less one.
    spread: f64,
}

impl Seen {
    /// The figure of these stretches, of which the last argument says how many there were in all.
    fn of(stretches: &[Stretch], clean: usize, all: usize) -> Self {
        let ns = quoted(stretches);
        let middle = median(stretches.iter().map(Stretch::ns).collect());
        Self {
            ns,
            undisturbed: clean as f64 / all.max(1) as f64 * 100.0,
            clean,
            spread: middle / ns.max(f64::MIN_POSITIVE) - 1.0,
        }
    }

    /// How much neighbours disturbed the run: the spread, and more than any where there is little
    /// to tell it from.
    fn unrest(self) -> f64 {
        if self.clean >= CLEAN {
            self.spread
        } else {
            1e3 / (1.0 + self.clean as f64)
        }
    }
}

/// The figure of tasks that ran together.
fn seen(tasks: &[Vec<Stretch>]) -> Seen {
    let all: Vec<Stretch> = tasks.iter().flatten().copied().collect();
    let clean = together(tasks);
    let from = if clean.is_empty() { &all } else { &clean };
    Seen::of(from, clean.len(), all.len())
}

/// Runs a steady program on the first `cpus` CPUs for `span`.
fn steadily<A: Source>(
    ground: &Ground,
    source: &A,
    cpus: &[usize],
    span: Duration,
    program: impl Fn(&Really<'_, A>) + Sync,
) -> Seen {
    let hall = Hall::new(cpus.len());
    let start = Meeting::of(cpus.len());
    let origin = Instant::now();
    let timer = |stretches: Vec<Stretch>| {
        // Warm-up: a quarter of the span.
        let warm = span / 4;
        let late = stretches.into_iter().filter(|s| s.from > warm);
        late.collect::<Vec<_>>()
    };
    let tasks = std::thread::scope(|scope| {
        let hall = &hall;
        scope.spawn(move || {
            // The length of the run, not a synchronisation.
            std::thread::sleep(span.saturating_sub(origin.elapsed()));
            hall.stop();
        });
        on_each(cpus, |task| {
            let stage = Really::new(ground, source, hall, task, STRETCH);
            start.wait();
            stage.restart();
            program(&stage);
            // The last stretch may be one in which the task did not run: it must be seen.
            stage.cut(1);
            timer(stage.stretches())
        })
    });
    seen(&tasks)
}

/// A mailbox that holds a whole round: filled in order, with one atomic step each way.
#[repr(align(128))]
struct Mail {
    posted: AtomicU64,
    letters: Vec<AtomicPtr<u8>>,
}

impl Mail {
    fn new() -> Self {
        let letters = (0..COUNT).map(|_| AtomicPtr::new(core::ptr::null_mut()));
        Self {
            posted: AtomicU64::new(0),
            letters: letters.collect(),
        }
    }

    fn post(&self, object: NonNull<u8>, at: &Cell<u64>) {
        self.letters[at.get() as usize].store(object.as_ptr(), Ordering::Relaxed);
        at.set(at.get() + 1);
        self.posted.fetch_add(1, Ordering::AcqRel);
    }

    /// The letter after `at`, once it is there. Low bits count letters, high ones fetches.
    fn fetch(&self, at: &Cell<u64>) -> NonNull<u8> {
        const FETCHED: u64 = 1 << 32;
        loop {
            let posted = self.posted.fetch_add(FETCHED, Ordering::AcqRel) % FETCHED;
            if posted > at.get() {
                break;
            }
            while self.posted.load(Ordering::Acquire) % FETCHED <= at.get() {
                core::hint::spin_loop();
            }
        }
        let letter = self.letters[at.get() as usize].load(Ordering::Relaxed);
        at.set(at.get() + 1);
        NonNull::new(letter).expect("posted before it was counted")
    }
}

/// One producer, one consumer on the same or another CPU: both sides' figures.
fn one_alloc<A: Source>(ground: &Ground, source: &A, cpus: &[usize], span: Duration) -> [Seen; 2] {
    let hall = Hall::new(cpus.len());
    let cache = ground.class(one_alloc_n_free::SIZE);
    let (start, end) = (Meeting::of(cpus.len()), Meeting::of(cpus.len()));
    let mail = Mail::new();
    let each = COUNT / cpus.len() as u64;
    let over = std::sync::atomic::AtomicBool::new(false);
    let sides = on_each(cpus, |task| {
        let stage = Really::new(ground, source, &hall, task, u64::MAX);
        let (mut made, mut freed) = (Vec::new(), Vec::new());
        loop {
            if task == 0 {
                mail.posted.store(0, Ordering::Relaxed);
                over.store(hall.origin().elapsed() > span, Ordering::Relaxed);
            }
            start.wait();
            if over.load(Ordering::Relaxed) {
                return (made, freed);
            }
            let (posted, fetched) = (Cell::new(0), Cell::new(0));
            stage.restart();
            if task == 0 {
                one_alloc_n_free::produce(&stage, cache, 1, |_, o| mail.post(o, &posted));
                stage.cut(COUNT);
                made.extend(stage.stretches());
            }
            if task == cpus.len() - 1 {
                one_alloc_n_free::consume(&stage, cache, each, || mail.fetch(&fetched));
                stage.cut(each);
                freed.extend(stage.stretches());
            }
            end.wait();
            if task == cpus.len() - 1 {
                while fetched.get() < COUNT {
                    // SAFETY: the producer gave it up; it came from this cache.
                    unsafe { stage.free(cache, mail.fetch(&fetched)) };
                }
            }
            // Nobody empties the mailbox for the next round before it is read to its end.
            end.wait();
        }
    });
    rounds_together(&sides[0].0, &sides[cpus.len() - 1].1, cpus.len() > 1)
}

/// Both sides' figures over the later half of the rounds, of those that nobody disturbed and, on
/// two CPUs, that both sides began at once.
fn rounds_together(made: &[Stretch], freed: &[Stretch], at_once: bool) -> [Seen; 2] {
    let rounds: Vec<_> = made.iter().zip(freed).skip(made.len() / 2).collect();
    let fits = |(made, freed): &&(&Stretch, &Stretch)| {
        let apart = made.from.abs_diff(freed.from);
        made.is_undisturbed()
            && freed.is_undisturbed()
            && (!at_once || apart < Duration::from_micros(3))
    };
    let clean: Vec<_> = rounds.iter().filter(fits).copied().collect();
    let (calm, all) = (clean.len(), rounds.len());
    let from = if clean.is_empty() { rounds } else { clean };
    let (made, freed): (Vec<Stretch>, Vec<Stretch>) =
        from.into_iter().map(|(m, f)| (*m, *f)).unzip();
    [made, freed].map(|side| Seen::of(&side, calm, all))
}

/// What a program costs outside the allocator, measured without one.
#[derive(Clone, Copy, Default)]
struct Outside {
    think_ns: f64,
    mail_ns: Option<[f64; 2]>,
}

/// The workload with two sides.
const ONE_ALLOC: &str = "one-alloc-n-free";

/// What the virtual machine says.
struct Said {
    /// Nanoseconds of an operation, of each side.
    ns: [f64; 2],
    /// Nanoseconds of an allocation and of a free alone.
    calls: [f64; 2],
}

/// Runs a workload on the virtual machine.
fn simulate(
    machine: &Machine,
    workload: &str,
    policy: &NamedPolicy,
    tasks: usize,
    outside: Outside,
) -> Result<Said, String> {
    let params = Params {
        think_ns: Some(outside.think_ns),
        rounds: Some(ROUNDS),
        mail_ns: outside.mail_ns,
        ..Params::default()
    };
    let scenario = Scenario {
        machine,
        workload: Workload::named(workload)?,
        policy,
        tasks: tasks as u32,
        seed: 1,
        params: &params,
        plan: Plan::QUICK,
    };
    let outcome = scenario.run()?;
    let totals = &outcome.totals;
    let call = |ps: u64, count: u64| ps as f64 / 1e3 / count.max(1) as f64;
    let calls = [
        call(totals.alloc_ps, totals.allocs),
        call(totals.free_ps, totals.frees),
    ];
    if workload != ONE_ALLOC {
        let ns = outcome.span as f64 / 1e3 * tasks as f64 / totals.ops.max(1) as f64;
        return Ok(Said { ns: [ns; 2], calls });
    }
    // Details are a loop's cycles over COUNT, whatever the loop's length.
    let ns = |name: &str, length: u64| {
        let found = outcome.details.iter().find(|(known, _)| known == name);
        found.map_or(0.0, |(_, cycles)| {
            cycles / machine.topology.ghz * COUNT as f64 / length as f64
        })
    };
    let other = if tasks == 1 {
        "cpu0_free_cycles"
    } else {
        "cpu1_cycles"
    };
    let sides = [ns("cpu0_cycles", COUNT), ns(other, COUNT / tasks as u64)];
    Ok(Said { ns: sides, calls })
}

/// A steady program by its workload's name.
fn program<S: Stage>(workload: &str, stage: &S) {
    match workload {
        "larson" => larson::serve(stage, larson::LARGEST as u32),
        _ => random_mix::mix(stage, random_mix::LARGEST),
    }
}

/// One policy on so many CPUs: what is compared, and the rows so far.
struct Bench<'a> {
    machine: &'a Machine,
    policy: &'static str,
    named: &'a NamedPolicy,
    ground: &'a Ground,
    cpus: &'a [usize],
    span: Duration,
    rows: &'a mut Vec<Row>,
}

/// A line's way between the CPUs of a comparison, before and after it.
#[derive(Clone, Copy, Default)]
struct Way(Option<[f64; 2]>);

impl Way {
    fn is_still(self) -> bool {
        let changed = |[before, after]: [f64; 2]| (after / before).ln().abs() > STILL;
        !self.0.is_some_and(changed)
    }

    /// The machine with lines that take this way.
    fn on(self, machine: &Machine) -> Machine {
        let mut machine = machine.clone();
        if let Some([before, after]) = self.0 {
            let line = (before * after).sqrt();
            let latency = &mut machine.latency_ns;
            latency.socket = line;
            latency.cluster = latency.cluster.map(|_| line);
        }
        machine
    }
}

impl Bench<'_> {
    /// Runs `real` between two looks at the line's way, again while that way changes or neighbours
    /// disturb the run, by `unrest`; answers the calmest run and how many there were.
    fn calm<T>(&self, real: impl Fn() -> T, unrest: impl Fn(&T) -> f64) -> (T, Way, u32) {
        let began = Instant::now();
        let mut best: Option<(T, Way, f64)> = None;
        for run in 1.. {
            let look = || match self.cpus {
                [a, b, ..] => Some(probe::transfer(*a, *b)),
                _ => None,
            };
            let before = look();
            let seen = real();
            let way = Way(before.zip(look()).map(|(before, after)| [before, after]));
            let moved = if way.is_still() { 0.0 } else { 1e6 };
            let unrest = unrest(&seen) + moved;
            if best.as_ref().is_none_or(|(_, _, least)| unrest < *least) {
                best = Some((seen, way, unrest));
            }
            match best.take() {
                Some((seen, way, least))
                    if least <= SPREAD
                        || run == TRIES
                        || began.elapsed() > self.span * PATIENCE =>
                {
                    return (seen, way, run);
                }
                kept => best = kept,
            }
        }
        unreachable!("the last try is quoted")
    }

    fn add(
        &mut self,
        workload: String,
        real: (Seen, Way, u32),
        program_ns: f64,
        simulated_ns: f64,
    ) {
        let (seen, way, runs) = real;
        let ratio = simulated_ns / seen.ns;
        self.rows.push(Row {
            workload,
            policy: self.policy,
            cpus: self.cpus.len(),
            measured_ns: seen.ns,
            simulated_ns,
            program_ns,
            ratio,
            within: (ratio - 1.0).abs() <= WITHIN,
            undisturbed: seen.undisturbed,
            spread: seen.spread * 100.0,
            runs,
            line_ns: way.0,
            still: way.is_still(),
        });
    }

    fn steady(&mut self, workload: &str) -> Result<(), String> {
        let (ground, cpus, span) = (self.ground, self.cpus, self.span);
        let nothing = Nothing::new();
        let bare = steadily(ground, &nothing, &cpus[..1], span / 4, |stage| {
            program(workload, stage);
        });
        let real = || steadily(ground, ground, cpus, span, |stage| program(workload, stage));
        let (seen, way, runs) = self.calm(real, |seen| seen.unrest());
        let machine = way.on(self.machine);
        let outside = Outside {
            think_ns: bare.ns,
            mail_ns: None,
        };
        let got = simulate(&machine, workload, self.named, cpus.len(), outside)?;
        self.add(workload.into(), (seen, way, runs), bare.ns, got.ns[0]);
        Ok(())
    }

    /// What the mailbox costs either side, with no allocator under it but the pauses that the
    /// virtual one makes between two letters.
    fn mailbox(&self) -> Result<[f64; 2], String> {
        let free = Outside {
            mail_ns: Some([0.0; 2]),
            ..Outside::default()
        };
        let pace = simulate(self.machine, ONE_ALLOC, self.named, self.cpus.len(), free)?.calls;
        let paced = Paced::new(pace);
        let sides = one_alloc(self.ground, &paced, self.cpus, self.span / 2);
        let cost = |side: usize| (sides[side].ns - paced.ns[side]).max(0.0);
        Ok([cost(0), cost(1)])
    }

    fn one_alloc(&mut self) -> Result<(), String> {
        // On one CPU the mailbox's line is at hand and its steps overlap the allocator's.
        let apart = self.cpus.len() > 1;
        let real = || {
            let mailbox = apart.then(|| self.mailbox());
            (
                mailbox,
                one_alloc(self.ground, self.ground, self.cpus, self.span),
            )
        };
        let unrest = |seen: &(_, [Seen; 2])| seen.1[0].unrest().max(seen.1[1].unrest());
        let ((mailbox, seen), way, runs) = self.calm(real, unrest);
        let machine = way.on(self.machine);
        let outside = Outside {
            think_ns: 0.0,
            mail_ns: mailbox.transpose()?,
        };
        let got = simulate(&machine, ONE_ALLOC, self.named, self.cpus.len(), outside)?;
        let program = outside.mail_ns.unwrap_or_default();
        for (side, what) in ["alloc", "free"].into_iter().enumerate() {
            let workload = format!("{ONE_ALLOC} ({what})");
            self.add(
                workload,
                (seen[side], way, runs),
                program[side],
                got.ns[side],
            );
        }
        Ok(())
    }
}

/// Compares everything on `machine`; `span` is the wall time of one real run, `done` is called
/// after each comparison.
///
/// # Errors
/// One line, when the system grants no memory or a simulation fails.
pub fn compare(machine: &Machine, span: Duration, done: impl Fn()) -> Result<Vec<Row>, String> {
    let all = allowed();
    let most = all.len().min(machine.cpus() as usize).min(CPUS_MOST);
    let mut rows = Vec::new();
    for policy in POLICIES {
        let named = NamedPolicy::parse(policy)?;
        let ground = Ground::new(&named.policy, machine.topology.memory_gib << 30)?;
        for count in 1..=most {
            let mut bench = Bench {
                machine,
                policy,
                named: &named,
                ground: &ground,
                cpus: &all[..count],
                span,
                rows: &mut rows,
            };
            bench.one_alloc()?;
            done();
            for workload in ["larson", "random-mix"] {
                bench.steady(workload)?;
                done();
            }
        }
    }
    Ok(rows)
}
