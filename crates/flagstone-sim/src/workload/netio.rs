//! fio's netio job of 2008 on a 2-way machine: TCP over loopback, one sender, one receiver.
//!
//! ```text
//!   sender's CPU     head 512 B + data 4 KiB, one block ──► socket ──► receiver's CPU
//!                    kept until acknowledged ◄──── answer, head + data of its own ────┘
//! ```
//!
//! The job (fio's `examples/netio`) sends 10 GiB in blocks of 4 KiB over one connection. The loopback
//! device of 2.6.26 gathers fragments but does not segment, and TCP then makes a buffer's own part as
//! long as fits one page with its header: `skbuff_fclone_cache` and `kmalloc-4096`, eight objects in a
//! slab of order 3. The sender allocates as a process, with interrupts on while a slab is made;
//! answers are dealt with in interrupts on its CPU. An operation is one block received.
//!
//! Within a run the sender is in one of two paces:
//!
//! - *running free*: the receiver keeps up, answers come for a few blocks at a time and between two
//!   allocations. What is in flight fits what the CPU has, and hardly a slab is made.
//! - *in step*: the sender fills the window (64 KiB, without scaling: sixteen blocks) and everything is
//!   acknowledged at once, so that a slab is needed and is empty again with each window. Here an
//!   interrupt waits whenever a slab is made. It finds the CPU without a slab and gets a new one for
//!   its answer; what it acknowledges makes the slabs that others left partial partial again; and when
//!   the interrupted allocation comes back with its own slab, the answer's is given up, empty. This is
//!   the only place where 2.6.26 asks min_partial on one node: a free that empties a slab never does.
//!
//! How much of a run is in step is drawn once for the run, as `u^5` of a uniform `u`: most runs
//! hardly ever, some nearly always. The mail's runs are spread like that (SLUB: from 22.80 s to 25.78,
//! 23.46 on average), and two programs that wake each other on two CPUs do fall in step. What in the
//! real runs decided it is not known. Drawn for the run too is what TCP itself takes, ±2.8 %.
//!
//! Choices: six slabs are as an earlier life left them, all but one object of each in use (five to
//! eight tell min_partial 5 and 10 apart, fewer or more do not); answers take the same two kinds of
//! memory as blocks, an upper bound of the effect (an answer's own data is smaller).

use super::Env;
use super::pairs::pairs;
use crate::chance::Chance;
use crate::costs::{NS, Ps};
use crate::fifo::Mailbox;
use crate::schedule::Program;
use crate::vm::Vm;
use core::cell::{Cell, RefCell};
use core::ptr::NonNull;
use flagstone_core::base::CacheId;
use std::collections::VecDeque;
use std::rc::Rc;

/// Blocks the receiver may be behind at most.
const BEHIND: usize = 64;
/// Blocks in a window of 64 KiB.
const WINDOW: u64 = 16;
/// Blocks of an answer while the sender runs free: a segment of 16 KiB, the loopback device's MTU.
const SEGMENT: u64 = 4;
/// Blocks that an answer is late, on average.
const LATE: f64 = 1.0;
/// Blocks in which a run has its share of both paces once, about 9 ms: paces last.
const CYCLE: u64 = 1024;
/// The exponent of the share of a run that is in step. Its mean is a sixth of its range: SLUB's real
/// times have theirs at 0.22, its system times at 0.15.
const RARENESS: u32 = 5;
/// Slabs an earlier life left with one free object each.
const LEFT: usize = 6;
/// Nanoseconds the receiver's program takes for a block: less than the sender's, which fills it.
const RECEIVER_NS: f64 = 4000.0;
/// Nanoseconds the sender's program takes for a block: 22.46 s (SLUB's mean without the second of the
/// job's `startdelay`) for 2.62 million blocks, less TCP's, the interrupts' and the allocator's part.
const PROGRAM_NS: f64 = 6600.0;
/// Nanoseconds of TCP and of copying for a block on either side: about half of SLUB's least system
/// time, 7.42 s, without the allocator.
const TCP_NS: f64 = 1350.0;
/// Standard deviation of that over runs: SLAB's of system time then comes out at 0.24 s (0.28).
const TCP_SPREAD: f64 = 0.028;
/// Picoseconds of an interrupt for each block it acknowledges.
const ACKNOWLEDGE: Ps = 100 * NS;

/// What is drawn once for a run.
#[derive(Clone, Copy)]
struct Run {
    /// Blocks of each cycle that are sent in step.
    in_step: u64,
    /// TCP's part of a block on either side.
    tcp: Ps,
}

impl Run {
    fn draw(chance: &Chance) -> Self {
        let u = chance.uniform();
        let in_step = (0..RARENESS).fold(1.0, |share, _| share * u);
        // Twelve uniforms: mean six, deviation one.
        let noise = (0..12).map(|_| chance.uniform()).sum::<f64>() - 6.0;
        let tcp_ns = TCP_NS * (1.0 + TCP_SPREAD * noise);
        Self {
            in_step: (in_step * CYCLE as f64).round() as u64,
            tcp: (tcp_ns * NS as f64) as Ps,
        }
    }
}

/// A buffer: a head and its data.
struct Buffer {
    head: NonNull<u8>,
    data: NonNull<u8>,
}

/// The connection: what is sent and not yet acknowledged, and how much of it has been received.
#[derive(Default)]
struct Connection {
    sent: RefCell<VecDeque<Buffer>>,
    received: Cell<usize>,
}

/// The sender's side.
struct Sender<'a> {
    env: &'a Env<'a>,
    head: CacheId,
    data: CacheId,
    connection: Rc<Connection>,
    stream: Rc<Mailbox<()>>,
    block: Ps,
}

impl Sender<'_> {
    fn take(&self, vm: &Vm) -> Buffer {
        Buffer {
            head: self.env.subject.alloc(vm, self.head),
            data: self.env.subject.alloc(vm, self.data),
        }
    }

    fn give_back(&self, vm: &Vm, buffer: Buffer) {
        // SAFETY: the buffer owned its data, from this cache.
        unsafe { self.env.subject.free(vm, self.data, buffer.data) };
        // SAFETY: likewise its head.
        unsafe { self.env.subject.free(vm, self.head, buffer.head) };
    }

    /// Takes the answer for all that has been received.
    fn acknowledge(&self, vm: &Vm) {
        let blocks = self.connection.received.take();
        if blocks == 0 {
            return;
        }
        let answer = self.take(vm);
        vm.spend(ACKNOWLEDGE * blocks as u64);
        for _ in 0..blocks {
            let acknowledged = self.connection.sent.borrow_mut().pop_front();
            if let Some(buffer) = acknowledged {
                self.give_back(vm, buffer);
            }
        }
        self.give_back(vm, answer);
    }

    /// Sends so many blocks; `false` when the run is over.
    fn send(&self, vm: &Vm, blocks: u64) -> bool {
        (0..blocks).all(|_| {
            let buffer = self.take(vm);
            vm.use_object(buffer.head.as_ptr(), 192);
            vm.use_object(buffer.data.as_ptr(), 4096);
            vm.spend(self.block);
            self.connection.sent.borrow_mut().push_back(buffer);
            self.stream.send(vm, ()).is_ok()
        })
    }

    /// Fills slabs and frees one object in the middle of each.
    fn live_before(&self, vm: &Vm) -> Vec<(CacheId, NonNull<u8>)> {
        let subject = self.env.subject;
        let mut left = Vec::new();
        for (cache, each) in [(self.head, 16), (self.data, 8)] {
            let all: Vec<_> = (0..LEFT * each).map(|_| subject.alloc(vm, cache)).collect();
            for (index, object) in all.into_iter().enumerate() {
                if index % each == each / 2 {
                    // SAFETY: it came from this cache, and nobody else knows it.
                    unsafe { subject.free(vm, cache, object) };
                } else {
                    left.push((cache, object));
                }
            }
        }
        left
    }

    fn run(&self, vm: &Vm, in_step: u64) {
        let left = self.live_before(vm);
        let arrived = |vm: &Vm| self.acknowledge(vm);
        vm.interruptible(&arrived, || {
            let mut sent = 0;
            while !vm.stopping() {
                let (blocks, going_on) = if sent % CYCLE < in_step {
                    (WINDOW, self.send(vm, WINDOW))
                } else {
                    let blocks = SEGMENT + vm.chance.exponential(LATE);
                    (blocks, vm.masked(|| self.send(vm, blocks)))
                };
                if !going_on {
                    break;
                }
                sent += blocks;
                vm.masked(|| self.acknowledge(vm));
            }
        });
        for buffer in self.connection.sent.take() {
            self.give_back(vm, buffer);
        }
        for (cache, object) in left {
            // SAFETY: it came from this cache, and nobody else knows it.
            unsafe { self.env.subject.free(vm, cache, object) };
        }
    }
}

pub(super) fn make<'a>(env: &'a Env<'a>) -> Vec<(u32, Program<'a>)> {
    let head = env.subject.cache("skbuff_fclone_cache", 456);
    let data = env.subject.kmalloc("kmalloc-4k", 4096);
    let run = Run::draw(&env.vm.chance);
    let block = env.think(PROGRAM_NS) + run.tcp;
    let taken = (RECEIVER_NS * NS as f64) as Ps + run.tcp;
    env.details.borrow_mut().extend([
        (
            "% in step".to_owned(),
            run.in_step as f64 / CYCLE as f64 * 100.0,
        ),
        (
            "TCP ns per block".to_owned(),
            2.0 * run.tcp as f64 / NS as f64,
        ),
    ]);
    let mut programs: Vec<(u32, Program<'a>)> = Vec::new();
    for (from, to) in pairs(env) {
        let stream = Rc::new(Mailbox::new(BEHIND));
        let connection: Rc<Connection> = Rc::default();
        let (inbox, receiver) = (Rc::clone(&stream), Rc::clone(&connection));
        let sender = Sender {
            env,
            head,
            data,
            connection,
            stream,
            block,
        };
        programs.push((from, Box::new(move |vm: &Vm| sender.run(vm, run.in_step))));
        programs.push((
            to,
            Box::new(move |vm: &Vm| {
                while inbox.receive(vm).is_some() {
                    vm.spend(taken);
                    receiver.received.set(receiver.received.get() + 1);
                    vm.count_op();
                }
            }),
        ));
    }
    programs
}
