//! What a cache of these engines keeps: its rules, and an entry for each CPU.
//!
//! ```text
//!   room   [ Rules | entry of CPU 0 | entry of CPU 1 | ... | node 0 | node 1 | ... ]
//!
//!   engine        per CPU and cache                       entry
//!   CpuSlab       slab, private chain, partial slabs      CpuSlab       cpu_slab/
//!   KernelSheaf   rcu sheaf                               CpuSlab       sheaves/
//!   CpuSlab2007   slab, private chain                     CpuSlab       cpu_slab/with_locks.rs
//!   Slab2007      array of objects                        ArrayCache    array_cache/
//! ```
//!
//! The core keeps the room's address with the cache and gives the room to the next cache of the
//! same id.

use crate::array_cache::{ArrayCache, Queues, SharedArray, array_bytes, queues, shared_bytes};
use crate::cpu_partial::{CpuPartial, cpu_partial};
use crate::cpu_slab::CpuSlab;
use crate::state::CpuLists;
use core::ptr::NonNull;
use flagstone_core::base::{CpuId, NodeId};
use flagstone_core::policy::{CpuPartialRule, Engine, Remedies};
use flagstone_core::slab::{Cache, Served};

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

/// The rules of a cache that depend on its engine, and how its room is divided.
#[derive(Debug)]
pub(crate) struct Rules {
    /// Limit of a CPU's partial list.
    pub partial: PartialLimit,
    /// Slabs on a CPU's partial list are frozen (until 6.7).
    pub freezes_partial: bool,
    /// Empty slabs go once the list is *longer* than `min_partial`; later kernels let it be no
    /// longer than that (docs: linux-policies 3).
    surplus_above: bool,
    pub remedies: Remedies,
    /// SLAB's queue lengths.
    pub queues: Queues,
    stride: usize,
    node_stride: usize,
    cpus: u32,
}

/// Bytes of a room before its entries, which are aligned to a line.
const HEAD: usize = size_of::<Rules>().next_multiple_of(64);

impl Rules {
    fn of(cache: &Served<'_>) -> Self {
        let policy = cache.policy;
        let (size, objects) = (cache.geometry.size(), cache.geometry.objects());
        let (page_size, cpus) = (cache.page_size, cache.cpus);
        let queues = queues(size, objects, page_size, cpus);
        let (stride, node_stride) = match cache.engine {
            Engine::Slab2007 => (
                array_bytes(queues.limit),
                shared_bytes(queues.shared * queues.batch),
            ),
            _ => (size_of::<CpuSlab>(), 0),
        };
        Self {
            partial: PartialLimit::of(
                policy.cpu_partial_rule,
                cpu_partial(policy, size, objects, page_size, cpus),
            ),
            freezes_partial: policy.cpu_partial_frozen,
            surplus_above: policy.cpu_partial_rule == CpuPartialRule::Objects2011,
            remedies: policy.remedies,
            queues,
            stride,
            node_stride,
            cpus: cpus.possible,
        }
    }

    /// CPUs with an entry.
    pub fn cpus(&self) -> impl Iterator<Item = CpuId> + use<> {
        (0..self.cpus).map(CpuId)
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
}

/// Bytes of a cache's room.
pub(crate) fn room_bytes(cache: &Served<'_>) -> usize {
    let rules = Rules::of(cache);
    HEAD + rules.stride * rules.cpus as usize + rules.node_stride * usize::from(cache.nodes)
}

/// Makes a cache's room.
///
/// # Safety
/// 1. As for `ObjectEngine::furnish`.
pub(crate) unsafe fn furnish(room: usize, cache: &Served<'_>) {
    let rules = Rules::of(cache);
    for cpu in rules.cpus() {
        let entry = room + HEAD + cpu.index() * rules.stride;
        // SAFETY: obligation 1: the room has an entry for every CPU.
        unsafe {
            match cache.engine {
                Engine::Slab2007 => (entry as *mut ArrayCache).write(ArrayCache::new()),
                _ => (entry as *mut CpuSlab).write(CpuSlab::new()),
            }
        }
    }
    let shared = if rules.node_stride == 0 {
        0
    } else {
        cache.nodes
    };
    for node in 0..usize::from(shared) {
        let entry = room + HEAD + rules.cpus as usize * rules.stride + node * rules.node_stride;
        // SAFETY: obligation 1, for the nodes' entries behind the CPUs'.
        unsafe { (entry as *mut SharedArray).write(SharedArray::new()) };
    }
    // SAFETY: obligation 1: the room starts with the rules.
    unsafe { (room as *mut Rules).write(rules) };
}

/// The rules of a cache of these engines.
#[inline]
pub(crate) fn rules(cache: &Cache) -> &Rules {
    debug_assert!(cache.room() != 0, "a cache of the sheaf engine");
    // SAFETY: the core calls these engines for their own caches only; `furnish` made the room, which
    // stays as long as the cache.
    unsafe { &*(cache.room() as *const Rules) }
}

/// Whether a node with `nr_partial` slabs on its list gives an empty one back.
#[inline]
pub(crate) fn is_surplus(cache: &Cache, nr_partial: u32) -> bool {
    if rules(cache).surplus_above {
        nr_partial > cache.min_partial()
    } else {
        nr_partial >= cache.min_partial()
    }
}

/// A CPU's entry of a cache of the cpu-slab engines.
#[inline]
pub(crate) fn cpu_slab(cache: &Cache, cpu: CpuId) -> &CpuSlab {
    debug_assert!(cache.engine() != Engine::Slab2007 && cpu.0 < rules(cache).cpus);
    let entry = cache.room() + HEAD + cpu.index() * size_of::<CpuSlab>();
    // SAFETY: `furnish` made an entry for every CPU.
    unsafe { &*(entry as *const CpuSlab) }
}

/// A CPU's entry of a cache of the SLAB engine, `limit` objects behind it.
#[inline]
pub(crate) fn array(cache: &Cache, cpu: CpuId) -> NonNull<ArrayCache> {
    debug_assert!(cache.engine() == Engine::Slab2007 && cpu.0 < rules(cache).cpus);
    let entry = cache.room() + HEAD + cpu.index() * rules(cache).stride;
    // SAFETY: an address inside the room, which is not null.
    unsafe { NonNull::new_unchecked(entry as *mut ArrayCache) }
}

/// A node's entry of a cache of the SLAB engine, behind the CPUs'.
#[inline]
pub(crate) fn shared(cache: &Cache, node: NodeId) -> NonNull<SharedArray> {
    let rules = rules(cache);
    debug_assert!(rules.node_stride != 0);
    let nodes = cache.room() + HEAD + rules.cpus as usize * rules.stride;
    // SAFETY: as in `array`.
    unsafe {
        NonNull::new_unchecked((nodes + node.index() * rules.node_stride) as *mut SharedArray)
    }
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
