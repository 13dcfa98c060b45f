//! The same programs on real threads and on the virtual machine.
//!
//! ```text
//!   real        a program on threads: stretches, and the figure made of the calm ones   ─┐
//!   mail        the same for one-alloc-n-free, whose tasks need each other               ├─► row
//!   simulated   the same program text on the profile                                    ─┘
//! ```
//!
//! What a program costs outside the allocator is measured with no allocator under it and given
//! to the virtual one as think time, brought to the pace of the real run (pace.rs), as the profile
//! is. What two CPUs do to each other's lines is measured again before each real run on two, of which only
//! those stretches count in which a line took as long (way.rs), because a hypervisor moves its CPUs.
//! Everything else comes from the profile. Each run has a core of its own, as each virtual machine
//! has: caches learn from what they have seen.

mod mail;
mod real;
mod row;
mod simulated;

use super::ground::{Ground, Nothing};
use super::pair::Pair;
use super::threads::allowed;
use crate::machine::Machine;
use crate::scenario::NamedPolicy;
use real::steadily;
pub use row::{Row, WITHIN, middle};
use row::{Seen, off};
use simulated::{ONE_ALLOC, one_alloc, simulate};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// One policy of each engine that is compared: sheaf, cpu-slab.
pub const POLICIES: [&str; 2] = ["flagstone", "linux-6.12"];

/// Real runs of one comparison at most, for want of one during which the line's way stayed and the
/// figures lie together.
const TRIES: u32 = 8;

/// Wall time, in spans of a run, after which no further one is begun: on a busy host none may ever
/// be calm.
const PATIENCE: u32 = 12;

/// Most CPUs that are compared.
pub const CPUS_MOST: usize = 2;

/// Wall time, in parts of a span, of each loop in which two CPUs are in each other's way.
const PAIR: u32 = 10;

/// One policy on so many CPUs: what is compared, and the rows so far.
struct Bench<'a> {
    machine: &'a Machine,
    policy: &'static str,
    named: &'a NamedPolicy,
    cpus: &'a [usize],
    span: Duration,
    rows: &'a mut Vec<Row>,
    /// The least that each program took without an allocator, in ns at the profile's pace.
    programs: &'a mut HashMap<&'static str, f64>,
}

/// What a row is made of.
struct Figures {
    /// The real run.
    seen: Seen,
    /// The program without an allocator.
    bare: Seen,
    /// The simulated figure, and the program's part of it.
    ns: f64,
    program_ns: f64,
}

/// The calmest of several real runs.
struct Calmest<T> {
    seen: T,
    /// How the two CPUs hung together.
    pair: Option<Pair>,
    /// Real runs.
    runs: u32,
}

impl<T> Calmest<T> {
    /// The machine at this pace on which the CPUs hang together as they did.
    fn machine(&self, machine: &Machine, pace: f64) -> Machine {
        let mut machine = machine.at_pace(pace);
        if let Some(pair) = self.pair {
            pair.rule(&mut machine);
        }
        machine
    }
}

impl Bench<'_> {
    /// The power of the pace that work goes with here.
    fn power(&self) -> f64 {
        self.machine.work_ns.pace_power.unwrap_or(1.0)
    }

    /// A core of its own for a run.
    fn ground(&self) -> Result<Ground, String> {
        Ground::new(&self.named.policy, self.machine.topology.memory_gib << 30)
    }

    /// Measures how the CPUs hang together and runs `real` on them, which looks at what it did while that
    /// stayed; all again while that is too little, or neighbours disturb the run.
    fn calmest<const N: usize>(
        &self,
        cpus: &[usize],
        real: impl Fn(Option<f64>) -> Result<[Seen; N], String>,
    ) -> Result<Calmest<[Seen; N]>, String> {
        let began = Instant::now();
        let mut best: Option<(Calmest<[Seen; N]>, f64)> = None;
        for run in 1.. {
            let before = match cpus {
                [a, b, ..] => Some(Pair::of(*a, *b, self.span / PAIR)),
                _ => None,
            };
            let seen = real(before.map(|pair| pair.way_ns))?;
            let unrest = seen.iter().map(|seen| seen.unrest()).fold(0.0, f64::max);
            if best.as_ref().is_none_or(|(_, least)| unrest < *least) {
                let calmest = Calmest {
                    seen,
                    pair: before,
                    runs: run,
                };
                best = Some((calmest, unrest));
            }
            let calm = seen.iter().all(|seen| seen.is_calm());
            let enough = calm || run == TRIES || began.elapsed() > self.span * PATIENCE;
            if let Some((calmest, _)) = best.take_if(|_| enough) {
                return Ok(Calmest {
                    runs: run,
                    ..calmest
                });
            }
        }
        unreachable!("the last try is quoted")
    }

    fn add<T>(&mut self, workload: String, real: &Calmest<T>, figures: Figures) {
        let Figures { seen, bare, ns, .. } = figures;
        let ratio = ns / seen.ns;
        let calm = seen.is_calm() && bare.is_calm();
        self.rows.push(Row {
            workload,
            policy: self.policy,
            cpus: self.cpus.len(),
            measured_ns: seen.ns,
            simulated_ns: ns,
            program_ns: figures.program_ns,
            pace: seen.pace / self.machine.work_ns.pace.unwrap_or(seen.pace),
            ratio,
            within: off(ratio) <= WITHIN,
            undisturbed: seen.undisturbed,
            spread: seen.spread * 100.0,
            runs: real.runs,
            line_ns: real
                .pair
                .map(|pair| [pair.way_ns, seen.way_ns.unwrap_or(f64::NAN)]),
            still: real.pair.is_none() || seen.is_enough(),
            calm,
            ratios: calm.then_some(ratio).into_iter().collect(),
        });
    }

    fn steady(&mut self, workload: &'static str) -> Result<(), String> {
        let (cpus, span) = (self.cpus, self.span);
        let ground = self.ground()?;
        let nothing = Nothing::new();
        let alone = |way| {
            Ok([steadily(
                workload,
                &ground,
                &nothing,
                &cpus[..1],
                span / 4,
                way,
            )])
        };
        let bare = self.calmest(&cpus[..1], alone)?;
        let real = self.calmest(cpus, |way| {
            let ground = self.ground()?;
            Ok([steadily(workload, &ground, &ground, cpus, span, way)])
        })?;
        // What slows a CPU down from outside and is not its pace shows in the program alone.
        let [before] = bare.seen;
        let [after] = self.calmest(&cpus[..1], alone)?.seen;
        let [seen] = real.seen;
        let pace = self.machine.work_ns.pace.unwrap_or(seen.pace);
        let both = [before, after].map(|bare| bare.paced().at(pace, self.power()));
        let least = self.programs.entry(workload).or_insert(f64::INFINITY);
        *least = both.into_iter().fold(*least, f64::min);
        let mut bare = if both[0] <= both[1] { before } else { after };
        bare.slower = both[0].max(both[1]) / *least - 1.0;
        let program_ns = bare.paced().at(seen.pace, self.power());
        let machine = real.machine(self.machine, seen.pace);
        let ns = simulate(&machine, workload, self.named, cpus.len(), program_ns)?;
        let figures = Figures {
            seen,
            bare,
            ns,
            program_ns,
        };
        self.add(workload.into(), &real, figures);
        Ok(())
    }

    fn one_alloc(&mut self) -> Result<(), String> {
        let (cpus, span) = (self.cpus, self.span);
        let ground = self.ground()?;
        let nothing = Nothing::new();
        // The program's own part, with all lines at hand: those between two CPUs have their ways.
        let mail = |way| {
            Ok(mail::one_alloc(
                &ground,
                &nothing,
                &cpus[..1],
                span / 4,
                way,
            ))
        };
        let bare = self.calmest(&cpus[..1], mail)?.seen;
        let real = self.calmest(cpus, |way| {
            let ground = self.ground()?;
            Ok(mail::one_alloc(&ground, &ground, cpus, span, way))
        })?;
        let paces = real.seen.map(|seen| seen.pace);
        let program = [0, 1].map(|side| bare[side].paced().at(paces[side], self.power()));
        for (side, what) in ["alloc", "free"].into_iter().enumerate() {
            // Each CPU has a pace of its own; what the other one does meanwhile matters little.
            let machine = real.machine(self.machine, paces[side]);
            let got = one_alloc(&machine, self.named, cpus.len(), program)?;
            let figures = Figures {
                seen: real.seen[side],
                bare: bare[side],
                ns: got[side],
                program_ns: program[side],
            };
            self.add(format!("{ONE_ALLOC} ({what})"), &real, figures);
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
    let (mut rows, mut programs) = (Vec::new(), HashMap::new());
    for policy in POLICIES {
        let named = NamedPolicy::parse(policy)?;
        for count in 1..=most {
            let mut bench = Bench {
                machine,
                policy,
                named: &named,
                cpus: &all[..count],
                span,
                rows: &mut rows,
                programs: &mut programs,
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
