//! The parts of a profile, as its file names them.

use serde::{Deserialize, Serialize};

/// How many CPUs there are and how they hang together.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// Packages.
    pub sockets: u32,
    /// Cores in one package.
    pub cores_per_socket: u32,
    /// Hardware threads of one core.
    pub threads_per_core: u32,
    /// Memory nodes.
    pub nodes: u8,
    /// Bytes in a page.
    pub page_size: usize,
    /// Physical memory in GiB.
    pub memory_gib: usize,
    /// Clock in GHz, to state times in cycles.
    pub ghz: f64,
}

/// Moving a cache line, in nanoseconds, by where it comes from.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// It is in this CPU's own cache.
    pub l1: f64,
    /// The other thread of this core has it.
    pub sibling: f64,
    /// Another core of the same last-level cache has it; absent: as `socket`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<f64>,
    /// Another core of the same package has it.
    pub socket: f64,
    /// Another package has it.
    pub remote: f64,
    /// Nobody has it.
    pub dram: f64,
    /// What a locked instruction costs beyond the access.
    pub atomic: f64,
    /// The part of a line's journey during which its last owner still has it: until the request
    /// has reached it. Absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub linger: Option<f64>,
    /// The part of an object line's journey that its user waits for: loads and stores to several
    /// are under way at once. Absent: all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlap: Option<f64>,
    /// The same of a free object that says where the next one is, after one that lies beside it: of
    /// objects of one line, and of two or more. Others are waited for all the way. Absent: as `overlap`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_row: Option<[f64; 2]>,
    /// A line that its owner wrote moves whole to whoever reads it, who may then write it without
    /// another journey. Absent: the reader has a copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migrates: Option<bool>,
}

/// Who gets a contended lock next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Queueing {
    /// First come, first served; each waits on a line of its own.
    Queued,
    /// All spin on one line, and a release gives the lock to nobody: a waiter, which one is chance,
    /// notices it only after a while, and whoever asks meanwhile (mostly the last holder) has it again.
    Spinning,
}

/// Lock behaviour of the machine's kernel.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Locks {
    /// All locks.
    pub default: Queueing,
    /// Hand-off over a plain line transfer between the same two CPUs.
    pub handoff: f64,
    /// What a holder's store to its lock's line costs while somebody spins on that line, over a
    /// plain line transfer between the two. Absent: the line stays with its holder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watched: Option<f64>,
    /// Added to that for each CPU that spins, in nanoseconds. Absent: nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watched_ns: Option<f64>,
}

/// Simultaneous threads of one core.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Smt {
    /// How much longer private work takes for each further running thread of the core. One
    /// that waits for a lock slows nobody.
    pub slowdown: f64,
}

/// Private work in nanoseconds.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct WorkNs {
    /// One step on a per-CPU slot.
    pub slot: f64,
    /// A fast path around it.
    pub fast: f64,
    /// The same of a free. Absent: as `fast`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fast_free: Option<f64>,
    /// Entering a slow path.
    pub slow: f64,
    /// One object handled.
    pub object: f64,
    /// Setting up a fresh slab, whatever its size.
    pub slab: f64,
    /// For each of its pages.
    pub slab_page: f64,
    /// The array-cache engine's management of a fresh slab. Absent: nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed_slab: Option<f64>,
    /// One buddy block moved.
    pub block: f64,
    /// One page cleared and mapped.
    pub page: f64,
    /// A lock that only this CPU takes.
    pub local: f64,
    /// The same of a pageset, with what its owner does under it. Absent: as `local`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pageset: Option<f64>,
    /// Stopping another CPU to take its slots.
    pub seize: f64,
    /// Waking a sleeping task.
    pub wake: f64,
    /// A branch of the core that its CPU predicted wrong. Absent: nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mispredict: Option<f64>,
    /// What a step of the host's pace loop took while these figures were measured. Absent: unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pace: Option<f64>,
    /// The power of the pace that a CPU's own work goes with. Absent: one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pace_power: Option<f64>,
}

/// Deferred frees.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RcuShape {
    /// Length of a grace period in milliseconds.
    pub grace_ms: f64,
}

/// Data caches.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CacheShape {
    /// Size of one last-level cache in KiB.
    pub llc_kib: usize,
    /// Cores that share it.
    pub cluster_cores: u32,
    /// A data line that missed it, in nanoseconds, overlap included.
    pub line_ns: f64,
}
