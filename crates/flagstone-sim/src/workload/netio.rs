//! fio's netio job of 2008 on a 2-way machine: TCP over loopback, one sender, one receiver.
//!
//! A segment is a head (512 B with its clone), and data of 2 or 4 KiB — near the page size, where
//! a slab of order 0 holds two objects or one. The sender runs ahead in bursts until the window
//! closes, the receiver empties it; bursts are exponential with a long tail, so that the number
//! of slabs in use swings and empty slabs come and go. Whether the next burst finds them on the
//! partial list or must ask the page allocator is what min_partial decides; read the page
//! allocator calls and the spread over seeds, not seconds. An operation is one segment received.
//!
//! The burst lengths are a choice; the published figure is 50 runs' mean and deviation.

use super::Env;
use super::pairs::pairs;
use crate::fifo::Mailbox;
use crate::schedule::Program;
use crate::vm::Vm;
use core::ptr::NonNull;
use flagstone_core::base::CacheId;
use std::rc::Rc;

/// Segments in flight at most.
const WINDOW: usize = 128;
/// Mean length of a burst in segments.
const BURST: f64 = 24.0;
/// Nanoseconds of one segment outside the allocator on either side.
const THINK_NS: f64 = 6000.0;

struct Segment {
    head: NonNull<u8>,
    cache: CacheId,
    data: NonNull<u8>,
    /// Ends a burst: the receiver answers.
    last: bool,
}

pub(super) fn make<'a>(env: &'a Env<'a>) -> Vec<(u32, Program<'a>)> {
    let head = env.subject.cache("skbuff_fclone_cache", 456);
    let small = env.subject.kmalloc("kmalloc-2k", 2048);
    let large = env.subject.kmalloc("kmalloc-4k", 4096);
    let think = env.think(THINK_NS);
    let mut programs: Vec<(u32, Program<'a>)> = Vec::new();
    for (from, to) in pairs(env) {
        let stream = Rc::new(Mailbox::new(WINDOW));
        let answers = Rc::new(Mailbox::new(4));
        let (inbox, outbox) = (Rc::clone(&stream), Rc::clone(&answers));
        programs.push((
            from,
            Box::new(move |vm: &Vm| {
                while !vm.stopping() {
                    let burst = vm.chance.exponential(BURST).clamp(1, 8 * WINDOW as u64);
                    for index in 0..burst {
                        let cache = if vm.chance.happens(1, 2) {
                            small
                        } else {
                            large
                        };
                        let segment = Segment {
                            head: env.subject.alloc(vm, head),
                            cache,
                            data: env.subject.alloc(vm, cache),
                            last: index + 1 == burst,
                        };
                        vm.use_object(segment.head.as_ptr(), 192);
                        vm.use_object(segment.data.as_ptr(), 1448);
                        vm.spend(think / 2);
                        if let Err(segment) = stream.send(vm, segment) {
                            drop_segment(vm, env, head, &segment);
                            return;
                        }
                    }
                    if answers.receive(vm).is_none() {
                        return;
                    }
                }
            }),
        ));
        programs.push((
            to,
            Box::new(move |vm: &Vm| {
                while let Some(segment) = inbox.receive(vm) {
                    vm.use_object(segment.data.as_ptr(), 1448);
                    vm.spend(think);
                    drop_segment(vm, env, head, &segment);
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

fn drop_segment(vm: &Vm, env: &Env<'_>, head: CacheId, segment: &Segment) {
    // SAFETY: the segment owned its data, from this cache.
    unsafe { env.subject.free(vm, segment.cache, segment.data) };
    // SAFETY: likewise its head.
    unsafe { env.subject.free(vm, head, segment.head) };
}
