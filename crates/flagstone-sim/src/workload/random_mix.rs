//! Random sizes and lifetimes: an allocator's ordinary day.
//!
//! Each task keeps up to 500 blocks alive, of sizes log-uniform from 16 B to 4 KiB (`--size` sets
//! the upper end) in general-purpose caches. Each operation replaces a random block; one in ten
//! of the blocks replaced is handed to another task to free.

use super::Env;
use crate::fifo::Mailbox;
use crate::schedule::Program;
use crate::subject::Subject;
use crate::vm::Vm;
use core::ptr::NonNull;
use flagstone_core::base::CacheId;
use std::rc::Rc;

const LIVE: usize = 500;
/// Nanoseconds of one replacement outside the allocator.
const THINK_NS: f64 = 30.0;

/// General-purpose caches: the kernel's sizes (docs: linux-policies 1.9).
pub(super) struct Classes {
    sizes: Vec<(usize, CacheId)>,
}

impl Classes {
    /// The caches for objects up to `largest` bytes.
    pub(super) fn new(subject: &Subject, largest: usize) -> Self {
        const SIZES: [usize; 13] = [
            8, 16, 32, 64, 96, 128, 192, 256, 512, 1024, 2048, 4096, 8192,
        ];
        let last = SIZES.iter().position(|size| *size >= largest).unwrap_or(12);
        let sizes = SIZES[..=last]
            .iter()
            .map(|&size| (size, subject.kmalloc(&format!("kmalloc-{size}"), size)))
            .collect();
        Self { sizes }
    }

    /// The cache for an object of `size` bytes.
    pub(super) fn of(&self, size: usize) -> CacheId {
        let found = self.sizes.iter().find(|(holds, _)| *holds >= size);
        found.or(self.sizes.last()).expect("there is a class").1
    }
}

pub(super) fn make<'a>(env: &'a Env<'a>) -> Vec<(u32, Program<'a>)> {
    let largest = env.params.size.unwrap_or(4096).clamp(16, 8192);
    let classes = Rc::new(Classes::new(env.subject, largest));
    let think = env.think(THINK_NS);
    type Block = (CacheId, NonNull<u8>);
    let inboxes: Rc<Vec<Mailbox<Block>>> =
        Rc::new(env.cpus.iter().map(|_| Mailbox::new(64)).collect());
    let tasks = env.cpus.len() as u32;
    let programs = env.cpus.iter().enumerate().map(|(task, &cpu)| {
        let (classes, inboxes) = (Rc::clone(&classes), Rc::clone(&inboxes));
        let program: Program<'a> = Box::new(move |vm: &Vm| {
            let fresh = |vm: &Vm| {
                let octave = 16 << vm.chance.below(((largest / 16).ilog2() + 1).max(1));
                let size = (octave + vm.chance.below(octave) as usize as u32) as usize;
                let cache = classes.of(size.min(largest));
                let object = env.subject.alloc(vm, cache);
                vm.use_object(object.as_ptr(), 8);
                (cache, object)
            };
            let mut live: Vec<Block> = (0..LIVE).map(|_| fresh(vm)).collect();
            while !vm.stopping() {
                let at = vm.chance.below(LIVE as u32) as usize;
                let old = core::mem::replace(&mut live[at], fresh(vm));
                let other = vm.chance.below(tasks) as usize;
                let hand_on =
                    vm.chance.happens(1, 10) && other != task && !inboxes[other].is_full();
                let mine = if hand_on {
                    inboxes[other].offer(vm, old).err()
                } else {
                    Some(old)
                };
                if let Some((cache, object)) = mine {
                    // SAFETY: held by this task alone, with its cache.
                    unsafe { env.subject.free(vm, cache, object) };
                }
                if !inboxes[task].is_empty() {
                    while let Some((cache, object)) = inboxes[task].poll(vm) {
                        // SAFETY: the sender gave it up, with its cache.
                        unsafe { env.subject.free(vm, cache, object) };
                    }
                }
                vm.spend(think);
                vm.count_op();
            }
            for (cache, object) in live {
                // SAFETY: as above; the task ends.
                unsafe { env.subject.free(vm, cache, object) };
            }
        });
        (cpu, program)
    });
    programs.collect()
}
