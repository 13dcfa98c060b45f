//! Where the host shows something else than its own formula says, and why.

use flagstone_core::policy::{Cpus, Policy, WatermarkInput, Watermarks};
use serde::Serialize;

use super::formula::{self, Formula, expected, near};
use super::gather::Host;
use super::population::Cache;

/// One value that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Deviation {
    /// Cache name, or `node 0 Normal`.
    pub subject: String,
    /// The kernel's name of the value: `order`, `min_partial`, `high_max` ...
    pub property: &'static str,
    /// The value here.
    pub here: u64,
    /// What the formula says; `null` where it has no such value.
    pub formula: Option<u64>,
    /// The most likely reason.
    pub cause: String,
    /// Whether that reason was confirmed by computing the value from it.
    pub explained: bool,
}

/// All deviations: caches in their order, then zones.
#[must_use]
pub fn find(host: &Host, formula: &Formula) -> Vec<Deviation> {
    let mut found = Vec::new();
    let no_cpu_partial = host
        .caches
        .iter()
        .filter_map(|cache| cache.sys.as_ref())
        .all(|sys| sys.cpu_partial.unwrap_or(0) == 0);
    for cache in &host.caches {
        let mut add = |property, here, formula, (cause, explained): (String, bool)| {
            let subject = cache.name.clone();
            found.push(Deviation {
                subject,
                property,
                here,
                formula,
                cause,
                explained,
            });
        };
        let want = expected(&formula.policy, cache, host);
        let order = u64::from(cache.order.get());
        let plain = expected(&formula.plain, cache, host).order;
        if want.order != Some(order) {
            add(
                "order",
                order,
                want.order,
                order_cause(host, formula, cache),
            );
        } else if plain != want.order {
            let words = host.parameters.words().join(" ");
            add(
                "order",
                order,
                plain,
                (format!("boot parameters: {words}"), true),
            );
        }
        let Some(sys) = &cache.sys else { continue };
        if want.size.is_some_and(|size| size != cache.size as u64) {
            add(
                "slab_size",
                cache.size as u64,
                want.size,
                size_cause(host, formula, cache),
            );
        }
        let cpu_partial = sys.cpu_partial.unwrap_or(0);
        if cpu_partial != want.cpu_partial.unwrap_or(0) {
            let cause = if no_cpu_partial {
                (
                    "this kernel was built without per-CPU partial lists".into(),
                    false,
                )
            } else {
                (
                    "written to sysfs after boot, or by the cache's creator".into(),
                    false,
                )
            };
            add("cpu_partial", cpu_partial, want.cpu_partial, cause);
        }
        if let Some(min_partial) = sys.min_partial
            && min_partial != want.min_partial
        {
            let cause = ("written to sysfs after boot".into(), false);
            add("min_partial", min_partial, Some(want.min_partial), cause);
        }
        if let Some(capacity) = sys.sheaf_capacity
            && want
                .sheaf_capacity
                .is_some_and(|formula| formula != capacity)
        {
            let cause = sheaf_cause(&formula.policy, cache, host, capacity);
            add("sheaf_capacity", capacity, want.sheaf_capacity, cause);
        }
    }
    zones(host, formula, &mut found);
    found
}

/// Tries the causes that can be computed: another CPU count at creation, another largest order.
fn order_cause(host: &Host, formula: &Formula, cache: &Cache) -> (String, bool) {
    let here = Some(cache.order);
    let order_with = |policy: &Policy, cpus: Cpus| {
        policy
            .slab_shape(cache.size, host.page_size, cpus)
            .map(|shape| shape.order)
    };
    if order_with(&formula.plain, host.cpus) == here {
        return (
            "created before the boot parameters took effect".into(),
            true,
        );
    }
    let powers = (0..12).map(|shift| 1u32 << shift);
    if let Some(count) = powers
        .clone()
        .find(|&n| order_with(&formula.policy, Cpus::new(n)) == here)
    {
        let cause = format!(
            "as if created with {count} CPUs; {} are present",
            host.cpus.present
        );
        return (cause, true);
    }
    for order in 0..=10 {
        let mut policy = formula.policy;
        if policy.set("slab_max_order", &order.to_string()).is_ok()
            && order_with(&policy, host.cpus) == here
        {
            return (
                format!("as with slab_max_order={order}; written to sysfs, or patched"),
                false,
            );
        }
    }
    (
        "no known rule gives this order: a patched kernel, or sysfs was written".into(),
        false,
    )
}

fn size_cause(host: &Host, formula: &Formula, cache: &Cache) -> (String, bool) {
    let told = formula::spec(cache, host, Some(0));
    if told.is_some_and(|spec| formula.policy.layout(&spec).size == cache.size) {
        let cause = "its creator tells where in the object the free pointer may lie";
        return (cause.into(), true);
    }
    (
        "extra metadata, or a merged user with a smaller object".into(),
        false,
    )
}

fn sheaf_cause(policy: &Policy, cache: &Cache, host: &Host, capacity: u64) -> (String, bool) {
    let requested = u32::try_from(capacity).unwrap_or(u32::MAX);
    let granted = policy.sheaf_capacity_requested(cache.size, host.page_size, requested);
    if capacity > 0 && granted == Some(requested) {
        return ("its creator asked for this capacity".into(), true);
    }
    (
        "its creator opted out (a cache used by the tracer of leaks, or at boot)".into(),
        false,
    )
}

fn zones(host: &Host, formula: &Formula, found: &mut Vec<Deviation>) {
    let lowmem: u64 = host
        .zones
        .iter()
        .filter(|zone| zone.name != "Movable")
        .map(|zone| zone.managed)
        .fold(0, u64::saturating_add);
    for zone in host.zones.iter().filter(|zone| zone.managed > 0) {
        let subject = format!("node {} {}", zone.node, zone.name);
        let mut add = |property, here, formula, cause: &str, explained| {
            found.push(Deviation {
                subject: subject.clone(),
                property,
                here,
                formula: Some(formula),
                cause: cause.into(),
                explained,
            });
        };
        if let (Some(kib), Some(scale)) = (
            host.sysctls.min_free_kbytes,
            host.sysctls.watermark_scale_factor,
        ) {
            let marks = Watermarks::of(&WatermarkInput {
                managed: zone.managed,
                lowmem,
                min_free_kib: kib,
                scale_factor: scale,
                page_size: host.page_size,
                movable_only: zone.name == "Movable",
            });
            let boost = zone.boost.unwrap_or(0);
            for (property, here, want) in [
                ("min", zone.min, marks.min),
                ("low", zone.low, marks.low),
                ("high", zone.high, marks.high),
            ] {
                if !near(here.saturating_sub(boost), want) && !near(here, want) {
                    add(
                        property,
                        here,
                        want,
                        "a sysctl changed and was put back, or memory moved",
                        false,
                    );
                }
            }
        }
        let marks = formula
            .policy
            .pcp_marks(&formula::pcp_zone(zone, host, formula.divisor));
        let Some(set) = zone.pagesets.first() else {
            continue;
        };
        if set.batch != u64::from(marks.batch) {
            let cause = "pagesets disabled, or marks not updated";
            add("batch", set.batch, marks.batch.into(), cause, false);
        }
        let changed = "memory or CPUs changed since boot";
        for (property, here, want) in [
            ("high_min", set.high_min, marks.high_min),
            ("high_max", set.high_max, marks.high_max),
        ] {
            if let Some(here) = here.filter(|&here| !near(here, want.into())) {
                add(property, here, want.into(), changed, false);
            }
        }
        let low = u64::from(marks.high_min);
        for set in zone
            .pagesets
            .iter()
            .filter(|set| !formula::high_fits(set.high, &marks))
        {
            // A tuned high is brought between its marks only when its pageset is next used.
            let stale = set.high < low && marks.high_min != marks.high_max;
            let cause = if stale {
                "not used since the marks were raised"
            } else {
                changed
            };
            add("high", set.high, low, cause, false);
        }
    }
}
