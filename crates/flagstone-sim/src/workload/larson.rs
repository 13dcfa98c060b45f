//! The server simulation known as larson: threads replace random blocks among those they hold,
//! and after a while hand all of them on to another thread.
//!
//! Each task holds 1000 blocks of 8 to 1000 bytes (`--size` bounds them from above), frees one at
//! random and allocates another of random size in its place; after 5000 replacements it trades
//! its whole array for its neighbour's, so that blocks are freed by threads that did not allocate
//! them. An operation is one replacement: a free and an allocation.

use super::Env;
use super::held::{Choice, Coming, Held};
use super::stage::{Common, Stage, Virtually};
use crate::schedule::Program;
use crate::vm::Vm;
use std::rc::Rc;

const BLOCKS: usize = 1000;
const ROUND: u32 = 5000;
const SMALLEST: u32 = 8;
/// Bytes of the largest block where the user sets none.
pub const LARGEST: usize = 1000;
/// Nanoseconds of one replacement outside the allocator.
const THINK_NS: f64 = 10.0;

pub(super) fn make<'a>(env: &'a Env<'a>) -> Vec<(u32, Program<'a>)> {
    let largest = env.params.size.unwrap_or(LARGEST).clamp(16, 4096);
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
            serve(&stage, largest as u32);
        });
        (cpu, program)
    });
    programs.collect()
}

/// The program of one task, in any world.
pub fn serve<S: Stage>(stage: &S, largest: u32) {
    let choose = || Choice {
        at: stage.below(BLOCKS as u32),
        cache: stage.class((SMALLEST + stage.below(largest - SMALLEST + 1)) as usize),
    };
    let fresh = |cache| {
        let object = stage.alloc(cache);
        stage.use_object(object, 8);
        Held::new((cache, object))
    };
    let mut held: Vec<Held> = (0..BLOCKS).map(|_| fresh(choose().cache)).collect();
    let mut coming = Coming::new(choose);
    while !stage.stopping() {
        for _ in 0..ROUND {
            let Choice { at, cache } = coming.next(stage, &held, choose());
            let place = &mut held[at as usize];
            let (old_cache, old) = place.block();
            // SAFETY: held by this task alone, with its cache.
            unsafe { stage.free(old_cache, old) };
            *place = fresh(cache);
            stage.think();
            stage.count_op();
            if stage.stopping() {
                break;
            }
        }
        held = stage.trade(held);
    }
    for (cache, object) in held.into_iter().map(Held::block) {
        // SAFETY: as above; the task ends.
        unsafe { stage.free(cache, object) };
    }
}
