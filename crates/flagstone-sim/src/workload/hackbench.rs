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
//! ```text
//!   sender    alloc head and data · copy · socket's lock: queue · go on to the next receiver
//!   receiver  socket's lock: unlink · copy · free data and head
//! ```
//!
//! Senders of a group write to its receivers in one and the same order, as the program does, and
//! stop at the same full inbox: they then run in convoys, and queue for the socket's lock as they
//! do for the lists of slabs. That lock is no allocator's, but a profile counts waiting for it
//! under the same name.
//!
//! A group is 40 tasks; here a group is as many CPUs as its tasks would keep busy at once, chosen
//! across the machine as the scheduler would: task i belongs to group i mod groups. Left out:
//! context switches and wake-ups (in the think time), the locks of run queues, process start and
//! exit.

use super::Env;
use super::mmap1::earlier_life;
use crate::costs::{NS, Ps, US};
use crate::fifo::Mailbox;
use crate::schedule::Program;
use crate::vm::Vm;
use crate::world::Virtual;
use core::ptr::NonNull;
use flagstone_core::base::CacheId;
use flagstone_core::platform::{Lock, LockKind};
use std::rc::Rc;

/// Messages that fit a socket's buffer: 212,992 bytes of 2304 each (head, data, overheads).
const BUFFER: usize = 92;
/// Receivers that live on one CPU: 1792 tasks on 224 CPUs, half of them receivers.
const RECEIVERS: usize = 4;
/// CPUs that one group of 40 tasks keeps busy.
const GROUP: usize = 8;
/// Nanoseconds of one message outside the allocator: copies, system calls, switches. Fitted to the
/// base row's share of lock waiting, 22.2 % (docs/fits.md); the base's throughput is the scale. There are two
/// states, and a seed may still drift between them.
pub(super) const THINK_NS: f64 = 1800.0;
/// A sender holds its receiver's socket: two nested locks, credentials, a link at the queue's
/// tail. An estimate of some 250 instructions.
const QUEUEING: Ps = 80 * NS;
/// A receiver holds its own socket to look and again to unlink. An estimate.
const UNLINKING: Ps = 40 * NS;

/// Objects of each cache that a CPU takes and gives back in disorder before it begins, as in
/// mmap1: two and a half times what its inboxes hold.
const EARLIER: usize = 1000;

struct Message {
    head: NonNull<u8>,
    data: NonNull<u8>,
}

/// A receiver's socket.
struct Socket {
    lock: Lock<()>,
    inbox: Mailbox<Message>,
}

impl Socket {
    fn new() -> Self {
        Self {
            lock: Lock::new(LockKind::Heap, ()),
            inbox: Mailbox::new(BUFFER),
        }
    }

    /// Queues a message; hands it back if there is no room for it.
    fn queue(&self, vm: &Vm, message: Message) -> Result<(), Message> {
        let _held = self.lock.lock::<Virtual>();
        vm.spend(QUEUEING);
        self.inbox.offer(vm, message)
    }

    /// The oldest message.
    fn unlink(&self, vm: &Vm) -> Option<Message> {
        let _held = self.lock.lock::<Virtual>();
        vm.spend(UNLINKING);
        let message = self.inbox.poll(vm)?;
        vm.expect_next(message.data.as_ptr());
        Some(message)
    }
}

/// A machine's sockets, and who writes to which.
struct Net {
    sockets: Vec<Socket>,
    groups: usize,
}

impl Net {
    fn new(tasks: usize) -> Self {
        Self {
            sockets: (0..RECEIVERS * tasks).map(|_| Socket::new()).collect(),
            groups: tasks.div_ceil(GROUP).max(1),
        }
    }

    /// The sockets a task's senders write to, in their order.
    fn written_by(&self, task: usize) -> Vec<usize> {
        let tasks = self.sockets.len() / RECEIVERS;
        let group = (task % self.groups..tasks).step_by(self.groups);
        group
            .flat_map(|peer| peer * RECEIVERS..(peer + 1) * RECEIVERS)
            .collect()
    }

    /// The sockets of the receivers that live with a task.
    fn read_by(&self, task: usize) -> &[Socket] {
        &self.sockets[task * RECEIVERS..(task + 1) * RECEIVERS]
    }
}

pub(super) fn make<'a>(env: &'a Env<'a>) -> Vec<(u32, Program<'a>)> {
    let head_cache = env.subject.cache("skbuff_head_cache", 224);
    let data_cache = env.subject.kmalloc("kmalloc-1k", 1024);
    let caches = [head_cache, data_cache];
    let think = env.think(THINK_NS);
    let net = Rc::new(Net::new(env.cpus.len()));
    let programs = env.cpus.iter().enumerate().map(|(task, &cpu)| {
        let net = Rc::clone(&net);
        let program: Program<'a> = Box::new(move |vm: &Vm| {
            let order = net.written_by(task);
            let own = net.read_by(task);
            let (mut to, mut turn) = (0, 0);
            for cache in caches {
                let mut held = Vec::new();
                earlier_life(vm, env.subject, cache, EARLIER, |object| held.push(object));
                vm.sleep_until(vm.now() + 100 * US);
                for object in held {
                    // SAFETY: of this cache, handed over by `earlier_life`, known to nobody else.
                    unsafe { env.subject.free(vm, cache, object) };
                }
            }
            while !vm.stopping() {
                let mut sent = 0;
                // As sender: until the next inbox is full, or a time slice is over.
                while sent < BUFFER {
                    let socket = &net.sockets[order[to]];
                    if socket.inbox.is_full() {
                        break;
                    }
                    let message = write(vm, env, caches);
                    vm.spend(think / 2);
                    if let Err(message) = socket.queue(vm, message) {
                        drop_message(vm, env, &message, caches);
                        break;
                    }
                    to = (to + 1) % order.len();
                    sent += 1;
                }
                // As one of its receivers that have something to do: everything that came.
                let mut received = 0;
                let ready = (0..RECEIVERS).find(|n| !own[(turn + n) % RECEIVERS].inbox.is_empty());
                if let Some(after) = ready {
                    turn = (turn + after) % RECEIVERS;
                    while let Some(message) = own[turn].unlink(vm) {
                        vm.use_object(message.data.as_ptr(), 512);
                        vm.spend(think / 2);
                        drop_message(vm, env, &message, caches);
                        vm.count_op();
                        received += 1;
                    }
                    turn = (turn + 1) % RECEIVERS;
                }
                if sent == 0 && received == 0 {
                    vm.sleep_until(vm.now() + 5 * US);
                }
            }
        });
        (cpu, program)
    });
    programs.collect()
}

fn write(vm: &Vm, env: &Env<'_>, [head, data]: [CacheId; 2]) -> Message {
    let head = env.subject.alloc(vm, head);
    let data = env.subject.alloc(vm, data);
    vm.use_object(head.as_ptr(), 192);
    vm.use_object(data.as_ptr(), 512);
    Message { head, data }
}

fn drop_message(vm: &Vm, env: &Env<'_>, message: &Message, [head, data]: [CacheId; 2]) {
    // SAFETY: the message owns both objects, which came from these caches.
    unsafe { env.subject.free(vm, data, message.data) };
    // SAFETY: as above.
    unsafe { env.subject.free(vm, head, message.head) };
}
