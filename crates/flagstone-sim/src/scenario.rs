//! One run: a workload on a machine under a policy, with so many tasks and a seed.
//!
//! ```text
//!   Scenario ─► Vm ─► core for the policy ─► programs ─► window ─► Outcome
//! ```
//!
//! A finite workload's figures come from its whole run, a steady one's from the last window.

use crate::costs::Ps;
use crate::machine::Machine;
use crate::options::Options;
use crate::subject::{CacheCount, Subject};
use crate::tally::Totals;
use crate::vm::Vm;
use crate::watch::Watch;
use crate::window::{Plan, Settled, run_steady};
use crate::workload::{Env, Kind, Params, Workload};
use core::cell::RefCell;
use flagstone_core::policy::Policy;
use flagstone_kernels::Named;

/// Tasks never start in step: each begins at random within this time.
const STAGGER: Ps = 5 * crate::costs::US;

/// A policy and the name it was asked for by.
#[derive(Clone, Debug)]
pub struct NamedPolicy {
    /// As given on the command line.
    pub name: String,
    /// The knobs.
    pub policy: Policy,
}

impl NamedPolicy {
    /// The policy called `name`.
    ///
    /// # Errors
    /// One line with the known names.
    pub fn parse(name: &str) -> Result<Self, String> {
        let policy = Policy::parse(name).map_err(|error| error.to_string())?;
        Ok(Self {
            name: name.to_owned(),
            policy,
        })
    }
}

/// Everything that decides a run.
#[derive(Clone, Debug)]
pub struct Scenario<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// The workload.
    pub workload: &'static Workload,
    /// The policy.
    pub policy: &'a NamedPolicy,
    /// Tasks, one for each CPU used.
    pub tasks: u32,
    /// Seed of everything random.
    pub seed: u64,
    /// The user's settings.
    pub params: &'a Params,
    /// How long to look.
    pub plan: Plan,
}

/// What a run showed.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What happened in the window.
    pub totals: Totals,
    /// Length of the window.
    pub span: Ps,
    /// Where it began.
    pub from: Ps,
    /// Whether the figures are steady (a finite run always is).
    pub converged: bool,
    /// Which of them are.
    pub settled: Settled,
    /// Relative drift between the halves.
    pub drift: f64,
    /// Bytes likewise.
    pub bytes_drift: f64,
    /// Mean bytes in use.
    pub mean_bytes: usize,
    /// Most bytes in use.
    pub peak_bytes: usize,
    /// Deferred frees pile up.
    pub backlog_grows: bool,
    /// Time and bytes.
    pub history: Vec<(Ps, usize)>,
    /// Figures of the workload's own harness.
    pub details: Vec<(String, f64)>,
    /// Hash over all events.
    pub digest: u64,
    /// Allocator operations simulated, warm-up included.
    pub simulated: u64,
}

impl Scenario<'_> {
    /// Runs it.
    ///
    /// # Errors
    /// One line: the machine has no memory for it, or a fault or broken invariant with the seed
    /// that shows it.
    pub fn run(&self) -> Result<Outcome, String> {
        let options = Options {
            seed: self.seed,
            mostly_pages: self.workload.processes,
            program_is_measured: self.params.program_ns.is_some(),
            ..Options::default()
        };
        let vm = Vm::try_new(self.machine.clone(), options)?;
        let subject = vm.boot(|| Subject::new(&vm, &self.policy.policy))?;
        let placement = self.params.placement.unwrap_or(self.workload.placement);
        let cpus = vm.topology.place(self.tasks, placement);
        let details = RefCell::new(Vec::new());
        let env = Env {
            vm: &vm,
            subject: &subject,
            cpus: &cpus,
            params: self.params,
            details: &details,
        };
        let programs = vm.boot(|| (self.workload.make)(&env));
        vm.stagger(STAGGER);
        let mut outcome = match self.workload.kind {
            Kind::Steady => self.steady(&vm, &subject, programs)?,
            Kind::Finite => finite(&vm, &subject, programs)?,
        };
        outcome.digest = vm.digest();
        let all = vm.totals();
        outcome.simulated = all.allocs + all.frees;
        outcome.details.extend(details.take());
        if let Some(tape) = &self.params.tape {
            for (cache, left) in tape.caches.iter().zip(&tape.left) {
                let active = (left * u64::from(tape.copies)) as f64;
                outcome
                    .details
                    .push((format!("active {}", cache.name), active));
            }
            for cache in subject.caches(&vm) {
                let CacheCount { name, slabs, .. } = &cache;
                let objects = slabs * u64::from(cache.objects_per_slab);
                outcome.details.extend([
                    (format!("slabs {name}"), *slabs as f64),
                    (format!("objects {name}"), objects as f64),
                ]);
            }
        }
        if self.workload.processes {
            // Everybody has gone home: how long until pagesets are as small as they get, and
            // how much is left in them.
            let during = outcome.mean_bytes;
            let seconds = subject.settle(&vm);
            let end = Watch::new(&vm, &subject).look(&vm, &subject, &mut Totals::default());
            outcome.details.extend([
                ("MiB during".to_owned(), mib(during)),
                ("MiB at the end".to_owned(), mib(end)),
                ("seconds to the end".to_owned(), f64::from(seconds)),
            ]);
        }
        Ok(outcome)
    }

    fn steady(
        &self,
        vm: &Vm,
        subject: &Subject,
        programs: Vec<(u32, crate::Program<'_>)>,
    ) -> Result<Outcome, String> {
        let steady = run_steady(vm, subject, programs, self.plan).map_err(|f| f.to_string())?;
        Ok(Outcome {
            totals: steady.totals,
            span: steady.span,
            from: steady.from,
            converged: steady.converged,
            settled: steady.settled,
            drift: steady.drift,
            bytes_drift: steady.bytes_drift,
            mean_bytes: steady.mean_bytes,
            peak_bytes: steady.peak_bytes,
            backlog_grows: steady.backlog_grows,
            history: steady.history,
            details: vec![("MiB live".to_owned(), mib(steady.mean_live_bytes))],
            digest: 0,
            simulated: 0,
        })
    }
}

fn mib(bytes: usize) -> f64 {
    bytes as f64 / 1_048_576.0
}

fn finite(
    vm: &Vm,
    subject: &Subject,
    programs: Vec<(u32, crate::Program<'_>)>,
) -> Result<Outcome, String> {
    /// Time between two looks at memory.
    const LOOK: Ps = crate::costs::MS / 4;
    let mut watch = Watch::new(vm, subject);
    let mut history = vec![(0, watch.look(vm, subject, &mut Totals::default()))];
    vm.run(programs, LOOK, |vm| {
        let bytes = watch.look(vm, subject, &mut Totals::default());
        history.push((vm.now(), bytes));
        Some(vm.now() + LOOK)
    })
    .map_err(|failure| failure.to_string())?;
    let mut totals = vm.totals();
    let end = watch.look(vm, subject, &mut totals);
    history.push((vm.latest(), end));
    let span = vm.latest();
    let bytes = history.iter().map(|look| look.1);
    Ok(Outcome {
        totals,
        span,
        from: 0,
        converged: true,
        settled: Settled::ALL,
        drift: 0.0,
        bytes_drift: 0.0,
        mean_bytes: bytes.clone().sum::<usize>() / history.len(),
        peak_bytes: bytes.max().unwrap_or(0),
        backlog_grows: false,
        history,
        details: Vec::new(),
        digest: 0,
        simulated: 0,
    })
}
