//! Slabs by population: how long a run of pages the *next* slab of a cache should get.
//!
//! ```text
//!   the order rule   [======== 51 objects, 8 pages, tail 128 =======][======== ...
//!   this rule        [==== 32, 5 pages, no tail ====][== 19, 3 ==]   [==== 32 ====] ...
//!                     never more bytes than above for the same objects
//! ```
//!
//! The published rules give every slab of a cache one order, chosen once, from the stride and the
//! number of CPUs. This one is asked each time a slab is made, and knows what the cache holds:
//!
//! 1. *Budget*: the bytes the order rule's slabs would take for one object more than the cache
//!    has room for, less the bytes it holds. A run longer than the budget is not allowed, and
//!    what it leaves must still hold the rest of the order rule's slab. By induction a cache
//!    never takes more than under the order rule, at any population.
//! 2. *Credit*: tails the cache already wastes, 20-fold, at most four units, add to the budget: a
//!    cache of many slabs may exceed it for a moment to end its tails for good.
//! 3. Of the runs left: the least tails, if this whole population had that shape. Among equals
//!    the least credit; then one that holds an eighth of the objects there are (at least 16 KiB
//!    or a page of them, at most what the order rule's slab holds); then the shortest.
//!
//! A run may have any number of units, not only a power of two: the page layer splits a block and
//! keeps the rest. A unit is a page; pages above 4 KiB are shared in units of 256 bytes, so that
//! a cache of three objects holds 16 KiB of a 64 KiB page.
//!
//! Because the choice follows the population, slabs of one cache differ: small ones from when it
//! was small, longer ones later. Reasons and figures: `docs/adr/0011-order-by-population.md`.
#![forbid(unsafe_code)]

use flagstone_core::base::{Order, PageCount, PageSize};
use flagstone_core::policy::{Cpus, Policy, Runs, SlabShape};

/// The numbers of the rule.
struct RunRule {
    /// Bytes in one unit where pages are larger than 4 KiB; smaller pages are their own unit.
    shared_unit: usize,
    /// Most bytes in one run, unless one object needs more. Runs are further bound by a block of
    /// order 3.
    run_bytes_max: usize,
    /// Bytes beyond the order rule's total that one byte of tail in the cache allows.
    tail_credit: u64,
    /// Most units of such credit.
    credit_units_max: u64,
    /// The next slab should hold one object for this many that the cache has room for, if that is
    /// less than the order rule's slab holds.
    growth_share: u64,
    /// The next slab should hold at least this many bytes of objects, or a page of them where
    /// pages are smaller.
    first_bytes: usize,
}

impl RunRule {
    /// Chosen over 59 captures and populations up to four times
    /// larger or smaller (`tests/least_waste_table.rs`).
    ///
    /// 256 bytes: with units of 512 or 1024 raw counts of 64 KiB captures cost more than the base.
    /// 512 KiB: order 3 of 64 KiB pages; on smaller pages order 3 is less and decides. Credit 20:
    /// at 12 the patch has smaller tails in one capture, at 28 the base less memory in one. Four
    /// units: unbounded, the memory margin halves. Share 8 and 16 KiB at first: at 4 raw counts of
    /// one capture cost more, at 16 and 4 KiB node lists of large pages see more traffic.
    const DEFAULT: Self = Self {
        shared_unit: 256,
        run_bytes_max: 512 << 10,
        tail_credit: 20,
        credit_units_max: 4,
        growth_share: 8,
        first_bytes: 16 << 10,
    };

    /// The page size runs are counted in.
    const fn unit(&self, page_size: PageSize) -> PageSize {
        if page_size.bytes() <= PageSize::K4.bytes() {
            return page_size;
        }
        match PageSize::new(self.shared_unit) {
            Some(unit) => unit,
            None => page_size,
        }
    }

    /// The next slab of a cache that has room for what `held` says, where the order rule would
    /// make one of `fixed` shape.
    fn next(
        &self,
        size: usize,
        page_size: PageSize,
        fixed: &SlabShape,
        held: &Population,
    ) -> Option<SlabShape> {
        let unit = self.unit(page_size).bytes();
        let objects_in = |units: usize| (units * unit / size) as u64;
        let shortest = size.div_ceil(unit);
        let block = page_size.block_bytes(Order::COSTLY);
        let longest = (self.run_bytes_max.min(block) / unit).max(shortest);

        let per_slab = u64::from(fixed.objects);
        let slabs = held.objects / per_slab + 1;
        let missing = slabs.saturating_mul(per_slab) - held.objects;
        let credit = held
            .tail_bytes
            .saturating_mul(self.tail_credit)
            .min(self.credit_units_max * unit as u64);
        let allowed = slabs.saturating_mul(fixed.bytes(page_size) as u64);
        let units_left = |bytes: u64| {
            let left = bytes.saturating_sub(held.bytes) / unit as u64;
            left.min(2 * longest as u64) as usize
        };
        let without_credit = units_left(allowed);
        let budget = units_left(allowed.saturating_add(credit));

        let first = (self.first_bytes.min(page_size.bytes()) / size) as u64;
        let wanted = per_slab.min(first.max(held.objects / self.growth_share.max(1)));
        let live = held.objects.max(1);
        let mut best = (u64::MAX, usize::MAX, u64::MAX, shortest);
        // Thousands of lengths where pages are large and shared: no division for most of them.
        let (mut objects, mut tail) = (0, (shortest - 1) * unit);
        for units in shortest..=longest.min(budget) {
            tail += unit;
            if tail >= size {
                let more = if tail < 2 * size { 1 } else { tail / size };
                objects += more as u64;
                tail -= more * size;
            }
            let tail = tail as u64;
            if tail > best.0 {
                continue;
            }
            let key = (
                tail.saturating_mul(live.div_ceil(objects)),
                units.saturating_sub(without_credit),
                wanted.saturating_sub(objects),
                units,
            );
            let rest = (budget - units).min(longest);
            if key < best && (objects >= missing || objects + objects_in(rest) >= missing) {
                best = key;
            }
            // Nothing has less than no tail, and what follows is longer.
            if best.0 == 0 && best.2 == 0 {
                break;
            }
        }
        let units = best.3;
        let bytes = units * unit;
        Some(SlabShape {
            order: Order::new(page_size.order_for(bytes).get())?,
            pages: PageCount(units),
            objects: (bytes / size) as u32,
            tail_bytes: bytes % size,
        })
    }
}

/// What a number of objects costs in slabs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Population {
    /// Slabs.
    pub slabs: u64,
    /// Bytes of all slabs.
    pub bytes: u64,
    /// Bytes behind the last object of every slab: "wastage" in the published tables
    /// (docs: linux-policies 8.4).
    pub tail_bytes: u64,
    /// Objects the slabs have room for.
    pub objects: u64,
}

/// Live objects behind what a kernel prints: `active` counts the free objects of slabs that CPUs
/// allocate from as used; on average such a slab is half full, and each of `online` CPUs may own
/// one.
#[must_use]
pub const fn estimated_live(active: u64, slabs: u64, per_slab: u64, online: u32) -> u64 {
    let owned = if slabs < online as u64 {
        slabs
    } else {
        online as u64
    };
    let live = active.saturating_sub(owned * per_slab / 2);
    if live == 0 && active > 0 { 1 } else { live }
}

/// Slabs after which the choice is no longer made for each one when a population is costed.
const SETTLED: u64 = 512;

impl Population {
    /// Adds `slabs` slabs of one shape, counted in `unit`s.
    pub fn add(&mut self, shape: &SlabShape, unit: PageSize, slabs: u64) {
        self.slabs += slabs;
        self.bytes += slabs * shape.bytes(unit) as u64;
        self.tail_bytes += slabs * shape.tail_bytes as u64;
        self.objects += slabs * u64::from(shape.objects);
    }

    /// Takes one slab away that was added before.
    pub fn remove(&mut self, shape: &SlabShape, unit: PageSize) {
        self.slabs -= 1;
        self.bytes -= shape.bytes(unit) as u64;
        self.tail_bytes -= shape.tail_bytes as u64;
        self.objects -= u64::from(shape.objects);
    }

    /// The same for `times` equal populations.
    #[must_use]
    pub const fn times(self, times: u64) -> Self {
        Self {
            slabs: self.slabs * times,
            bytes: self.bytes * times,
            tail_bytes: self.tail_bytes * times,
            objects: self.objects * times,
        }
    }

    /// Both together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            slabs: self.slabs + other.slabs,
            bytes: self.bytes + other.bytes,
            tail_bytes: self.tail_bytes + other.tail_bytes,
            objects: self.objects + other.objects,
        }
    }
}

/// What populations cost under a policy.
pub trait Populations {
    /// The page size slabs are counted in: pages, or a part of one where the policy cuts them.
    fn slab_unit(&self, page_size: PageSize) -> PageSize;

    /// The shape of the next slab of a cache that has room for what `held` says and needs one
    /// object more, in [`Populations::slab_unit`]s; `order` is that of the smallest block of pages the
    /// run is cut from. Rules that do not look at the population answer [`Policy::slab_shape`].
    fn next_slab(
        &self,
        size: usize,
        page_size: PageSize,
        cpus: Cpus,
        held: &Population,
    ) -> Option<SlabShape>;

    /// Slabs of a cache that grew to `objects` objects without ever shrinking.
    fn population(
        &self,
        size: usize,
        page_size: PageSize,
        cpus: Cpus,
        objects: u64,
    ) -> Option<Population>;

    /// The same objects spread evenly over the online CPUs, each with slabs of its own: what a
    /// kernel whose CPUs own slabs tends to after boot.
    fn population_spread(
        &self,
        size: usize,
        page_size: PageSize,
        cpus: Cpus,
        objects: u64,
    ) -> Option<Population> {
        let owners = u64::from(cpus.online).min(objects).max(1);
        let (each, rest) = (objects / owners, objects % owners);
        let more = self
            .population(size, page_size, cpus, each + 1)?
            .times(rest);
        let fewer = self
            .population(size, page_size, cpus, each)?
            .times(owners - rest);
        Some(more.plus(fewer))
    }
}

impl Populations for Policy {
    fn slab_unit(&self, page_size: PageSize) -> PageSize {
        match self.runs {
            Runs::ByPopulation => RunRule::DEFAULT.unit(page_size),
            Runs::ByOrder => page_size,
        }
    }

    fn next_slab(
        &self,
        size: usize,
        page_size: PageSize,
        cpus: Cpus,
        held: &Population,
    ) -> Option<SlabShape> {
        let fixed = self.slab_shape(size, page_size, cpus)?;
        match self.runs {
            Runs::ByPopulation => RunRule::DEFAULT.next(size, page_size, &fixed, held),
            Runs::ByOrder => Some(fixed),
        }
    }

    fn population(
        &self,
        size: usize,
        page_size: PageSize,
        cpus: Cpus,
        objects: u64,
    ) -> Option<Population> {
        let fixed = self.slab_shape(size, page_size, cpus)?;
        let mut total = Population::default();
        if self.runs == Runs::ByOrder {
            total.add(&fixed, page_size, objects.div_ceil(fixed.objects.into()));
            return Some(total);
        }
        let rule = RunRule::DEFAULT;
        while total.objects < objects {
            let shape = rule.next(size, page_size, &fixed, &total)?;
            let left = (objects - total.objects).div_ceil(shape.objects.into());
            // A cache of thousands of slabs has settled: its next ones are alike.
            let step = if total.slabs < SETTLED {
                1
            } else {
                total.slabs / 64
            };
            total.add(&shape, rule.unit(page_size), step.min(left));
        }
        Some(total)
    }
}

#[cfg(test)]
#[path = "runs_tests.rs"]
mod tests;
