//! The protocol of a slab's state word, explored by loom: frees against takers, drains and
//! frees, over the transitions the engines use.
//!
//! The model keeps what races: the word, the links, the node's list with its lock, and what
//! becomes of the slab. One slab of two or three objects is enough for every row of the tables.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p flagstone-core --release loom`

use super::state::{CpuLists, NO_OBJECT, SlabState, Turn};
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed};
use crate::sync::{AtomicU32, AtomicU64};
use loom::sync::{Arc, Mutex};
use loom::thread;
use std::vec::Vec;

/// What the node's lock protects.
#[derive(Default)]
struct Listed {
    on_list: bool,
    discarded: u32,
}

/// One slab in the world of one node.
struct Model {
    word: AtomicU64,
    links: [AtomicU32; 3],
    list: Mutex<Listed>,
    /// Times the slab was put on a CPU's partial list.
    on_cpu_list: AtomicU32,
    lists: CpuLists,
}

impl Model {
    /// A slab of `objects` objects of which all but those of the chain `free` are handed out.
    fn new(objects: u32, free: &[u32], lists: CpuLists) -> Arc<Self> {
        let links: [AtomicU32; 3] = core::array::from_fn(|_| AtomicU32::new(NO_OBJECT));
        for pair in free.windows(2) {
            links[pair[0] as usize].store(pair[1], Relaxed);
        }
        let first = free.first().copied().unwrap_or(NO_OBJECT);
        let state = SlabState::untouched(objects).with(first, objects - free.len() as u32);
        Arc::new(Self {
            word: AtomicU64::new(state.0),
            links,
            list: Mutex::new(Listed {
                on_list: !free.is_empty(),
                discarded: 0,
            }),
            on_cpu_list: AtomicU32::new(0),
            lists,
        })
    }

    fn state(&self) -> SlabState {
        SlabState(self.word.load(Acquire))
    }

    fn swap(&self, old: SlabState, new: SlabState) -> bool {
        self.word
            .compare_exchange(old.0, new.0, AcqRel, Relaxed)
            .is_ok()
    }

    fn link(&self, object: u32, next: u32) {
        self.links[object as usize].store(next, Relaxed);
    }

    /// A free by the sheaf engine (`slab.rs`); an empty slab always goes.
    fn free_sheaf(&self, object: u32) {
        loop {
            let before = self.state();
            self.link(object, before.freelist());
            let after = before.with(object, before.inuse() - 1);
            if !before.is_full() && !after.is_empty() {
                if self.swap(before, after) {
                    return;
                }
                continue;
            }
            let mut list = self.list.lock().unwrap();
            if !self.swap(before, after) {
                continue;
            }
            if before.is_full() && !after.is_empty() {
                assert!(!list.on_list, "slab.full-off-list");
                list.on_list = true;
            } else if after.is_empty() && (list.on_list || before.is_full()) {
                list.on_list = false;
                list.discarded += 1;
            }
            return;
        }
    }

    /// A refill by the sheaf engine (`refill.rs`): isolate, take up to `want`, put back. Answers
    /// the objects.
    fn refill(&self, want: u32) -> Vec<u32> {
        let mut taken = Vec::new();
        {
            let mut list = self.list.lock().unwrap();
            if !list.on_list {
                return taken;
            }
            list.on_list = false;
        }
        let after = loop {
            let state = self.state();
            let mut next = state.freelist();
            taken.clear();
            while next != NO_OBJECT && (taken.len() as u32) < want {
                taken.push(next);
                next = self.links[next as usize].load(Relaxed);
            }
            let after = state.with(next, state.inuse() + taken.len() as u32);
            if self.swap(state, after) {
                break after;
            }
        };
        if !after.is_full() {
            let mut list = self.list.lock().unwrap();
            assert!(!list.on_list, "slab.one-isolator");
            if self.state().is_empty() {
                list.discarded += 1;
            } else {
                list.on_list = true;
            }
        }
        taken
    }

    /// A free by the cpu-slab engine (`flagstone-kernels`); an empty slab always goes.
    fn free_cpu_slab(&self, object: u32) {
        loop {
            let before = self.state();
            let (after, turn) = before.freed(object, 1, self.lists).expect("handed out");
            self.link(object, before.freelist());
            if turn != Turn::NodeList {
                if !self.swap(before, after) {
                    continue;
                }
                if turn == Turn::CpuList {
                    self.on_cpu_list.fetch_add(1, Relaxed);
                    self.drain();
                }
                return;
            }
            let mut list = self.list.lock().unwrap();
            if !self.swap(before, after) {
                continue;
            }
            let was_full = before.freelist() == NO_OBJECT;
            if !was_full && !list.on_list {
                return;
            }
            if after.is_empty() {
                list.on_list = false;
                list.discarded += 1;
            } else {
                list.on_list = true;
            }
            return;
        }
    }

    /// The CPU's list of this one slab goes to the node's list at once.
    fn drain(&self) {
        let mut list = self.list.lock().unwrap();
        let state = if self.lists == CpuLists::Frozen {
            loop {
                let state = self.state();
                let after = state.with_frozen(false);
                if self.swap(state, after) {
                    break after;
                }
            }
        } else {
            self.state()
        };
        assert!(!list.on_list, "slab.one-isolator");
        if state.is_empty() {
            list.discarded += 1;
        } else {
            list.on_list = true;
        }
    }

    /// A CPU takes the slab from the node's list for itself (`flagstone-kernels`).
    fn freeze(&self) -> bool {
        {
            let mut list = self.list.lock().unwrap();
            if !list.on_list {
                return false;
            }
            if self.lists == CpuLists::Frozen {
                let state = self.state();
                if !self.swap(state, state.taken_whole()) {
                    return false;
                }
                list.on_list = false;
                return true;
            }
            list.on_list = false;
        }
        loop {
            let state = self.state();
            if self.swap(state, state.taken_whole()) {
                assert_ne!(state.freelist(), NO_OBJECT, "isolated slabs are not full");
                return true;
            }
        }
    }

    /// Length of the slab's chain; it must be what the counts say.
    fn chain(&self) -> u32 {
        let state = self.state();
        let (mut next, mut length) = (state.freelist(), 0);
        while next != NO_OBJECT {
            length += 1;
            assert!(length <= state.objects(), "chain.linked");
            next = self.links[next as usize].load(Relaxed);
        }
        length
    }

    /// At rest, a slab that nobody froze: on the list exactly if it is partial, discarded
    /// exactly once if it is empty.
    fn settled(&self) {
        let (state, list) = (self.state(), self.list.lock().unwrap());
        assert_eq!(self.chain(), state.free(), "chain.linked");
        assert!(!state.frozen());
        assert_eq!(list.discarded, u32::from(state.is_empty()), "{state:?}");
        let partial = !state.is_full() && !state.is_empty();
        assert_eq!(list.on_list, partial, "{state:?}");
    }
}

/// Explores three threads, with at most three switches away from a thread that could go on:
/// the races of the tables need one or two.
fn explore(check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(check);
}

fn spawn(model: &Arc<Model>, step: impl FnOnce(&Model) + 'static) -> thread::JoinHandle<()> {
    let model = Arc::clone(model);
    thread::spawn(move || step(&model))
}

#[test]
fn loom_two_frees_and_a_refill_of_one_slab() {
    explore(|| {
        let model = Model::new(3, &[2], CpuLists::None);
        let first = spawn(&model, |m| m.free_sheaf(0));
        let second = spawn(&model, |m| m.free_sheaf(1));
        let taken = model.refill(1);
        first.join().unwrap();
        second.join().unwrap();
        let state = model.state();
        assert_eq!(state.inuse(), taken.len() as u32);
        model.settled();
    });
}

#[test]
fn loom_frees_of_a_full_slab_find_one_owner() {
    for lists in [CpuLists::None, CpuLists::Frozen, CpuLists::Loose] {
        loom::model(move || {
            let model = Model::new(2, &[], lists);
            let first = spawn(&model, |m| m.free_cpu_slab(0));
            model.free_cpu_slab(1);
            first.join().unwrap();
            let puts = model.on_cpu_list.load(Relaxed);
            assert_eq!(puts, u32::from(lists != CpuLists::None));
            let list = model.list.lock().unwrap();
            let state = model.state();
            assert!(state.is_empty() && !state.frozen());
            // Emptied while it was its CPU's, it may stay on the list, empty.
            assert_eq!(list.discarded + u32::from(list.on_list), 1);
        });
    }
}

#[test]
fn loom_a_cpu_takes_a_slab_while_others_free_into_it() {
    for lists in [CpuLists::Frozen, CpuLists::Loose] {
        explore(move || {
            let model = Model::new(3, &[2], lists);
            let first = spawn(&model, |m| m.free_cpu_slab(0));
            let second = spawn(&model, |m| m.free_cpu_slab(1));
            let ours = model.freeze();
            first.join().unwrap();
            second.join().unwrap();
            let state = model.state();
            let list = model.list.lock().unwrap();
            assert_eq!(state.frozen(), ours);
            if ours {
                assert!(!list.on_list && list.discarded == 0, "cpu.slab-frozen");
                assert_eq!(model.chain(), state.free());
            } else {
                assert_eq!((state.inuse(), list.discarded), (0, 1));
            }
        });
    }
}

#[test]
fn loom_a_refill_meets_the_free_that_empties_the_slab() {
    loom::model(|| {
        let model = Model::new(2, &[1], CpuLists::None);
        let free = spawn(&model, |m| m.free_sheaf(0));
        let taken = model.refill(2);
        free.join().unwrap();
        assert_eq!(model.state().inuse(), taken.len() as u32);
        model.settled();
    });
}
