//! A block device served by another process: requests are made on one CPU and ended on another.
//!
//! ```text
//!   submitter, CPU a   bio (192 B) ── queue ──► server, CPU b   completes and frees it
//! ```
//!
//! ublk with an empty target, as reported when sheaves came: a bio is all that the slab layer sees of a request, since
//! requests and their tags are made in advance. Every object is freed on another CPU than the one that took it, so
//! nothing that a CPU keeps for itself comes back to it. Pairs sit on one socket where possible.
//!
//! The times and the depth of the queue are choices, not published. An operation is a request ended.

use super::Env;
use super::pairs::pairs;
use crate::fifo::Mailbox;
use crate::schedule::Program;
use crate::vm::Vm;
use std::rc::Rc;

/// Requests in flight: the queue depth of the reports' benchmark.
const DEPTH: usize = 64;

/// Nanoseconds of one request outside the allocator on either side.
const THINK_NS: f64 = 500.0;

/// Bytes of a bio with its few vectors.
const BIO_BYTES: usize = 192;

pub(super) fn make<'a>(env: &'a Env<'a>) -> Vec<(u32, Program<'a>)> {
    let bio = env.subject.cache("bio-192", BIO_BYTES);
    let think = env.think(THINK_NS);
    let mut programs: Vec<(u32, Program<'a>)> = Vec::new();
    for (from, to) in pairs(env) {
        let queue = Rc::new(Mailbox::new(DEPTH));
        let requests = Rc::clone(&queue);
        let submitter = move |vm: &Vm| {
            while !vm.stopping() {
                let object = env.subject.alloc(vm, bio);
                vm.use_object(object.as_ptr(), BIO_BYTES);
                vm.spend(think);
                if let Err(object) = requests.send(vm, object) {
                    // SAFETY: just allocated from this cache.
                    unsafe { env.subject.free(vm, bio, object) };
                }
            }
        };
        let server = move |vm: &Vm| {
            while let Some(object) = queue.receive(vm) {
                vm.use_object(object.as_ptr(), BIO_BYTES);
                vm.spend(think);
                // SAFETY: the submitter took it from this cache and gave it up.
                unsafe { env.subject.free(vm, bio, object) };
                vm.count_op();
            }
        };
        programs.push((from, Box::new(submitter)));
        programs.push((to, Box::new(server)));
    }
    programs
}
