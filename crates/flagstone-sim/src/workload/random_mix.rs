//! Random sizes and lifetimes: an allocator's ordinary day.
//!
//! Each task keeps up to 500 blocks alive, of sizes log-uniform from 16 B to 4 KiB (`--size` sets
//! the upper end) in general-purpose caches. Each operation replaces a random block; one in ten
//! of the blocks replaced is handed to another task to free.

use super::Env;
use super::held::{Choice, Coming, Held};
use super::stage::{Common, Stage, Virtually};
use crate::schedule::Program;
use crate::subject::Subject;
use crate::vm::Vm;
use flagstone_core::base::CacheId;
use std::rc::Rc;

const LIVE: usize = 500;
/// Bytes of the largest block where the user sets none.
pub const LARGEST: usize = 4096;
/// Nanoseconds of one replacement outside the allocator.
const THINK_NS: f64 = 30.0;

/// Sizes of the general-purpose caches in bytes: the kernel's (docs: linux-policies 1.9).
const SIZES: [usize; 13] = [
    8, 16, 32, 64, 96, 128, 192, 256, 512, 1024, 2048, 4096, 8192,
];

/// General-purpose caches.
#[derive(Clone, Debug)]
pub struct Classes {
    /// The cache for every size, in steps of [`STEP`] bytes.
    by_size: Vec<CacheId>,
}

/// All class sizes are multiples of this many bytes.
const STEP: usize = 8;

impl Classes {
    /// The caches for objects up to `largest` bytes.
    pub(super) fn new(subject: &Subject, largest: usize) -> Self {
        Self::made_by(largest, |size| {
            subject.kmalloc(&format!("kmalloc-{size}"), size)
        })
    }

    /// The caches for objects up to `largest` bytes, each made by `make` from its size.
    #[must_use]
    pub fn made_by(largest: usize, make: impl Fn(usize) -> CacheId) -> Self {
        let last = SIZES.iter().position(|size| *size >= largest).unwrap_or(12);
        let mut by_size = Vec::new();
        for &size in &SIZES[..=last] {
            let cache = make(size);
            by_size.resize(size / STEP + 1, cache);
        }
        Self { by_size }
    }

    /// No classes, for programs that ask for none.
    #[must_use]
    pub fn none() -> Self {
        Self {
            by_size: Vec::new(),
        }
    }

    /// The cache for an object of `size` bytes.
    ///
    /// # Panics
    /// If there is no class at all.
    #[inline]
    #[must_use]
    pub fn of(&self, size: usize) -> CacheId {
        let found = self.by_size.get(size.div_ceil(STEP));
        *found.or(self.by_size.last()).expect("there is a class")
    }
}

pub(super) fn make<'a>(env: &'a Env<'a>) -> Vec<(u32, Program<'a>)> {
    let largest = env.params.size.unwrap_or(LARGEST).clamp(16, 8192);
    let common = Common::new(env, largest);
    let think = env.think(THINK_NS);
    let programs = env.cpus.iter().enumerate().map(|(task, &cpu)| {
        let common = Rc::clone(&common);
        let program: Program<'a> = Box::new(move |vm: &Vm| {
            let stage = Virtually {
                vm,
                env,
                common: &common,
                think,
                task: task as u32,
                whole: None,
            };
            mix(&stage, largest);
        });
        (cpu, program)
    });
    programs.collect()
}

/// The program of one task, in any world.
pub fn mix<S: Stage>(stage: &S, largest: usize) {
    let octaves = ((largest as u32 / 16).ilog2() + 1).max(1);
    let choose = || {
        let octave = 16 << stage.below(octaves);
        let size = (octave + stage.below(octave)) as usize;
        Choice {
            at: stage.below(LIVE as u32),
            cache: stage.class(size.min(largest)),
        }
    };
    let fresh = |cache| {
        let object = stage.alloc(cache);
        stage.use_object(object, 8);
        Held::new((cache, object))
    };
    let (tasks, task) = stage.tasks();
    let mut live: Vec<Held> = (0..LIVE).map(|_| fresh(choose().cache)).collect();
    let mut coming = Coming::new(choose);
    while !stage.stopping() {
        let Choice { at, cache } = coming.next(stage, &live, choose());
        let old = core::mem::replace(&mut live[at as usize], fresh(cache)).block();
        let other = stage.below(tasks);
        let mine = if stage.happens(1, 10) && other != task {
            stage.offer(other, old).err()
        } else {
            Some(old)
        };
        if let Some((cache, object)) = mine {
            // SAFETY: held by this task alone, with its cache.
            unsafe { stage.free(cache, object) };
        }
        while let Some((cache, object)) = stage.poll() {
            // SAFETY: the sender gave it up, with its cache.
            unsafe { stage.free(cache, object) };
        }
        stage.think();
        stage.count_op();
    }
    for (cache, object) in live.into_iter().map(Held::block) {
        // SAFETY: as above; the task ends.
        unsafe { stage.free(cache, object) };
    }
}
