//! Where loom's tests of slabs happen: a heap with one cache, whose words a test has loom follow.

use super::engine::{Engines, ObjectEngine};
use super::refill::Part;
use super::slab::Slab;
use super::{Cache, CacheRequest, Slabs};
use crate::base::{CacheId, CpuId, NodeId};
use crate::page::{PageConfig, Pagesets};
use crate::platform::Slot;
use crate::platform::world_loom::{CheckedWith, follow_slot_locks};
use crate::policy::Policy;
use crate::sync::followed::{Mistake, forget};
use crate::verify;
use core::ptr::NonNull;
use loom::thread::{self, JoinHandle};
use std::boxed::Box;
use std::sync::Arc;

impl<E: ObjectEngine> Engines for CheckedWith<E> {
    type Engine = E;
}

impl<E: ObjectEngine> Pagesets for CheckedWith<E> {
    type Rule = E::Pages;
}

/// The words that may be wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Word {
    /// None is.
    None,
    /// States of slabs.
    State,
    /// The lock of the node's list.
    ListLock,
    /// The head of the stack of slabs that handlers left.
    Orphans,
    /// The locks of CPUs' slots, or sections.
    Local,
}

/// A word, and what it does wrong.
#[derive(Clone, Copy, Debug)]
pub struct Wrong(pub Word, pub Mistake);

/// Every word is right.
pub const RIGHT: Wrong = Wrong(Word::None, Mistake::None);

impl Wrong {
    /// What `word` does wrong.
    #[must_use]
    pub fn of(self, word: Word) -> Mistake {
        match word == self.0 {
            true => self.1,
            false => Mistake::None,
        }
    }
}

/// A heap with one cache, which keeps no empty slab.
#[derive(Debug)]
pub struct Site<E: ObjectEngine> {
    /// The heap.
    pub slabs: Box<Slabs<CheckedWith<E>>>,
    /// The cache.
    pub id: CacheId,
}

impl<E: ObjectEngine> Site<E> {
    /// The cache has objects of `size` bytes and none yet; no word is followed.
    #[must_use]
    pub fn new(policy: &Policy, size: usize) -> Arc<Self> {
        let config = PageConfig {
            span_bytes: 8 << 20,
            policy: *policy,
            ..PageConfig::default()
        };
        let mut place = Box::new_uninit();
        // SAFETY: the box is ours and stays where it is.
        unsafe { Slabs::init(place.as_mut_ptr(), &config, policy) }.expect("the world grants it");
        // SAFETY: `init` succeeded.
        let slabs: Box<Slabs<CheckedWith<E>>> = unsafe { place.assume_init() };
        let id = slabs.create_cache(&CacheRequest::new("objects", size));
        let id = id.expect("a cache");
        slabs.cache(id).set_min_partial(0);
        Arc::new(Self { slabs, id })
    }

    /// The cache.
    #[must_use]
    pub fn cache(&self) -> &Cache {
        self.slabs.cache(self.id)
    }

    /// Its part on the node.
    #[must_use]
    pub fn part(&self) -> Part<'_, CheckedWith<E>> {
        Part::of(&self.slabs, self.cache(), NodeId(0))
    }

    /// Has loom follow the node, and slabs and links of these objects.
    pub fn follow(&self, objects: &[NonNull<u8>], wrong: Wrong) {
        for &object in objects {
            // SAFETY: an object of the cache, in a live slab.
            let (slab, index) = unsafe { Slab::holding(&self.slabs, self.cache(), object) };
            let words = slab.descriptor;
            slab.links.follow(index);
            words.state.follow_swaps(wrong.of(Word::State));
            words.next.follow();
            words.prev.follow();
            words.fresh.follow();
            words.flags.follow();
        }
        let node = self.part().node;
        node.raw_lock().follow(wrong.of(Word::ListLock));
        node.nr_partial.follow();
        node.orphans.follow(wrong.of(Word::Orphans));
    }

    /// Has loom follow the slots of the cache on all CPUs, and the barn.
    pub fn follow_slots(&self, wrong: Wrong) {
        follow_slot_locks(wrong.of(Word::Local));
        let cache = self.id.index();
        for cpu in [CpuId(0), CpuId(1)] {
            for slot in [Slot::main(cache), Slot::spare(cache)] {
                // SAFETY: a CPU of the world.
                unsafe { self.slabs.area().word(cpu, slot) }.follow_swaps(Mistake::None);
            }
        }
        self.part().node.barn.follow(Mistake::None);
    }

    /// All threads are joined: takes up what handlers left, and checks every rule and the number
    /// of objects out.
    ///
    /// # Panics
    /// If a rule is broken or the number is another.
    pub fn settle(&self, out: usize) {
        forget();
        drop(self.part().node.hold(self.slabs.pages()));
        if let Err(broken) = verify::check_slabs(&self.slabs) {
            panic!("{broken}");
        }
        let live = verify::live_objects(&self.slabs, self.cache());
        assert_eq!(live, Ok(out as u64), "objects out");
    }

    /// One of loom's threads at this site.
    pub fn spawn(self: &Arc<Self>, step: impl FnOnce(&Self) + 'static) -> JoinHandle<()> {
        let site = Arc::clone(self);
        thread::spawn(move || step(&site))
    }
}
