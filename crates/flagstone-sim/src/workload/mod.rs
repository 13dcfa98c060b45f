//! Workloads: programs of allocations and frees, with the arithmetic of the harness they stand for.
//!
//! ```text
//!   Workload ── make(env) ──► one program for each task's CPU      (steady: until told to stop)
//!                                                                  (finite: to their end)
//! ```
//!
//! Each file says what the published harness does, what an operation is, what is left out, and
//! which figures are its own choice. Time a program spends outside the allocator is its think
//! time; it may be fitted to a base row, never to a patched one.

mod af_unix;
mod hackbench;
pub mod held;
mod kbuild;
pub mod larson;
mod mmap1;
mod netio;
mod one_alloc_flow;
pub mod one_alloc_n_free;
mod pairs;
pub mod random_mix;
mod replay;
mod sctp;
pub mod stage;
pub mod tape;
mod ublk;

use crate::costs::{NS, Ps};
use crate::schedule::Program;
use crate::subject::Subject;
use crate::topology::Placement;
use crate::vm::Vm;
use core::cell::RefCell;
use std::sync::Arc;

pub use replay::{TRACES, Trace};

/// What the user may set about a workload.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Params {
    /// Size of objects in bytes, for workloads of one size.
    pub size: Option<usize>,
    /// Nanoseconds outside the allocator for each operation.
    pub think_ns: Option<f64>,
    /// Where tasks are put.
    pub placement: Option<Placement>,
    /// Times a finite workload is run one after the other on one allocator (once).
    pub rounds: Option<u32>,
    /// Nanoseconds of the program itself for each operation, as measured on real threads without an
    /// allocator: of one-alloc-n-free's producer and of its consumers, else the first. Its lines then cost
    /// something only on their way from another CPU; what is in mailboxes and inboxes travels too, on
    /// lines of its own. In place of a think time.
    pub program_ns: Option<[f64; 2]>,
    /// What the workload `trace` plays.
    pub tape: Option<Arc<tape::Tape>>,
}

/// What a workload's programs are made from.
pub struct Env<'a> {
    /// The machine.
    pub vm: &'a Vm,
    /// The allocator.
    pub subject: &'a Subject,
    /// The CPU of each task.
    pub cpus: &'a [u32],
    /// What the user set.
    pub params: &'a Params,
    /// Figures of the harness, written by the programs of finite workloads.
    pub details: &'a RefCell<Vec<(String, f64)>>,
}

impl Env<'_> {
    /// Think time in picoseconds: the measured one, the user's, or `default_ns`.
    #[must_use]
    pub fn think(&self, default_ns: f64) -> Ps {
        let measured = self.params.program_ns.map(|[ns, _]| ns);
        let ns = measured.or(self.params.think_ns).unwrap_or(default_ns);
        (ns * NS as f64) as Ps
    }
}

/// How a workload ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Runs until it is told to stop: figures come from a window.
    Steady,
    /// Runs to its end: figures come from the whole run.
    Finite,
}

/// How many tasks a workload can run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tasks {
    /// At least this many.
    pub least: u32,
    /// A multiple of this.
    pub step: u32,
}

/// A workload.
#[derive(Debug)]
pub struct Workload {
    /// The name it is asked for by.
    pub name: &'static str,
    /// One line for people.
    pub about: &'static str,
    /// What one operation is.
    pub unit: &'static str,
    /// How it ends.
    pub kind: Kind,
    /// How many tasks it takes.
    pub tasks: Tasks,
    /// Where its tasks sit if the user does not say: as the published harness puts them.
    pub placement: Placement,
    /// Made of processes: nearly all memory is whole pages, and all goes back when they end, so that
    /// what pagesets keep then is of interest.
    pub processes: bool,
    /// Nanoseconds outside the allocator that were fitted to a base row, where they were.
    pub fitted_think_ns: Option<f64>,
    /// The least think time in nanoseconds. Below zero it is a pause of the other side.
    pub think_least_ns: f64,
    /// Object sizes it can be asked for in bytes, from and to; `None`: its objects are what they are.
    pub sizes: Option<(usize, usize)>,
    /// Makes its programs.
    pub make: for<'a> fn(&'a Env<'a>) -> Vec<(u32, Program<'a>)>,
}

const ANY: Tasks = Tasks { least: 1, step: 1 };
const PAIRS: Tasks = Tasks { least: 2, step: 2 };

/// Every workload.
pub const WORKLOADS: &[Workload] = &[
    Workload {
        placement: Placement::Compact,
        fitted_think_ns: Some(mmap1::THINK_NS),
        ..Workload::steady(
            "mmap1",
            "will-it-scale mmap1: map and unmap 128 MiB; maple nodes under RCU",
            "mmap and munmap",
            mmap1::make,
        )
    },
    Workload {
        placement: Placement::Compact,
        ..Workload::steady(
            "mmap1-6.18",
            "mmap1 as Linux 6.18 does it, under every policy",
            "mmap and munmap",
            mmap1::make_6_18,
        )
    },
    Workload {
        placement: Placement::Compact,
        ..Workload::steady(
            "mmap2",
            "will-it-scale mmap2: a file mapping per task, as Linux 6.18 does it",
            "mmap and munmap",
            mmap1::mmap2,
        )
    },
    Workload {
        tasks: PAIRS,
        ..Workload::steady(
            "ublk",
            "requests made on one CPU and ended on another, as ublk's with an empty target",
            "request ended",
            ublk::make,
        )
    },
    Workload {
        tasks: PAIRS,
        fitted_think_ns: Some(hackbench::THINK_NS),
        ..Workload::steady(
            "hackbench",
            "messages between senders and receivers in groups of 40 tasks",
            "message",
            hackbench::make,
        )
    },
    Workload {
        kind: Kind::Finite,
        think_least_ns: -1e9,
        sizes: Some((1, 8192)),
        ..Workload::steady(
            "one-alloc-n-free",
            "one CPU allocates, all others free (in-kernel slab test of 2007)",
            "object freed",
            one_alloc_n_free::make,
        )
    },
    Workload {
        tasks: Tasks { least: 2, step: 1 },
        sizes: Some((1, 8192)),
        ..Workload::steady(
            "one-alloc-flow",
            "one CPU allocates, all others free, for good: one-alloc-n-free once it runs",
            "object freed",
            one_alloc_flow::make,
        )
    },
    Workload {
        processes: true,
        fitted_think_ns: Some(kbuild::THINK_NS),
        ..Workload::steady(
            "kbuild",
            "compilers: pages faulted in one by one, given back at once at exit",
            "page faulted in",
            kbuild::make,
        )
    },
    Workload {
        tasks: PAIRS,
        fitted_think_ns: Some(sctp::THINK_NS),
        ..Workload::steady(
            "sctp-stream-many",
            "netperf SCTP_STREAM_MANY: pairs passing messages with order-2 blocks",
            "message",
            sctp::make,
        )
    },
    Workload {
        tasks: PAIRS,
        fitted_think_ns: Some(af_unix::THINK_NS),
        ..Workload::steady(
            "af-unix",
            "lmbench UNIX: pairs passing 64 KiB through a socket in order-2 and order-3 blocks",
            "64 KiB message",
            af_unix::make,
        )
    },
    Workload {
        tasks: PAIRS,
        ..Workload::steady(
            "netio",
            "fio netio of 2008: blocks of 4 KiB over TCP, sender and receiver free or in step",
            "block",
            netio::make,
        )
    },
    Workload {
        sizes: Some((16, 4096)),
        ..Workload::steady(
            "larson",
            "server threads that replace random blocks and hand their blocks on",
            "block replaced",
            larson::make,
        )
    },
    Workload {
        sizes: Some((16, 8192)),
        ..Workload::steady(
            "random-mix",
            "random sizes and lifetimes, a tenth of the frees on another CPU",
            "block replaced",
            random_mix::make,
        )
    },
    Workload {
        tasks: PAIRS,
        ..Workload::steady(
            "replay-mmap1",
            "recorded on a 2-CPU kernel 6.18: will-it-scale mmap1",
            "recorded event",
            replay::mmap1,
        )
    },
    Workload {
        tasks: PAIRS,
        ..Workload::steady(
            "replay-hackbench-socket",
            "recorded on a 2-CPU kernel 6.18: hackbench over sockets",
            "recorded event",
            replay::hackbench_socket,
        )
    },
    Workload {
        tasks: PAIRS,
        ..Workload::steady(
            "replay-hackbench-pipe",
            "recorded on a 2-CPU kernel 6.18: hackbench over pipes",
            "recorded event",
            replay::hackbench_pipe,
        )
    },
    Workload {
        tasks: PAIRS,
        ..Workload::steady(
            "replay-fio-net",
            "recorded on a 2-CPU kernel 6.18: fio over loopback TCP",
            "recorded event",
            replay::fio_net,
        )
    },
];

/// A recorded program ([`tape`]): not in the list, because it needs a file.
static TRACE: Workload = Workload {
    kind: Kind::Finite,
    ..Workload::steady(
        "trace",
        "a recorded program, or a kernel's events: flagstone sim replay",
        "recorded event",
        tape::make,
    )
};

impl Workload {
    /// One that runs until it is told to stop, with any number of tasks on CPUs far apart and sizes of its own.
    const fn steady(
        name: &'static str,
        about: &'static str,
        unit: &'static str,
        make: for<'a> fn(&'a Env<'a>) -> Vec<(u32, Program<'a>)>,
    ) -> Self {
        Self {
            name,
            about,
            unit,
            kind: Kind::Steady,
            tasks: ANY,
            placement: Placement::Spread,
            processes: false,
            fitted_think_ns: None,
            think_least_ns: 0.0,
            sizes: None,
            make,
        }
    }

    /// The workload that plays a tape.
    #[must_use]
    pub fn played() -> &'static Self {
        &TRACE
    }

    /// The workload called `name`.
    ///
    /// # Errors
    /// One line with the known names.
    pub fn named(name: &str) -> Result<&'static Self, String> {
        WORKLOADS
            .iter()
            .find(|known| known.name == name)
            .ok_or_else(|| {
                let known: Vec<_> = WORKLOADS.iter().map(|workload| workload.name).collect();
                format!("unknown workload `{name}`; known: {}", known.join(", "))
            })
    }

    /// Whether objects of `size` bytes can be asked for.
    ///
    /// # Errors
    /// One line that says what can.
    pub fn check_size(&self, size: usize) -> Result<(), String> {
        match self.sizes {
            Some((least, most)) if (least..=most).contains(&size) => Ok(()),
            Some((least, most)) => Err(format!(
                "{} takes sizes from {least} to {most} bytes, not {size}",
                self.name
            )),
            None => Err(format!(
                "{} has sizes of its own: leave --size out",
                self.name
            )),
        }
    }

    /// Whether `tasks` tasks are possible on `cpus` CPUs.
    ///
    /// # Errors
    /// One line that says what is possible.
    pub fn check_tasks(&self, tasks: u32, cpus: u32, machine: &str) -> Result<(), String> {
        let Tasks { least, step } = self.tasks;
        if tasks > cpus {
            return Err(format!(
                "{tasks} tasks do not fit machine `{machine}`, which has {cpus} CPUs (one task each)"
            ));
        }
        if tasks < least || !tasks.is_multiple_of(step) {
            let multiple = if step > 1 {
                format!(", in multiples of {step}")
            } else {
                String::new()
            };
            return Err(format!(
                "{} needs {least} tasks or more{multiple}, not {tasks}",
                self.name
            ));
        }
        Ok(())
    }
}
