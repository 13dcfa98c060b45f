//! Recorded programs: what their threads, or a kernel's CPUs, asked for, on virtual CPUs.
//!
//! ```text
//!   Tape: streams of steps ─► a task for each, times copies
//!   step: pause · take an object of a cache, a block of pages | give it back
//! ```
//!
//! Each copy has blocks of its own. A block that one stream takes and another gives back makes the second
//! wait for the first, as the recorded one did. A pause is what lay between two steps of a stream; longer
//! ones than [`GAP_NS`] are cut to that (`--think` says another). The run ends when all streams have; what they never gave back stays.
//!
//! An operation is one step. Objects of a program's heap lie in the policy's size classes, those of a kernel
//! in caches of the kernel's names; what is larger than the largest class is a block of pages.

use super::Env;
use crate::costs::NS;
use crate::schedule::Program;
use crate::vm::Vm;
use core::cell::{Cell, RefCell};
use core::ptr::NonNull;
use flagstone_core::base::{CacheId, Order, Pfn};
use std::rc::Rc;

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
    pub block: u32,
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

/// A recorded program, ready to be played. Steps are checked: a block is taken once, before it is given
/// back by the order of the recording, and given back once at most.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tape {
    /// Its caches.
    pub caches: Vec<Kind>,
    /// A task each.
    pub streams: Vec<Vec<Step>>,
    /// How many blocks there are.
    pub blocks: usize,
    /// How often it is played at the same time.
    pub copies: u32,
    /// Objects of each cache that one copy never gives back.
    pub left: Vec<u64>,
}

impl Tape {
    /// Tasks it takes.
    #[must_use]
    pub fn tasks(&self) -> u32 {
        self.streams.len() as u32 * self.copies
    }
}

/// One copy's blocks: address, or page plus one; zero before it is taken.
struct Copy {
    blocks: Vec<Cell<usize>>,
    /// Streams that wait for a block.
    waiting: RefCell<Vec<(u32, u32)>>,
}

pub(super) fn make<'a>(env: &'a Env<'a>) -> Vec<(u32, Program<'a>)> {
    let Some(tape) = &env.params.tape else {
        env.vm.fail("a tape to play is missing");
    };
    let caches = tape.caches.iter().map(|kind| match kind.kmalloc {
        true => env.subject.kmalloc(&kind.name, kind.size),
        false => env.subject.cache(&kind.name, kind.size),
    });
    let caches: Rc<Vec<CacheId>> = Rc::new(caches.collect());
    let longest = env.think(GAP_NS);
    let mut programs: Vec<(u32, Program<'a>)> = Vec::new();
    let mut cpus = env.cpus.iter();
    for _ in 0..tape.copies {
        let copy = Rc::new(Copy {
            blocks: vec![Cell::new(0); tape.blocks],
            waiting: RefCell::default(),
        });
        for (stream, &cpu) in tape.streams.iter().zip(cpus.by_ref()) {
            let (copy, caches) = (Rc::clone(&copy), Rc::clone(&caches));
            let program: Program<'a> = Box::new(move |vm: &Vm| {
                for step in stream {
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

fn play(vm: &Vm, env: &Env<'_>, copy: &Copy, caches: &[CacheId], step: &Step) {
    let block = &copy.blocks[step.block as usize];
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
            let address = wait(vm, copy, block, step.block);
            if let Some(object) = NonNull::new(address as *mut u8) {
                // SAFETY: the block was taken from this cache, and the tape gives it back once.
                unsafe { env.subject.free(vm, caches[usize::from(cache)], object) };
            }
        }
        Act::GivePages(order) => {
            let page = wait(vm, copy, block, step.block);
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
fn taken(vm: &Vm, copy: &Copy, block: u32, place: usize) {
    copy.blocks[block as usize].set(place);
    let mut waiting = copy.waiting.borrow_mut();
    if let Some(at) = waiting.iter().position(|(_, wanted)| *wanted == block) {
        let (stream, _) = waiting.swap_remove(at);
        drop(waiting);
        vm.release_spinner(stream);
    }
}

/// Where the block is, once it is; zero when the run is stopped before.
fn wait(vm: &Vm, copy: &Copy, place: &Cell<usize>, block: u32) -> usize {
    vm.sync();
    while place.get() == 0 && !vm.stopping() {
        copy.waiting.borrow_mut().push((vm.current(), block));
        vm.park();
    }
    place.replace(0)
}
