//! The core on the Linux world, and a task's stage on it.

use super::threads::{Stretch, Watch};
use super::way::Trail;
use crate::chance::Chance;
use crate::served::Served;
use crate::workload::held::Held;
use crate::workload::random_mix::Classes;
use crate::workload::stage::{Block, INBOX, Stage};
use core::cell::{Cell, RefCell, UnsafeCell};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use flagstone_core::base::{CacheId, NodeId, Order, Pfn};
use flagstone_core::platform::Platform;
use flagstone_core::policy::Policy;
use flagstone_core::slab::{CacheRequest, Slabs};
use flagstone_kernels::Kernels;
use flagstone_linux::LinuxWith;
use std::collections::VecDeque;
use std::sync::{Mutex, Once};
use std::time::Instant;

/// Linux with the engines of the virtual machine.
type Ours = LinuxWith<Kernels>;

/// The core on real memory, with the general-purpose caches.
pub struct Ground {
    served: Served<Ours>,
    classes: Classes,
}

impl Ground {
    /// Builds the core for `policy` over `span_bytes` of address space. Its memory is given back
    /// when the process ends.
    ///
    /// # Errors
    /// One line, when the system grants no memory.
    pub fn new(policy: &Policy, span_bytes: usize) -> Result<Self, String> {
        static LINUX: Once = Once::new();
        LINUX.call_once(flagstone_linux::init);
        // As on the virtual machine.
        let served = Served::<Ours>::build(policy, span_bytes, span_bytes)
            .ok_or_else(|| String::from("this system grants no memory for the allocator"))?;
        let classes = Classes::made_by(4096, |size| {
            let name = format!("kmalloc-{size}");
            let mut request = CacheRequest::new(&name, size);
            request.kmalloc = true;
            request.align = 8;
            served.cache(&request).expect("a small cache")
        });
        Ok(Self { served, classes })
    }

    /// The core's slab layer.
    #[inline]
    #[must_use]
    pub fn slabs(&self) -> &Slabs<Ours> {
        self.served.slabs()
    }

    /// The cache for objects of `size` bytes.
    #[must_use]
    pub fn class(&self, size: usize) -> CacheId {
        self.classes.of(size)
    }
}

/// Where a task's objects come from.
pub trait Source: Sync {
    /// Takes an object.
    fn take(&self, cache: CacheId) -> NonNull<u8>;
    /// Gives an object back.
    ///
    /// # Safety
    /// 1. `object` came from `take` with this cache and is not used again.
    unsafe fn give(&self, cache: CacheId, object: NonNull<u8>);
}

impl Source for Ground {
    #[inline]
    fn take(&self, cache: CacheId) -> NonNull<u8> {
        let slabs = self.slabs();
        let object = self.served.alloc(slabs.cache(cache));
        object.expect("memory for a test")
    }

    #[inline]
    unsafe fn give(&self, cache: CacheId, object: NonNull<u8>) {
        let slabs = self.slabs();
        // SAFETY: the caller's obligation.
        unsafe { self.served.free(slabs.cache(cache), object) };
    }
}

/// No allocator at all: always the same object. What is left is the program itself.
#[derive(Debug)]
pub struct Nothing {
    object: usize,
}

impl Nothing {
    /// One object of a page for everybody.
    #[must_use]
    pub fn new() -> Self {
        let object: &'static mut [u64; 512] = Box::leak(Box::new([0; 512]));
        Self {
            object: object.as_mut_ptr() as usize,
        }
    }
}

impl Default for Nothing {
    fn default() -> Self {
        Self::new()
    }
}

impl Source for Nothing {
    #[inline]
    fn take(&self, _cache: CacheId) -> NonNull<u8> {
        NonNull::new(self.object as *mut u8).expect("a box is somewhere")
    }

    #[inline]
    unsafe fn give(&self, _cache: CacheId, _object: NonNull<u8>) {}
}

/// A bounded queue on a line of its own, behind one atomic step each way.
#[repr(align(128))]
struct Inbox {
    busy: AtomicBool,
    len: AtomicUsize,
    items: UnsafeCell<VecDeque<Block>>,
}

// SAFETY: `items` is used between taking and giving back `busy` only.
unsafe impl Sync for Inbox {}

impl Inbox {
    fn with<T>(&self, body: impl FnOnce(&mut VecDeque<Block>) -> T) -> T {
        while self.busy.swap(true, Ordering::Acquire) {
            core::hint::spin_loop();
        }
        // SAFETY: `busy` was free and is ours until the store below.
        let items = unsafe { &mut *self.items.get() };
        let out = body(items);
        self.len.store(items.len(), Ordering::Relaxed);
        self.busy.store(false, Ordering::Release);
        out
    }
}

/// What the tasks of one run on this host share.
pub struct Hall {
    inboxes: Vec<Inbox>,
    pool: Mutex<VecDeque<Arrays>>,
    stop: AtomicBool,
    origin: Instant,
    trail: Trail,
}

/// Blocks on their way from thread to thread.
struct Arrays(Vec<Held>);

// SAFETY: whoever holds the blocks owns them; the pool hands them on whole.
unsafe impl Send for Arrays {}

impl Hall {
    /// For `tasks` tasks.
    #[must_use]
    pub fn new(tasks: usize) -> Self {
        let inbox = |_| Inbox {
            busy: AtomicBool::new(false),
            len: AtomicUsize::new(0),
            items: UnsafeCell::new(VecDeque::with_capacity(INBOX)),
        };
        Self {
            inboxes: (0..tasks).map(inbox).collect(),
            pool: Mutex::default(),
            stop: AtomicBool::new(false),
            origin: Instant::now(),
            trail: Trail::new(),
        }
    }

    /// Asks every task to end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// What a line takes on its way to `task` from the other one just now; `None` unless there are two
    /// and the other one looked last.
    #[must_use]
    pub fn way_to(&self, task: usize) -> Option<f64> {
        (self.inboxes.len() == 2)
            .then(|| self.trail.look(task))
            .flatten()
    }

    /// When the run began.
    #[must_use]
    pub fn origin(&self) -> Instant {
        self.origin
    }
}

/// One task on a real thread.
pub struct Really<'a, A: Source> {
    ground: &'a Ground,
    source: &'a A,
    hall: &'a Hall,
    task: u32,
    chance: Chance,
    operations: Cell<u64>,
    cut_every: u64,
    watch: RefCell<Watch>,
    stretches: RefCell<Vec<Stretch>>,
}

impl<'a, A: Source> Really<'a, A> {
    /// Task `task` of `hall`, on `ground`'s caches, with objects from `source`; a stretch is cut
    /// every `cut_every` operations.
    #[must_use]
    pub fn new(
        ground: &'a Ground,
        source: &'a A,
        hall: &'a Hall,
        task: usize,
        cut_every: u64,
    ) -> Self {
        Self {
            ground,
            source,
            hall,
            task: task as u32,
            chance: Chance::new(1).fork(task as u64),
            operations: Cell::new(0),
            cut_every,
            watch: RefCell::new(Watch::start(hall.origin)),
            stretches: RefCell::default(),
        }
    }

    /// Ends a stretch in which `operations` were done.
    #[cold]
    pub fn cut(&self, operations: u64) {
        let stretch = self.watch.borrow_mut().cut(operations);
        self.stretches.borrow_mut().push(stretch);
    }

    /// Begins a stretch now, whatever was before.
    pub fn restart(&self) {
        *self.watch.borrow_mut() = Watch::start(self.hall.origin);
    }

    /// The stretches so far.
    #[must_use]
    pub fn stretches(&self) -> Vec<Stretch> {
        self.stretches.take()
    }
}

impl<A: Source> Stage for Really<'_, A> {
    #[inline]
    fn alloc(&self, cache: CacheId) -> NonNull<u8> {
        self.source.take(cache)
    }

    #[inline]
    unsafe fn free(&self, cache: CacheId, object: NonNull<u8>) {
        // SAFETY: the caller's obligation.
        unsafe { self.source.give(cache, object) };
    }

    #[inline]
    fn alloc_pages(&self, order: Order) -> Pfn {
        let node: NodeId = Ours::node_of(Ours::current_cpu());
        let block = self.ground.slabs().pages().alloc_block(order, node);
        block.expect("memory for a test").pfn
    }

    #[inline]
    unsafe fn free_pages(&self, pfn: Pfn, order: Order) {
        // SAFETY: the caller's obligation.
        unsafe { self.ground.slabs().pages().free_block(pfn, order) };
    }

    #[inline]
    fn use_object(&self, object: NonNull<u8>, bytes: usize) {
        for at in (0..bytes.max(1)).step_by(64) {
            // SAFETY: the object is this task's, and at least `bytes` long; a byte has no
            // alignment.
            unsafe { object.add(at).write_volatile(1) };
        }
    }

    #[inline]
    fn think(&self) {}

    #[inline]
    fn below(&self, bound: u32) -> u32 {
        self.chance.below(bound)
    }

    #[inline]
    fn count_op(&self) {
        let operations = self.operations.get() + 1;
        self.operations.set(operations);
        if operations == self.cut_every {
            self.operations.set(0);
            let task = self.task as usize;
            let way = || self.hall.way_to(task);
            let stretch = self.watch.borrow_mut().cut_on_way(operations, way);
            self.stretches.borrow_mut().push(stretch);
        }
    }

    #[inline]
    fn stopping(&self) -> bool {
        self.hall.stop.load(Ordering::Relaxed)
    }

    fn now_ns(&self) -> f64 {
        self.hall.origin.elapsed().as_secs_f64() * 1e9
    }

    #[inline]
    fn class(&self, size: usize) -> CacheId {
        self.ground.classes.of(size)
    }

    fn tasks(&self) -> (u32, u32) {
        (self.hall.inboxes.len() as u32, self.task)
    }

    #[inline]
    fn offer(&self, to: u32, block: Block) -> Result<(), Block> {
        let inbox = &self.hall.inboxes[to as usize];
        if inbox.len.load(Ordering::Relaxed) >= INBOX {
            return Err(block);
        }
        inbox.with(|items| {
            if items.len() >= INBOX {
                return Err(block);
            }
            items.push_back(block);
            Ok(())
        })
    }

    #[inline]
    fn poll(&self) -> Option<Block> {
        let inbox = &self.hall.inboxes[self.task as usize];
        if inbox.len.load(Ordering::Relaxed) == 0 {
            return None;
        }
        inbox.with(VecDeque::pop_front)
    }

    fn trade(&self, held: Vec<Held>) -> Vec<Held> {
        let mut pool = self.hall.pool.lock().expect("no task panics");
        pool.push_back(Arrays(held));
        pool.pop_front().expect("one was put in").0
    }
}
