//! The second gear: random programs on the real core, interleaved at every shared access.
//!
//! ```text
//!   seed ─► policy, CPUs, threads, caches, faults, programs     all drawn from the seed
//!       ─► faults phase     threads switch, migrate, restart; memory is refused; signal handlers
//!                           allocate and free on top of anything, under any lock
//!       ─► settle phase     everything freed, caches shrunk and destroyed, pages given back
//! ```
//!
//! Checked throughout
//! - `object.one-owner`: no two live objects overlap, and none leaves its alignment.
//! - `object.contents`: what a program wrote is there when it frees.
//! - `memory.usable`: the core touches no memory it released (world.rs).
//! - `lock.ascending`, `lock.named`: locks are taken in order, given back by their holder
//!   (locking.rs); nobody waits for ever.
//! - the page and slab layers' own invariants (`flagstone_core::verify`), whenever no thread is
//!   inside the allocator, and while settling.
//! - `settle.whole`: after all objects are freed every cache can be destroyed, and the page layer
//!   holds no more than before.
//!
//! A failure says its seed; [`check`] with that seed shows it again, step by step the same.

use crate::chance::Chance;
use crate::machine::Machine;
use crate::options::{Failure, Faults, Gear, Options, Plant};
use crate::scenario::NamedPolicy;
use crate::schedule::Program;
use crate::subject::Subject;
use crate::vm::Vm;
use core::cell::{Cell, RefCell};
use core::ptr::NonNull;
use flagstone_core::base::{CacheId, Order, Pfn};
use flagstone_core::platform::LockKind;
use flagstone_core::slab::CacheRequest;
use flagstone_core::verify;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Policies drawn from by seed: every engine with every form its code asks about (frozen or not,
/// limits in slabs or objects, the remedies), twice the default one.
pub const POLICIES: [&str; 14] = [
    "flagstone",
    "flagstone",
    "linux-7.0",
    "linux-6.18",
    "linux-6.12",
    "linux-6.12+defer-contended-free",
    "linux-6.12+avoid-contended-slab",
    "linux-6.7",
    "linux-6.6+pcp9",
    "linux-3.16",
    "linux-2.6.26+dynamic-min-partial",
    "linux-2.6.24",
    "linux-2.6.24+defer-contended-free+avoid-contended-slab",
    "slab-2.6.24",
];

/// Policies under which signal handlers come: those whose caches are all of sheaves.
pub const SIGNALLED: [&str; 2] = ["flagstone", "linux-7.0"];

/// Operations of one thread.
const STEPS: u32 = 150;
/// Objects a thread holds at most.
const HELD: usize = 24;
/// Address space and memory of the little machine: a few of the largest blocks.
const ARENA: usize = 96 << 20;
const BUDGET: usize = 24 << 20;

/// What one seed did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The policy it drew.
    pub policy: String,
    /// CPUs and threads.
    pub cpus: u32,
    /// Threads of execution.
    pub threads: u32,
    /// Operations done.
    pub operations: u64,
    /// Requests for memory that were refused and survived.
    pub refused: u64,
    /// Times both layers were verified.
    pub verified: u64,
    /// Signal handlers that ran, and those among them on top of a lock's holder.
    pub handlers: u64,
    /// See `handlers`.
    pub handlers_on_top: u64,
    /// Hash over the schedule and all accesses.
    pub digest: u64,
}

struct Live {
    size: usize,
    stamp: u64,
}

/// What the programs of one seed share.
struct World<'a> {
    subject: &'a Subject,
    caches: Vec<(CacheId, usize, usize)>,
    live: RefCell<BTreeMap<usize, Live>>,
    /// Objects on their way to another thread.
    passed: RefCell<Vec<Held>>,
    inside: Cell<u32>,
    operations: Cell<u64>,
    refused: Cell<u64>,
    verified: Cell<u64>,
    handlers: Cell<u64>,
    handlers_on_top: Cell<u64>,
}

#[derive(Clone, Copy)]
enum Held {
    Object { cache: usize, at: NonNull<u8> },
    Pages { pfn: Pfn, order: Order },
}

/// Runs one seed, perhaps with a bug to see found.
///
/// # Errors
/// What broke, with the seed.
pub fn check(seed: u64, plant: Plant) -> Result<Summary, Failure> {
    run(seed, plant, Chance::new(seed).fork(78).below(3) * 100)
}

/// Runs one seed without signal handlers.
///
/// # Errors
/// What broke, with the seed.
pub fn check_without_handlers(seed: u64) -> Result<Summary, Failure> {
    run(seed, Plant::Nothing, 0)
}

fn run(seed: u64, plant: Plant, handler: u32) -> Result<Summary, Failure> {
    let draw = Chance::new(seed).fork(77);
    let machine = Machine::named("x86-16").and_then(|m| m.scaled(2 + 2 * draw.below(2)));
    let machine = machine.expect("a built-in profile");
    let policy = POLICIES[draw.below(POLICIES.len() as u32) as usize];
    let mut policy = NamedPolicy::parse(policy).expect("a built-in policy");
    // The kernels' own engines run with interrupts off, and no program's signals come there.
    let handler = match SIGNALLED.contains(&policy.name.as_str()) {
        true => handler,
        false => 0,
    };
    if handler > 0 && draw.fork(79).happens(1, 2) {
        // Every call reaches a slab.
        policy.policy.sheaf_capacity_set = Some(0);
        policy.name += " without sheaves";
    }
    let cpus = machine.cpus();
    let threads = 2 + draw.below(4);
    let options = Options {
        seed,
        gear: Gear::Interleaved,
        faults: Faults {
            restart: draw.below(300),
            refuse: draw.below(2) * draw.below(1024),
            switch: 50 + draw.below(600),
            migrate: draw.below(120),
            handler,
            plant,
        },
        arena_bytes: ARENA,
        budget_bytes: BUDGET,
        threads,
        mostly_pages: false,
        program_is_measured: false,
    };
    let vm = Vm::new(machine, options);
    let subject = vm.boot(|| Subject::new(&vm, &policy.policy).expect("memory to begin with"));
    let caches = vm.boot(|| caches(&subject, &draw));
    let before = vm.boot(|| subject.in_use_bytes());
    let world = World {
        subject: &subject,
        caches,
        live: RefCell::default(),
        passed: RefCell::default(),
        inside: Cell::new(0),
        operations: Cell::new(0),
        refused: Cell::new(0),
        verified: Cell::new(0),
        handlers: Cell::new(0),
        handlers_on_top: Cell::new(0),
    };
    let programs = (0..threads).map(|thread| {
        let chance = draw.fork(u64::from(thread));
        let world = &world;
        let program: Program<'_> = Box::new(move |vm: &Vm| world.interrupted(vm, &chance));
        (thread, program)
    });
    let programs = programs.collect();
    let named = |mut failure: Failure| {
        failure.what = format!("{}: {}", policy.name, failure.what);
        failure
    };
    guarded(&vm, || vm.run(programs, u64::MAX, |_| None)).map_err(named)?;
    // As a program of its own, so that what the core finds wrong then is a failure as well.
    let verdict = RefCell::new(Ok(()));
    let settling: Program<'_> = Box::new(|vm: &Vm| {
        verdict.replace(settle(vm, &world, before)).ok();
    });
    guarded(&vm, || vm.run(vec![(0, settling)], u64::MAX, |_| None)).map_err(named)?;
    verdict.into_inner().map_err(named)?;
    Ok(Summary {
        policy: policy.name,
        cpus,
        threads,
        operations: world.operations.get(),
        refused: world.refused.get(),
        verified: world.verified.get(),
        handlers: world.handlers.get(),
        handlers_on_top: world.handlers_on_top.get(),
        digest: vm.digest(),
    })
}

/// Runs `body`; where an assertion of the core breaks, that is a failure with a seed like any other.
fn guarded(vm: &Vm, body: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().map(String::as_str);
        let said = said.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(Failure {
            what: format!("panicked: {}", said.unwrap_or("without a word")),
            seed: vm.options.seed,
            at_ns: vm.now() / 1000,
            thread: vm.current(),
        })
    })
}

fn caches(subject: &Subject, draw: &Chance) -> Vec<(CacheId, usize, usize)> {
    let count = 1 + draw.below(3);
    let made = (0..count).map(|index| {
        let size = 8 << draw.below(13);
        let size = (size + draw.below(size)) as usize;
        let name = format!("cache-{index}");
        let mut request = CacheRequest::new(&name, size);
        request.align = if draw.happens(1, 2) {
            0
        } else {
            8 << draw.below(4)
        };
        request.sheaf_capacity = draw.below(2) * draw.below(32);
        let id = subject
            .slabs()
            .create_cache(&request)
            .expect("a small cache");
        (id, size, request.align.max(8))
    });
    made.collect()
}

impl World<'_> {
    /// A thread's program, with signals that come at any time.
    fn interrupted(&self, vm: &Vm, chance: &Chance) {
        let held = RefCell::new(Vec::new());
        let signals = chance.fork(1);
        let handler = |vm: &Vm| self.handler(vm, &signals, &held);
        vm.interruptible(&handler, || self.program(vm, chance));
        held.into_inner()
            .into_iter()
            .for_each(|held| self.give(vm, held));
    }

    /// What a signal handler does: a few calls, with what it got before or was passed.
    fn handler(&self, vm: &Vm, chance: &Chance, held: &RefCell<Vec<Held>>) {
        self.handlers.set(self.handlers.get() + 1);
        let on_top = u64::from(vm.is_on_top_from(LockKind::Heap));
        self.handlers_on_top
            .set(self.handlers_on_top.get() + on_top);
        for _ in 0..=chance.below(3) {
            let received = chance
                .happens(1, 2)
                .then(|| self.passed.borrow_mut().pop())
                .flatten();
            let count = held.borrow().len();
            if let Some(received) = received {
                self.give(vm, received);
            } else if count < HELD && chance.happens(1, 2) || count == 0 {
                let got = self.take(vm, chance);
                held.borrow_mut().extend(got);
            } else {
                let given = held
                    .borrow_mut()
                    .swap_remove(chance.below(count as u32) as usize);
                self.give(vm, given);
            }
        }
    }

    fn program(&self, vm: &Vm, chance: &Chance) {
        let mut held: Vec<Held> = Vec::new();
        for _ in 0..STEPS {
            let wanted = chance.below(100);
            if wanted < 8 && !held.is_empty() {
                let given = held.swap_remove(chance.below(held.len() as u32) as usize);
                self.passed.borrow_mut().push(given);
            } else if wanted < 16 {
                let received = self.passed.borrow_mut().pop();
                held.extend(received);
            } else if wanted < 18 {
                self.upkeep(chance);
            } else if held.len() < HELD && wanted < 65 || held.is_empty() {
                held.extend(self.take(vm, chance));
            } else {
                let last = held.len() - 1;
                // Half of the time the newest, as programs do.
                let at = if chance.happens(1, 2) {
                    last
                } else {
                    chance.below(last as u32 + 1) as usize
                };
                self.give(vm, held.swap_remove(at));
            }
            self.operations.set(self.operations.get() + 1);
            if self.inside.get() == 0 && chance.happens(1, 16) {
                self.verify(vm);
            }
        }
        for object in held {
            self.give(vm, object);
        }
    }

    /// What another thread may do at any time: shrink a cache, give memory back, let time pass.
    fn upkeep(&self, chance: &Chance) {
        let slabs = self.subject.slabs();
        self.inside(|| match chance.below(3) {
            0 => {
                let (id, ..) = self.caches[chance.below(self.caches.len() as u32) as usize];
                slabs.shrink_cache(slabs.cache(id));
            }
            1 => {
                slabs.pages().trim((chance.below(4) as usize) << 20);
            }
            _ => {
                slabs.pages().tick();
            }
        });
    }

    fn inside<T>(&self, body: impl FnOnce() -> T) -> T {
        self.inside.set(self.inside.get() + 1);
        let out = body();
        self.inside.set(self.inside.get() - 1);
        out
    }

    fn take(&self, vm: &Vm, chance: &Chance) -> Option<Held> {
        let held = if chance.happens(1, 10) {
            // Mostly what pagesets keep, at times up to the largest.
            let most = if chance.happens(1, 4) { 11 } else { 4 };
            let order = Order::new(chance.below(most))?;
            let pfn = self.inside(|| self.subject.try_alloc_pages(vm, order));
            let pfn = self.or_refused(pfn)?;
            Held::Pages { pfn, order }
        } else {
            let cache = chance.below(self.caches.len() as u32) as usize;
            let at = self.inside(|| self.subject.try_alloc(vm, self.caches[cache].0));
            let at = self.or_refused(at)?;
            Held::Object { cache, at }
        };
        let (start, size, align) = self.extent(held);
        if start % align != 0 {
            vm.fail(format!(
                "object.one-owner: {start:#x} is not aligned to {align}"
            ));
        }
        self.claim(vm, start, size, chance.next());
        Some(held)
    }

    fn or_refused<T>(&self, got: Option<T>) -> Option<T> {
        if got.is_none() {
            self.refused.set(self.refused.get() + 1);
        }
        got
    }

    fn extent(&self, held: Held) -> (usize, usize, usize) {
        match held {
            Held::Object { cache, at } => {
                let (_, size, align) = self.caches[cache];
                (at.as_ptr() as usize, size, align)
            }
            Held::Pages { pfn, order } => {
                let page = self.subject.page_bytes();
                let size = page << order.get();
                (self.subject.page_address(pfn) as usize, size, size)
            }
        }
    }

    /// Notes a new live object and writes a stamp at both its ends.
    fn claim(&self, vm: &Vm, start: usize, size: usize, stamp: u64) {
        let mut live = self.live.borrow_mut();
        let below = live.range(..start + size).next_back();
        if let Some((other, object)) = below.filter(|(at, object)| *at + object.size > start) {
            let (other, bytes) = (other - start.min(*other), object.size);
            drop(live);
            vm.fail(format!(
                "object.one-owner: {size} bytes handed out overlap a live object of {bytes} bytes \
                 ({other} bytes on)"
            ));
        }
        live.insert(start, Live { size, stamp });
        drop(live);
        for end in ends(start, size) {
            // SAFETY: the object is `size` bytes, at least eight, handed out to us just now.
            unsafe { end.write_unaligned(stamp) };
        }
    }

    fn give(&self, vm: &Vm, held: Held) {
        let (start, size, _) = self.extent(held);
        let Some(Live { stamp, .. }) = self.live.borrow_mut().remove(&start) else {
            vm.fail("the checker lost an object");
        };
        for end in ends(start, size) {
            // SAFETY: the object is still ours; `claim` wrote both ends.
            if unsafe { end.read_unaligned() } != stamp {
                vm.fail(format!(
                    "object.contents: a live object of {size} bytes was overwritten"
                ));
            }
        }
        self.inside(|| match held {
            // SAFETY: taken from this cache and owned by this thread alone.
            Held::Object { cache, at } => unsafe {
                self.subject.free(vm, self.caches[cache].0, at)
            },
            // SAFETY: taken with this order and owned by this thread alone.
            Held::Pages { pfn, order } => unsafe { self.subject.free_pages(vm, pfn, order) },
        });
    }

    fn verify(&self, vm: &Vm) {
        self.verified.set(self.verified.get() + 1);
        if let Err(broken) = vm.quietly(|| self.broken()) {
            vm.fail(broken);
        }
    }

    /// The invariants of both layers, at rest.
    fn broken(&self) -> Result<(), String> {
        let slabs = self.subject.slabs();
        verify::check_pages(slabs.pages())
            .map_err(|broken| format!("{}, at {:?}", broken.rule, broken.pfn))?;
        verify::check_slabs(slabs).map_err(|broken| broken.to_string())
    }
}

/// Where the first and the last eight bytes are; the first twice if they would overlap.
fn ends(start: usize, size: usize) -> [*mut u64; 2] {
    let last = if size < 16 { start } else { start + size - 8 };
    [start as *mut u64, last as *mut u64]
}

/// Without faults: everything goes back, and the machine must be as it was.
fn settle(vm: &Vm, world: &World<'_>, before: usize) -> Result<(), Failure> {
    let rest = world.passed.take();
    rest.into_iter().for_each(|held| world.give(vm, held));
    let complain = |what: String| Failure {
        what,
        seed: vm.options.seed,
        at_ns: vm.now() / 1000,
        thread: 0,
    };
    let slabs = world.subject.slabs();
    vm.quietly(|| world.broken()).map_err(complain)?;
    for (id, size, _) in &world.caches {
        if let Err(error) = slabs.destroy_cache(*id) {
            return Err(complain(format!(
                "settle.whole: a cache of {size} B without live objects cannot be destroyed: {error:?}"
            )));
        }
    }
    vm.quietly(|| world.broken()).map_err(complain)?;
    for cache in slabs.live_caches() {
        slabs.shrink_cache(cache);
    }
    slabs.pages().trim(0);
    let after = vm.quietly(|| world.subject.in_use_bytes());
    if after > before {
        return Err(complain(format!(
            "settle.whole: {} bytes more in use than before anything was allocated",
            after - before
        )));
    }
    vm.quietly(|| world.broken()).map_err(complain)
}
