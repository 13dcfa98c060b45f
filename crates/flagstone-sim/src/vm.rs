//! The virtual machine: CPUs, memory, lines, locks and chance of one run.
//!
//! ```text
//!             core ─► Virtual (world.rs) ─► Vm ─┬─ clock.rs     time: spend, sync, block, park
//!                                               ├─ access.rs    what accesses cost
//!                                               ├─ schedule.rs  who runs, observers; fiber.rs: stacks
//!                                               ├─ lines.rs     where cache lines are
//!                                               ├─ locking.rs   locks in virtual time
//!                                               ├─ arena.rs     memory, budget
//!                                               └─ rcu.rs cache.rs tally.rs chance.rs interrupt.rs
//! ```
//!
//! One operating-system thread runs one machine; several threads run several at once. The core
//! reaches its machine through a thread-local, which [`Vm::boot`] and [`Vm::run`] set. Shared
//! state is in cells: no borrow is ever held while another virtual CPU may run.

use crate::arena::Arena;
use crate::cache::DataCache;
use crate::chance::{Chance, Digest};
use crate::costs::{Costs, MS, Ps, Stretch};
use crate::fiber::Place;
use crate::lines::Directory;
use crate::machine::Machine;
use crate::options::{Failure, Gear, Options};
use crate::predictor::Predictor;
use crate::rcu::Rcu;
use crate::ready::Ready;
use crate::schedule::{Next, Programs};
use crate::tally::{Tally, Totals};
use crate::thread::Thread;
use crate::topology::Topology;
use crate::waiters::Waiters;
use core::any::Any;
use core::cell::{Cell, RefCell};

/// A virtual machine.
#[derive(Debug)]
pub struct Vm {
    /// The profile.
    pub machine: Machine,
    /// Who sits where.
    pub topology: Topology,
    /// What things cost.
    pub costs: Costs,
    /// How this run was started.
    pub options: Options,
    /// Everything random.
    pub chance: Chance,
    pub(crate) digest: Digest,
    /// The running thread, its CPU, its clock, and the time of the next event of anybody else.
    pub(crate) current: Cell<u32>,
    pub(crate) cpu: Cell<u32>,
    pub(crate) now: Cell<Ps>,
    pub(crate) horizon: Cell<Ps>,
    /// What private work on the running CPU takes beside its siblings' (costs.rs).
    pub(crate) stretch: Cell<Stretch>,
    /// The slot the running thread used last, and the entry of its sheaf.
    pub(crate) used: Cell<[usize; 2]>,
    pub(crate) observe_at: Cell<Ps>,
    pub(crate) in_task: Cell<bool>,
    /// A program runs in the timed gear: things cost time. Not while booting or observing.
    pub(crate) timed: Cell<bool>,
    pub(crate) stopping: Cell<bool>,
    /// Tasks that still set up what they start on.
    preparing: Cell<u32>,
    /// Time between two steps of upkeep on each CPU.
    pub(crate) upkeep_every: Cell<Ps>,
    pub(crate) threads: Vec<Thread>,
    /// What each CPU has learned of the core's branches; nobody's, where mispredicted ones are free.
    pub(crate) predictors: Vec<Predictor>,
    /// Where the scheduler's own stack was left, and why it is gone on with.
    pub(crate) scheduler: Cell<Place>,
    pub(crate) left_for: Cell<Next>,
    /// What each thread is to begin with, while a run lasts.
    pub(crate) programs: Cell<*const Programs<'static>>,
    /// With what a program panicked.
    pub(crate) panicked: RefCell<Option<Box<dyn Any + Send>>>,
    /// How often a gate was written, and how often it had been when each CPU last read it.
    pub(crate) gate_writes: Cell<u32>,
    pub(crate) gate_seen: Vec<Cell<u32>>,
    /// Running threads of each core.
    pub(crate) core_running: Vec<Cell<u8>>,
    pub(crate) ready: RefCell<Ready>,
    pub(crate) lines: RefCell<Directory>,
    pub(crate) waiters: RefCell<Waiters>,
    /// Those who wait for locks that only their own CPU takes in the ordinary course of things.
    pub(crate) private_waiters: Cell<u32>,
    pub(crate) rcu: RefCell<Rcu>,
    pub(crate) data: RefCell<DataCache>,
    pub(crate) failure: RefCell<Option<Failure>>,
    // Last: the directory and everything above refer to its addresses.
    pub(crate) arena: RefCell<Arena>,
}

thread_local! {
    static CURRENT: Cell<*const Vm> = const { Cell::new(core::ptr::null()) };
}

/// The machine this operating-system thread is running.
///
/// # Panics
/// Outside [`Vm::boot`] and [`Vm::run`].
#[inline]
pub(crate) fn current<'a>() -> &'a Vm {
    let vm = CURRENT.get();
    assert!(!vm.is_null(), "no virtual machine runs on this thread");
    // SAFETY: set by `Entered`, which borrows the machine for as long as it is set.
    unsafe { &*vm }
}

/// While it lives, the machine is the current one of this operating-system thread.
struct Entered {
    before: *const Vm,
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.before);
    }
}

/// Address space for a memory of `budget` bytes: the data, a descriptor for each page, and some waste of
/// alignment.
const fn space_for(budget: usize) -> usize {
    budget + budget / 16 + (1 << 30)
}

/// That, and the tables of its lines.
const fn reserved_for(space: usize) -> usize {
    space + space / 16
}

impl Vm {
    /// A machine of `machine`'s kind, switched on and with empty memory.
    ///
    /// # Panics
    /// As [`Vm::try_new`] refuses.
    #[must_use]
    pub fn new(machine: Machine, options: Options) -> Self {
        match Self::try_new(machine, options) {
            Ok(vm) => vm,
            Err(line) => panic!("{line}"),
        }
    }

    /// Bytes of the host's address space that a run on `machine` reserves while it lasts. Little of it
    /// is used.
    #[must_use]
    pub fn address_bytes(machine: &Machine) -> usize {
        reserved_for(space_for(machine.topology.memory_gib << 30))
    }

    /// As [`Vm::new`].
    ///
    /// # Errors
    /// One line, when the host grants no address space for the machine's memory.
    pub fn try_new(machine: Machine, options: Options) -> Result<Self, String> {
        let topology = Topology::new(&machine);
        let costs = Costs::new(&machine);
        let cpus = topology.cpus();
        let count = if options.threads == 0 {
            cpus
        } else {
            options.threads
        };
        let budget = if options.budget_bytes == 0 {
            machine.topology.memory_gib << 30
        } else {
            options.budget_bytes
        };
        let space = if options.arena_bytes == 0 {
            space_for(budget)
        } else {
            options.arena_bytes
        };
        let refused = || {
            let gib = reserved_for(space).div_ceil(1 << 30);
            format!(
                "the system grants no {gib} GiB of address space, which the simulated memory takes \
                 (little of it is used): raise `ulimit -v`, or choose a machine with less memory"
            )
        };
        let arena = Arena::new(space, budget, machine.topology.page_size).ok_or_else(refused)?;
        let lines = Directory::new(arena.base(), arena.bytes(), &topology);
        let mut lines = lines.ok_or_else(refused)?;
        let data = DataCache::new(
            topology.clusters(),
            machine.cache.llc_kib << 10,
            (arena.base(), arena.bytes(), machine.topology.page_size),
        );
        let data = data.ok_or_else(refused)?;
        if options.mostly_pages {
            lines = lines.sparse();
        }
        let grace = (machine.rcu.grace_ms * MS as f64) as Ps;
        let threads = (0..count).map(|index| Thread::new(index % cpus));
        let learning = if costs.mispredict == 0 { 0 } else { cpus };
        Ok(Self {
            predictors: (0..learning).map(|_| Predictor::new()).collect(),
            chance: Chance::new(options.seed).fork(0),
            digest: Digest::default(),
            current: Cell::new(0),
            cpu: Cell::new(0),
            now: Cell::new(0),
            horizon: Cell::new(Ps::MAX),
            stretch: Cell::new(Stretch::NONE),
            used: Cell::new([0; 2]),
            observe_at: Cell::new(Ps::MAX),
            in_task: Cell::new(false),
            timed: Cell::new(false),
            stopping: Cell::new(false),
            preparing: Cell::new(0),
            upkeep_every: Cell::new(1000 * MS),
            threads: threads.collect(),
            scheduler: Cell::new(0),
            left_for: Cell::new(Next::Nobody),
            programs: Cell::new(core::ptr::null()),
            panicked: RefCell::new(None),
            gate_writes: Cell::new(1),
            gate_seen: vec![Cell::new(0); cpus as usize],
            core_running: vec![Cell::new(0); topology.cores() as usize],
            ready: RefCell::new(match options.gear {
                Gear::Timed => Ready::new(count),
                Gear::Interleaved => Ready::new(count).in_any_order(),
            }),
            lines: RefCell::new(lines),
            waiters: RefCell::default(),
            private_waiters: Cell::new(0),
            rcu: RefCell::new(Rcu::new(cpus, grace)),
            data: RefCell::new(data),
            failure: RefCell::new(None),
            arena: RefCell::new(arena),
            machine,
            topology,
            costs,
            options,
        })
    }

    /// Runs `body` as the machine's CPU 0 before time starts: for building what is simulated.
    pub fn boot<T>(&self, body: impl FnOnce() -> T) -> T {
        let _entered = self.enter();
        self.current.set(0);
        self.cpu.set(self.threads[0].cpu.get());
        self.now.set(self.threads[0].clock.get());
        self.horizon.set(Ps::MAX);
        body()
    }

    /// Runs `look` for an observer: as [`Vm::boot`], but without touching the clock.
    pub(crate) fn boot_look<T>(&self, look: impl FnOnce() -> T) -> T {
        let _entered = self.enter();
        look()
    }

    /// Runs `look` from inside a program as if nobody ran: no time, no scheduling point, locks that
    /// somebody holds refuse.
    pub(crate) fn quietly<T>(&self, look: impl FnOnce() -> T) -> T {
        let (task, timed) = (self.in_task.replace(false), self.timed.replace(false));
        let out = look();
        self.in_task.set(task);
        self.timed.set(timed);
        out
    }

    pub(crate) fn enter(&self) -> impl Drop + use<> {
        let before = CURRENT.replace(self);
        Entered { before }
    }

    /// Virtual time of the running CPU in picoseconds.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Ps {
        self.now.get()
    }

    /// Sets the time between two steps of upkeep on each CPU (a second, the kernel's statistics
    /// interval): for programs that do in less time what the real ones do in more.
    pub fn set_upkeep_every(&self, ps: Ps) {
        self.upkeep_every.set(ps);
    }

    /// From now on `tasks` tasks prepare themselves: what they do until each has called
    /// [`Vm::prepared`] is no part of a steady workload's figures.
    pub fn will_prepare(&self, tasks: u32) {
        self.preparing.set(tasks);
    }

    /// One task has prepared itself.
    pub fn prepared(&self) {
        self.preparing.set(self.preparing.get().saturating_sub(1));
    }

    /// Whether some task still prepares itself.
    #[must_use]
    pub(crate) fn preparing(&self) -> bool {
        self.preparing.get() != 0
    }

    /// The running thread of execution (in the timed gear: its CPU).
    #[inline]
    #[must_use]
    pub fn current(&self) -> u32 {
        self.current.get()
    }

    /// The counters of the running CPU.
    #[inline]
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.threads[self.current.get() as usize].tally
    }

    /// The counters of all CPUs together.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        self.threads
            .iter()
            .for_each(|thread| totals.add(&thread.tally));
        (totals.data_uses, totals.data_misses) = self.data.borrow().counts();
        totals
    }

    /// The hash over everything that happened so far.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.digest.value()
    }

    /// Bytes of simulated memory in use: now, and at most.
    #[must_use]
    pub fn memory(&self) -> (usize, usize) {
        let arena = self.arena.borrow();
        (arena.resident_bytes(), arena.peak_bytes())
    }

    /// Whether the run is to end: programs return at their next opportunity.
    #[inline]
    #[must_use]
    pub fn stopping(&self) -> bool {
        self.stopping.get()
    }

    /// Records what is wrong and ends the run; the failing thread never runs again.
    ///
    /// # Panics
    /// Outside a running program (while booting), with the line.
    pub fn fail(&self, what: impl Into<String>) -> ! {
        let failure = Failure {
            what: what.into(),
            seed: self.options.seed,
            at_ns: self.now.get() / 1000,
            thread: self.current.get(),
        };
        if !self.in_task.get() {
            panic!("{failure}");
        }
        self.failure.borrow_mut().get_or_insert(failure);
        loop {
            self.leave_for(Next::Failed);
        }
    }
}
