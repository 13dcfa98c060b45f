//! The server simulation known as larson: threads replace random blocks among those they hold,
//! and after a while hand all of them on to another thread.
//!
//! Each task holds 1000 blocks of 8 to 1000 bytes (`--size` bounds them from above), frees one at
//! random and allocates another of random size in its place; after 5000 replacements it trades
//! its whole array for its neighbour's, so that blocks are freed by threads that did not allocate
//! them. An operation is one replacement: a free and an allocation.

use super::Env;
use super::random_mix::Classes;
use crate::schedule::Program;
use crate::vm::Vm;
use core::cell::RefCell;
use core::ptr::NonNull;
use flagstone_core::base::CacheId;
use std::rc::Rc;

const BLOCKS: usize = 1000;
const ROUND: u32 = 5000;
const SMALLEST: u32 = 8;
/// Nanoseconds of one replacement outside the allocator.
const THINK_NS: f64 = 10.0;

type Held = Vec<(CacheId, NonNull<u8>)>;

pub(super) fn make<'a>(env: &'a Env<'a>) -> Vec<(u32, Program<'a>)> {
    let largest = env.params.size.unwrap_or(1000).clamp(16, 4096) as u32;
    let classes = Rc::new(Classes::new(env.subject, largest as usize));
    let think = env.think(THINK_NS);
    // Arrays waiting for whoever ends a round next.
    let pool: Rc<RefCell<Vec<Held>>> = Rc::default();
    let programs = env.cpus.iter().map(|&cpu| {
        let (classes, pool) = (Rc::clone(&classes), Rc::clone(&pool));
        let program: Program<'a> = Box::new(move |vm: &Vm| {
            let size = |vm: &Vm| (SMALLEST + vm.chance.below(largest - SMALLEST + 1)) as usize;
            let fresh = |vm: &Vm| {
                let cache = classes.of(size(vm));
                let object = env.subject.alloc(vm, cache);
                vm.use_object(object.as_ptr(), 8);
                (cache, object)
            };
            let mut held: Held = (0..BLOCKS).map(|_| fresh(vm)).collect();
            while !vm.stopping() {
                for _ in 0..ROUND {
                    let at = vm.chance.below(BLOCKS as u32) as usize;
                    let (cache, object) = held[at];
                    // SAFETY: held by this task alone, with its cache.
                    unsafe { env.subject.free(vm, cache, object) };
                    held[at] = fresh(vm);
                    vm.spend(think);
                    vm.count_op();
                    if vm.stopping() {
                        break;
                    }
                }
                vm.sync();
                let mut waiting = pool.borrow_mut();
                waiting.push(held);
                // The oldest array: somebody else's, unless this task is alone.
                held = waiting.remove(0);
            }
            for (cache, object) in held {
                // SAFETY: as above; the task ends.
                unsafe { env.subject.free(vm, cache, object) };
            }
        });
        (cpu, program)
    });
    programs.collect()
}
