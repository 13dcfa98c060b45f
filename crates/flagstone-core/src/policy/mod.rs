//! Policy: every published knob as data, and the rules that turn it into numbers.
//!
//! ```text
//!   default   the product's own                     set   "slab_max_order" "4" -> Policy
//!   layout    object size, flags -> stride          cpus  possible, present, online
//!   order     stride -> order, objects, tail
//!   partial   cpu_partial, min_partial              sheaf     capacity, barn limits
//!   pcp_marks batch, high_min, high_max             watermarks  min, low, high, promo
//!   pcp_rule  the seam for rules that move pages
//!   pcp_tuning  flagstone's rule over PcpState     classes   general-purpose sizes
//!   bounds    what may be held within the means     allowance  what giving back may cost
//!   lately    the most in use in the last seconds
//! ```
//!
//! [`Policy`] is a plain value, `Copy`, a few dozen words; the allocator asks it questions when a
//! cache or a zone is made and keeps the answers.
//!
//! Sources: "docs: linux-policies N" cites a section of the rule sheet; what was not read in a
//! kernel's source or seen on a running one says so.
//!
//! Pure integer code without memory or platform; state is in [`PcpState`], [`Allowance`], [`Lately`] and `Bounds`.
#![forbid(unsafe_code)]

mod allowance;
mod bounds;
mod classes;
mod cpus;
mod default;
#[cfg(test)]
pub(crate) mod for_tests;
mod lately;
mod layout;
mod order;
mod partial;
mod pcp_marks;
mod pcp_rule;
mod pcp_state;
mod pcp_tuning;
mod remedies;
mod set;
mod sheaf;
mod watermarks;
mod within;

pub use allowance::{Allowance, HOLE_NS, PAGE_NS, SHRINK_NS, SLAB_NS};
pub(crate) use bounds::Bounds;
pub use classes::{LargestClass, SizeClasses};
pub use cpus::{CpuRule, Cpus};
pub use lately::Lately;
pub use layout::{LayoutRule, NaturalAlign, ObjectLayout, ObjectSpec, WORD};
pub use order::{OBJECTS_PER_SLAB_MAX, OrderQuery, OrderRule, SlabShape};
pub use partial::{CpuPartialRule, MAX_PARTIAL, MIN_PARTIAL, MinPartialRule};
pub use pcp_marks::{PcpMarks, PcpZone, batch_within};
pub use pcp_rule::{PageRule, PcpRule};
pub use pcp_state::{PcpState, UNCAPPED, ZoneFlags, bounded, doubled, is_high};
pub use pcp_tuning::OwnPages;
pub use remedies::Remedies;
pub use set::{KEYS, SetError, SetProblem};
pub use sheaf::{BarnLimits, Returns, SheafRule, SizeSteps};
pub use watermarks::{WatermarkInput, Watermarks, min_free_kib};

use crate::base::{Order, PageSize, fls};

/// Which per-CPU machinery serves a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Engine {
    /// Per-CPU arrays, a barn per node, partial lists behind them (docs: linux-policies 5).
    Sheaf,
    /// The same exactly as Linux 7.0 has it; the default's form where nobody serves it (5.2 to 5.5).
    KernelSheaf,
    /// A slab per CPU with a lockless freelist, and a list of partial slabs (4.2 to 4.7).
    CpuSlab,
    /// The same idea in its first form: a lock per slab, no per-CPU partial list (4.1).
    CpuSlab2007,
    /// SLAB: per-CPU arrays of objects over three lists of slabs.
    Slab2007,
}

/// The largest slab order a policy chooses on its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MaxOrder {
    /// 1 for pages up to 4 KiB, else 2 (docs: linux-policies 1.3).
    ByPage2007,
    /// Always this.
    Fixed(Order),
}

/// How many objects a slab should at least hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MinObjects {
    /// 4 for pages up to 4 KiB, else 8 (docs: linux-policies 1.3).
    ByPage2007,
    /// `4 * (fls(cpus) + 1)` (docs: linux-policies 1.2).
    ByCpus,
    /// Set by hand (`slab_min_objects`).
    Fixed(u32),
}

/// Whether big systems want more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Doubling {
    /// No difference.
    Never,
    /// On 32 CPUs and more, twice the wanted objects and twice the per-CPU partial objects
    /// (docs: linux-policies 1.6). A hand-set number of objects is not doubled.
    From32Cpus,
}

/// How long the slabs of one cache are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Runs {
    /// All by the order rule: what the slab layer makes.
    ByOrder,
    /// Each by what the cache holds, as `flagstone-kernels` computes it for plans (ADR 0011).
    ByPopulation,
}

/// Bounds the kernel rules do not have; 0 means unbounded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlagstoneLimits {
    /// Most objects per sheaf.
    pub sheaf_capacity_max: u32,
    /// Most bytes of objects one sheaf may hold; small counts round up to one object.
    pub sheaf_bytes_max: usize,
    /// The same for a cache whose objects go round between CPUs, as long as its sheaves hold fewer
    /// objects than are live.
    pub sheaf_bytes_busy: usize,
    /// A sheaf has up to this part of its slots fewer than wanted, by where it lies; 0: none has.
    /// CPUs that are served in turn would else fill their sheaves in step, and queue at the barn.
    pub sheaf_spread: u32,
    /// Most bytes of objects the full sheaves of one barn may hold, learned from refills that
    /// follow flushes.
    pub barn_bytes_max: usize,
    /// Bytes all barns of a heap together may hold; a sixteenth of what is in use if that is more.
    pub barns_bytes_quiet: usize,
    /// Least bytes that all stores of free memory together may hold (`page/budget.rs`).
    pub retain_bytes_min: usize,
    /// Divisor of the bytes in use: so much may be held if it is more (16: a sixteenth).
    pub retain_share: u32,
    /// Most bytes one CPU's pageset of one zone may keep.
    pub pcp_bytes_max: u64,
}

impl FlagstoneLimits {
    /// No bounds: every kernel preset.
    pub const NONE: Self = Self {
        sheaf_capacity_max: 0,
        sheaf_bytes_max: 0,
        sheaf_bytes_busy: 0,
        sheaf_spread: 0,
        barn_bytes_max: 0,
        barns_bytes_quiet: 0,
        retain_bytes_min: 0,
        retain_share: 0,
        pcp_bytes_max: 0,
    };

    /// The default policy's bounds.
    ///
    /// 253 slots, their head and their ceiling fill 2 KiB; 64 KiB per sheaf is 16 objects of a
    /// page, 1 MiB is 253 of them. A cache reaches these only under traffic and falls back when the heap shrinks.
    /// Doubling either halves visits to the barn and doubles what an idle CPU strands (ADR 0014).
    pub const DEFAULT: Self = Self {
        sheaf_capacity_max: 253,
        sheaf_bytes_max: 64 << 10,
        sheaf_bytes_busy: 1 << 20,
        sheaf_spread: 8,
        barn_bytes_max: 64 << 20,
        barns_bytes_quiet: 4 << 20,
        retain_bytes_min: 10 << 20,
        retain_share: 16,
        pcp_bytes_max: 8 << 20,
    };
}

/// Every knob of one allocator, as data: [`Policy::parse`] and [`Policy::set`] keep it consistent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    /// Per-CPU engine.
    pub engine: Engine,
    /// Slab order rule.
    pub order_rule: OrderRule,
    /// Smallest slab order (`slab_min_order`).
    pub min_order: Order,
    /// Largest slab order (`slab_max_order`).
    pub max_order: MaxOrder,
    /// Objects wanted per slab (`slab_min_objects`).
    pub min_objects: MinObjects,
    /// Which CPU count that follows.
    pub cpu_rule: CpuRule,
    /// Whether big systems want twice as many.
    pub big_system: Doubling,
    /// How long the slabs of one cache are, for plans.
    pub runs: Runs,
    /// Object layout rule.
    pub layout: LayoutRule,
    /// Per-CPU partial list rule.
    pub cpu_partial_rule: CpuPartialRule,
    /// `cpu_partial` in objects, set by hand for every cache.
    pub cpu_partial_set: Option<u32>,
    /// Slabs on a per-CPU partial list are owned by that CPU (until 6.7) or not (since 6.8).
    pub cpu_partial_frozen: bool,
    /// Node partial list rule.
    pub min_partial_rule: MinPartialRule,
    /// Measures against contention on one slab.
    pub remedies: Remedies,
    /// Sheaf capacity rule.
    pub sheaf_rule: SheafRule,
    /// `sheaf_capacity` in objects, set by hand for every cache.
    pub sheaf_capacity_set: Option<u32>,
    /// Barn limits in sheaves, before `barn_bytes_max`.
    pub barn: BarnLimits,
    /// Pageset tuning rule.
    pub pcp_rule: PcpRule,
    /// Cap on pageset doublings (`PCP_BATCH_SCALE_MAX`); [`UNCAPPED`] before the series.
    pub pcp_batch_scale_max: u8,
    /// `percpu_pagelist_high_fraction`: 0, or at least 8.
    pub pcp_high_fraction: u32,
    /// Pageset batch in pages, set by hand.
    pub pcp_batch_set: Option<u32>,
    /// Pageset `high_min` in pages, set by hand.
    pub pcp_high_min_set: Option<u32>,
    /// Pageset `high_max` in pages, set by hand.
    pub pcp_high_max_set: Option<u32>,
    /// General-purpose size classes.
    pub size_classes: SizeClasses,
    /// Bounds on parked memory.
    pub limits: FlagstoneLimits,
}

impl Policy {
    /// Objects wanted per slab before the order limits are considered.
    #[must_use]
    pub fn min_objects(&self, page_size: PageSize, cpus: Cpus) -> u32 {
        match self.min_objects {
            MinObjects::Fixed(objects) => objects,
            MinObjects::ByPage2007 => {
                let objects = if page_size.bytes() <= 4096 { 4 } else { 8 };
                objects * self.doubling(cpus)
            }
            MinObjects::ByCpus => {
                let count = self.cpu_rule.count(cpus);
                4 * (fls(u64::from(count)) + 1) * self.doubling(cpus)
            }
        }
    }

    /// Largest slab order on this page size.
    #[must_use]
    pub fn max_order(&self, page_size: PageSize) -> Order {
        match self.max_order {
            MaxOrder::Fixed(order) => order,
            MaxOrder::ByPage2007 => {
                let order = if page_size.bytes() <= 4096 { 1 } else { 2 };
                Order::new(order).unwrap_or(Order::ZERO)
            }
        }
    }

    /// Two where big systems want twice as many objects, else one.
    #[must_use]
    pub fn doubling(&self, cpus: Cpus) -> u32 {
        let count = CpuRule::PresentOrPossible.count(cpus);
        if self.big_system == Doubling::From32Cpus && count >= 32 {
            2
        } else {
            1
        }
    }

    /// The preferred slab of objects with stride `size` bytes (not zero), or `None` if the rule
    /// finds no order for them.
    #[must_use]
    pub fn slab_shape(&self, size: usize, page_size: PageSize, cpus: Cpus) -> Option<SlabShape> {
        let order = self.order_rule.order(&OrderQuery {
            size,
            page_size,
            min_order: self.min_order,
            max_order: self.max_order(page_size),
            min_objects: self.min_objects(page_size, cpus),
        })?;
        Some((self.order_rule.shape)(order, size, page_size))
    }

    /// Where everything of one object lies.
    #[must_use]
    pub const fn layout(&self, spec: &ObjectSpec) -> ObjectLayout {
        self.layout.layout(spec)
    }

    /// Slabs a node's partial list keeps before an empty one is given back.
    #[must_use]
    pub fn min_partial(&self, size: usize) -> u32 {
        self.min_partial_rule.slabs(size)
    }

    /// Objects per sheaf for stride `size`, for a cache that asked for nothing; `None` where the
    /// policy has no sheaves, `Some(0)` where this cache gets none.
    #[must_use]
    pub fn sheaf_capacity(&self, size: usize, page_size: PageSize) -> Option<u32> {
        self.sheaf_capacity_requested(size, page_size, 0)
    }

    /// The same for a cache whose creator asked for `requested` objects (0: did not ask).
    #[must_use]
    pub fn sheaf_capacity_requested(
        &self,
        size: usize,
        page_size: PageSize,
        requested: u32,
    ) -> Option<u32> {
        let by_rule = match self.sheaf_rule {
            SheafRule::None => return None,
            SheafRule::OptIn => requested,
            SheafRule::BySize(steps, _) => steps.capacity(size, page_size).max(requested),
            SheafRule::Bytes => self.capacity_by_bytes(size).max(requested),
        };
        Some(self.sheaf_capacity_set.unwrap_or(by_rule))
    }

    fn capacity_by_bytes(&self, size: usize) -> u32 {
        self.capacity_within(self.limits.sheaf_bytes_max, size)
    }

    /// Objects per sheaf for stride `size` at most, while objects go round between CPUs.
    #[must_use]
    pub fn busy_capacity(&self, size: usize) -> u32 {
        self.capacity_within(self.limits.sheaf_bytes_busy, size)
    }

    fn capacity_within(&self, bytes: usize, size: usize) -> u32 {
        let unbounded = |limit: usize| if limit == 0 { usize::MAX } else { limit };
        let by_bytes = (unbounded(bytes) / size.max(1)).max(1);
        let most = unbounded(self.limits.sheaf_capacity_max as usize);
        u32::try_from(by_bytes.min(most)).unwrap_or(u32::MAX)
    }

    /// Whether page descriptors lie close together. The kernels' have a cache line each, and
    /// engines that lock a slab or keep its links outside need the room.
    #[must_use]
    pub fn packs_descriptors(&self) -> bool {
        self.engine == Engine::Sheaf && self.sheaf_rule == SheafRule::Bytes
    }

    /// Barn limits for sheaves of `capacity` objects with stride `size`.
    #[must_use]
    pub fn barn_limits(&self, size: usize, capacity: u32) -> BarnLimits {
        if self.limits.barn_bytes_max == 0 {
            return self.barn;
        }
        let sheaf_bytes = (size * capacity as usize).max(1);
        let by_bytes = u32::try_from(self.limits.barn_bytes_max / sheaf_bytes).unwrap_or(u32::MAX);
        BarnLimits {
            full: self.barn.full.min(by_bytes.max(1)),
            empty: self.barn.empty,
        }
    }

    /// Pageset marks of one zone. The policy's own `percpu_pagelist_high_fraction`, if set, wins
    /// over the zone's.
    #[must_use]
    pub fn pcp_marks(&self, zone: &PcpZone) -> PcpMarks {
        let mut zone = *zone;
        if self.pcp_high_fraction != 0 {
            zone.high_fraction = self.pcp_high_fraction;
        }
        let mut marks = (self.pcp_rule.marks)(&zone);
        if self.limits.pcp_bytes_max != 0 {
            marks = marks.capped(self.limits.pcp_bytes_max, zone.page_size);
        }
        marks.batch = self.pcp_batch_set.unwrap_or(marks.batch);
        marks.high_min = self.pcp_high_min_set.unwrap_or(marks.high_min);
        marks.high_max = self
            .pcp_high_max_set
            .unwrap_or(marks.high_max)
            .max(marks.high_min);
        marks
    }

    /// A pageset's tuning state under this policy.
    #[must_use]
    pub fn pcp_state<R: PageRule>(&self, marks: PcpMarks) -> PcpState {
        let mut state = PcpState::new(self.pcp_rule.id, self.pcp_batch_scale_max);
        R::set_marks(&mut state, marks);
        state
    }
}
