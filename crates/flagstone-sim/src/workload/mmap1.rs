//! will-it-scale mmap1 and mmap2: every task maps 128 MiB and unmaps it, forever; mmap1 of anonymous memory,
//! mmap2 of a file of its own.
//!
//! What a kernel allocates for one operation:
//!
//! ```text
//!            to 6.12, as read from 6.5's code                  from 6.18, as recorded on 6.18.44
//!   mmap     vm_area_struct, its lock object,                  vm_area_struct,
//!            7 maple nodes (256 B), 1 used, 6 given back       1 maple node
//!   munmap   7 maple nodes, 1 used, 6 given back               1 maple node
//!            area and lock freed after a grace period          area freed at once
//!   both     the node that was replaced, by call_rcu           by kfree_rcu
//! ```
//!
//! Recorded: 183,552 operations of mmap1 and 2000 of mmap2 of one task with events of all caches; mmap2 allocates the
//! same, for private and for shared mappings, and takes 0.45 µs longer on the same CPU (4.1 beside 3.7 µs, medians
//! of 5).
//!
//! An operation is one mmap with its munmap: the harness counts those per process. Task i sits on
//! core i, as the harness pins it: 56 tasks fill one socket, so that each node's list serves 56
//! tasks at 56 and at 112. Spread over both, 56 tasks would not contend at all, and no setting
//! that meets the published share of 112 would meet the throughput of 56. Preallocation crosses slab boundaries, which is what makes
//! slabs of the maple cache travel through the node list.
//!
//! Left out: the maple tree itself, page tables, the fault path (no page is touched), and what mmap2 notes of
//! its own file.

use super::Env;
use crate::schedule::Program;
use crate::vm::Vm;
use crate::{Deferred, subject::Subject};
use core::ptr::NonNull;
use flagstone_core::base::CacheId;
use flagstone_core::policy::{Policy, SheafRule};

/// How a node that was replaced is given back.
type Later = unsafe fn(&Vm, &Subject, CacheId, NonNull<u8>);

/// What a kernel allocates for a mapping.
#[derive(Clone, Copy)]
struct Steps {
    /// Nodes taken for a store, of which one is used.
    nodes: usize,
    /// The area has a lock object of its own, and both wait for a grace period.
    lock: bool,
    /// What becomes of a node that was replaced.
    later: Later,
}

impl Steps {
    /// 6.5: seven nodes are the worst case of a split over three levels.
    const V6_5: Self = Self {
        nodes: 7,
        lock: true,
        later: call_rcu,
    };

    /// 6.18.
    const V6_18: Self = Self {
        nodes: 1,
        lock: false,
        later: kfree_rcu,
    };

    /// The steps of the kernel whose policy this is; of 6.5, the document's kernel, for `flagstone`.
    fn of(policy: &Policy) -> Self {
        match policy.sheaf_rule {
            SheafRule::OptIn | SheafRule::BySize(..) => Self::V6_18,
            SheafRule::None | SheafRule::Bytes => Self::V6_5,
        }
    }
}

/// Nanoseconds of one operation outside the allocator: fitted, together with the profile's transfer
/// inside a socket, to the four base figures (docs/fits.md).
pub(super) const THINK_NS: f64 = 1600.0;

/// Nanoseconds that a mapping of a file takes longer, measured on one CPU of the recording's machine.
const FILE_NS: f64 = 450.0;

/// Nodes each task takes and gives back in disorder before it begins. Slabs of a server that has
/// been up for a while are fragmented; from empty memory that takes 200 ms of virtual time, in
/// which rows drift by tens of percent. With this many, halves of 32 ms agree.
const EARLIER: usize = 6000;

struct Caches {
    area: CacheId,
    lock: Option<CacheId>,
    node: CacheId,
}

/// mmap1 as the policy's kernel does it.
pub(super) fn make<'a>(env: &'a Env<'a>) -> Vec<(u32, Program<'a>)> {
    let steps = Steps::of(env.subject.slabs().policy());
    maps(env, steps, THINK_NS)
}

/// mmap1 as 6.18 does it, under every policy.
pub(super) fn make_6_18<'a>(env: &'a Env<'a>) -> Vec<(u32, Program<'a>)> {
    maps(env, Steps::V6_18, THINK_NS)
}

/// mmap2 as 6.18 does it, under every policy.
pub(super) fn mmap2<'a>(env: &'a Env<'a>) -> Vec<(u32, Program<'a>)> {
    maps(env, Steps::V6_18, THINK_NS + FILE_NS)
}

fn maps<'a>(env: &'a Env<'a>, steps: Steps, think_ns: f64) -> Vec<(u32, Program<'a>)> {
    let subject = env.subject;
    // Sheaves of 32 are what 6.18 asks for these two caches; other policies ignore the wish.
    let caches = std::rc::Rc::new(Caches {
        area: subject.cache_with_sheaves("vm_area_struct", 192, 32),
        lock: steps.lock.then(|| subject.cache("vma_lock", 40)),
        node: subject.cache_with_sheaves("maple_node", 256, 32),
    });
    let think = env.think(think_ns);
    env.vm.will_prepare(env.cpus.len() as u32);
    let programs = env.cpus.iter().map(|&cpu| {
        let caches = caches.clone();
        let program: Program<'a> = Box::new(move |vm: &Vm| {
            let store = |tree| store(vm, subject, caches.node, steps, tree);
            // The nodes that hold the tree now: one is replaced by every store.
            earlier_life(vm, subject, caches.node, EARLIER, |node| {
                // SAFETY: taken from this cache, known to nobody else.
                unsafe { (steps.later)(vm, subject, caches.node, node) };
            });
            vm.prepared();
            let mut tree = subject.alloc(vm, caches.node);
            while !vm.stopping() {
                let area = subject.alloc(vm, caches.area);
                let lock = caches.lock.map(|cache| (cache, subject.alloc(vm, cache)));
                vm.use_object(area.as_ptr(), 192);
                tree = store(tree);
                vm.spend(think / 2);
                tree = store(tree);
                match lock {
                    Some((cache, lock)) => {
                        defer(vm, caches.area, area);
                        defer(vm, cache, lock);
                    }
                    // SAFETY: allocated above from this cache, known to nobody else.
                    None => unsafe { subject.free(vm, caches.area, area) },
                }
                vm.spend(think / 2);
                run_callbacks(vm, subject);
                vm.count_op();
            }
        });
        (cpu, program)
    });
    programs.collect()
}

/// What ran before: takes objects of a cache, and gives them back out of order, half of them at
/// once; the other half is the caller's.
pub(super) fn earlier_life(
    vm: &Vm,
    subject: &Subject,
    cache: CacheId,
    count: usize,
    mut later: impl FnMut(NonNull<u8>),
) {
    let mut objects: Vec<_> = (0..count).map(|_| subject.alloc(vm, cache)).collect();
    for last in (1..objects.len()).rev() {
        objects.swap(last, vm.chance.below(last as u32 + 1) as usize);
    }
    for (index, object) in objects.into_iter().enumerate() {
        if index < count / 2 {
            later(object);
        } else {
            // SAFETY: allocated above from this cache, known to nobody else.
            unsafe { subject.free(vm, cache, object) };
        }
    }
}

/// One store into the tree: take so many nodes, use one, give the rest back, defer the old one.
fn store(vm: &Vm, subject: &Subject, node: CacheId, steps: Steps, old: NonNull<u8>) -> NonNull<u8> {
    let mut nodes = [old; Steps::V6_5.nodes];
    let nodes = &mut nodes[..steps.nodes];
    for slot in &mut *nodes {
        *slot = subject.alloc(vm, node);
    }
    let used = nodes[0];
    vm.use_object(used.as_ptr(), 256);
    for &unused in &nodes[1..] {
        // SAFETY: allocated above from this cache, known to nobody else.
        unsafe { subject.free(vm, node, unused) };
    }
    // SAFETY: taken from this cache, and only readers of before still look at it.
    unsafe { (steps.later)(vm, subject, node, old) };
    used
}

unsafe fn call_rcu(vm: &Vm, _: &Subject, cache: CacheId, object: NonNull<u8>) {
    defer(vm, cache, object);
}

unsafe fn kfree_rcu(vm: &Vm, subject: &Subject, cache: CacheId, object: NonNull<u8>) {
    // SAFETY: the caller's obligation.
    unsafe { subject.free_rcu(vm, cache, object) };
}

/// Hands an object to RCU.
pub(super) fn defer(vm: &Vm, cache: CacheId, object: NonNull<u8>) {
    vm.defer(Deferred {
        kind: cache.0,
        address: object.as_ptr() as usize,
    });
}

/// Runs this CPU's callbacks: frees objects that [`defer`] handed over.
pub(super) fn run_callbacks(vm: &Vm, subject: &Subject) {
    // SAFETY: `defer` was given each object with its cache, and gave it up; or it is `free_rcu`'s.
    vm.run_deferred(|item| unsafe { subject.after_grace(vm, item) });
}
