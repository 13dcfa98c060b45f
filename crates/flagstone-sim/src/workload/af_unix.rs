//! lmbench's UNIX test: a sender writes 64 KiB at a time into an AF_UNIX socket, a receiver reads.
//!
//! What the kernel makes of one write (read from its stream-socket code): a buffer holds at most
//! 3776 linear bytes and 32 KiB of fragments, taken in the largest orders that fit, up to 3.
//!
//! ```text
//!   1st buffer   head 256 B · kmalloc-4k · order 3                       36,544 bytes
//!   2nd buffer   head 256 B · kmalloc-1k · orders 2, 1, 0 (7 pages)      28,992 bytes
//! ```
//!
//! The sender allocates all of it, the receiver frees all of it on another CPU: every block
//! crosses from one CPU's pageset to another's through the zone, and one free of order 0 stands
//! between those of higher orders. The socket's buffer holds 212,992 bytes: five such buffers,
//! then the sender sleeps.
//!
//! An operation is 64 KiB received. The copies run through the data cache: pages that were freed
//! long ago are cold, which is the cost of large pagesets the series reports.

use super::Env;
use super::pairs::{Streams, pairs};
use crate::schedule::Program;
use crate::vm::Vm;
use core::ptr::NonNull;
use flagstone_core::base::{CacheId, Order, Pfn};
use std::rc::Rc;

/// Buffers a socket holds.
const BUFFER: usize = 5;
/// Nanoseconds of one buffer outside the allocator on either side: fitted to the base row's lock
/// share alone, 51.4 % with 16 pairs (docs/fits.md).
pub(super) const THINK_NS: f64 = 1400.0;

/// Uses of other data that miss, in 1024: so that the base row shows the published 0.2 % of misses.
const OTHER_MISSES: u64 = 2;

#[derive(Clone, Copy)]
struct Caches {
    head: CacheId,
    linear: [CacheId; 2],
}

struct Buffer {
    objects: [(CacheId, NonNull<u8>); 2],
    blocks: Vec<(Pfn, Order)>,
    last: bool,
}

/// The orders of the two buffers' fragments.
const FRAGMENTS: [&[u32]; 2] = [&[3], &[2, 1, 0]];

pub(super) fn make<'a>(env: &'a Env<'a>) -> Vec<(u32, Program<'a>)> {
    let caches = Caches {
        head: env.subject.cache("skbuff_head_cache", 224),
        linear: [
            env.subject.kmalloc("kmalloc-4k", 4096),
            env.subject.kmalloc("kmalloc-1k", 1024),
        ],
    };
    let think = env.think(THINK_NS);
    let mut programs: Vec<(u32, Program<'a>)> = Vec::new();
    for (from, to) in pairs(env) {
        let sockets = Streams::new(BUFFER);
        for (side, cpu) in [from, to].into_iter().enumerate() {
            let sockets = Rc::clone(&sockets);
            let program = move |vm: &Vm| {
                let mut index = 0;
                let write = || {
                    let buffer = fill(vm, env, caches, index);
                    index = (index + 1) % FRAGMENTS.len();
                    vm.spend(think);
                    buffer
                };
                let read = |buffer: Buffer| {
                    copy(vm, env, &buffer);
                    vm.spend(think);
                    let last = buffer.last;
                    empty(vm, env, buffer);
                    if last {
                        vm.count_op();
                    }
                };
                sockets.run(vm, side, write, read, |buffer| empty(vm, env, buffer));
            };
            programs.push((cpu, Box::new(program)));
        }
    }
    programs
}

fn fill(vm: &Vm, env: &Env<'_>, caches: Caches, index: usize) -> Buffer {
    let objects = [caches.head, caches.linear[index]].map(|cache| {
        let object = env.subject.alloc(vm, cache);
        vm.use_object(object.as_ptr(), 192);
        (cache, object)
    });
    let orders = FRAGMENTS[index].iter().filter_map(|o| Order::new(*o));
    let buffer = Buffer {
        objects,
        blocks: orders
            .map(|order| (env.subject.alloc_pages(vm, order), order))
            .collect(),
        last: index + 1 == FRAGMENTS.len(),
    };
    copy(vm, env, &buffer);
    buffer
}

/// The data passes through the cache of whoever copies it.
fn copy(vm: &Vm, env: &Env<'_>, buffer: &Buffer) {
    for &(pfn, order) in &buffer.blocks {
        for page in 0..order.pages().0 as u32 {
            vm.use_page(env.subject.page_address(Pfn(pfn.0 + page)), 4096);
        }
        vm.use_own_data(8 * 64 * order.pages().0 as u64, OTHER_MISSES);
    }
}

fn empty(vm: &Vm, env: &Env<'_>, buffer: Buffer) {
    for (pfn, order) in buffer.blocks {
        // SAFETY: the buffer owned the block.
        unsafe { env.subject.free_pages(vm, pfn, order) };
    }
    for (cache, object) in buffer.objects {
        // SAFETY: the buffer owned its objects, each with its cache.
        unsafe { env.subject.free(vm, cache, object) };
    }
}
