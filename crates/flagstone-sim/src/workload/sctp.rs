//! netperf SCTP_STREAM_MANY: pairs of processes, each streaming messages over loopback SCTP.
//!
//! A message is a chunk: two heads (256 B), a chunk object (256 B), small address and event
//! objects (64 B), and its data in an order-2 block. The sender allocates; the receiver, where
//! loopback's soft interrupt usually runs, frees. Every eighth message an acknowledgement (head
//! and 1 KiB) goes the other way.
//!
//! Nothing on that path is a single page: a kernel's buffer is one `kmalloc`, and one of more than
//! 8 KiB is a block of pages (10 KiB with its headers: order 2). So a receiver frees one high order
//! after the other, and a rule that asks for the previous free (patch 1) changes nothing.
//!
//! The sizes and the ratio are choices, not published. An operation is a message received.

use super::Env;
use super::pairs::{Streams, pairs};
use crate::fifo::Mailbox;
use crate::schedule::Program;
use crate::vm::Vm;
use core::ptr::NonNull;
use flagstone_core::base::{CacheId, Order, Pfn};
use std::rc::Rc;

/// Messages in flight for one association: a receive window of about 200 KiB.
const WINDOW: usize = 12;
/// Nanoseconds of one message outside the allocator on either side: checksum, protocol, copy. Fitted
/// to the base row's lock share, 2.1 % (docs/fits.md).
pub(super) const THINK_NS: f64 = 9000.0;

/// Uses of other data that miss, in 1024: so that the base row shows the published 1.3 % of misses.
const OTHER_MISSES: u64 = 15;

#[derive(Clone, Copy)]
struct Caches {
    head: CacheId,
    chunk: CacheId,
    small: CacheId,
    ack: CacheId,
}

struct Message {
    objects: [(CacheId, NonNull<u8>); 4],
    data: Pfn,
}

pub(super) fn make<'a>(env: &'a Env<'a>) -> Vec<(u32, Program<'a>)> {
    let caches = Caches {
        head: env.subject.cache("skbuff_head_cache", 224),
        chunk: env.subject.cache("sctp_chunk", 240),
        small: env.subject.kmalloc("kmalloc-64", 64),
        ack: env.subject.kmalloc("kmalloc-1k", 1024),
    };
    let think = env.think(THINK_NS);
    let mut programs: Vec<(u32, Program<'a>)> = Vec::new();
    for (from, to) in pairs(env) {
        let streams = Streams::new(WINDOW);
        let acks = [0, 1].map(|_| Rc::new(Mailbox::new(1024)));
        for (side, cpu) in [from, to].into_iter().enumerate() {
            let streams = Rc::clone(&streams);
            let (inbox, outbox) = (Rc::clone(&acks[side]), Rc::clone(&acks[1 - side]));
            let program = move |vm: &Vm| {
                let mut received = 0u32;
                let write = || {
                    while let Some((cache, ack)) = inbox.poll(vm) {
                        // SAFETY: the receiver allocated it from this cache and gave it up.
                        unsafe { env.subject.free(vm, cache, ack) };
                    }
                    let message = build(vm, env, caches);
                    vm.spend(think);
                    message
                };
                let read = |message: Message| {
                    for page in 0..4 {
                        vm.use_page(env.subject.page_address(Pfn(message.data.0 + page)), 4096);
                    }
                    vm.use_own_data(4 * 64 * 8, OTHER_MISSES);
                    vm.spend(think);
                    release(vm, env, message);
                    received = received.wrapping_add(1);
                    if received.is_multiple_of(8) && !outbox.is_full() {
                        let ack = env.subject.alloc(vm, caches.ack);
                        if let Err((cache, ack)) = outbox.send(vm, (caches.ack, ack)) {
                            // SAFETY: just allocated from this cache.
                            unsafe { env.subject.free(vm, cache, ack) };
                        }
                    }
                    vm.count_op();
                };
                streams.run(vm, side, write, read, |message| release(vm, env, message));
            };
            programs.push((cpu, Box::new(program)));
        }
    }
    programs
}

fn build(vm: &Vm, env: &Env<'_>, caches: Caches) -> Message {
    let objects = [caches.head, caches.head, caches.chunk, caches.small].map(|cache| {
        let object = env.subject.alloc(vm, cache);
        vm.use_object(object.as_ptr(), 64);
        (cache, object)
    });
    let order = Order::new(2).unwrap_or(Order::ZERO);
    let data = env.subject.alloc_pages(vm, order);
    for page in 0..4 {
        vm.use_page(env.subject.page_address(Pfn(data.0 + page)), 4096);
    }
    vm.use_own_data(4 * 64 * 8, OTHER_MISSES);
    Message { objects, data }
}

fn release(vm: &Vm, env: &Env<'_>, message: Message) {
    let order = Order::new(2).unwrap_or(Order::ZERO);
    // SAFETY: the message owned the block.
    unsafe { env.subject.free_pages(vm, message.data, order) };
    for (cache, object) in message.objects {
        // SAFETY: the message owned its objects, each with its cache.
        unsafe { env.subject.free(vm, cache, object) };
    }
}
