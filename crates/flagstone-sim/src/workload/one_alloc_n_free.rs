//! The in-kernel slab test of 2007, case "1 alloc N free".
//!
//! ```text
//!   CPU 0      10000 times: one object for each other CPU, put into its mailbox
//!   CPU 1..N   10000 / CPUs times: take an object from the mailbox, free it
//!   printed    each CPU's time for its loop, divided by 10000
//! ```
//!
//! So with 8 CPUs the producer allocates 70,000 objects while each consumer frees only 1250: a
//! printed 2115 of CPU 0 is 302 cycles for one allocation, a printed 549 of the others is 4392
//! cycles for one free (waiting for objects included), and after the consumers have finished the
//! producer runs alone. Details report the printed figures in cycles. An operation is one object
//! freed by a consumer; objects nobody freed are given back untimed.
//!
//! A mailbox is a list the producer pushes on and its consumer pops from, one atomic step each
//! way, as the test links objects through themselves. `--size` sets the object size (128).
//!
//! A think time is a pause of the producer for each object; below zero, of the consumers. It
//! moves the ratio of their speeds, which decides whether consumers keep up. A kernel that hands
//! requests above its largest class to the page allocator (SLUB from 4096 B on) does so here.
//!
//! Three forms the published test does not have, for comparing worlds: with one task the task takes
//! and frees its own objects after it has made all of them; the test can be repeated, in which
//! case details are the last round's; and where the program's own time was measured, letters are words
//! of their own, eight to a line, which travel as the mailbox's line does and are counted by bundles of
//! [`BUNDLE`], so that a figure is the allocator's and not the mailbox's, the consumer gives back what is
//! left of a round, and details are every round's.

use super::Env;
use super::stage::{Common, Stage, Virtually};
use crate::costs::{NS, US};
use crate::fifo::Places;
use crate::schedule::Program;
use crate::vm::Vm;
use crate::world::Virtual;
use core::cell::{Cell, RefCell};
use core::ptr::NonNull;
use flagstone_core::base::{CacheId, Order};
use flagstone_core::platform::{Access, Platform};
use flagstone_core::policy::Engine;
use std::collections::VecDeque;
use std::rc::Rc;

/// Rounds of the producer.
pub const COUNT: u64 = 10_000;

/// Bytes of an object where the user sets none.
pub const SIZE: usize = 128;

/// What a consumer's loop costs for each object beside fetching and freeing it, in nanoseconds
/// (negative: a pause of the consumers): an estimate, 580 cycles of 2007 for a poll that found
/// nothing, two calls and interrupts switched off and on. The rows of SLAB do not depend on it;
/// under SLUB it decides whether consumers of 256 and 512 B ever fall behind, as the published
/// ones did.
pub(super) const LOOP_NS: f64 = -250.0;

/// Nanoseconds within which the tasks of a round begin, where rounds are compared with real ones.
const APART_NS: u32 = 1_000;

/// Letters that are counted with one step, where letters are words: five lines.
pub const BUNDLE: u64 = 40;

/// A mailbox.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Slot {
    objects: RefCell<VecDeque<NonNull<u8>>>,
    /// Those that are not counted yet, and how many are counted at once.
    written: RefCell<Vec<NonNull<u8>>>,
    bundle: usize,
    /// The CPU that spins on an empty mailbox.
    waiting: Cell<Option<u32>>,
    /// Objects it holds at most, and the CPU that spins on a full one.
    room: usize,
    offering: Cell<Option<u32>>,
    /// The letters, where each is a word of its own: posted in order, and fetched.
    letters: Vec<Places>,
    posted: Cell<usize>,
    fetched: Cell<usize>,
}

/// Letters of a line.
const LETTERS: usize = 8;

impl Slot {
    /// An empty one for `room` objects.
    pub(super) fn new(env: &Env<'_>, room: usize) -> Self {
        let (lines, bundle) = if env.params.program_ns.is_some() {
            (COUNT as usize / LETTERS, BUNDLE as usize)
        } else {
            (0, 1)
        };
        Self {
            objects: RefCell::default(),
            written: RefCell::default(),
            bundle,
            waiting: Cell::default(),
            room,
            offering: Cell::default(),
            letters: (0..lines).map(|_| Places::default()).collect(),
            posted: Cell::new(0),
            fetched: Cell::new(0),
        }
    }

    fn touch(&self, vm: &Vm) {
        vm.use_line(core::ptr::from_ref(self).cast(), Access::Atomic);
    }

    /// Writes or reads the next letter of a side, where letters are words.
    fn letter(&self, vm: &Vm, side: &Cell<usize>, access: Access) {
        let at = side.replace(side.get() + 1);
        if let Some(line) = self.letters.get(at / LETTERS) {
            line.touch(vm, access);
        }
    }

    /// Puts an object in, spinning while there is no room. `Err` hands it back at the end of a run.
    pub(super) fn post(&self, vm: &Vm, object: NonNull<u8>) -> Result<(), NonNull<u8>> {
        while self.objects.borrow().len() >= self.room {
            if vm.stopping() {
                return Err(object);
            }
            self.offering.set(Some(vm.current()));
            vm.park();
        }
        self.letter(vm, &self.posted, Access::Write);
        self.written.borrow_mut().push(object);
        if !self.posted.get().is_multiple_of(self.bundle) {
            return Ok(());
        }
        self.touch(vm);
        let mut written = self.written.borrow_mut();
        self.objects.borrow_mut().extend(written.drain(..));
        drop(written);
        if let Some(consumer) = self.waiting.take() {
            vm.release_spinner(consumer);
        }
        Ok(())
    }

    /// Takes an object out, spinning while there is none; `None` at the end of a run.
    pub(super) fn fetch(&self, vm: &Vm) -> Option<NonNull<u8>> {
        loop {
            if self.fetched.get().is_multiple_of(self.bundle) {
                self.touch(vm);
            }
            let object = self.objects.borrow_mut().pop_front();
            if let Some(producer) = self.offering.take() {
                vm.release_spinner(producer);
            }
            if object.is_some() {
                self.letter(vm, &self.fetched, Access::Read);
            }
            if object.is_some() || vm.stopping() {
                return object;
            }
            self.waiting.set(Some(vm.current()));
            vm.park();
        }
    }
}

struct Shared {
    slots: Vec<Slot>,
    cache: CacheId,
    /// Objects are blocks of pages of this order, past the cache.
    whole: Option<Order>,
    running: Cell<usize>,
    round: Cell<u32>,
    began: Cell<u64>,
}

/// The producer's program, in any world: `post` puts an object into a consumer's mailbox.
pub fn produce<S: Stage>(
    stage: &S,
    cache: CacheId,
    consumers: usize,
    mut post: impl FnMut(usize, NonNull<u8>),
) {
    for _ in 0..COUNT {
        for consumer in 0..consumers {
            let object = stage.alloc(cache);
            stage.use_object(object, 8);
            post(consumer, object);
        }
    }
}

/// A consumer's program, in any world: `fetch` takes an object from its mailbox.
pub fn consume<S: Stage>(
    stage: &S,
    cache: CacheId,
    each: u64,
    mut fetch: impl FnMut() -> NonNull<u8>,
) {
    for _ in 0..each {
        let object = fetch();
        // SAFETY: the producer gave it up; it came from this cache.
        unsafe { stage.free(cache, object) };
        stage.count_op();
    }
}

pub(super) fn make<'a>(env: &'a Env<'a>) -> Vec<(u32, Program<'a>)> {
    let size = env.params.size.unwrap_or(SIZE);
    let tasks = env.cpus.len();
    let rounds = env.params.rounds.unwrap_or(1);
    let shared = Rc::new(Shared {
        slots: (1..tasks.max(2))
            .map(|_| Slot::new(env, usize::MAX))
            .collect(),
        cache: env.subject.kmalloc("test", size),
        whole: passed_through(env, size),
        running: Cell::new(tasks),
        round: Cell::new(0),
        began: Cell::new(0),
    });
    let common = Common::bare();
    let programs = env.cpus.iter().enumerate().map(|(task, &cpu)| {
        let (shared, common) = (Rc::clone(&shared), Rc::clone(&common));
        let program: Program<'a> = Box::new(move |vm: &Vm| {
            let stage = Virtually {
                vm,
                env,
                common: &common,
                think: 0,
                task: task as u32,
                whole: shared.whole,
            };
            for round in 1..=rounds {
                let is_told = round == rounds || env.params.program_ns.is_some();
                one_round(&stage, &shared, is_told);
                finish(&stage, &shared, tasks);
            }
        });
        (cpu, program)
    });
    programs.collect()
}

/// The order in which the page allocator serves objects of `size` bytes itself, under a kernel's
/// policy that has no class for them.
fn passed_through(env: &Env<'_>, size: usize) -> Option<Order> {
    let policy = env.subject.slabs().policy();
    let page = Virtual::page_size();
    let by_kernel = matches!(policy.engine, Engine::CpuSlab | Engine::CpuSlab2007);
    let none = policy.size_classes.class_for(size, page).is_none();
    if !by_kernel || !none {
        return None;
    }
    let pages = size.div_ceil(page.bytes()).next_power_of_two();
    Order::new(pages.ilog2())
}

fn one_round(stage: &Virtually<'_>, shared: &Shared, is_told: bool) {
    let (vm, task) = (stage.vm, stage.task as usize);
    let tasks = stage.env.cpus.len();
    let params = stage.env.params;
    let pause = params.think_ns.unwrap_or(LOOP_NS);
    let either = params.program_ns.unwrap_or([pause, -pause]);
    let [before_alloc, before_free] = either.map(|ns| (ns.max(0.0) * NS as f64) as u64);
    let begin = if params.program_ns.is_some() {
        // Threads that have met go on within a microsecond; in step, one would follow the other
        // through its slabs for ever.
        vm.spend(NS * u64::from(vm.chance.below(APART_NS)));
        vm.now()
    } else {
        shared.began.get()
    };
    if task == 0 {
        let post = |to: usize, object| {
            vm.spend(before_alloc);
            if shared.slots[to].post(vm, object).is_err() {
                vm.fail("a mailbox without bounds had no room");
            }
        };
        produce(stage, shared.cache, shared.slots.len(), post);
        if is_told {
            report(stage, "cpu0_cycles".into(), begin);
        }
    }
    if task == 0 && tasks > 1 {
        return;
    }
    let from = if task == 0 { vm.now() } else { begin };
    let slot = &shared.slots[task.saturating_sub(1)];
    let fetch = || {
        let Some(object) = slot.fetch(vm) else {
            vm.fail("the run ended before its programs did")
        };
        vm.spend(before_free);
        object
    };
    consume(stage, shared.cache, COUNT / tasks as u64, fetch);
    if is_told && task == 0 {
        report(stage, "cpu0_free_cycles".into(), from);
    } else if is_told {
        report(stage, format!("cpu{task}_cycles"), from);
    }
}

fn report(stage: &Virtually<'_>, name: String, from: u64) {
    let ns = (stage.vm.now() - from) as f64 / NS as f64;
    let cycles = ns * stage.vm.machine.topology.ghz;
    let mut details = stage.env.details.borrow_mut();
    details.push((name, cycles / COUNT as f64));
}

/// Gives the rest back, after the clocks have stopped, and lets the next round begin: the last one to
/// finish or, where letters travel, the consumer.
fn finish(stage: &Virtually<'_>, shared: &Shared, tasks: usize) {
    let (vm, env) = (stage.vm, stage.env);
    let round = shared.round.get();
    shared.running.set(shared.running.get() - 1);
    let consumer = env.params.program_ns.map(|_| env.cpus[tasks - 1]);
    let closes = consumer.map_or(shared.running.get() == 0, |cpu| cpu == vm.current());
    if !closes {
        consumer.into_iter().for_each(|cpu| vm.release_spinner(cpu));
        let last = env.params.rounds.unwrap_or(1) == round + 1;
        while !last && shared.round.get() == round {
            vm.park();
        }
        return;
    }
    while shared.running.get() > 0 {
        vm.park();
    }
    vm.spend(US);
    for slot in &shared.slots {
        if consumer.is_some() {
            while slot.fetched.get() < COUNT as usize
                && let Some(object) = slot.fetch(vm)
            {
                // SAFETY: the producer gave it up; it came from this cache.
                unsafe { stage.free(shared.cache, object) };
            }
        }
        slot.posted.set(0);
        slot.fetched.set(0);
        let rest = core::mem::take(&mut *slot.objects.borrow_mut());
        for object in rest {
            // SAFETY: still owned by the mailbox, and made by the producer's stage.
            unsafe { env.subject.give_back(shared.cache, shared.whole, object) };
        }
    }
    vm.sync();
    shared.running.set(tasks);
    shared.began.set(vm.now());
    shared.round.set(round + 1);
    let others = env.cpus.iter().filter(|cpu| **cpu != vm.current());
    others.for_each(|cpu| vm.release_spinner(*cpu));
}
