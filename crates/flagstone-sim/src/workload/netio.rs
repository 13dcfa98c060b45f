//! fio's netio job of 2008 on a 2-way machine: TCP over loopback, one sender, one receiver.
//!
//! ```text
//!   sender's CPU     head 512 B + data 2 or 4 KiB ──► window ──► receiver's CPU
//!                    kept until acknowledged ◄── an answer for every second segment ──┘
//!   interrupt        one connection's answers: head + data taken, looked at, two segments'
//!                    memory freed, the answer's own freed
//! ```
//!
//! Sizes are near the page size, where a slab of order 3 holds eight objects or sixteen. Segments
//! belong to sixteen connections at random, so that what is acknowledged together lies in different
//! slabs. The sender runs ahead in bursts, exponential with a long tail. An operation is one segment
//! received.
//!
//! Answers come by interrupt: between segments, and whenever the sender's CPU makes a slab, which
//! it does with interrupts on. It has no slab of that cache then, so the first answer gets a new one; what
//! is acknowledged makes other slabs partial; and when the interrupted allocation comes back with
//! its own slab, the answers' slab is given up, empty again. This is the only place where 2.6.26 asks
//! min_partial on one node: a free that empties a slab never does.
//!
//! That an interrupt waits whenever a slab is made is an upper bound of the effect. Read the
//! page-allocator calls and their spread over seeds, not seconds. Bursts, connections and the rate of
//! interrupts are choices.

use super::Env;
use super::pairs::pairs;
use crate::costs::{NS, Ps};
use crate::fifo::Mailbox;
use crate::schedule::Program;
use crate::vm::Vm;
use core::cell::{Cell, RefCell};
use core::ptr::NonNull;
use flagstone_core::base::CacheId;
use std::collections::VecDeque;
use std::rc::Rc;

/// Segments on their way to the receiver at most.
const WINDOW: usize = 512;
/// Mean length of a burst in segments.
const BURST: f64 = 24.0;
/// Connections of the job.
const CONNECTIONS: u32 = 16;
/// Segments between two interrupts that come while no slab is made, on average.
const BETWEEN: u32 = 16;
/// Nanoseconds of one segment outside the allocator on either side.
const THINK_NS: f64 = 6000.0;
/// Picoseconds of one answer in an interrupt.
const ANSWER: u64 = 1000 * NS;
/// Segments one answer acknowledges (TCP's delayed acknowledgement).
const ACKNOWLEDGES: usize = 2;

#[derive(Clone, Copy)]
struct Caches {
    head: CacheId,
    data: [CacheId; 2],
}

/// A buffer: a head and its data.
struct Buffer {
    head: NonNull<u8>,
    cache: CacheId,
    data: NonNull<u8>,
}

/// A segment on its way: its connection, and whether it ends a burst.
struct Segment {
    connection: usize,
    last: bool,
}

/// A connection: what is sent and not yet acknowledged, and how much of it has been received.
#[derive(Default)]
struct Connection {
    sent: RefCell<VecDeque<Buffer>>,
    received: Cell<usize>,
}

impl Caches {
    fn take(self, vm: &Vm, env: &Env<'_>) -> Buffer {
        let cache = self.data[usize::from(vm.chance.happens(1, 2))];
        Buffer {
            head: env.subject.alloc(vm, self.head),
            cache,
            data: env.subject.alloc(vm, cache),
        }
    }

    fn give_back(self, vm: &Vm, env: &Env<'_>, buffer: Buffer) {
        // SAFETY: the buffer owned its data, from this cache.
        unsafe { env.subject.free(vm, buffer.cache, buffer.data) };
        // SAFETY: likewise its head.
        unsafe { env.subject.free(vm, self.head, buffer.head) };
    }
}

/// Takes the answers of the connection that has most of them, one after the other.
fn interrupt(vm: &Vm, env: &Env<'_>, caches: Caches, connections: &[Connection]) {
    let busiest = connections.iter().max_by_key(|c| c.received.get());
    let Some(connection) = busiest else { return };
    let mut left = connection.received.take();
    while left > 0 {
        let answer = caches.take(vm, env);
        vm.spend(ANSWER);
        for _ in 0..ACKNOWLEDGES.min(left) {
            let acknowledged = connection.sent.borrow_mut().pop_front();
            if let Some(buffer) = acknowledged {
                caches.give_back(vm, env, buffer);
            }
        }
        left = left.saturating_sub(ACKNOWLEDGES);
        caches.give_back(vm, env, answer);
    }
}

pub(super) fn make<'a>(env: &'a Env<'a>) -> Vec<(u32, Program<'a>)> {
    let caches = Caches {
        head: env.subject.cache("skbuff_fclone_cache", 456),
        data: [
            env.subject.kmalloc("kmalloc-2k", 2048),
            env.subject.kmalloc("kmalloc-4k", 4096),
        ],
    };
    let think = env.think(THINK_NS);
    let mut programs: Vec<(u32, Program<'a>)> = Vec::new();
    for (from, to) in pairs(env) {
        let stream = Rc::new(Mailbox::new(WINDOW));
        let answers = Rc::new(Mailbox::new(4));
        let connections: Rc<[Connection]> =
            (0..CONNECTIONS).map(|_| Connection::default()).collect();
        let (inbox, outbox) = (Rc::clone(&stream), Rc::clone(&answers));
        let receivers = Rc::clone(&connections);
        programs.push((
            from,
            Box::new(move |vm: &Vm| {
                let arrived = |vm: &Vm| interrupt(vm, env, caches, &connections);
                let send_bursts = || {
                    while !vm.stopping() {
                        if !send_burst(vm, env, caches, think, &connections, &stream)
                            || answers.receive(vm).is_none()
                        {
                            break;
                        }
                    }
                };
                vm.interruptible(&arrived, send_bursts);
                for connection in connections.iter() {
                    for buffer in connection.sent.take() {
                        caches.give_back(vm, env, buffer);
                    }
                }
            }),
        ));
        programs.push((
            to,
            Box::new(move |vm: &Vm| {
                while let Some(segment) = inbox.receive(vm) {
                    vm.spend(think);
                    let received = &receivers[segment.connection].received;
                    received.set(received.get() + 1);
                    vm.count_op();
                    if segment.last && outbox.send(vm, ()).is_err() {
                        return;
                    }
                }
            }),
        ));
    }
    programs
}

/// Sends one burst; `false` when the run is over.
fn send_burst(
    vm: &Vm,
    env: &Env<'_>,
    caches: Caches,
    think: Ps,
    connections: &[Connection],
    stream: &Mailbox<Segment>,
) -> bool {
    let burst = vm.chance.exponential(BURST).clamp(1, 8 * WINDOW as u64);
    for index in 0..burst {
        let buffer = caches.take(vm, env);
        vm.use_object(buffer.head.as_ptr(), 192);
        vm.use_object(buffer.data.as_ptr(), 1448);
        vm.spend(think / 2);
        let connection = vm.chance.below(CONNECTIONS) as usize;
        connections[connection].sent.borrow_mut().push_back(buffer);
        let segment = Segment {
            connection,
            last: index + 1 == burst,
        };
        if stream.send(vm, segment).is_err() {
            return false;
        }
        if vm.chance.happens(1, BETWEEN) {
            vm.masked(|| interrupt(vm, env, caches, connections));
        }
    }
    true
}
