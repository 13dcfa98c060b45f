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
//! moves the ratio of their speeds, which decides whether consumers keep up.

use super::Env;
use crate::costs::{NS, US};
use crate::schedule::Program;
use crate::vm::Vm;
use crate::world::Virtual;
use core::cell::{Cell, RefCell};
use core::ptr::NonNull;
use flagstone_core::platform::{Access, Line, Platform};
use std::collections::VecDeque;
use std::rc::Rc;

/// Rounds of the producer.
const COUNT: u64 = 10_000;

#[derive(Debug, Default)]
#[repr(align(64))]
struct Slot {
    objects: RefCell<VecDeque<NonNull<u8>>>,
    waiting: Cell<bool>,
}

impl Slot {
    fn touch(&self, access: Access) {
        Virtual::touch(Line::Node, core::ptr::from_ref(self).cast(), access);
    }
}

struct Shared {
    slots: Vec<Slot>,
    running: Cell<usize>,
    began: Cell<u64>,
}

pub(super) fn make<'a>(env: &'a Env<'a>) -> Vec<(u32, Program<'a>)> {
    let size = env.params.size.unwrap_or(128);
    let cache = env.subject.kmalloc("test", size);
    let consumers = env.cpus.len() - 1;
    let each = COUNT / env.cpus.len() as u64;
    let pause = env.params.think_ns.unwrap_or(0.0) * NS as f64;
    let (before_alloc, before_free) = (pause.max(0.0) as u64, (-pause).max(0.0) as u64);
    let shared = Rc::new(Shared {
        slots: (0..consumers).map(|_| Slot::default()).collect(),
        running: Cell::new(env.cpus.len()),
        began: Cell::new(0),
    });
    let producer = {
        let shared = Rc::clone(&shared);
        let program: Program<'a> = Box::new(move |vm: &Vm| {
            for _ in 0..COUNT {
                for slot in &shared.slots {
                    vm.spend(before_alloc);
                    let object = env.subject.alloc(vm, cache);
                    vm.use_object(object.as_ptr(), 8);
                    slot.touch(Access::Atomic);
                    slot.objects.borrow_mut().push_back(object);
                    if slot.waiting.replace(false) {
                        let index = shared.slots.iter().position(|s| core::ptr::eq(s, slot));
                        vm.release_spinner(env.cpus[index.unwrap_or(0) + 1]);
                    }
                }
            }
            report(vm, env, 0, vm.now() - shared.began.get());
            finish(vm, env, &shared, cache);
        });
        (env.cpus[0], program)
    };
    let others = (0..consumers).map(|index| {
        let shared = Rc::clone(&shared);
        let program: Program<'a> = Box::new(move |vm: &Vm| {
            let slot = &shared.slots[index];
            for _ in 0..each {
                let object = loop {
                    slot.touch(Access::Atomic);
                    if let Some(object) = slot.objects.borrow_mut().pop_front() {
                        break object;
                    }
                    slot.waiting.set(true);
                    vm.park();
                };
                vm.spend(before_free);
                // SAFETY: the producer gave it up; it came from this cache.
                unsafe { env.subject.free(vm, cache, object) };
                vm.count_op();
            }
            report(vm, env, index + 1, vm.now() - shared.began.get());
            finish(vm, env, &shared, cache);
        });
        (env.cpus[index + 1], program)
    });
    core::iter::once(producer).chain(others).collect()
}

fn report(vm: &Vm, env: &Env<'_>, cpu: usize, ps: u64) {
    let cycles = ps as f64 / NS as f64 * vm.machine.topology.ghz;
    env.details
        .borrow_mut()
        .push((format!("cpu{cpu}_cycles"), cycles / COUNT as f64));
}

/// The last one to finish gives the rest back, after the clocks have stopped.
fn finish(vm: &Vm, env: &Env<'_>, shared: &Shared, cache: flagstone_core::base::CacheId) {
    shared.running.set(shared.running.get() - 1);
    if shared.running.get() > 0 {
        return;
    }
    vm.spend(US);
    for slot in &shared.slots {
        let rest = core::mem::take(&mut *slot.objects.borrow_mut());
        for object in rest {
            let slabs = env.subject.slabs();
            // SAFETY: still owned by the mailbox, from this cache.
            unsafe { slabs.free(slabs.cache(cache), object) };
        }
    }
}
