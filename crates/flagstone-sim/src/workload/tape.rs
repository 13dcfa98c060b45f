//! Recorded programs: what their threads, or a kernel's CPUs, asked for, on virtual CPUs.
//!
//! ```text
//!   Source ─► steps in the order of the recording ─► a queue for each stream ─► a task for each, times copies
//!   step: pause · take an object of a cache, a block of pages | give it back
//! ```
//!
//! A tape is read while it is played, so its length takes no memory. A stream that is ahead of the others
//! waits when [`QUEUED_MAX`] steps of theirs are read and not yet played.
//!
//! Each copy has blocks of its own. A block that one stream takes and another gives back makes the second
//! wait for the first, as the recorded one did. A pause is what lay between two steps of a stream; longer
//! ones than [`GAP_NS`] are cut to that (`--think` says another). The run ends when all streams have; what they never gave back stays.
//!
//! An operation is one step. Objects of a program's heap lie in the policy's size classes, those of a kernel
//! in caches of the kernel's names; what is larger than the largest class is a block of pages.

use super::Env;
use crate::costs::NS;
use crate::hash::Multiply;
use crate::schedule::Program;
use crate::vm::Vm;
use core::cell::RefCell;
use core::fmt::Debug;
use core::hash::BuildHasherDefault;
use core::ptr::NonNull;
use flagstone_core::base::{CacheId, Order, Pfn};
use flagstone_kernels::KernelCache;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

/// Longest pause between two steps of a stream that is played, in nanoseconds.
const GAP_NS: f64 = 20_000.0;

/// What a step does with its block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// Takes an object of this cache.
    Take(u16),
    /// Takes a block of pages of this order.
    TakePages(u8),
    /// Gives an object of this cache back.
    Give(u16),
    /// Gives a block of pages of this order back.
    GivePages(u8),
}

/// One step of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// Nanoseconds since the stream's step before.
    pub gap_ns: u32,
    /// The block's number; each is taken once.
    pub block: u64,
    /// What happens.
    pub act: Act,
}

/// A cache of a tape.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kind {
    /// Its name.
    pub name: String,
    /// Bytes of an object.
    pub size: usize,
    /// General purpose: aligned and merged as such.
    pub kmalloc: bool,
}

/// Where the steps of a tape come from. Steps are checked there: a block is taken once, before it is given
/// back, and given back once at most.
pub trait Source: Send + Sync + Debug {
    /// Begins at the first step; each copy reads for itself.
    ///
    /// # Errors
    /// One line.
    fn open(&self) -> Result<Box<dyn Steps>, String>;
}

/// Steps in the order of the recording.
pub trait Steps {
    /// The next step with its stream's number; `None` at the end.
    ///
    /// # Errors
    /// One line.
    fn next(&mut self) -> Result<Option<(usize, Step)>, String>;
}

/// A recorded program, ready to be played.
#[derive(Clone, Debug)]
pub struct Tape {
    /// Its caches.
    pub caches: Vec<Kind>,
    /// How many streams it has; a task each.
    pub streams: usize,
    /// How often it is played at the same time.
    pub copies: u32,
    /// Objects of each cache that one copy never gives back.
    pub left: Vec<u64>,
    /// Steps of all copies that may be read and not yet played: [`QUEUED_MAX`], fewer in tests.
    pub queued_max: usize,
    /// Its steps.
    pub source: Arc<dyn Source>,
}

impl PartialEq for Tape {
    fn eq(&self, other: &Self) -> bool {
        let figures = |tape: &Self| (tape.streams, tape.copies);
        Arc::ptr_eq(&self.source, &other.source)
            && figures(self) == figures(other)
            && self.caches == other.caches
    }
}

impl Tape {
    /// Tasks it takes.
    #[must_use]
    pub fn tasks(&self) -> u32 {
        self.streams as u32 * self.copies
    }
}

/// Most steps that are read and not yet played, some 130 MB.
pub const QUEUED_MAX: usize = 4 << 20;

/// A copy's steps on their way from the source to the streams.
struct Dealer {
    steps: Box<dyn Steps>,
    queues: Vec<VecDeque<Step>>,
    queued: usize,
    most: usize,
    ended: bool,
}

/// One copy's blocks and steps.
struct Copy {
    /// Blocks that live: address, or page plus one.
    places: RefCell<HashMap<u64, usize, BuildHasherDefault<Multiply>>>,
    /// Streams that wait for a block.
    waiting: RefCell<Vec<(u32, u64)>>,
    dealer: RefCell<Dealer>,
    /// Streams that wait until others have played what is queued for them.
    ahead: RefCell<Vec<u32>>,
}

pub(super) fn make<'a>(env: &'a Env<'a>) -> Vec<(u32, Program<'a>)> {
    let Some(tape) = &env.params.tape else {
        env.vm.fail("a tape to play is missing");
    };
    let caches = tape.caches.iter().map(|kind| match kind.kmalloc {
        true => env.subject.kmalloc(&kind.name, kind.size),
        // What a kernel's own cache asks for; other policies than those of 6.18 and later do not heed it.
        false => {
            let asked = KernelCache::named(&kind.name).sheaf_requested;
            env.subject.cache_with_sheaves(&kind.name, kind.size, asked)
        }
    });
    let caches: Rc<Vec<CacheId>> = Rc::new(caches.collect());
    let longest = env.think(GAP_NS);
    let mut programs: Vec<(u32, Program<'a>)> = Vec::new();
    let mut cpus = env.cpus.iter();
    for _ in 0..tape.copies {
        let steps = match tape.source.open() {
            Ok(steps) => steps,
            Err(line) => env.vm.fail(line),
        };
        let copy = Rc::new(Copy {
            places: RefCell::default(),
            waiting: RefCell::default(),
            dealer: RefCell::new(Dealer {
                steps,
                queues: vec![VecDeque::new(); tape.streams],
                queued: 0,
                most: (tape.queued_max / tape.copies as usize).max(2),
                ended: false,
            }),
            ahead: RefCell::default(),
        });
        for (stream, &cpu) in (0..tape.streams).zip(cpus.by_ref()) {
            let (copy, caches) = (Rc::clone(&copy), Rc::clone(&caches));
            let program: Program<'a> = Box::new(move |vm: &Vm| {
                while let Some(step) = next(vm, &copy, stream) {
                    vm.spend((u64::from(step.gap_ns) * NS).min(longest));
                    if vm.stopping() {
                        return;
                    }
                    play(vm, env, &copy, &caches, step);
                    vm.count_op();
                }
            });
            programs.push((cpu, program));
        }
    }
    programs
}

/// A stream's next step; `None` at its end, and when the run is stopped.
fn next(vm: &Vm, copy: &Copy, stream: usize) -> Option<Step> {
    loop {
        let mut dealer = copy.dealer.borrow_mut();
        if let Some(step) = dealer.queues[stream].pop_front() {
            dealer.queued -= 1;
            let has_room = dealer.queued == dealer.most / 2;
            drop(dealer);
            if has_room {
                wake(vm, copy);
            }
            return Some(step);
        }
        if dealer.ended {
            return None;
        }
        if let Err(line) = dealer.deal(stream) {
            drop(dealer);
            vm.fail(line);
        }
        let (ended, found) = (dealer.ended, !dealer.queues[stream].is_empty());
        drop(dealer);
        if ended {
            wake(vm, copy);
        } else if !found {
            copy.ahead.borrow_mut().push(vm.current());
            vm.park();
            if vm.stopping() {
                return None;
            }
        }
    }
}

/// Wakes the streams that waited for room.
fn wake(vm: &Vm, copy: &Copy) {
    for stream in copy.ahead.take() {
        vm.release_spinner(stream);
    }
}

impl Dealer {
    /// Reads until `stream` has a step, the queues are full, or the tape ends.
    fn deal(&mut self, stream: usize) -> Result<(), String> {
        while self.queues[stream].is_empty() && self.queued < self.most {
            let Some((at, step)) = self.steps.next()? else {
                self.ended = true;
                return Ok(());
            };
            self.queues[at].push_back(step);
            self.queued += 1;
        }
        Ok(())
    }
}

fn play(vm: &Vm, env: &Env<'_>, copy: &Copy, caches: &[CacheId], step: Step) {
    match step.act {
        Act::Take(cache) => {
            let object = env.subject.alloc(vm, caches[usize::from(cache)]);
            vm.use_object(object.as_ptr(), 64);
            taken(vm, copy, step.block, object.as_ptr() as usize);
        }
        Act::TakePages(order) => {
            let pfn = env.subject.alloc_pages(vm, order_of(order));
            taken(vm, copy, step.block, pfn.0 as usize + 1);
        }
        Act::Give(cache) => {
            let address = wait(vm, copy, step.block);
            if let Some(object) = NonNull::new(address as *mut u8) {
                // SAFETY: the block was taken from this cache, and the tape gives it back once.
                unsafe { env.subject.free(vm, caches[usize::from(cache)], object) };
            }
        }
        Act::GivePages(order) => {
            let page = wait(vm, copy, step.block);
            if page > 0 {
                // SAFETY: the block was taken with this order, and the tape gives it back once.
                unsafe {
                    env.subject
                        .free_pages(vm, Pfn(page as u32 - 1), order_of(order));
                }
            }
        }
    }
}

fn order_of(order: u8) -> Order {
    Order::new(u32::from(order)).unwrap_or(Order::MAX)
}

/// Notes where a block is, and wakes the stream that waits for it.
fn taken(vm: &Vm, copy: &Copy, block: u64, place: usize) {
    copy.places.borrow_mut().insert(block, place);
    let mut waiting = copy.waiting.borrow_mut();
    if let Some(at) = waiting.iter().position(|(_, wanted)| *wanted == block) {
        let (stream, _) = waiting.swap_remove(at);
        drop(waiting);
        vm.release_spinner(stream);
    }
}

/// Where the block is, once it is; zero when the run is stopped before.
fn wait(vm: &Vm, copy: &Copy, block: u64) -> usize {
    vm.sync();
    loop {
        if let Some(place) = copy.places.borrow_mut().remove(&block) {
            return place;
        }
        if vm.stopping() {
            return 0;
        }
        copy.waiting.borrow_mut().push((vm.current(), block));
        vm.park();
    }
}
