//! What a machine is started with, and how a run says that something was wrong.

use core::fmt;
use flagstone_core::platform::Planted;

/// How virtual CPUs take turns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Gear {
    /// In the order of virtual time, with costs: for speed and policy.
    #[default]
    Timed,
    /// At random at every shared access, with injected faults: for races.
    Interleaved,
}

/// Faults to inject, each as a chance in 1024.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// A slot step is preceded by a restart: another CPU runs, perhaps the caller migrates.
    pub restart: u32,
    /// A request for memory is refused.
    pub refuse: u32,
    /// A scheduling point lets somebody else run (interleaved gear only).
    pub switch: u32,
    /// A scheduling point moves the caller to another CPU (interleaved gear only).
    pub migrate: u32,
    /// A scheduling point lets the thread's signal handler run (interleaved gear only;
    /// interrupt.rs).
    pub handler: u32,
    /// A bug to see found.
    pub plant: Plant,
}

/// Bugs that a run may ask for, to see that checks find them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Plant {
    /// None.
    #[default]
    Nothing,
    /// Slot steps can be interrupted in the middle.
    TornSlots,
    /// A mistake that the core made once.
    Core(Planted),
}

/// What a machine is started with, apart from its profile.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Seed of everything random.
    pub seed: u64,
    /// How CPUs take turns.
    pub gear: Gear,
    /// Faults to inject.
    pub faults: Faults,
    /// Address space of the arena in bytes; zero: what the profile's memory needs.
    pub arena_bytes: usize,
    /// Memory that may be in use at a time in bytes; zero: what the profile says.
    pub budget_bytes: usize,
    /// Threads of execution; zero: one for each CPU. More threads than CPUs only in the
    /// interleaved gear, where threads migrate.
    pub threads: u32,
    /// Nearly all memory is whole pages whose lines nobody looks at one by one: a hint that saves
    /// the host memory.
    pub mostly_pages: bool,
    /// Lines of the program at hand are part of what it takes on its own, and cost nothing more.
    pub program_is_measured: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 1,
            gear: Gear::Timed,
            faults: Faults::default(),
            arena_bytes: 0,
            budget_bytes: 0,
            threads: 0,
            mostly_pages: false,
            program_is_measured: false,
        }
    }
}

/// A run that ended because something was wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// What is wrong, in one line.
    pub what: String,
    /// The seed that shows it.
    pub seed: u64,
    /// When, in nanoseconds of virtual time.
    pub at_ns: u64,
    /// On which thread of execution.
    pub thread: u32,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} (virtual thread {}, {} ns, seed {})",
            self.what, self.thread, self.at_ns, self.seed
        )
    }
}
