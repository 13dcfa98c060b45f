//! Boot parameters: how large slabs are, what they carry, who shares them.

use super::super::formula::{self, Formula};
use super::super::gather::Host;
use super::super::population::{Cache, Ledger};
use super::super::what_if::{self, Row};
use super::super::words::{bytes, count, factor, page};
use super::{Advice, Kind, WORTH_BYTES, worth};
use flagstone_kernels::BASES;

/// The boot parameter as this kernel spells it: kernels before the renaming know only `slub_`,
/// and those around it know both.
fn spelt(formula: &Formula, name: &str) -> String {
    let renamed = BASES
        .iter()
        .skip_while(|(base, _)| *base != "linux-6.12")
        .any(|(base, _)| *base == formula.name);
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

/// The smaller largest order that costs least, under the dearer assumption about free objects.
pub fn smaller(host: &Host, formula: &Formula, total: &Ledger) -> Option<Advice> {
    let now = what_if::cost(formula.name, &formula.policy, host);
    let current = formula.policy.max_order(host.page_size).get();
    let dear = |row: &Row| row.total_bytes.max(row.total_bytes_same_partial);
    let (order, row) = (0..current)
        .filter_map(|order| Some((order, with_max_order(formula, host, order)?)))
        .min_by_key(|(_, row)| dear(row))?;
    let gain = now.total_bytes.saturating_sub(dear(&row));
    let most = now
        .total_bytes
        .saturating_sub(row.total_bytes.min(row.total_bytes_same_partial));
    let words = if most == 0 {
        format!(
            "none: {} more slab memory",
            bytes(dear(&row).saturating_sub(now.total_bytes))
        )
    } else {
        format!("{} to {} less slab memory", bytes(gain), bytes(most))
    };
    let visits = now.objects_per_slab_mean / row.objects_per_slab_mean.max(1.0);
    Some(Advice {
        rule: "smaller-slabs",
        kind: Kind::BootParameter,
        commands: vec![format!("{}={order}", spelt(formula, "max_order"))],
        writes: Vec::new(),
        because: format!(
            "part-filled slabs hold {} of free objects",
            bytes(total.free)
        ),
        gain: words,
        gain_bytes: Some(gain),
        cost: format!(
            "{}: list locks and page allocator are visited {} as often",
            objects_per_slab(row.objects_per_slab_mean, now.objects_per_slab_mean),
            factor(visits)
        ),
        worth: worth(gain, total.total),
    })
}

/// How many objects a slab holds by another rule and now.
fn objects_per_slab(then: f64, now: f64) -> String {
    match then.round() == now.round() {
        true => format!("a slab holds {now:.0} objects as before"),
        false => format!("a slab holds {then:.0} objects instead of {now:.0}"),
    }
}

/// What CPUs may park by another rule and now.
fn parked(then: u64, now: u64) -> String {
    match bytes(then) == bytes(now) {
        true => format!("CPUs may park {} as before", bytes(now)),
        false => format!("CPUs may park {} instead of {}", bytes(then), bytes(now)),
    }
}

/// Larger slabs where many CPUs share a node's list (docs: linux-policies 1.6).
pub fn larger(host: &Host, formula: &Formula) -> Option<Advice> {
    let cpus = host.cpus.present;
    let current = formula.policy.max_order(host.page_size).get();
    if current >= 4 || host.parameters.max_order.is_some() {
        return None;
    }
    let sheaves = formula
        .policy
        .sheaf_capacity(64, host.page_size)
        .unwrap_or(0)
        > 0;
    let now = what_if::cost(formula.name, &formula.policy, host);
    let mut policy = formula.policy;
    let objects = policy
        .min_objects(host.page_size, host.cpus)
        .saturating_mul(2);
    policy.set("slab_max_order", "4").ok()?;
    policy.set("slab_min_objects", &objects.to_string()).ok()?;
    let then = what_if::cost("larger slabs", &policy, host);
    let dear = then.total_bytes.max(then.total_bytes_same_partial);
    let more = dear.saturating_sub(now.total_bytes);
    Some(Advice {
        rule: "larger-slabs",
        kind: Kind::BootParameter,
        commands: vec![
            format!("{}=4", spelt(formula, "max_order")),
            format!("{}={objects}", spelt(formula, "min_objects")),
        ],
        writes: Vec::new(),
        because: format!("{cpus} CPUs may meet at one node's list lock; only if profiles show it"),
        gain: format!(
            "{}: the list lock is taken {} as often",
            objects_per_slab(then.objects_per_slab_mean, now.objects_per_slab_mean),
            factor(now.objects_per_slab_mean / then.objects_per_slab_mean.max(1.0))
        ),
        gain_bytes: None,
        cost: format!(
            "up to {} more slab memory; {}; needs free blocks of {}{}",
            bytes(more),
            parked(then.parked_bytes_max, now.parked_bytes_max),
            page((host.page_size.bytes() as u64) << 4),
            free_blocks(host, 4).map_or(String::new(), |blocks| format!(
                " ({} free now)",
                count(blocks)
            ))
        ),
        // From 32 CPUs the published patch saw the lock; sheaves already keep CPUs off it.
        worth: cpus >= 32 && !sheaves,
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
pub fn undebug(host: &Host, formula: &Formula, total: &Ledger) -> Option<Advice> {
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
        writes: Vec::new(),
        because: format!("{caches} caches carry debug metadata and have no per-CPU lists"),
        gain: format!(
            "{} less ({} % of slab memory), and the lockless paths back",
            bytes(gain),
            (gain * 100).checked_div(total.total).unwrap_or(0)
        ),
        gain_bytes: Some(gain),
        cost: "overruns and use after free are no longer noticed".into(),
        worth: true,
    })
}

/// A merged cache among the largest: whose memory is it?
pub fn unmerge(host: &Host, formula: &Formula, total: &Ledger) -> Option<Advice> {
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
        writes: Vec::new(),
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
        worth: true,
    })
}
