//! The answer as data: one document, `"schema": "flagstone.host/1"`.

use flagstone_core::policy::Policy;
use serde::Serialize;

use super::advice::{self, Advice};
use super::deviations::{self, Deviation};
use super::formula::{self, Divisor, Formula};
use super::gather::{Host, PageSizeFrom};
use super::pagesets;
use super::population::{self, Cache, Ledger};
use super::what_if;

/// The whole answer. All sizes in bytes unless the name says pages.
#[derive(Serialize)]
pub struct Report {
    schema: &'static str,
    /// Whether it describes the running system.
    pub live: bool,
    /// `uname -r`.
    pub release: Option<String>,
    /// Page size.
    pub page_size: usize,
    /// `told`, `slabs`, `meminfo` or `assumed`.
    pub page_size_from: &'static str,
    /// CPU counts.
    pub cpus: CpuCounts,
    /// Memory nodes, at least 1.
    pub nodes: usize,
    /// Bytes of all managed memory.
    pub memory_bytes: Option<u64>,
    /// Slab bytes by `/proc/meminfo`, readable by everyone.
    pub meminfo_slab_bytes: Option<u64>,
    /// The reclaimable part of it.
    pub meminfo_slab_reclaimable_bytes: Option<u64>,
    /// Slab boot parameters in force.
    pub parameters: Vec<String>,
    /// Words on the command line that look like slab parameters but are not numbers.
    pub odd_parameters: Vec<String>,
    /// The preset that explains the host.
    pub formula: Option<FormulaRow>,
    /// Sums; `null` when no cache could be read.
    pub totals: Option<Totals>,
    /// Every cache, largest first.
    pub caches: Vec<CacheRow>,
    /// Where the host differs from its formula.
    pub deviations: Vec<Deviation>,
    /// The population under other policies; the first row is the host's own formula.
    pub what_if: Vec<what_if::Row>,
    /// Pagesets per zone.
    pub pagesets: Vec<pagesets::Row>,
    /// Pageset marks under other policies.
    pub pageset_what_if: Vec<pagesets::WhatIf>,
    /// Free blocks per order.
    pub buddy: Vec<BuddyRow>,
    /// Changes worth making.
    pub advice: Vec<Advice>,
    /// Changes that were weighed and are not worth it here.
    pub considered: Vec<Advice>,
    /// What could not be read.
    pub unread: Vec<UnreadRow>,
}

/// CPU counts.
#[derive(Serialize)]
pub struct CpuCounts {
    /// Could ever exist.
    pub possible: u32,
    /// Plugged in.
    pub present: u32,
    /// Running.
    pub online: u32,
}

/// The formula the host follows.
#[derive(Serialize)]
pub struct FormulaRow {
    /// Preset.
    pub name: &'static str,
    /// Presets that cannot be told apart here.
    pub alike: Vec<&'static str>,
    /// Values compared.
    pub values: usize,
    /// Values answered right.
    pub right: usize,
}

/// Sums over all caches.
#[derive(Serialize)]
pub struct Totals {
    /// Caches.
    pub caches: usize,
    /// Caches that hold slabs.
    pub caches_in_use: usize,
    /// Slabs.
    pub slabs: u64,
    /// Slabs of the smallest order because no larger block was free.
    pub fallback_slabs: u64,
    /// Where the bytes are.
    #[serde(flatten)]
    pub ledger: Ledger,
    /// At most so many of the live bytes are parked for some CPU.
    pub parked_bytes_max: Option<u64>,
}

/// One cache.
#[derive(Serialize)]
pub struct CacheRow {
    /// Name.
    pub name: String,
    /// Merged users beside `name`.
    pub aliases: Vec<String>,
    /// Bytes the creator asked for.
    pub object_size: Option<u64>,
    /// Stride.
    pub size: u64,
    /// Alignment.
    pub align: Option<u64>,
    /// Order of the preferred slab.
    pub order: u32,
    /// Objects in it.
    pub objects_per_slab: u64,
    /// Objects on a per-CPU partial list.
    pub cpu_partial: Option<u64>,
    /// Empty slabs kept per node.
    pub min_partial: Option<u64>,
    /// Objects per sheaf.
    pub sheaf_capacity: Option<u64>,
    /// Slabs.
    pub slabs: u64,
    /// Slabs of the smallest order.
    pub fallback_slabs: u64,
    /// Objects in all slabs.
    pub objects: u64,
    /// Objects handed out or parked.
    pub active: u64,
    /// Whether it is reclaimable.
    pub reclaimable: Option<bool>,
    /// Whether debugging is on.
    pub debug: Option<bool>,
    /// Where the bytes are.
    #[serde(flatten)]
    pub ledger: Ledger,
    /// At most so many of the live bytes are parked for some CPU.
    pub parked_bytes_max: Option<u64>,
}

/// Free blocks of a zone.
#[derive(Serialize)]
pub struct BuddyRow {
    node: u64,
    zone: String,
    blocks: Vec<u64>,
}

/// Something unreadable.
#[derive(Serialize)]
pub struct UnreadRow {
    /// Path below the root.
    pub path: String,
    /// Why.
    pub reason: String,
    /// What the answer lacks.
    pub lacks: &'static str,
}

/// Computes the answer; `policies` are the what-if rows beside the host's own.
#[must_use]
pub fn build(host: &Host, policies: &[(String, Policy)]) -> Report {
    let formula = formula::fit(host);
    let total = population::total(&host.caches, host.page_size);
    let (advice, considered) = advice::give(host, formula.as_ref(), &total);
    let online = u64::from(host.cpus.online);
    let nodes = host.topology.nodes.len().max(1);
    let mut what_if_rows = Vec::new();
    let mut pageset_what_if = Vec::new();
    let own = formula.as_ref().map(own_row);
    let divisor = formula.as_ref().map_or(Divisor::Online, |f| f.divisor);
    // The host's own, asked for by name, is one row.
    let is_own = |name: &String| own.as_ref().is_some_and(|(own, _)| own == name);
    let others = policies.iter().filter(|(name, _)| !is_own(name));
    for (name, policy) in own.iter().chain(others) {
        if !host.caches.is_empty() {
            what_if_rows.push(what_if::cost(name, policy, host));
        }
        pageset_what_if.extend(pagesets::what_if(name, policy, host, divisor));
    }
    let caches: Vec<CacheRow> = host
        .caches
        .iter()
        .map(|cache| cache_row(cache, host, online, nodes as u64))
        .collect();
    Report {
        schema: "flagstone.host/1",
        live: host.live,
        release: host.release.clone(),
        page_size: host.page_size.bytes(),
        page_size_from: match host.page_size_from {
            PageSizeFrom::Told => "told",
            PageSizeFrom::Slabs => "slabs",
            PageSizeFrom::Meminfo => "meminfo",
            PageSizeFrom::Assumed => "assumed",
        },
        cpus: CpuCounts {
            possible: host.cpus.possible,
            present: host.cpus.present,
            online: host.cpus.online,
        },
        nodes,
        memory_bytes: host.meminfo.total,
        meminfo_slab_bytes: host.meminfo.slab,
        meminfo_slab_reclaimable_bytes: host.meminfo.slab_reclaimable,
        parameters: host.parameters.words(),
        odd_parameters: host.parameters.odd.clone(),
        totals: (!caches.is_empty()).then(|| totals(host, &caches, total)),
        caches,
        deviations: formula
            .as_ref()
            .map_or_else(Vec::new, |f| deviations::find(host, f)),
        what_if: what_if_rows,
        pagesets: pagesets::rows(host, formula.as_ref()),
        pageset_what_if,
        buddy: host
            .buddy
            .iter()
            .map(|row| BuddyRow {
                node: row.node,
                zone: row.zone.clone(),
                blocks: row.blocks.clone(),
            })
            .collect(),
        advice,
        considered,
        unread: host
            .unread
            .iter()
            .map(|u| UnreadRow {
                path: u.path.clone(),
                reason: u.reason.clone(),
                lacks: u.lacks,
            })
            .collect(),
        formula: formula.map(|f| FormulaRow {
            name: f.name,
            alike: f.alike,
            values: f.values,
            right: f.right,
        }),
    }
}

fn own_row(formula: &Formula) -> (String, Policy) {
    (formula.name.to_owned(), formula.policy)
}

fn totals(host: &Host, caches: &[CacheRow], ledger: Ledger) -> Totals {
    let sum = |value: fn(&CacheRow) -> u64| caches.iter().map(value).fold(0, u64::saturating_add);
    let parked: Option<u64> = caches
        .iter()
        .map(|c| c.parked_bytes_max)
        .try_fold(0u64, |all, part| {
            part.map(|bytes| all.saturating_add(bytes))
        });
    Totals {
        caches: host.caches.len(),
        caches_in_use: caches.iter().filter(|cache| cache.slabs > 0).count(),
        slabs: sum(|cache| cache.slabs),
        fallback_slabs: sum(|cache| cache.fallback_slabs),
        ledger,
        parked_bytes_max: parked,
    }
}

fn cache_row(cache: &Cache, host: &Host, online: u64, nodes: u64) -> CacheRow {
    let sys = cache.sys.as_ref();
    CacheRow {
        name: cache.name.clone(),
        aliases: cache.aliases.clone(),
        object_size: sys.map(|sys| sys.object_size),
        size: cache.size as u64,
        align: sys.and_then(|sys| sys.align),
        order: cache.order.get(),
        objects_per_slab: cache.objects_per_slab,
        cpu_partial: sys.and_then(|sys| sys.cpu_partial),
        min_partial: sys.and_then(|sys| sys.min_partial),
        sheaf_capacity: sys.and_then(|sys| sys.sheaf_capacity),
        slabs: cache.slabs,
        fallback_slabs: cache.fallback_slabs(host.page_size),
        objects: cache.objects,
        active: cache.active,
        reclaimable: sys.map(|sys| sys.reclaimable),
        debug: sys.map(crate::source::sys_slab::Cache::is_debug),
        ledger: cache.ledger(host.page_size),
        parked_bytes_max: cache.parked_bytes_max(online, nodes),
    }
}
