//! hackbench: groups of 20 senders and 20 receivers; every sender writes to every receiver.
//!
//! One message over an AF_UNIX socket costs two allocations by the sender (a 256-byte head and
//! 1 KiB of data), both freed by the receiver: a trace of a real run shows 320,161 and 320,011
//! of them with all frees in another task. There are far more tasks than CPUs, so a CPU is sender
//! and receiver in turn: it fills inboxes of its group for a time slice, then lets one of the
//! receivers that live on it empty its inbox. Messages of one slab therefore lie in many inboxes
//! and are freed at many times, which is what fragments its slabs. An operation is one message
//! received.
//!
//! A group is 40 tasks; here a group is as many CPUs as its tasks would keep busy at once, chosen
//! across the machine as the scheduler would: task i belongs to group i mod groups. Left out:
//! context switches (in the think time), process start and exit.

use super::Env;
use crate::fifo::Mailbox;
use crate::schedule::Program;
use crate::vm::Vm;
use core::ptr::NonNull;
use std::rc::Rc;

/// Messages that fit a socket's buffer: 212,992 bytes of 2304 each (head, data, overheads).
const BUFFER: usize = 92;
/// Receivers that live on one CPU: 1792 tasks on 224 CPUs, half of them receivers.
const RECEIVERS: usize = 4;
/// CPUs that one group of 40 tasks keeps busy.
const GROUP: usize = 8;
/// Nanoseconds of one message outside the allocator: copies, system calls, switches. Fitted to the
/// base row's share of lock waiting, 22.2 % (18.5 % after 64 ms, still rising); the base's
/// throughput is the scale. Tried: 2600 (from a trace on two CPUs of 3.2 µs a message: no
/// contention at all), 1000, 750, 500, 300.
const THINK_NS: f64 = 750.0;

struct Message {
    head: NonNull<u8>,
    data: NonNull<u8>,
}

pub(super) fn make<'a>(env: &'a Env<'a>) -> Vec<(u32, Program<'a>)> {
    let subject = env.subject;
    let head_cache = subject.cache("skbuff_head_cache", 224);
    let data_cache = subject.kmalloc("kmalloc-1k", 1024);
    let think = env.think(THINK_NS);
    let inboxes: Rc<Vec<Mailbox<Message>>> = Rc::new(
        (0..RECEIVERS * env.cpus.len())
            .map(|_| Mailbox::new(BUFFER))
            .collect(),
    );
    let tasks = env.cpus.len();
    let groups = env.cpus.len().div_ceil(GROUP).max(1);
    let programs = env.cpus.iter().enumerate().map(|(task, &cpu)| {
        let inboxes = Rc::clone(&inboxes);
        let program: Program<'a> = Box::new(move |vm: &Vm| {
            let peers: Vec<usize> = (0..tasks)
                .filter(|peer| peer % groups == task % groups && *peer != task)
                .collect();
            let peers = if peers.is_empty() { vec![task] } else { peers };
            while !vm.stopping() {
                let mut sent = 0;
                // As sender: until the next inbox is full, or a time slice is over.
                while sent < BUFFER {
                    let peer = peers[vm.chance.below(peers.len() as u32) as usize];
                    let receiver = vm.chance.below(RECEIVERS as u32) as usize;
                    let to = peer * RECEIVERS + receiver;
                    if inboxes[to].is_full() {
                        break;
                    }
                    let head = subject.alloc(vm, head_cache);
                    let data = subject.alloc(vm, data_cache);
                    vm.use_object(head.as_ptr(), 192);
                    vm.use_object(data.as_ptr(), 512);
                    vm.spend(think / 2);
                    if let Err(message) = inboxes[to].offer(vm, Message { head, data }) {
                        drop_message(vm, env, &message, head_cache, data_cache);
                        break;
                    }
                    sent += 1;
                }
                // As one of its receivers: everything that came for that one.
                let mut received = 0;
                let receiver = vm.chance.below(RECEIVERS as u32) as usize;
                while let Some(message) = inboxes[task * RECEIVERS + receiver].poll(vm) {
                    vm.use_object(message.data.as_ptr(), 512);
                    vm.spend(think / 2);
                    drop_message(vm, env, &message, head_cache, data_cache);
                    vm.count_op();
                    received += 1;
                }
                if sent == 0 && received == 0 {
                    vm.sleep_until(vm.now() + 5 * crate::costs::US);
                }
            }
        });
        (cpu, program)
    });
    programs.collect()
}

fn drop_message(
    vm: &Vm,
    env: &Env<'_>,
    message: &Message,
    head: flagstone_core::base::CacheId,
    data: flagstone_core::base::CacheId,
) {
    // SAFETY: the message owns both objects, which came from these caches.
    unsafe { env.subject.free(vm, data, message.data) };
    // SAFETY: as above.
    unsafe { env.subject.free(vm, head, message.head) };
}
