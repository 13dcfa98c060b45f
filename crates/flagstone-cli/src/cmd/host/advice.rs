//! Concrete changes worth making here, each with what it should bring and what it costs.
//!
//! Nothing is changed: the answer holds commands to copy. A rule speaks only when its gain passes
//! a threshold; [`considered`] says what was weighed and found not worth it.

use flagstone_core::policy::Policy;
use serde::Serialize;

use super::formula::{self, Formula};
use super::gather::Host;
use super::pagesets;
use super::population::{Cache, Ledger};
use super::what_if::{self, Row};
use super::words::{bytes, count, factor};

/// How a change is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// On the kernel command line, from the next boot on.
    BootParameter,
    /// A write below `/sys`, at once, until the next boot.
    SysfsWrite,
    /// A `sysctl`, at once, until the next boot.
    Sysctl,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// Stable name of the rule.
    pub rule: &'static str,
    /// How the change is made.
    pub kind: Kind,
    /// What to type, or to add to the kernel command line.
    pub commands: Vec<String>,
    /// What is seen here that calls for it.
    pub because: String,
    /// What it should bring.
    pub gain: String,
    /// The gain in bytes where it is memory; the cautious end of the range.
    pub gain_bytes: Option<u64>,
    /// What it costs.
    pub cost: String,
}

/// Gains below this share of slab memory are not worth a change.
const WORTH_SHARE: u64 = 50;

/// Gains below this many bytes are not worth a change on any machine.
const WORTH_BYTES: u64 = 4 << 20;

fn worth(gain: u64, of: u64) -> bool {
    gain >= WORTH_BYTES && gain >= of / WORTH_SHARE
}

/// All advice for this host, most useful first, and the best change that was not worth it.
#[must_use]
pub fn give(
    host: &Host,
    formula: Option<&Formula>,
    total: &Ledger,
) -> (Vec<Advice>, Option<String>) {
    let mut advice = Vec::new();
    let mut considered = None;
    if let Some(formula) = formula {
        if !host.caches.is_empty() {
            advice.extend(undebug(host, formula, total));
            match smaller_slabs(host, formula, total) {
                Ok(found) => advice.push(found),
                Err(words) => considered = words,
            }
            advice.extend(larger_slabs(host, formula));
        }
        advice.extend(larger_pagesets(host, formula));
        advice.extend(shorter_cpu_lists(host, total));
    }
    advice.extend(shrink(host, total));
    advice.extend(compact(host));
    advice.extend(smaller_pagesets(host));
    if let Some(formula) = formula {
        advice.extend(unmerge(host, formula, total));
    }
    (advice, considered)
}

/// The boot parameter as this kernel spells it: kernels before the renaming know only `slub_`,
/// and those around it know both.
fn spelt(formula: &Formula, name: &str) -> String {
    let renamed = ["linux-6.12", "linux-6.18", "linux-7.0"].contains(&formula.name);
    format!("{}_{name}", if renamed { "slab" } else { "slub" })
}

fn with_max_order(formula: &Formula, host: &Host, order: u32) -> Option<Row> {
    let mut policy = formula.policy;
    policy.set("slab_max_order", &order.to_string()).ok()?;
    Some(what_if::cost(
        &format!("slab_max_order={order}"),
        &policy,
        host,
    ))
}

/// A smaller largest order, if that saves memory under both assumptions about free objects.
fn smaller_slabs(host: &Host, formula: &Formula, total: &Ledger) -> Result<Advice, Option<String>> {
    let now = what_if::cost(formula.name, &formula.policy, host);
    let current = formula.policy.max_order(host.page_size).get();
    let dear = |row: &Row| row.total_bytes.max(row.total_bytes_same_partial);
    let best = (0..current)
        .filter_map(|order| Some((order, with_max_order(formula, host, order)?)))
        .min_by_key(|(_, row)| dear(row))
        .ok_or(None)?;
    let (order, row) = best;
    let gain = total.total.saturating_sub(dear(&row));
    let most = total
        .total
        .saturating_sub(row.total_bytes.min(row.total_bytes_same_partial));
    let parameter = format!("{}={order}", spelt(formula, "max_order"));
    if !worth(gain, total.total) {
        return Err(Some(if gain == 0 {
            "smaller slabs would not save memory here".into()
        } else {
            format!("{parameter} would save only {}", bytes(gain))
        }));
    }
    let visits = now.objects_per_slab_mean / row.objects_per_slab_mean.max(1.0);
    Ok(Advice {
        rule: "smaller-slabs",
        kind: Kind::BootParameter,
        commands: vec![parameter],
        because: format!(
            "part-filled slabs hold {} of free objects",
            bytes(total.free)
        ),
        gain: format!("{} to {} less slab memory", bytes(gain), bytes(most)),
        gain_bytes: Some(gain),
        cost: format!(
            "a slab holds {:.0} objects instead of {:.0}: visits to the lists and the page \
             allocator become {} as frequent",
            row.objects_per_slab_mean,
            now.objects_per_slab_mean,
            factor(visits)
        ),
    })
}

/// Larger slabs where many CPUs share a node's list (docs: linux-policies 1.6).
fn larger_slabs(host: &Host, formula: &Formula) -> Option<Advice> {
    let sheaves = formula
        .policy
        .sheaf_capacity(64, host.page_size)
        .unwrap_or(0)
        > 0;
    let cpus = host.cpus.present;
    let current = formula.policy.max_order(host.page_size).get();
    if cpus < 32 || sheaves || current >= 4 || host.parameters.max_order.is_some() {
        return None;
    }
    let now = what_if::cost(formula.name, &formula.policy, host);
    let mut policy = formula.policy;
    let objects = policy
        .min_objects(host.page_size, host.cpus)
        .saturating_mul(2);
    policy.set("slab_max_order", "4").ok()?;
    policy.set("slab_min_objects", &objects.to_string()).ok()?;
    let then = what_if::cost("larger slabs", &policy, host);
    let more = then
        .total_bytes
        .max(then.total_bytes_same_partial)
        .saturating_sub(now.total_bytes);
    Some(Advice {
        rule: "larger-slabs",
        kind: Kind::BootParameter,
        commands: vec![
            format!("{}=4", spelt(formula, "max_order")),
            format!("{}={objects}", spelt(formula, "min_objects")),
        ],
        because: format!("{cpus} CPUs may meet at one node's list lock; only if profiles show it"),
        gain: format!(
            "{:.0} objects per slab instead of {:.0}: the lock is taken {} as often",
            then.objects_per_slab_mean,
            now.objects_per_slab_mean,
            factor(now.objects_per_slab_mean / then.objects_per_slab_mean.max(1.0))
        ),
        gain_bytes: None,
        cost: format!(
            "up to {} more slab memory; CPUs may park {} instead of {}; needs free blocks of {}{}",
            bytes(more),
            bytes(then.parked_bytes_max),
            bytes(now.parked_bytes_max),
            bytes((host.page_size.bytes() as u64) << 4),
            free_blocks(host, 4).map_or(String::new(), |blocks| format!(
                " ({} free now)",
                count(blocks)
            ))
        ),
    })
}

/// Free blocks of at least `order`, split to that order; `None` if buddyinfo was not readable.
fn free_blocks(host: &Host, order: usize) -> Option<u64> {
    let pages = host.buddy.iter().map(|row| row.pages_from(order));
    pages
        .reduce(u64::saturating_add)
        .map(|pages| pages >> order)
}

/// Debugging left on.
fn undebug(host: &Host, formula: &Formula, total: &Ledger) -> Option<Advice> {
    let mut gain = 0u64;
    let mut caches = 0;
    for cache in &host.caches {
        let Some(sys) = cache.sys.as_ref().filter(|sys| sys.is_debug()) else {
            continue;
        };
        caches += 1;
        let Some(mut spec) = formula::spec(cache, host, None) else {
            continue;
        };
        (spec.red_zone, spec.poison, spec.store_user) = (false, false, false);
        spec.align = if sys.hwcache_align { 0 } else { spec.align };
        spec.hwcache_align = sys.hwcache_align;
        let plain = formula.policy.layout(&spec).size as u64;
        let extra = (cache.size as u64).saturating_sub(plain);
        gain = gain.saturating_add(extra.saturating_mul(cache.objects));
    }
    if caches == 0 {
        return None;
    }
    let flags = host.parameters.debug.as_ref();
    let word = flags.map_or_else(
        || {
            format!(
                "{} (not on the command line: built in)",
                spelt(formula, "debug")
            )
        },
        |flags| format!("{}={flags}", spelt(formula, "debug")),
    );
    Some(Advice {
        rule: "debugging-on",
        kind: Kind::BootParameter,
        commands: vec![format!("remove {word}")],
        because: format!("{caches} caches carry debug metadata and have no per-CPU lists"),
        gain: format!(
            "{} less ({} % of slab memory), and the lockless paths back",
            bytes(gain),
            (gain * 100).checked_div(total.total).unwrap_or(0)
        ),
        gain_bytes: Some(gain),
        cost: "overruns and use after free are no longer noticed".into(),
    })
}

/// Empty slabs kept on node lists and slabs owned by CPUs, given back at once.
fn shrink(host: &Host, total: &Ledger) -> Option<Advice> {
    let nodes = (host.topology.nodes.len() as u64).max(1);
    let mut gains: Vec<(u64, &Cache)> = host
        .caches
        .iter()
        .filter_map(|cache| Some((shrink_gain_max(cache, host, nodes)?, cache)))
        .filter(|(gain, _)| *gain >= 1 << 20)
        .collect();
    gains.sort_by_key(|(gain, _)| std::cmp::Reverse(*gain));
    gains.truncate(3);
    let gain: u64 = gains.iter().map(|(gain, _)| gain).sum();
    if !worth(gain, total.total) {
        return None;
    }
    let command = |cache: &Cache| format!("echo 1 > /sys/kernel/slab/{}/shrink", cache.name);
    Some(Advice {
        rule: "shrink",
        kind: Kind::SysfsWrite,
        commands: gains.iter().map(|(_, cache)| command(cache)).collect(),
        because: "these caches keep empty or CPU-owned slabs".into(),
        gain: format!("at most {}, once", bytes(gain)),
        gain_bytes: Some(gain),
        cost: "their per-CPU slabs and sheaves are flushed and must be filled again".into(),
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
fn shorter_cpu_lists(host: &Host, total: &Ledger) -> Option<Advice> {
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
    if !worth(now / 4, total.total) {
        return None;
    }
    Some(Advice {
        rule: "shorter-cpu-lists",
        kind: Kind::SysfsWrite,
        commands: held
            .iter()
            .map(|(_, c, limit)| {
                format!(
                    "echo {} > /sys/kernel/slab/{}/cpu_partial",
                    limit / 2,
                    c.name
                )
            })
            .collect(),
        because: format!("slabs on per-CPU lists of these caches take {}", bytes(now)),
        gain: format!("about {} (half of the slabs, half full)", bytes(now / 4)),
        gain_bytes: Some(now / 4),
        cost: "their CPUs visit the node's list lock about twice as often".into(),
    })
}

/// Memory so broken up that slabs cannot get their preferred order.
fn compact(host: &Host) -> Option<Advice> {
    let fallback: u64 = host
        .caches
        .iter()
        .map(|c| c.fallback_slabs(host.page_size))
        .sum();
    let slabs: u64 = host.caches.iter().map(|c| c.slabs).sum();
    if fallback == 0 || fallback < slabs / 50 {
        return None;
    }
    Some(Advice {
        rule: "compact",
        kind: Kind::Sysctl,
        commands: vec!["sysctl -w vm.compact_memory=1".into()],
        because: format!("{fallback} of {slabs} slabs had to take the smallest order"),
        gain: "new slabs get their preferred order again".into(),
        gain_bytes: None,
        cost: "the kernel moves pages for seconds; existing small slabs stay".into(),
    })
}

/// Pagesets that hold a large part of memory.
fn smaller_pagesets(host: &Host) -> Option<Advice> {
    let rows = pagesets::rows(host, None);
    let held: u64 = rows.iter().map(|row| row.held).sum();
    let managed: u64 = rows.iter().map(|row| row.managed).sum();
    let floor: u64 = rows
        .iter()
        .map(|row| row.high_min.saturating_mul(row.cpus as u64))
        .sum();
    let page = host.page_size.bytes() as u64;
    let gain = held.saturating_sub(floor).saturating_mul(page);
    if held < managed / 25 || gain < WORTH_BYTES {
        return None;
    }
    Some(Advice {
        rule: "smaller-pagesets",
        kind: Kind::Sysctl,
        commands: vec!["sysctl -w vm.percpu_pagelist_high_fraction=100".into()],
        because: format!(
            "CPUs hold {} of free pages",
            bytes(held.saturating_mul(page))
        ),
        gain: format!("about {}, and marks that no longer move", bytes(gain)),
        gain_bytes: Some(gain),
        cost: "the zone lock is taken more often; the auto-tuning is off until it is set to 0"
            .into(),
    })
}

/// A kernel without pageset tuning on a machine with many CPUs (docs: linux-policies 6.2).
fn larger_pagesets(host: &Host, formula: &Formula) -> Option<Advice> {
    let fixed = host.sysctls.high_fraction.unwrap_or(0) != 0;
    if host.cpus.online < 8 || fixed {
        return None;
    }
    let pages_max = |policy: &Policy| -> u64 {
        let zones = host.zones.iter().filter(|zone| zone.managed > 0);
        zones
            .map(|zone| {
                let input = formula::pcp_zone(zone, host, formula.divisor);
                u64::from(policy.pcp_marks(&input).high_max).saturating_mul(input.cpus.into())
            })
            .fold(0, u64::saturating_add)
    };
    let mut raised = formula.policy;
    raised.set("percpu_pagelist_high_fraction", "8").ok()?;
    let (now, then) = (pages_max(&formula.policy), pages_max(&raised));
    // With tuning both are an eighth of the zone and there is nothing to raise.
    if then < now.saturating_mul(2) {
        return None;
    }
    let page = host.page_size.bytes() as u64;
    Some(Advice {
        rule: "larger-pagesets",
        kind: Kind::Sysctl,
        commands: vec!["sysctl -w vm.percpu_pagelist_high_fraction=8".into()],
        because: "this kernel's pagesets are fixed; only if the zone lock shows in profiles".into(),
        gain: format!(
            "pagesets {} as large: so much rarer drains for bursts that fit",
            factor(then as f64 / now.max(1) as f64)
        ),
        gain_bytes: None,
        cost: format!(
            "CPUs may hold {} of free pages instead of {}",
            bytes(then.saturating_mul(page)),
            bytes(now.saturating_mul(page))
        ),
    })
}

/// A merged cache among the largest: whose memory is it?
fn unmerge(host: &Host, formula: &Formula, total: &Ledger) -> Option<Advice> {
    let large = |cache: &&Cache| {
        let ledger = cache.ledger(host.page_size);
        cache.aliases.len() >= 2 && ledger.total >= (total.total / 20).max(WORTH_BYTES)
    };
    let cache = host.caches.iter().find(large)?;
    let users: u64 = host.caches.iter().map(|c| c.aliases.len() as u64).sum();
    // Each user then owns at least a slab per CPU that uses it.
    let slab = |c: &Cache| host.page_size.block_bytes(c.order) as u64 * c.aliases.len() as u64;
    let cost: u64 = host.caches.iter().map(slab).sum::<u64>() * u64::from(host.cpus.online);
    Some(Advice {
        rule: "unmerge",
        kind: Kind::BootParameter,
        commands: vec![spelt(formula, "nomerge")],
        because: format!(
            "{} is shared with {} other users; only to find out whose memory it is",
            cache.name,
            cache.aliases.len()
        ),
        gain: format!("{users} merged users are shown apart"),
        gain_bytes: None,
        cost: format!(
            "about {} more: a part-filled slab per user and CPU",
            bytes(cost)
        ),
    })
}
