//! Small loops through the core, run here and on the virtual machine.
//!
//! On one virtual CPU, time is linear in the profile's figures: with all of them zero but one, a
//! loop shows how often it pays that one. So each loop gives one equation
//!
//! ```text
//!   measured ns of a turn  =  Σ  times paid · price
//! ```
//!
//! and solve.rs finds the prices. Where a turn is long, its takings and its givings are timed apart,
//! and each half gives an equation: the sum alone does not say which of the two is dear.

use crate::costs::NS;
use crate::machine::Machine;
use crate::options::Options;
use crate::scenario::NamedPolicy;
use crate::schedule::Program;
use crate::subject::Subject;
use crate::topology::Placement;
use crate::vm::Vm;
use crate::workload::stage::{Common, Stage, Virtually};
use crate::workload::{Env, Params};
use crate::world::Virtual;
use core::cell::{Cell, RefCell};
use flagstone_core::base::{CacheId, Order};
use flagstone_core::platform::{Access, Line, LockKind, Platform, RawLock};

/// A loop.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Objects of `size` bytes: `count` taken, then given back, the newest first.
    Stack {
        /// Bytes of an object.
        size: usize,
        /// Objects in a burst.
        count: usize,
    },
    /// The same, in an order that jumps about.
    Scattered {
        /// Bytes of an object.
        size: usize,
        /// Objects in a burst; not a multiple of 7.
        count: usize,
    },
    /// Blocks of pages of `order`: `count` taken, then given back.
    Pages {
        /// Their order.
        order: u32,
        /// Blocks in a burst.
        count: usize,
    },
}

impl core::fmt::Display for Step {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match *self {
            Self::Stack { size, count } => write!(out, "{count} objects of {size} B"),
            Self::Scattered { size, count } => {
                write!(out, "{count} objects of {size} B freed here and there")
            }
            Self::Pages { order, count } => write!(out, "{count} blocks of order {order}"),
        }
    }
}

/// A loop under a policy.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The policy's name.
    pub policy: &'static str,
    /// The loop.
    pub step: Step,
}

/// The loops: fast paths, refills, fresh slabs and pages of both engines.
pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for policy in super::validate::POLICIES {
        let bursts = [
            (64, 1),
            (64, 20),
            (64, 1500),
            (512, 600),
            (2048, 400),
            // More than a barn of one CPU takes: objects go back to their slabs.
            (64, 12_000),
            (256, 6_000),
        ];
        for (size, count) in bursts {
            rows.push(Row {
                policy,
                step: Step::Stack { size, count },
            });
        }
        for (size, count) in [(64, 500), (128, 1500), (192, 9_000), (1024, 300)] {
            rows.push(Row {
                policy,
                step: Step::Scattered { size, count },
            });
        }
        for (order, count) in [(0, 1), (0, 2000), (2, 200)] {
            rows.push(Row {
                policy,
                step: Step::Pages { order, count },
            });
        }
    }
    rows
}

/// Turns of a loop that are not measured: they bring memory and sheaves up.
pub(super) const WARM: usize = 4;

/// Objects of a turn from which on its halves are timed apart: two looks at the clock, 50 ns, are
/// then less than a hundredth of either.
const APART: usize = 500;

/// One turn of `step`; `half` is called when everything is taken.
pub(super) fn turn<S: Stage>(
    stage: &S,
    cache: CacheId,
    step: Step,
    held: &mut Vec<core::ptr::NonNull<u8>>,
    half: impl FnOnce(),
) {
    match step {
        Step::Stack { count, .. } | Step::Scattered { count, .. } => {
            for _ in 0..count {
                held.push(stage.alloc(cache));
            }
            half();
            let stride = if matches!(step, Step::Stack { .. }) {
                1
            } else {
                7
            };
            let mut at = count - 1;
            for _ in 0..count {
                // SAFETY: taken above; the stride and the count have no common divisor, so each
                // object is met once.
                unsafe { stage.free(cache, held[at]) };
                at = (at + count - stride % count) % count;
            }
            held.clear();
        }
        Step::Pages { order, count } => {
            let order = Order::new(order).expect("a small order");
            let blocks: Vec<_> = (0..count).map(|_| stage.alloc_pages(order)).collect();
            half();
            for block in blocks.into_iter().rev() {
                // SAFETY: taken above with this order.
                unsafe { stage.free_pages(block, order) };
            }
        }
    }
}

impl Step {
    /// Bytes of its objects; 64 where it has none.
    pub(super) fn size(self) -> usize {
        match self {
            Self::Stack { size, .. } | Self::Scattered { size, .. } => size,
            Self::Pages { .. } => 64,
        }
    }

    /// Whether its halves are timed apart.
    pub(super) fn is_halved(self) -> bool {
        self.count() >= APART
    }

    /// Objects or blocks of a turn.
    pub(super) fn count(self) -> usize {
        match self {
            Self::Stack { count, .. }
            | Self::Scattered { count, .. }
            | Self::Pages { count, .. } => count,
        }
    }
}

/// Nanoseconds of taking an object, and of giving it back, on one CPU of a virtual machine.
///
/// # Panics
/// If the core fails on the virtual machine.
#[must_use]
pub fn simulated(machine: &Machine, row: Row) -> [f64; 2] {
    let policy = NamedPolicy::parse(row.policy).expect("a built-in policy");
    let vm = Vm::new(machine.clone(), Options::default());
    let subject = vm
        .boot(|| Subject::new(&vm, &policy.policy))
        .expect("memory");
    let cache = vm.boot(|| subject.kmalloc("test", row.step.size()));
    let cpus = vm.topology.place(1, Placement::Compact);
    let (params, details) = (Params::default(), RefCell::default());
    let env = Env {
        vm: &vm,
        subject: &subject,
        cpus: &cpus,
        params: &params,
        details: &details,
    };
    let common = Common::bare();
    let spans = Cell::new([0.0; 2]);
    let turns = (4_000 / row.step.count()).max(4);
    let program: Program<'_> = Box::new(|vm: &Vm| {
        let stage = Virtually {
            vm,
            env: &env,
            common: &common,
            think: 0,
            task: 0,
            whole: None,
        };
        let mut held = Vec::new();
        for _ in 0..WARM {
            turn(&stage, cache, row.step, &mut held, || ());
        }
        for _ in 0..turns {
            let (start, half) = (stage.now_ns(), Cell::new(0.0));
            turn(&stage, cache, row.step, &mut held, || {
                half.set(stage.now_ns());
            });
            let [taking, giving] = spans.get();
            let end = stage.now_ns();
            spans.set([taking + half.get() - start, giving + end - half.get()]);
        }
    });
    vm.run(vec![(cpus[0], program)], u64::MAX, |_| None)
        .expect("a plain loop runs to its end");
    spans.get().map(|ns| ns / (turns * row.step.count()) as f64)
}

/// Nanoseconds of one turn by either of two virtual CPUs that do nothing but `turn`.
fn two_at_once(machine: &Machine, turn: impl Fn(&Vm)) -> f64 {
    const TIMES: u32 = 3_000;
    let vm = Vm::new(machine.clone(), Options::default());
    let cpus = vm.topology.place(2, Placement::Compact);
    let end = Cell::new(0.0);
    let program = |cpu: u32| -> (u32, Program<'_>) {
        let (turn, end) = (&turn, &end);
        let body = move |vm: &Vm| {
            (0..TIMES).for_each(|_| turn(vm));
            if end.get() == 0.0 {
                end.set(vm.now() as f64 / NS as f64);
            }
        };
        (cpu, Box::new(body))
    };
    vm.run(vec![program(cpus[0]), program(cpus[1])], u64::MAX, |_| None)
        .expect("a plain loop runs to its end");
    // Until the first one is done, both are at work.
    end.get() / f64::from(2 * TIMES)
}

/// Nanoseconds of one acquisition by either of two virtual CPUs that want one lock all the time.
#[must_use]
pub fn simulated_hand_off(machine: &Machine) -> f64 {
    let lock = RawLock::new(LockKind::List);
    two_at_once(machine, |_| {
        let taken = Virtual::acquire(&lock).is_ok();
        debug_assert!(taken, "nobody interrupts");
        Virtual::release_lock(&lock);
    })
}

/// Nanoseconds of one atomic step by either of two virtual CPUs on one line, each of which works
/// for `pause_ns` on its own before each.
#[must_use]
pub fn simulated_atomic(machine: &Machine, pause_ns: f64) -> f64 {
    let word = 0u64;
    let address = (&raw const word).cast();
    two_at_once(machine, |vm| {
        vm.spend((pause_ns * NS as f64) as u64);
        Virtual::touch(Line::Node, address, Access::Atomic);
    })
}
