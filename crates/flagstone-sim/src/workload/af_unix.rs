//! lmbench's UNIX test: a sender writes 64 KiB at a time into an AF_UNIX socket, a receiver reads.
//!
//! The kernel cuts a write into buffers of at most 16 KiB of linear data (an order-2 block) and
//! 32 KiB of fragments (an order-3 block), with a 256-byte head each; 64 KiB are two such buffers
//! here, one of them short. The sender allocates all of it, the receiver frees all of it on
//! another CPU: every block crosses from one CPU's pageset to another's through the zone.
//! The socket's buffer holds 212,992 bytes: four buffers of 48 KiB, then the sender sleeps.
//!
//! An operation is 64 KiB received. The copies run through the data cache: pages that were freed
//! long ago are cold, which is the cost of large pagesets the series reports.

use super::Env;
use super::pairs::pairs;
use crate::fifo::Mailbox;
use crate::schedule::Program;
use crate::vm::Vm;
use core::ptr::NonNull;
use flagstone_core::base::{CacheId, Order, Pfn};
use std::rc::Rc;

/// Buffers a socket holds.
const BUFFER: usize = 4;
/// Nanoseconds of one buffer outside the allocator on either side: a system call, a copy of
/// 32 KiB at about 10 GB/s with everything in cache.
const THINK_NS: f64 = 4000.0;

struct Buffer {
    head: NonNull<u8>,
    blocks: Vec<(Pfn, Order)>,
    last: bool,
}

/// What one buffer holds: its blocks by order, and the bytes of data in them.
const FULL: (&[u32], usize) = (&[2, 3], 48 << 10);
const SHORT: (&[u32], usize) = (&[2], 16 << 10);

pub(super) fn make<'a>(env: &'a Env<'a>) -> Vec<(u32, Program<'a>)> {
    let head = env.subject.cache("skbuff_head_cache", 224);
    let think = env.think(THINK_NS);
    let mut programs: Vec<(u32, Program<'a>)> = Vec::new();
    for (from, to) in pairs(env) {
        let socket = Rc::new(Mailbox::new(BUFFER));
        let inbox = Rc::clone(&socket);
        programs.push((
            from,
            Box::new(move |vm: &Vm| {
                while !vm.stopping() {
                    for (index, part) in [FULL, SHORT].into_iter().enumerate() {
                        let buffer = fill(vm, env, head, part, index == 1);
                        vm.spend(think);
                        if let Err(buffer) = socket.send(vm, buffer) {
                            empty(vm, env, head, buffer);
                            return;
                        }
                    }
                }
            }),
        ));
        programs.push((
            to,
            Box::new(move |vm: &Vm| {
                while let Some(buffer) = inbox.receive(vm) {
                    read(vm, env, &buffer);
                    vm.spend(think);
                    let last = buffer.last;
                    empty(vm, env, head, buffer);
                    if last {
                        vm.count_op();
                    }
                }
            }),
        ));
    }
    programs
}

fn fill(vm: &Vm, env: &Env<'_>, cache: CacheId, part: (&[u32], usize), last: bool) -> Buffer {
    let head = env.subject.alloc(vm, cache);
    vm.use_object(head.as_ptr(), 192);
    let orders = part.0.iter().filter_map(|order| Order::new(*order));
    let blocks = orders
        .map(|order| (env.subject.alloc_pages(vm, order), order))
        .collect();
    let buffer = Buffer { head, blocks, last };
    read(vm, env, &buffer);
    buffer
}

/// The data passes through the cache of whoever copies it.
fn read(vm: &Vm, env: &Env<'_>, buffer: &Buffer) {
    for &(pfn, order) in &buffer.blocks {
        for page in 0..order.pages().0 as u32 {
            vm.use_page(env.subject.page_address(Pfn(pfn.0 + page)), 4096);
        }
        vm.use_own_data(8 * 64 * order.pages().0 as u64);
    }
}

fn empty(vm: &Vm, env: &Env<'_>, cache: CacheId, buffer: Buffer) {
    for (pfn, order) in buffer.blocks {
        // SAFETY: the buffer owned the block.
        unsafe { env.subject.free_pages(vm, pfn, order) };
    }
    // SAFETY: the buffer owned its head, from this cache.
    unsafe { env.subject.free(vm, cache, buffer.head) };
}
