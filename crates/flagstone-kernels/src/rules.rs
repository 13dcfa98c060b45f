//! Which engine serves a cache, and the per-CPU memory that engine needs.
//!
//! ```text
//!   engine        per CPU and cache                       this memory
//!   Sheaf         two slots of the platform's area        none
//!   CpuSlab       slab, private chain, partial slabs      CpuSlab            cpu_slab.rs
//!   CpuSlab2007   slab, private chain                     CpuSlab            cpu_slab_2007.rs
//!   Slab2007      array of objects                        ArrayCache         array_cache.rs
//! ```
//!
//! The memory of a cache is one table with an entry for each CPU (and, for SLAB, each node
//! behind them), made with the cache and kept for the next cache that gets its id.

use super::array_cache::{ArrayCache, SharedArray, array_bytes, shared_bytes};
use super::cache::Cache;
use super::cpu_slab::CpuSlab;
use super::cpu_slab_free::Patience;
use super::geometry::Geometry;
use super::slab::{Chain, Slab};
use super::slabs::Slabs;
use super::state::CpuLists;
use crate::base::{CpuId, NodeId, PageSize};
use crate::platform::{Platform, RawLock};
use crate::policy::slab2007::Queues;
use crate::policy::{CpuPartial, CpuPartialRule, Cpus, Engine, Policy, Remedies};
use crate::sync::Ordering::Relaxed;
use core::ops::AddAssign;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, AtomicUsize};

/// The limit of a CPU's own list of partial slabs (docs: linux-policies 2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PartialLimit {
    /// No such list.
    None,
    /// 3.2 to 5.15: objects free on the list.
    Objects(u32),
    /// 5.16 and later: slabs on the list.
    Slabs(u32),
}

impl PartialLimit {
    fn of(rule: CpuPartialRule, limit: Option<CpuPartial>) -> Self {
        match (rule, limit) {
            (CpuPartialRule::None, _) | (_, None) => Self::None,
            (CpuPartialRule::Objects2011, Some(limit)) => Self::Objects(limit.objects),
            (CpuPartialRule::Slabs2021, Some(limit)) => Self::Slabs(limit.slabs),
        }
    }

    /// Whether a free that adds a slab drains what is on the list first.
    #[inline]
    pub fn is_reached(self, slabs: u32, objects: u32) -> bool {
        match self {
            Self::None => true,
            Self::Objects(limit) => objects > limit,
            Self::Slabs(limit) => slabs >= limit,
        }
    }
}

/// The rules of a cache that depend on its engine, and where its per-CPU memory is.
#[derive(Debug)]
pub(crate) struct EngineParts {
    pub engine: Engine,
    /// Limit of a CPU's partial list.
    pub partial: PartialLimit,
    /// Slabs on a CPU's partial list are frozen (until 6.7).
    pub freezes_partial: bool,
    /// Empty slabs go once the list is *longer* than `min_partial`; later kernels let it be no
    /// longer than that (docs: linux-policies 3).
    pub surplus_above: bool,
    pub remedies: Remedies,
    /// SLAB's queue lengths.
    pub queues: Queues,
    /// The table's address, zero while there is none, and its bytes.
    table: AtomicUsize,
    table_len: AtomicUsize,
    stride: usize,
    node_stride: usize,
    cpus: u32,
}

impl EngineParts {
    /// No engine but plain slabs: the caches of sheaves.
    pub fn plain() -> Self {
        Self {
            engine: Engine::Sheaf,
            partial: PartialLimit::None,
            freezes_partial: false,
            surplus_above: false,
            remedies: Remedies::NONE,
            queues: Queues {
                limit: 0,
                batch: 0,
                shared: 0,
                free_limit: 0,
            },
            table: AtomicUsize::new(0),
            table_len: AtomicUsize::new(0),
            stride: 0,
            node_stride: 0,
            cpus: 0,
        }
    }

    /// The parts of a cache of `engine` under `policy`.
    pub fn of(
        policy: &Policy,
        engine: Engine,
        geometry: &Geometry,
        page_size: PageSize,
        cpus: Cpus,
    ) -> Self {
        let (size, objects) = (geometry.size(), geometry.objects());
        let queues = policy.slab2007_queues(size, objects, page_size, cpus);
        let stride = match engine {
            Engine::Sheaf => 0,
            Engine::CpuSlab | Engine::CpuSlab2007 => size_of::<CpuSlab>(),
            Engine::Slab2007 => array_bytes(queues.limit),
        };
        let node_stride = match engine {
            Engine::Slab2007 => shared_bytes(queues.shared * queues.batch),
            _ => 0,
        };
        Self {
            engine,
            partial: PartialLimit::of(
                policy.cpu_partial_rule,
                policy.cpu_partial(size, objects, page_size, cpus),
            ),
            freezes_partial: policy.cpu_partial_frozen,
            surplus_above: policy.cpu_partial_rule == CpuPartialRule::Objects2011,
            remedies: policy.remedies,
            queues,
            stride,
            node_stride,
            cpus: cpus.possible,
            ..Self::plain()
        }
    }

    /// Bytes the table takes.
    pub fn table_bytes(&self, nodes: u8) -> usize {
        self.stride * self.cpus as usize + self.node_stride * usize::from(nodes)
    }

    /// The table's address and bytes, for the next cache of this id; zeroes if there is none.
    pub fn table(&self) -> (usize, usize) {
        (self.table.load(Relaxed), self.table_len.load(Relaxed))
    }

    /// Makes every entry of the table at `address` of so many bytes.
    ///
    /// # Safety
    /// 1. The table is this cache's alone, aligned to a page, at least `table_bytes` long.
    pub unsafe fn make_table(&self, (address, bytes): (usize, usize), nodes: u8) {
        self.table.store(address, Relaxed);
        self.table_len.store(bytes, Relaxed);
        for cpu in self.cpus() {
            // SAFETY: obligation 1.
            unsafe {
                match self.engine {
                    Engine::Slab2007 => self.cpu::<ArrayCache>(cpu).write(ArrayCache::new()),
                    _ => self.cpu::<CpuSlab>(cpu).write(CpuSlab::new()),
                }
            }
        }
        let shared = if self.node_stride == 0 { 0 } else { nodes };
        for node in (0..shared).map(NodeId) {
            // SAFETY: obligation 1.
            unsafe { self.node::<SharedArray>(node).write(SharedArray::new()) };
        }
    }

    /// A CPU's entry.
    ///
    /// # Safety
    /// 1. The table was made for entries of type `T` of this cache.
    #[inline]
    pub unsafe fn cpu<T>(&self, cpu: CpuId) -> NonNull<T> {
        debug_assert!(cpu.0 < self.cpus && self.table.load(Relaxed) != 0);
        let address = self.table.load(Relaxed) + cpu.index() * self.stride;
        // SAFETY: obligation 1: the table is not null and has an entry for every CPU.
        unsafe { NonNull::new_unchecked(address as *mut T) }
    }

    /// A node's entry, behind the CPUs'.
    ///
    /// # Safety
    /// 1. As for [`EngineParts::cpu`]; `node` is below the platform's count.
    #[inline]
    pub unsafe fn node<T>(&self, node: NodeId) -> NonNull<T> {
        debug_assert!(self.node_stride != 0 && self.table.load(Relaxed) != 0);
        let nodes = self.table.load(Relaxed) + self.cpus as usize * self.stride;
        let address = nodes + node.index() * self.node_stride;
        // SAFETY: obligation 1.
        unsafe { NonNull::new_unchecked(address as *mut T) }
    }

    /// CPUs with an entry; zero where the engine needs none.
    pub fn cpus(&self) -> impl Iterator<Item = CpuId> + use<> {
        let count = if self.stride == 0 { 0 } else { self.cpus };
        (0..count).map(CpuId)
    }

    /// Whether CPUs keep lists of partial slabs, and how.
    #[inline]
    pub fn cpu_lists(&self) -> CpuLists {
        match (self.partial, self.freezes_partial) {
            (PartialLimit::None, _) => CpuLists::None,
            (_, true) => CpuLists::Frozen,
            (_, false) => CpuLists::Loose,
        }
    }

    /// Whether a node with `nr_partial` slabs on its list gives an empty one back.
    #[inline]
    pub fn is_surplus(&self, nr_partial: u32, min_partial: u32) -> bool {
        if self.surplus_above {
            nr_partial > min_partial
        } else {
            nr_partial >= min_partial
        }
    }
}

/// What the slow paths of a cache's engine did, all CPUs together.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct EngineCounts {
    /// A CPU's chain filled again from its own slab (SLAB: from the shared array).
    pub refills: u64,
    /// Visits of a node's list under its lock.
    pub list_visits: u64,
    /// Slabs taken from a node's list by allocations.
    pub slabs_taken: u64,
    /// A CPU's partial list given to the nodes' lists (SLAB: its array's oldest batch).
    pub drains: u64,
    /// Slabs those drains moved (SLAB: objects).
    pub drained: u64,
    /// CPU slabs given up with objects left.
    pub deactivations: u64,
    /// Frees put aside because they met contention.
    pub deferred: u64,
    /// Slabs made.
    pub new_slabs: u64,
}

impl AddAssign for EngineCounts {
    fn add_assign(&mut self, other: Self) {
        self.refills += other.refills;
        self.list_visits += other.list_visits;
        self.slabs_taken += other.slabs_taken;
        self.drains += other.drains;
        self.drained += other.drained;
        self.deactivations += other.deactivations;
        self.deferred += other.deferred;
        self.new_slabs += other.new_slabs;
    }
}

/// One CPU's share of [`EngineCounts`]: relaxed adds on a line of its own, in slow paths only.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Tally {
    pub refills: AtomicU64,
    pub list_visits: AtomicU64,
    pub slabs_taken: AtomicU64,
    pub drains: AtomicU64,
    pub drained: AtomicU64,
    pub deactivations: AtomicU64,
    pub deferred: AtomicU64,
    pub new_slabs: AtomicU64,
}

/// Adds to a count that only one CPU moves in the ordinary course of things.
#[inline]
pub(crate) fn bump(count: &AtomicU64, by: u64) {
    count.store(count.load(Relaxed).wrapping_add(by), Relaxed);
}

impl Tally {
    pub fn counts(&self) -> EngineCounts {
        let read = |count: &AtomicU64| count.load(Relaxed);
        EngineCounts {
            refills: read(&self.refills),
            list_visits: read(&self.list_visits),
            slabs_taken: read(&self.slabs_taken),
            drains: read(&self.drains),
            drained: read(&self.drained),
            deactivations: read(&self.deactivations),
            deferred: read(&self.deferred),
            new_slabs: read(&self.new_slabs),
        }
    }
}

/// Free objects and slabs that CPUs keep for themselves (not sheaves): for the ledger.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CpuHeld {
    /// CPU slabs and slabs on CPUs' partial lists.
    pub slabs: u64,
    /// Free objects on private chains and in arrays: the slabs count them as in use.
    pub private_objects: u64,
    /// Free objects that slabs on CPUs' partial lists, and CPU slabs, count as free.
    pub slab_objects: u64,
    /// Freed objects put aside, not yet given back to their slabs.
    pub deferred_objects: u64,
}

/// The other nodes, nearest number first: the order in which a CPU looks for slabs elsewhere.
pub(crate) fn other_nodes(from: NodeId, count: u8) -> impl Iterator<Item = NodeId> {
    (1..count).map(move |step| NodeId((from.0 + step) % count))
}

/// Whether a look at other nodes' lists is made this time: in all but a few of 1024 cases under
/// `ratio`, drawn from a counter of the CPU's so that runs can be repeated
/// (docs: linux-policies 4.3 step 4).
pub(crate) fn tries_other_nodes(draw: u32, ratio: u32) -> bool {
    let mixed = draw.wrapping_mul(0x9E37_79B1) >> 22;
    mixed <= ratio
}

impl<P: Platform> Slabs<P> {
    /// Takes an object of a cache of an engine other than the sheaf engine.
    #[inline]
    pub(crate) fn alloc_of(&self, cache: &Cache) -> Option<NonNull<u8>> {
        match cache.engine() {
            Engine::CpuSlab => self.alloc_cpu_slab(cache),
            Engine::CpuSlab2007 => self.alloc_2007(cache),
            Engine::Slab2007 => self.alloc_array(cache),
            Engine::Sheaf => self.alloc(cache),
        }
    }

    /// Gives an object of such a cache back.
    ///
    /// # Safety
    /// 1. `object` is of this cache and given up by its owner.
    #[inline]
    pub(crate) unsafe fn free_of(&self, cache: &Cache, object: NonNull<u8>) {
        // SAFETY: obligation 1.
        unsafe {
            match cache.engine() {
                Engine::CpuSlab => self.free_cpu_slab(cache, object),
                Engine::CpuSlab2007 => self.free_2007(cache, object),
                Engine::Slab2007 => self.free_array(cache, object),
                Engine::Sheaf => self.free(cache, object),
            }
        }
    }

    /// Gives a chain of objects back to a slab of such a cache.
    pub(crate) fn put_chain_of(&self, engine: Engine, slab: &Slab<'_, P>, chain: Chain) {
        match engine {
            Engine::CpuSlab => {
                let _never = self.put_chain_cpu_slab(slab, chain, Patience::Endless);
            }
            Engine::CpuSlab2007 => self.put_chain_2007(slab, chain),
            Engine::Slab2007 => self.put_chain_array(slab, chain),
            Engine::Sheaf => slab.put_chain(chain),
        }
    }

    /// Takes everything off the CPUs of a cache of such an engine.
    pub(crate) fn flush_cpus(&self, cache: &Cache) {
        match cache.engine() {
            Engine::CpuSlab | Engine::CpuSlab2007 => self.flush_cpu_slabs(cache),
            Engine::Slab2007 => self.flush_arrays(cache),
            Engine::Sheaf => {}
        }
    }

    /// The counts of the CPU this runs on.
    pub(super) fn tally_here<'a>(&self, cache: &'a Cache) -> &'a Tally {
        let cpu = P::current_cpu();
        match cache.engine() {
            Engine::Slab2007 => &self.array(cache, cpu).tally,
            _ => &self.cpu_slab(cache, cpu).tally,
        }
    }

    pub(super) fn tally(&self, cache: &Cache, cpu: CpuId) -> EngineCounts {
        match cache.engine() {
            Engine::Slab2007 => self.array(cache, cpu).tally.counts(),
            _ => self.cpu_slab(cache, cpu).tally.counts(),
        }
    }

    pub(super) fn local_lock<'a>(&self, cache: &'a Cache, cpu: CpuId) -> &'a RawLock {
        match cache.engine() {
            Engine::Slab2007 => self.array(cache, cpu).lock(),
            _ => self.cpu_slab(cache, cpu).lock(),
        }
    }
}
