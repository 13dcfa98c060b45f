//! The caches of a host and where their bytes are.
//!
//! ```text
//!   total  =  live  +  alignment  +  free  +  tail        exact, per cache and in sum
//!   live       active objects * object size
//!   alignment  active objects * (stride - object size): rounding, padding, debug metadata
//!   free       objects in node partial lists that nobody uses * stride
//!   tail       what is left behind the last object of every slab
//! ```
//!
//! The kernel counts objects parked in per-CPU slabs, lists and sheaves as active; how many of
//! the live bytes may be parked is known only as a bound ([`Cache::parked_bytes_max`]).

use crate::source::{Malformed, slabinfo, sys_slab};
use flagstone_core::base::{Order, PageSize};
use std::collections::BTreeMap;

/// One cache: its preferred shape, its population, and its layout where sysfs is readable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// The name slabinfo shows; for a merged cache the name of its first user.
    pub name: String,
    /// Other names merged into this cache, sorted.
    pub aliases: Vec<String>,
    /// Stride in bytes.
    pub size: usize,
    /// Order of the preferred slab.
    pub order: Order,
    /// Objects in a preferred slab.
    pub objects_per_slab: u64,
    /// Slabs in existence.
    pub slabs: u64,
    /// Objects in all slabs.
    pub objects: u64,
    /// Objects handed out or parked per CPU.
    pub active: u64,
    /// What `/sys/kernel/slab` adds.
    pub sys: Option<sys_slab::Cache>,
}

/// Bytes of one cache or of many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Ledger {
    /// All slab pages.
    #[serde(rename = "total_bytes")]
    pub total: u64,
    /// Objects in use, as their users asked for them; the stride where only that is known.
    #[serde(rename = "live_bytes")]
    pub live: u64,
    /// Rounding, padding and metadata of objects in use; 0 where only the stride is known.
    #[serde(rename = "alignment_bytes")]
    pub alignment: u64,
    /// Free objects in slabs on node partial lists.
    #[serde(rename = "free_bytes")]
    pub free: u64,
    /// Bytes behind the last object of each slab.
    #[serde(rename = "tail_bytes")]
    pub tail: u64,
}

impl std::ops::AddAssign for Ledger {
    fn add_assign(&mut self, other: Self) {
        self.total = self.total.saturating_add(other.total);
        self.live = self.live.saturating_add(other.live);
        self.alignment = self.alignment.saturating_add(other.alignment);
        self.free = self.free.saturating_add(other.free);
        self.tail = self.tail.saturating_add(other.tail);
    }
}

impl Cache {
    /// Slabs that got the smallest order because no block of the preferred one was free.
    ///
    /// The kernel does not print this; it follows from slabs holding fewer objects than the
    /// preferred shape would. Slabs that come and go while the counters are read can make it off
    /// by a few.
    #[must_use]
    pub fn fallback_slabs(&self, page_size: PageSize) -> u64 {
        let Some(fallback) = self.fallback_objects(page_size) else {
            return 0;
        };
        let missing = self
            .slabs
            .saturating_mul(self.objects_per_slab)
            .saturating_sub(self.objects);
        (missing / (self.objects_per_slab - fallback)).min(self.slabs)
    }

    /// Objects in a slab of the smallest order, if that is another shape.
    fn fallback_objects(&self, page_size: PageSize) -> Option<u64> {
        let order = page_size.order_for(self.size);
        if order >= self.order {
            return None;
        }
        let objects = (page_size.block_bytes(order) / self.size) as u64;
        (objects < self.objects_per_slab).then_some(objects)
    }

    /// Bytes of all slabs.
    #[must_use]
    pub fn total_bytes(&self, page_size: PageSize) -> u64 {
        let fallback = self.fallback_slabs(page_size);
        let small = page_size.block_bytes(page_size.order_for(self.size).min(self.order)) as u64;
        let block = page_size.block_bytes(self.order) as u64;
        (self.slabs - fallback)
            .saturating_mul(block)
            .saturating_add(fallback.saturating_mul(small))
    }

    /// Where the cache's bytes are.
    #[must_use]
    pub fn ledger(&self, page_size: PageSize) -> Ledger {
        let size = self.size as u64;
        let total = self.total_bytes(page_size);
        // Counters are read one after the other; keep every part within the whole.
        let objects = self.objects.min(total / size.max(1));
        let active = self.active.min(objects);
        let padding = self
            .sys
            .as_ref()
            .map_or(0, |sys| size - sys.object_size.min(size));
        Ledger {
            total,
            live: active * (size - padding),
            alignment: active * padding,
            free: (objects - active) * size,
            tail: total - objects * size,
        }
    }

    /// Upper bound of the live bytes that are only parked for some CPU; `None` without sysfs.
    ///
    /// Slabs owned by CPUs at their full size, and sheaves (two per CPU, ten full ones per node's
    /// barn: docs: linux-policies 5.1), never more than all active objects.
    #[must_use]
    pub fn parked_bytes_max(&self, online_cpus: u64, nodes: u64) -> Option<u64> {
        let sys = self.sys.as_ref()?;
        let in_slabs = sys
            .cpu_slabs
            .unwrap_or(0)
            .saturating_mul(self.objects_per_slab);
        let sheaves = online_cpus
            .saturating_mul(2)
            .saturating_add(nodes.saturating_mul(10));
        let in_sheaves = sys.sheaf_capacity.unwrap_or(0).saturating_mul(sheaves);
        let objects = in_slabs.saturating_add(in_sheaves).min(self.active);
        Some(objects.saturating_mul(self.size as u64))
    }
}

/// The sum of all caches.
#[must_use]
pub fn total(caches: &[Cache], page_size: PageSize) -> Ledger {
    let mut sum = Ledger::default();
    for cache in caches {
        sum += cache.ledger(page_size);
    }
    sum
}

/// The page size that the caches' shapes imply: `objects` objects of `size` bytes fill a block
/// of `2^order` pages but one more would not fit, which leaves exactly one power of two.
///
/// Answers the size most caches agree on, `None` without caches.
#[must_use]
pub fn page_size(rows: &[slabinfo::Row], layouts: &[sys_slab::Cache]) -> Option<PageSize> {
    let from_rows = rows
        .iter()
        .map(|row| (row.objects_per_slab, row.size, row.pages_per_slab.ilog2()));
    let from_sys = layouts.iter().map(|c| {
        (
            c.objects_per_slab,
            c.size,
            u32::try_from(c.order).unwrap_or(0),
        )
    });
    let mut votes: BTreeMap<usize, usize> = BTreeMap::new();
    for (objects, size, order) in from_rows.chain(from_sys) {
        let used = objects.saturating_mul(size);
        let block = used.checked_next_power_of_two().unwrap_or(0);
        if let Ok(bytes) = usize::try_from(block >> order) {
            *votes.entry(bytes).or_default() += 1;
        }
    }
    let (&bytes, _) = votes.iter().max_by_key(|&(_, &count)| count)?;
    PageSize::new(bytes)
}

/// Joins slabinfo's rows with sysfs's layouts, largest first.
///
/// Either source may be empty. A row finds its layout by name: the directory's own, or one of
/// the links to it.
///
/// # Errors
/// [`Malformed`] naming the file and line of a cache whose objects cannot fit its slab.
pub fn merge(
    rows: Vec<slabinfo::Row>,
    layouts: Vec<sys_slab::Cache>,
    page_size: PageSize,
) -> Result<Vec<Cache>, Malformed> {
    let mut by_name: BTreeMap<String, usize> = BTreeMap::new();
    for (index, layout) in layouts.iter().enumerate() {
        for name in layout.aliases.iter().chain([&layout.id]) {
            by_name.insert(name.clone(), index);
        }
    }
    let mut layouts: Vec<Option<sys_slab::Cache>> = layouts.into_iter().map(Some).collect();
    let mut caches = Vec::with_capacity(rows.len().max(layouts.len()));
    for row in rows {
        let same_shape = |sys: &sys_slab::Cache| sys.size == row.size;
        let index = by_name.get(&row.name).copied();
        let sys = index.and_then(|i| layouts.get_mut(i)).and_then(|slot| {
            if slot.as_ref().is_some_and(same_shape) {
                slot.take()
            } else {
                None
            }
        });
        caches.push(from_row(row, sys, page_size)?);
    }
    // Without slabinfo, or for a cache that appeared between the two readings.
    for sys in layouts.into_iter().flatten() {
        caches.push(from_sys(sys, page_size)?);
    }
    caches.sort_by(|a, b| {
        let bytes = |c: &Cache| c.total_bytes(page_size);
        bytes(b).cmp(&bytes(a)).then_with(|| a.name.cmp(&b.name))
    });
    Ok(caches)
}

/// Most bytes of slabs one cache may claim, 4 PiB; sums and what-if costs then cannot overflow.
const TOTAL_MAX: u64 = 1 << 52;

/// Refuses objects that do not fit their slab, with the place that said so.
fn check(
    cache: Cache,
    page_size: PageSize,
    place: impl Fn(String) -> Malformed,
) -> Result<Cache, Malformed> {
    let block = page_size.block_bytes(cache.order) as u64;
    if cache.slabs.saturating_mul(block) > TOTAL_MAX {
        return Err(place(format!(
            "{}: {} slabs are more than any machine holds",
            cache.name, cache.slabs
        )));
    }
    if cache.objects_per_slab.saturating_mul(cache.size as u64) > block {
        return Err(place(format!(
            "{}: {} objects of {} bytes do not fit a slab of {block} bytes",
            cache.name, cache.objects_per_slab, cache.size
        )));
    }
    // Counters are read one after the other; objects cannot really exceed what slabs hold.
    let most = cache.slabs * cache.objects_per_slab;
    let objects = cache.objects.min(most);
    Ok(Cache {
        objects,
        active: cache.active.min(objects),
        ..cache
    })
}

fn from_row(
    row: slabinfo::Row,
    sys: Option<sys_slab::Cache>,
    page_size: PageSize,
) -> Result<Cache, Malformed> {
    let place = |what| Malformed::at(row.line, what).in_file("proc/slabinfo");
    let order = Order::new(row.pages_per_slab.ilog2()).ok_or_else(|| {
        place(format!(
            "{}: slabs of {} pages",
            row.name, row.pages_per_slab
        ))
    })?;
    let size = usize::try_from(row.size)
        .map_err(|_| place(format!("{}: objsize {}", row.name, row.size)))?;
    let aliases = sys.as_ref().map_or_else(Vec::new, |sys| {
        sys.aliases
            .iter()
            .filter(|name| **name != row.name)
            .cloned()
            .collect()
    });
    let cache = Cache {
        name: row.name.clone(),
        aliases,
        size,
        order,
        objects_per_slab: row.objects_per_slab,
        slabs: row.slabs,
        objects: row.objects,
        active: row.active_objects,
        sys,
    };
    check(cache, page_size, place)
}

fn from_sys(sys: sys_slab::Cache, page_size: PageSize) -> Result<Cache, Malformed> {
    let dir = format!("{}/{}", sys_slab::DIR, sys.id);
    let place = |what| Malformed::at(1, what).in_file(&format!("{dir}/order"));
    let order = u32::try_from(sys.order).ok().and_then(Order::new);
    let order = order.ok_or_else(|| place(format!("order {} is not possible", sys.order)))?;
    let size = usize::try_from(sys.size).map_err(|_| place("slab_size is too large".into()))?;
    // The directory of a merged cache is named by its id; its first link is a name people know.
    let mut aliases = sys.aliases.clone();
    let name = if sys.id.starts_with(':') && !aliases.is_empty() {
        aliases.remove(0)
    } else {
        sys.id.clone()
    };
    let objects = sys.total_objects.unwrap_or(0);
    let cache = Cache {
        name,
        aliases,
        size,
        order,
        objects_per_slab: sys.objects_per_slab,
        slabs: sys.slabs.unwrap_or(0),
        objects,
        active: sys.objects.unwrap_or(objects),
        sys: Some(sys),
    };
    check(cache, page_size, place)
}

#[cfg(test)]
#[path = "population_tests.rs"]
mod tests;
