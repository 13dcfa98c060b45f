//! Sysfs writes: slabs that lists keep, and memory too broken up for large slabs.

use super::super::gather::Host;
use super::super::population::{Cache, Ledger};
use super::super::words::bytes;
use super::{Advice, Kind, Write, worth};

/// Empty slabs kept on node lists and slabs owned by CPUs, given back at once.
pub fn shrink(host: &Host, total: &Ledger) -> Option<Advice> {
    let nodes = (host.topology.nodes.len() as u64).max(1);
    let mut gains: Vec<(u64, &Cache)> = host
        .caches
        .iter()
        .filter_map(|cache| Some((shrink_gain_max(cache, host, nodes)?, cache)))
        .filter(|(gain, _)| *gain >= 64 << 10)
        .collect();
    gains.sort_by_key(|(gain, _)| std::cmp::Reverse(*gain));
    gains.truncate(3);
    let gain: u64 = gains.iter().map(|(gain, _)| gain).sum();
    if gains.is_empty() {
        return None;
    }
    let writes: Vec<Write> = gains
        .iter()
        .map(|(_, cache)| Write::cache(&cache.name, "shrink", 1))
        .collect();
    Some(Advice {
        rule: "shrink",
        kind: Kind::SysfsWrite,
        commands: writes.iter().map(Write::command).collect(),
        writes,
        because: "these caches keep empty or CPU-owned slabs".into(),
        gain: format!("at most {}, once", bytes(gain)),
        gain_bytes: Some(gain),
        cost: "their per-CPU slabs and sheaves are flushed and must be filled again".into(),
        worth: worth(gain, total.total),
    })
}

/// Most a shrink can give back: the empty slabs that `min_partial` allows, and what CPUs own.
fn shrink_gain_max(cache: &Cache, host: &Host, nodes: u64) -> Option<u64> {
    let sys = cache.sys.as_ref()?;
    let ledger = cache.ledger(host.page_size);
    let slab = host.page_size.block_bytes(cache.order) as u64;
    let empty = sys
        .min_partial?
        .saturating_mul(nodes)
        .saturating_mul(slab)
        .min(ledger.free);
    let parked = cache.parked_bytes_max(host.cpus.online.into(), nodes)?;
    // Half of a CPU's slabs are in use on average; the kernel assumes the same.
    Some(empty.saturating_add(parked / 2).min(ledger.total))
}

/// Per-CPU partial lists that hold much because there are many CPUs.
pub fn shorter_per_cpu(host: &Host, total: &Ledger) -> Option<Advice> {
    let mut held: Vec<(u64, &Cache, u64)> = host
        .caches
        .iter()
        .filter_map(|cache| {
            let sys = cache.sys.as_ref()?;
            let limit = sys.cpu_partial.filter(|&limit| limit > 1)?;
            let slab = host.page_size.block_bytes(cache.order) as u64;
            Some((sys.slabs_cpu_partial?.saturating_mul(slab), cache, limit))
        })
        .collect();
    held.sort_by_key(|(bytes, ..)| std::cmp::Reverse(*bytes));
    held.truncate(3);
    let now: u64 = held.iter().map(|(bytes, ..)| bytes).sum();
    if now < 64 << 10 {
        return None;
    }
    let writes: Vec<Write> = held
        .iter()
        .map(|(_, cache, limit)| Write::cache(&cache.name, "cpu_partial", limit / 2))
        .collect();
    Some(Advice {
        rule: "shorter-cpu-lists",
        kind: Kind::SysfsWrite,
        commands: writes.iter().map(Write::command).collect(),
        writes,
        because: format!("slabs on per-CPU lists of these caches take {}", bytes(now)),
        gain: format!("about {} (half of the slabs, half full)", bytes(now / 4)),
        gain_bytes: Some(now / 4),
        cost: "their CPUs visit the node's list lock about twice as often".into(),
        worth: worth(now / 4, total.total),
    })
}

/// Memory so broken up that slabs cannot get their preferred order.
pub fn compact(host: &Host) -> Option<Advice> {
    let fallback: u64 = host
        .caches
        .iter()
        .map(|c| c.fallback_slabs(host.page_size))
        .sum();
    let slabs: u64 = host.caches.iter().map(|c| c.slabs).sum();
    if fallback == 0 || fallback < slabs / 50 {
        return None;
    }
    let write = Write::vm("compact_memory", 1);
    Some(Advice {
        rule: "compact",
        kind: Kind::Sysctl,
        commands: vec![write.command()],
        writes: vec![write],
        because: format!("{fallback} of {slabs} slabs had to take the smallest order"),
        gain: "new slabs get their preferred order again".into(),
        gain_bytes: None,
        cost: "the kernel moves pages for seconds; existing small slabs stay".into(),
        worth: true,
    })
}
