//! Slabs by population: how long a run of pages the *next* slab of a cache should get.
//!
//! ```text
//!   live objects     0 ........ few ............... many
//!   next slab       [=]        [===]               [========]     any number of units
//!   slack is        a unit     at most what a tail saves 256-fold   small beside the cache
//! ```
//!
//! The published rules give every slab of a cache one order, chosen once, from the stride and the
//! number of CPUs. This one is asked each time a slab is made, and knows how many objects the
//! cache holds already:
//!
//! - a run may have any number of units, not only a power of two; the page layer splits a block
//!   and keeps the rest, so 640-byte objects get 5 units and no tail;
//! - a unit is at most 4 KiB even where pages are larger: a cache of three objects then holds
//!   4 KiB of a 64 KiB page and others share it;
//! - of all runs it takes the one with the least `length + 256 * tails`, where `tails` is what
//!   this population would lose behind last objects if all its slabs had that shape.
//!
//! Because the choice follows the population, slabs of one cache differ: small ones from when it
//! was small, longer ones later. Reasons and figures: `docs/adr/0011-order-by-population.md`.
#![forbid(unsafe_code)]

use super::order::SlabShape;
use super::{Cpus, Policy};
use crate::base::{Order, PageCount, PageSize};

/// The knobs of the rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunRule {
    /// Most bytes in one unit; smaller pages are their own unit.
    pub unit_bytes_max: usize,
    /// Most bytes in one run, unless one object needs more. Runs are further bound by a block of
    /// order 3.
    pub run_bytes_max: usize,
    /// Bytes of slack one byte of tail is worth.
    pub tail_weight: usize,
    /// The objects wanted per slab may be at most this divisor's share of the live ones, so that
    /// a small cache does not start with a slab for many CPUs.
    pub growth_share: usize,
}

impl RunRule {
    /// The default policy's values.
    ///
    /// 4 KiB: with 16 KiB units tails on 64 KiB pages exceed those of the least-waste patch.
    /// 512 KiB: order 3 of 64 KiB pages; on smaller pages order 3 is less and decides. Weight 256:
    /// at 64 the patch has smaller tails on large pages, at 1024 slack grows for no gain. Share 8:
    /// at 4 total memory exceeds the base's in one capture, at 16 node lists see more traffic.
    /// Measured over 58 captures, November 2026, `tests/least_waste_table.rs`.
    pub const DEFAULT: Self = Self {
        unit_bytes_max: 4096,
        run_bytes_max: 512 << 10,
        tail_weight: 256,
        growth_share: 8,
    };

    /// The page size runs are counted in.
    #[must_use]
    pub const fn unit(&self, page_size: PageSize) -> PageSize {
        if page_size.bytes() <= self.unit_bytes_max {
            return page_size;
        }
        match PageSize::new(self.unit_bytes_max) {
            Some(unit) => unit,
            None => page_size,
        }
    }

    /// Longest run in units for objects of stride `size`.
    fn run_max(&self, size: usize, page_size: PageSize) -> usize {
        let unit = self.unit(page_size);
        let bytes = self.run_bytes_max.min(page_size.block_bytes(Order::COSTLY));
        (bytes / unit.bytes()).max(unit.pages_for(size).0)
    }

    /// The next slab's shape: `wanted` objects if the population allows it.
    fn next(&self, size: usize, page_size: PageSize, wanted: u32, live: u64) -> Option<SlabShape> {
        let unit = self.unit(page_size);
        let longest = self.run_max(size, page_size);
        let most = (longest * unit.bytes() / size) as u64;
        let share = live / self.growth_share.max(1) as u64;
        let wanted = u64::from(wanted).min(share).min(most).max(1) as usize;
        let shortest = unit.pages_for(wanted * size).0;
        let cost = |pages: &usize| {
            let bytes = pages * unit.bytes();
            let slabs = live.div_ceil((bytes / size) as u64).max(1);
            bytes as u64 + (self.tail_weight * (bytes % size)) as u64 * slabs
        };
        // The first of equals is the shorter run.
        let pages = (shortest..=longest).min_by_key(cost)?;
        let bytes = pages * unit.bytes();
        Some(SlabShape {
            order: Order::new(usize::BITS - (pages - 1).leading_zeros())?,
            pages: PageCount(pages),
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

impl Population {
    fn add(&mut self, shape: &SlabShape, unit: PageSize, slabs: u64) {
        self.slabs += slabs;
        self.bytes += slabs * shape.bytes(unit) as u64;
        self.tail_bytes += slabs * shape.tail_bytes as u64;
        self.objects += slabs * u64::from(shape.objects);
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

impl Policy {
    /// The page size slabs are counted in: pages, or a part of one where the policy cuts them.
    #[must_use]
    pub const fn slab_unit(&self, page_size: PageSize) -> PageSize {
        match &self.runs {
            Some(rule) => rule.unit(page_size),
            None => page_size,
        }
    }

    /// The shape of the next slab of a cache that holds `live` objects, in [`Policy::slab_unit`]s;
    /// `order` is that of the smallest block the run is cut from. Rules that do not look at the
    /// population answer [`Policy::slab_shape`].
    #[must_use]
    pub fn next_slab(
        &self,
        size: usize,
        page_size: PageSize,
        cpus: Cpus,
        live: u64,
    ) -> Option<SlabShape> {
        match &self.runs {
            // A cache of many objects gets at least the slab the order rule would give it, so
            // that node lists see no more traffic than under that rule.
            Some(rule) => {
                let wanted = self.slab_shape(size, page_size, cpus)?.objects;
                rule.next(size, page_size, wanted, live)
            }
            None => self.slab_shape(size, page_size, cpus),
        }
    }

    /// Slabs of a cache that grew to `objects` objects without ever shrinking.
    #[must_use]
    pub fn population(
        &self,
        size: usize,
        page_size: PageSize,
        cpus: Cpus,
        objects: u64,
    ) -> Option<Population> {
        let unit = self.slab_unit(page_size);
        let mut total = Population::default();
        while total.objects < objects {
            let shape = self.next_slab(size, page_size, cpus, total.objects)?;
            let per_slab = u64::from(shape.objects);
            // The choice moves slowly: it is made anew each time the cache grew by a sixteenth.
            let left = (objects - total.objects).div_ceil(per_slab);
            let step = if self.runs.is_some() {
                total.objects / 16 / per_slab
            } else {
                left
            };
            total.add(&shape, unit, step.clamp(1, left));
        }
        Some(total)
    }

    /// The same objects spread evenly over the online CPUs, each with slabs of its own: what a
    /// kernel whose CPUs own slabs tends to after boot.
    #[must_use]
    pub fn population_spread(
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

#[cfg(test)]
#[path = "runs_tests.rs"]
mod tests;
