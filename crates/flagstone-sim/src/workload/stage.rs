//! What a program of operations asks of the world it runs in, and the virtual world's answer.
//!
//! Programs written against [`Stage`] run unchanged on virtual CPUs and on real threads (the
//! `host` module): a comparison of the two then compares worlds, not programs.

use super::Env;
use super::held::{Held, When};
use super::random_mix::Classes;
use crate::ahead::fetch;
use crate::costs::{NS, Ps};
use crate::fifo::Mailbox;
use crate::vm::Vm;
use core::cell::RefCell;
use core::ptr::NonNull;
use flagstone_core::base::{CacheId, Order, Pfn};
use std::rc::Rc;

/// An object and its cache.
pub type Block = (CacheId, NonNull<u8>);

/// Blocks of one task's inbox at most.
pub const INBOX: usize = 64;

/// The world of one task.
pub trait Stage {
    /// Takes an object of a cache.
    fn alloc(&self, cache: CacheId) -> NonNull<u8>;
    /// Gives an object back.
    ///
    /// # Safety
    /// 1. `object` came from this cache and is not used again.
    unsafe fn free(&self, cache: CacheId, object: NonNull<u8>);
    /// Takes a block of pages.
    fn alloc_pages(&self, order: Order) -> Pfn;
    /// Gives a block of pages back.
    ///
    /// # Safety
    /// 1. `pfn` came from [`Stage::alloc_pages`] with this order and is not used again.
    unsafe fn free_pages(&self, pfn: Pfn, order: Order);
    /// Writes the first `bytes` of an object.
    fn use_object(&self, object: NonNull<u8>, bytes: usize);
    /// Work outside the allocator.
    fn think(&self);
    /// A random number below `bound`.
    fn below(&self, bound: u32) -> u32;
    /// One operation is done.
    fn count_op(&self);
    /// Whether the task is to end.
    fn stopping(&self) -> bool;
    /// Nanoseconds on this task's clock.
    fn now_ns(&self) -> f64;
    /// The general-purpose cache for an object of `size` bytes.
    fn class(&self, size: usize) -> CacheId;
    /// How many tasks there are, and which one this is.
    fn tasks(&self) -> (u32, u32);
    /// Hands a block to another task, if its inbox has room.
    ///
    /// # Errors
    /// The block, when there is no room.
    fn offer(&self, to: u32, block: Block) -> Result<(), Block>;
    /// Takes a block from this task's inbox.
    fn poll(&self) -> Option<Block>;
    /// Leaves `held` for whoever trades next, and takes what waited longest.
    fn trade(&self, held: Vec<Held>) -> Vec<Held>;

    /// Whether something happens whose chance is `numerator` in `denominator`.
    fn happens(&self, numerator: u32, denominator: u32) -> bool {
        self.below(denominator) < numerator
    }

    /// This block will be given back, and an object of this cache taken. A hint for whoever simulates
    /// the task: it takes no time of the task's.
    fn expect(&self, _when: When, _cache: CacheId, _held: &Held) {}
}

/// What the tasks of one virtual run share.
pub(crate) struct Common {
    classes: Classes,
    inboxes: Vec<Mailbox<Block>>,
    /// Arrays waiting for whoever ends a round next.
    pool: RefCell<Vec<Vec<Held>>>,
}

impl Common {
    /// Inboxes for all tasks, classes up to `largest` bytes.
    pub(crate) fn new(env: &Env<'_>, largest: usize) -> Rc<Self> {
        Rc::new(Self {
            classes: Classes::new(env.subject, largest),
            inboxes: env.cpus.iter().map(|_| inbox(env)).collect(),
            pool: RefCell::default(),
        })
    }

    /// For a program that brings its own cache and mailboxes.
    pub(crate) fn bare() -> Rc<Self> {
        Rc::new(Self {
            classes: Classes::none(),
            inboxes: Vec::new(),
            pool: RefCell::default(),
        })
    }
}

fn inbox(env: &Env<'_>) -> Mailbox<Block> {
    if env.params.program_ns.is_some() {
        Mailbox::with_places(INBOX)
    } else {
        Mailbox::new(INBOX)
    }
}

/// One task on a virtual CPU.
pub(crate) struct Virtually<'a> {
    pub(crate) vm: &'a Vm,
    pub(crate) env: &'a Env<'a>,
    pub(crate) common: &'a Common,
    pub(crate) think: Ps,
    pub(crate) task: u32,
    /// Objects are blocks of pages of this order, whatever cache is named.
    pub(crate) whole: Option<Order>,
}

impl Stage for Virtually<'_> {
    #[inline]
    fn alloc(&self, cache: CacheId) -> NonNull<u8> {
        match self.whole {
            None => self.env.subject.alloc(self.vm, cache),
            Some(order) => {
                let pfn = self.alloc_pages(order);
                self.env.subject.slabs().pages().address(pfn)
            }
        }
    }

    #[inline]
    unsafe fn free(&self, cache: CacheId, object: NonNull<u8>) {
        let subject = self.env.subject;
        match self.whole {
            // SAFETY: the caller's obligation.
            None => unsafe { subject.free(self.vm, cache, object) },
            Some(order) => {
                if let Some(pfn) = subject.slabs().pages().pfn_of(object.as_ptr()) {
                    // SAFETY: the caller's obligation: `alloc` made it a block of this order.
                    unsafe { subject.free_pages(self.vm, pfn, order) };
                }
            }
        }
    }

    fn alloc_pages(&self, order: Order) -> Pfn {
        self.env.subject.alloc_pages(self.vm, order)
    }

    unsafe fn free_pages(&self, pfn: Pfn, order: Order) {
        // SAFETY: the caller's obligation.
        unsafe { self.env.subject.free_pages(self.vm, pfn, order) };
    }

    #[inline]
    fn use_object(&self, object: NonNull<u8>, bytes: usize) {
        self.vm.use_object(object.as_ptr(), bytes);
    }

    #[inline]
    fn think(&self) {
        self.vm.spend(self.think);
    }

    #[inline]
    fn below(&self, bound: u32) -> u32 {
        self.vm.chance.below(bound)
    }

    #[inline]
    fn count_op(&self) {
        self.vm.count_op();
    }

    #[inline]
    fn stopping(&self) -> bool {
        self.vm.stopping()
    }

    fn now_ns(&self) -> f64 {
        self.vm.now() as f64 / NS as f64
    }

    #[inline]
    fn class(&self, size: usize) -> CacheId {
        self.common.classes.of(size)
    }

    fn tasks(&self) -> (u32, u32) {
        (self.common.inboxes.len() as u32, self.task)
    }

    #[inline]
    fn offer(&self, to: u32, block: Block) -> Result<(), Block> {
        let inbox = &self.common.inboxes[to as usize];
        inbox.look(self.vm);
        if inbox.is_full() {
            return Err(block);
        }
        inbox.offer(self.vm, block)
    }

    #[inline]
    fn poll(&self) -> Option<Block> {
        let inbox = &self.common.inboxes[self.task as usize];
        if inbox.is_empty() && self.env.params.program_ns.is_none() {
            // Nobody put anything in since this task saw it empty: the line is taken for being here.
            return None;
        }
        inbox.look(self.vm);
        if inbox.is_empty() {
            return None;
        }
        inbox.poll(self.vm)
    }

    fn trade(&self, held: Vec<Held>) -> Vec<Held> {
        self.vm.sync();
        let mut waiting = self.common.pool.borrow_mut();
        waiting.push(held);
        // The oldest: somebody else's, unless this task is alone.
        waiting.remove(0)
    }

    #[inline]
    fn expect(&self, when: When, cache: CacheId, held: &Held) {
        match when {
            When::Later => fetch(core::ptr::from_ref(held) as usize),
            When::Soon => {
                let (_, object) = held.block();
                self.vm.expect_object(object.as_ptr());
                self.env.subject.expect_alloc(self.vm, cache);
            }
            When::Next => self.env.subject.expect_taken(self.vm, cache),
        }
    }
}
