//! What the same population would cost under another policy.
//!
//! The model, per cache: the stride stays, the shape changes. Two assumptions bracket what the
//! free objects do:
//!
//! - *same objects*: the new slabs hold as many objects, used and free, as the slabs here;
//! - *same partial slabs*: as many slabs stay part-filled as here, each at the new size; this is
//!   what makes larger slabs dearer than their tails suggest.
//!
//! For the shape a cache has now both give what it costs now, so the first row of the answer
//! checks the model against the host. The first favours that shape a little: its last slab counts
//! as full, another shape's last slab need not be.

use flagstone_core::policy::{Policy, SlabShape};
use flagstone_kernels::policy::{Population, Populations};
use serde::Serialize;

use super::gather::Host;
use super::population::Cache;

/// One policy's cost.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The policy's name, with the boot parameters assumed.
    pub policy: String,
    /// Bytes of all slabs, same objects held.
    pub total_bytes: u64,
    /// Bytes of all slabs, as many of them part-filled as here.
    pub total_bytes_same_partial: u64,
    /// Bytes behind the last object of every slab (same objects held).
    pub tail_bytes: u64,
    /// Most bytes that per-CPU lists, sheaves and barns may keep from other users: the limits
    /// of every cache in use, never more than the cache holds. Sheaves that grow are counted at
    /// full length.
    pub parked_bytes_max: u64,
    /// Caches whose next slab would have another length than the preferred one here.
    pub orders_changed: usize,
    /// Largest order of a cache in use.
    pub order_max: u32,
    /// Objects per slab, mean over all objects held: how many objects a visit to a node's list
    /// brings or takes per slab.
    pub objects_per_slab_mean: f64,
    /// Caches in use that the policy finds no order for; they are counted as they are here.
    pub failed: usize,
}

/// Costs the host's population under `policy`, called `name` in the answer.
#[must_use]
pub fn cost(name: &str, policy: &Policy, host: &Host) -> Row {
    let mut row = Row {
        policy: name.to_owned(),
        total_bytes: 0,
        total_bytes_same_partial: 0,
        tail_bytes: 0,
        parked_bytes_max: 0,
        orders_changed: 0,
        order_max: 0,
        objects_per_slab_mean: 0.0,
        failed: 0,
    };
    let (mut weighted, mut held) = (0.0, 0.0);
    let (mut barns, mut in_use) = (0u64, 0u64);
    for cache in &host.caches {
        let cost = cache_cost(policy, cache, host);
        let here = host.page_size.block_bytes(cache.order);
        let unit = policy.slab_unit(host.page_size);
        let other = |cost: &CacheCost| cost.next.bytes(unit) != here;
        row.orders_changed += usize::from(cost.as_ref().is_some_and(other));
        if cache.objects == 0 {
            continue;
        }
        let Some(cost) = cost else {
            row.failed += 1;
            let ledger = cache.ledger(host.page_size);
            row.total_bytes += ledger.total;
            row.total_bytes_same_partial += ledger.total;
            row.tail_bytes += ledger.tail;
            continue;
        };
        row.total_bytes = row.total_bytes.saturating_add(cost.held.bytes);
        row.tail_bytes = row.tail_bytes.saturating_add(cost.held.tail_bytes);
        row.total_bytes_same_partial = row
            .total_bytes_same_partial
            .saturating_add(cost.same_partial);
        let (on_cpus, in_barns) = parked_max(policy, cache, host, &cost.next);
        row.parked_bytes_max = row.parked_bytes_max.saturating_add(on_cpus);
        barns = barns.saturating_add(in_barns);
        in_use = in_use.saturating_add(cache.active.saturating_mul(cache.size as u64));
        row.order_max = row.order_max.max(cost.next.order.get());
        weighted += cache.objects as f64 * f64::from(cost.next.objects);
        held += cache.objects as f64;
    }
    // What all barns together may hold (`FlagstoneLimits::barn_bytes_max`); kernels have no such
    // bound.
    let together = match policy.limits.barn_bytes_max as u64 {
        0 => u64::MAX,
        one => one.saturating_mul(2).max(in_use / 16),
    };
    row.parked_bytes_max = row.parked_bytes_max.saturating_add(barns.min(together));
    if held > 0.0 {
        row.objects_per_slab_mean = weighted / held;
    }
    row
}

/// One cache under a policy.
struct CacheCost {
    /// All objects held, used and free.
    held: Population,
    /// Bytes if as many slabs stay part-filled as here.
    same_partial: u64,
    /// The slab the cache would get next.
    next: SlabShape,
}

fn cache_cost(policy: &Policy, cache: &Cache, host: &Host) -> Option<CacheCost> {
    let population = |objects| policy.population(cache.size, host.page_size, host.cpus, objects);
    let held = population(cache.objects)?;
    let next = policy.next_slab(cache.size, host.page_size, host.cpus, &held)?;
    let partial = partial_slabs(cache);
    let in_full = cache
        .objects
        .saturating_sub(partial.saturating_mul(cache.objects_per_slab));
    let slab = next.bytes(policy.slab_unit(host.page_size)) as u64;
    Some(CacheCost {
        held,
        same_partial: population(in_full)?
            .bytes
            .saturating_add(partial.saturating_mul(slab)),
        next,
    })
}

/// Slabs that are part-filled: on node lists or owned by a CPU. Without sysfs, as many as half
/// of the free objects' slabs would be.
fn partial_slabs(cache: &Cache) -> u64 {
    let told = cache
        .sys
        .as_ref()
        .and_then(|sys| Some(sys.partial?.saturating_add(sys.cpu_slabs.unwrap_or(0))));
    let free = cache.objects.saturating_sub(cache.active);
    let guess = free
        .saturating_mul(2)
        .div_ceil(cache.objects_per_slab.max(1));
    told.unwrap_or(guess).min(cache.slabs)
}

/// Limits of what CPUs and what barns may keep of one cache, in bytes.
fn parked_max(policy: &Policy, cache: &Cache, host: &Host, shape: &SlabShape) -> (u64, u64) {
    let cpus = u64::from(host.cpus.online);
    let nodes = (host.topology.nodes.len() as u64).max(1);
    let size = cache.size as u64;
    let slab = shape.bytes(policy.slab_unit(host.page_size)) as u64;
    let lists = flagstone_kernels::cpu_partial(
        policy,
        cache.size,
        shape.objects,
        host.page_size,
        host.cpus,
    )
    .map_or(0, |limit| (u64::from(limit.slabs) + 1).saturating_mul(slab));
    let capacity = policy
        .sheaf_capacity(cache.size, host.page_size)
        .unwrap_or(0);
    let barn = u64::from(policy.barn_limits(cache.size, capacity).full);
    let sheaf = u64::from(capacity).saturating_mul(size);
    let all = cache.objects.saturating_mul(size);
    let on_cpus = cpus
        .saturating_mul(lists.saturating_add(sheaf.saturating_mul(2)))
        .min(all);
    let in_barns = nodes.saturating_mul(barn).saturating_mul(sheaf);
    (on_cpus, in_barns.min(all - on_cpus))
}
