//! One CPU allocates and all others free, for good: what "1 alloc N free" is once it runs.
//!
//! ```text
//!   CPU 0      one object for each other CPU in turn, into its mailbox, while there is room
//!   CPU 1..N   take an object from the mailbox, free it
//! ```
//!
//! In the published test (`one_alloc_n_free.rs`) N CPUs share 10,000 frees: with 64 of them each
//! frees 153 objects, the first it ever freed, and what is compared over N is how much of a CPU's
//! beginning is in a free. Here every object sent is freed and figures come from a window. All
//! mailboxes together hold the same number of objects whatever N is, so that as many are live.
//!
//! `--size` sets the object size (128), a think time is what it is in the published test. An
//! operation is one object freed.

use super::Env;
use super::one_alloc_n_free::{LOOP_NS, SIZE, Slot};
use crate::costs::NS;
use crate::schedule::Program;
use crate::vm::Vm;
use std::rc::Rc;

/// Objects on their way at most: 64 in the mailbox of each of 64 CPUs.
const IN_FLIGHT: usize = 4096;

pub(super) fn make<'a>(env: &'a Env<'a>) -> Vec<(u32, Program<'a>)> {
    let cache = env.subject.kmalloc("test", env.params.size.unwrap_or(SIZE));
    let consumers = env.cpus.len() - 1;
    let room = (IN_FLIGHT / consumers).max(1);
    let boxes: Vec<Slot> = (0..consumers).map(|_| Slot::new(env, room)).collect();
    let boxes = Rc::new(boxes);
    let pause = env.params.think_ns.unwrap_or(LOOP_NS) * NS as f64;
    let (before_alloc, before_free) = (pause.max(0.0) as u64, (-pause).max(0.0) as u64);
    let programs = env.cpus.iter().enumerate().map(|(task, &cpu)| {
        let boxes = Rc::clone(&boxes);
        let program: Program<'a> = Box::new(move |vm: &Vm| {
            let Some(own) = task.checked_sub(1) else {
                for to in boxes.iter().cycle() {
                    vm.spend(before_alloc);
                    let object = env.subject.alloc(vm, cache);
                    vm.use_object(object.as_ptr(), 8);
                    if let Err(object) = to.post(vm, object) {
                        // SAFETY: just taken from this cache, and nobody else has it.
                        return unsafe { env.subject.free(vm, cache, object) };
                    }
                    if vm.stopping() {
                        return;
                    }
                }
                return;
            };
            while let Some(object) = boxes[own].fetch(vm) {
                vm.spend(before_free);
                // SAFETY: the producer gave it up; it came from this cache.
                unsafe { env.subject.free(vm, cache, object) };
                vm.count_op();
            }
        });
        (cpu, program)
    });
    programs.collect()
}
