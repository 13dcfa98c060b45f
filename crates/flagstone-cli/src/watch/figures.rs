//! A survey of a copied heap as the document that commands print.

use super::world::Copied;
use crate::cmd::run::reports::{Bounds, Cache, LedgerLine, Pages, Pageset, Watermarks, Zone};
use flagstone_core::base::{CpuId, NodeId};
use flagstone_core::heap::Ready;
use flagstone_core::page::{PagesetSnapshot, ZoneSnapshot};
use flagstone_core::platform::Platform;
use flagstone_core::stats::{CacheFigures, Ledger, Survey};
use flagstone_linux::beacon::{GAUGES, Gauge};
use flagstone_linux::knobs::{OF_CACHE, OF_HEAP, of_budget, of_cache};
use std::collections::BTreeMap;

/// The caches that have slabs, largest first.
pub fn caches(survey: &Survey, ready: &Ready<Copied>) -> Vec<Cache> {
    let mut caches: Vec<Cache> = survey
        .caches(ready.slabs())
        .map(|found| cache(&found))
        .collect();
    caches.sort_by_key(|cache| std::cmp::Reverse(cache.resident_bytes));
    caches
}

fn cache(found: &CacheFigures<'_>) -> Cache {
    Cache {
        name: found.name.to_owned(),
        internal: found.internal,
        object_size: found.object_size as u64,
        size: found.size as u64,
        order: found.order,
        pages: found.pages as u64,
        objects_per_slab: u64::from(found.objects_per_slab),
        slabs: found.counts.slabs,
        objects: found.objects,
        active: found.active,
        in_sheaves: found.counts.in_sheaves,
        in_barns: found.counts.in_barns,
        free_in_slabs: found.free_in_slabs,
        empty_slabs: found.counts.empty_slabs,
        pinned_slabs: found.counts.pinned_slabs,
        pinned_bytes: found.counts.pinned_bytes,
        sheaf_capacity: u64::from(found.sheaf_capacity),
        tail_bytes: found.tail_bytes as u64,
        mean_requested: found.mean_requested,
        resident_bytes: found.resident_bytes,
        waste_bytes: found.waste_bytes,
    }
}

/// Every line.
pub fn ledger(ledger: &Ledger) -> Vec<LedgerLine> {
    let lines = ledger.lines().map(|(line, bytes)| LedgerLine {
        line: line.name().to_owned(),
        bytes,
    });
    lines.collect()
}

/// The page layer.
pub fn pages(ready: &Ready<Copied>) -> Pages {
    let layer = ready.slabs().pages();
    let found = layer.snapshot();
    let nodes = || (0..Copied::node_count()).map(NodeId);
    let zones = nodes().filter_map(|node| Some(zone(node, &layer.zone_snapshot(node)?)));
    let sets = nodes().flat_map(|node| {
        (0..Copied::cpu_count()).map(CpuId).filter_map(move |cpu| {
            let set = layer.pageset_snapshot(node, cpu)?;
            let used = set.counters.allocs + set.counters.frees > 0;
            used.then(|| pageset(node, cpu, &set))
        })
    });
    Pages {
        page_bytes: found.page_bytes as u64,
        descriptor_bytes: found.memmap_bytes as u64,
        own_bytes: (found.own_bytes + found.control_bytes) as u64,
        hole_bytes_total: found.hole_bytes_total,
        zones: zones.collect(),
        pagesets: sets.collect(),
    }
}

fn zone(node: NodeId, found: &ZoneSnapshot) -> Zone {
    let all = |blocks: &[u32]| blocks.iter().map(|&count| u64::from(count)).collect();
    let counters = &found.counters;
    Zone {
        node: u32::from(node.0),
        span_pages: found.span_pages as u64,
        frontier_pages: found.frontier_pages as u64,
        committed_pages: found.committed_pages as u64,
        managed_pages: found.managed_pages as u64,
        in_use_pages: found.in_use_pages as u64,
        free_pages: found.free_pages as u64,
        free_resident_pages: found.free_resident_pages as u64,
        keep_pages: found.keep_pages as u64,
        pageset_pages: found.cached_pages as u64,
        pageset_resident_pages: found.cached_resident_pages as u64,
        resident_blocks: all(&found.resident_blocks),
        released_blocks: all(&found.released_blocks),
        watermarks: Watermarks {
            min: found.marks.min,
            low: found.marks.low,
            high: found.marks.high,
        },
        lock_takes: counters.lock_takes,
        lock_waits: counters.lock_waits,
        alloc_pages: counters.alloc_pages,
        freed_pages: counters.free_pages,
        fresh_pages: counters.fresh_pages,
        released_pages: counters.released_pages,
        release_calls: counters.release_calls,
        commit_calls: counters.commit_calls,
        pageset_bypassed: found.bypassed,
    }
}

fn pageset(node: NodeId, cpu: CpuId, found: &PagesetSnapshot) -> Pageset {
    let counters = &found.counters;
    Pageset {
        node: u32::from(node.0),
        cpu: cpu.0,
        count: u64::from(found.count),
        resident: u64::from(found.resident),
        high: u64::from(found.high),
        high_min: u64::from(found.high_min),
        high_max: u64::from(found.high_max),
        batch: u64::from(found.batch),
        allocs: counters.allocs,
        frees: counters.frees,
        refills: counters.refills,
        drains: counters.drains,
        free_high: counters.free_high,
    }
}

/// What bounds the heap from outside.
pub fn bounds(gauges: &[u64; GAUGES]) -> Bounds {
    let of = |gauge: Gauge| gauges[gauge as usize];
    Bounds {
        limit_bytes: of(Gauge::Limit),
        limit_reached: of(Gauge::LimitReached),
        limit_refused: of(Gauge::LimitRefused),
        limit_asked: of(Gauge::LimitAsked),
        pressure: of(Gauge::Pressure),
        pressure_looks: of(Gauge::PressureLooks),
        relieved: of(Gauge::Relieved),
        relieved_bytes: of(Gauge::RelievedBytes),
    }
}

/// Every knob that can be read, by the table that the process itself reads (`flagstone_linux::knobs`).
pub fn knobs(ready: &Ready<Copied>, gauges: &[u64; GAUGES]) -> BTreeMap<String, u64> {
    let slabs = ready.slabs();
    let of_heap = |name: &str| match name {
        "cpus" => Some(u64::from(Copied::cpu_count())),
        "caches" => Some(slabs.live_caches().count() as u64),
        "page_size" => Some(Copied::page_size().bytes() as u64),
        "rseq" => Some(u64::from(Copied::fast_slots())),
        "profile" => Some(gauges[Gauge::Profile as usize]),
        "limit" => Some(gauges[Gauge::Limit as usize]),
        "pressure" => Some(gauges[Gauge::Pressure as usize]),
        _ => of_budget(slabs.pages().budget(), name.as_bytes()),
    };
    let named = OF_HEAP.iter().map(|knob| knob.name);
    let mut knobs: BTreeMap<String, u64> = named
        .filter_map(|name| Some((name.to_owned(), of_heap(name)?)))
        .collect();
    for cache in slabs.live_caches() {
        for knob in &OF_CACHE {
            if let Some(value) = of_cache(cache, knob.name.as_bytes()) {
                // Of caches that share a name the first is meant.
                knobs
                    .entry(format!("cache.{}.{}", cache.name(), knob.name))
                    .or_insert(value);
            }
        }
    }
    knobs
}
