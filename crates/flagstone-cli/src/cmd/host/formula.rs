//! Which published formula the host follows, and what that formula says for each cache.
//!
//! No version number is read. Every Linux preset is asked for every value the host shows (order,
//! stride, alignment of kmalloc caches, `cpu_partial`, `min_partial`, sheaf capacity, pageset
//! marks), and the preset that answers most of them right is the host's formula. Presets that
//! answer alike stand together.

use crate::source::zoneinfo::Zone;
use flagstone_core::policy::{ObjectSpec, PcpMarks, PcpZone, Policy};
use flagstone_kernels::KernelCache;
use flagstone_kernels::{BASES, Named};
use flagstone_lab::names;

use super::gather::Host;
use super::population::Cache;

/// The preset that explains a host best.
#[derive(Clone, Debug)]
pub struct Formula {
    /// Its name; where several presets agree on every value, that of the host's release if it tells one, else the newest.
    pub name: &'static str,
    /// All presets that agree on every value shown here, oldest first, `name` among them.
    pub alike: Vec<&'static str>,
    /// The preset with the host's boot parameters applied.
    pub policy: Policy,
    /// The preset without them.
    pub plain: Policy,
    /// Values compared.
    pub values: usize,
    /// Values the preset answers right.
    pub right: usize,
    /// What the pageset marks divide a zone by.
    pub divisor: Divisor,
}

/// The CPUs that share a zone's pageset marks.
///
/// A kernel counts its mask of the zone's node; most architectures keep only online CPUs in it,
/// some keep all present ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Divisor {
    /// Online CPUs of the node.
    Online,
    /// Present CPUs (of a machine with one node; with more their split is not told).
    Present,
}

/// What a policy says one cache should show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Stride in bytes from the object's size and flags; `None` without sysfs.
    pub size: Option<u64>,
    /// Order for the stride the cache really has; `None` if the rule finds none.
    pub order: Option<u64>,
    /// Objects on a per-CPU partial list; `None` where the policy has no such list.
    pub cpu_partial: Option<u64>,
    /// Empty slabs kept per node.
    pub min_partial: u64,
    /// Objects per sheaf for a cache that asked for nothing; `None` without sheaves.
    pub sheaf_capacity: Option<u64>,
}

/// What `policy` says `cache` should show on `host`.
#[must_use]
pub fn expected(policy: &Policy, cache: &Cache, host: &Host) -> Expected {
    let size = cache.size;
    let debug = cache
        .sys
        .as_ref()
        .is_some_and(crate::source::sys_slab::Cache::is_debug);
    let sheaf = policy.sheaf_capacity(size, host.page_size).map(u64::from);
    let bare = debug || KernelCache::named(&cache.name).before_sheaves;
    let objects = u32::try_from(cache.objects_per_slab).unwrap_or(u32::MAX);
    let cpu_partial =
        flagstone_kernels::cpu_partial(policy, size, objects, host.page_size, host.cpus);
    Expected {
        size: spec(cache, host, None).map(|spec| policy.layout(&spec).size as u64),
        order: policy
            .slab_shape(size, host.page_size, host.cpus)
            .map(|shape| u64::from(shape.order.get())),
        cpu_partial: cpu_partial.map(|limit| if debug { 0 } else { u64::from(limit.objects) }),
        min_partial: u64::from(policy.min_partial(size)),
        sheaf_capacity: sheaf.map(|capacity| if bare { 0 } else { capacity }),
    }
}

/// What the layout rules need to know of a cache; its alignment is the one it ended up with.
#[must_use]
pub fn spec(cache: &Cache, host: &Host, free_pointer: Option<usize>) -> Option<ObjectSpec> {
    let sys = cache.sys.as_ref()?;
    let bytes = |value: u64| usize::try_from(value).ok();
    let align = sys
        .align
        .and_then(bytes)
        .filter(|align| align.is_power_of_two());
    Some(ObjectSpec {
        align: align.filter(|&align| align <= 1 << 20).unwrap_or(0),
        cache_line: host.topology.line_bytes.and_then(bytes).unwrap_or(64),
        ctor: sys.has_ctor,
        rcu: sys.rcu,
        red_zone: sys.red_zone,
        poison: sys.poison,
        store_user: sys.store_user,
        kmalloc: is_kmalloc(&cache.name),
        free_pointer_offset: free_pointer,
        ..ObjectSpec::new(bytes(sys.object_size).filter(|&size| size > 0)?)
    })
}

/// Whether this is a general-purpose cache, by its name: `kmalloc-64`, `kmalloc-rcl-64`,
/// `dma-kmalloc-64`.
#[must_use]
pub fn is_kmalloc(name: &str) -> bool {
    name.starts_with("kmalloc-") || name.starts_with("dma-kmalloc-")
}

/// Applies the host's boot parameters; what a policy refuses is left out, as at boot.
#[must_use]
pub fn with_parameters(mut policy: Policy, host: &Host) -> Policy {
    let parameters = &host.parameters;
    for (key, value) in [
        ("slab_min_order", parameters.min_order),
        ("slab_max_order", parameters.max_order),
        ("slab_min_objects", parameters.min_objects),
    ] {
        if let Some(value) = value {
            let _ = policy.set(key, &value.to_string());
        }
    }
    policy
}

/// The zone as the mark rules see it: the low watermark without a passing boost.
#[must_use]
pub fn pcp_zone(zone: &Zone, host: &Host, divisor: Divisor) -> PcpZone {
    let node = host
        .topology
        .cpus_of_node(zone.node)
        .filter(|&cpus| cpus > 0);
    PcpZone {
        managed: zone.managed,
        low: zone.low.saturating_sub(zone.boost.unwrap_or(0)),
        cpus: match divisor {
            Divisor::Online => node.and_then(|cpus| u32::try_from(cpus).ok()),
            Divisor::Present => Some(host.cpus.present),
        }
        .unwrap_or(host.cpus.online),
        high_fraction: host
            .sysctls
            .high_fraction
            .and_then(|fraction| u32::try_from(fraction).ok())
            .unwrap_or(0),
        page_size: host.page_size,
    }
}

/// A score: one point per value answered right.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Score {
    right: usize,
    values: usize,
}

impl Score {
    fn compare(&mut self, agrees: bool) {
        self.values += 1;
        self.right += usize::from(agrees);
    }
}

/// Finds the preset that explains the host best; of equals the oldest group, because a newer
/// preset admits what an older one predicts (tuned pagesets may stand anywhere).
///
/// `None` if nothing was readable that a formula speaks about.
#[must_use]
pub fn fit(host: &Host) -> Option<Formula> {
    let mut best: Option<(Formula, Vec<bool>)> = None;
    let release = host.release.as_deref().unwrap_or("");
    let told = names::kernel_of(&format!("Linux {release}"));
    for (name, _) in BASES.iter().filter(|(name, _)| name.starts_with("linux-")) {
        let Ok(plain) = Policy::parse(name) else {
            continue;
        };
        let policy = with_parameters(plain, host);
        let (answers, divisor) = best_answers(&policy, host);
        if answers.is_empty() {
            return None;
        }
        let mut score = Score::default();
        answers.iter().for_each(|&agrees| score.compare(agrees));
        let found = |alike| Formula {
            name,
            alike,
            policy,
            plain,
            values: score.values,
            right: score.right,
            divisor,
        };
        match &mut best {
            Some((formula, same)) if *same == answers => {
                formula.alike.push(name);
                if told != Some(formula.name) {
                    *formula = found(std::mem::take(&mut formula.alike));
                }
            }
            Some((formula, _)) if formula.right >= score.right => {}
            _ => best = Some((found(vec![name]), answers)),
        }
    }
    best.map(|(formula, _)| formula)
}

/// The answers under the divisor that explains more pagesets.
fn best_answers(policy: &Policy, host: &Host) -> (Vec<bool>, Divisor) {
    let mut answers = cache_answers(policy, host);
    let right = |answers: &Vec<bool>| answers.iter().filter(|&&agrees| agrees).count();
    let online = zone_answers(policy, host, Divisor::Online);
    let present = zone_answers(policy, host, Divisor::Present);
    let one_node = host.topology.nodes.len() <= 1;
    let (zones, divisor) = if one_node && right(&present) > right(&online) {
        (present, Divisor::Present)
    } else {
        (online, Divisor::Online)
    };
    answers.extend(zones);
    (answers, divisor)
}

/// For every value the host shows: does `policy` say the same?
fn cache_answers(policy: &Policy, host: &Host) -> Vec<bool> {
    let mut answers = Vec::with_capacity(host.caches.len() * 6);
    for cache in &host.caches {
        let expected = expected(policy, cache, host);
        answers.push(expected.order == Some(u64::from(cache.order.get())));
        let Some(sys) = &cache.sys else { continue };
        answers.push(expected.size == Some(cache.size as u64));
        // A kernel without per-CPU partial lists keeps the file and shows 0.
        answers.push(expected.cpu_partial.unwrap_or(0) == sys.cpu_partial.unwrap_or(0));
        answers.push(Some(expected.min_partial) == sys.min_partial);
        answers.push(expected.sheaf_capacity == sys.sheaf_capacity);
        if is_kmalloc(&cache.name)
            && let Some(spec) = spec(cache, host, None)
        {
            let natural = policy.layout(&ObjectSpec { align: 0, ..spec }).align as u64;
            answers.push(sys.align == Some(natural));
        }
    }
    answers
}

/// The same for batch and `high` of every pageset.
fn zone_answers(policy: &Policy, host: &Host, divisor: Divisor) -> Vec<bool> {
    let mut answers = Vec::new();
    let mut tuned = false;
    let populated = || host.zones.iter().filter(|zone| zone.managed > 0);
    for zone in populated() {
        let marks = policy.pcp_marks(&pcp_zone(zone, host, divisor));
        tuned |= marks.high_min != marks.high_max;
        for pageset in &zone.pagesets {
            answers.push(pageset.batch == u64::from(marks.batch));
            answers.push(high_fits(pageset.high, &marks));
        }
    }
    // Where the marks are not printed, an unused pageset tells: fixed marks are set at boot, a
    // tuned `high` stays 0 until its first use.
    let sets = || populated().flat_map(|zone| &zone.pagesets);
    if !answers.is_empty() && sets().all(|set| set.high_min.is_none()) {
        answers.push(sets().any(|set| set.high == 0) == tuned);
    }
    answers
}

/// Whether a pageset's `high` can stand where it stands: an untuned one is fixed, a tuned one
/// lies between the marks, or is 0 until first used (docs: linux-policies 6.2).
///
/// Marks computed at boot, when the zone was slightly smaller, are allowed a fiftieth.
#[must_use]
pub fn high_fits(high: u64, marks: &PcpMarks) -> bool {
    let (low, top) = (u64::from(marks.high_min), u64::from(marks.high_max));
    if low == top {
        return near(high, low);
    }
    high == 0 || (high + high / 50 + 1 >= low && high <= top + top / 50 + 1)
}

/// Equal but for what a zone gains after boot: a fiftieth, at least one page.
#[must_use]
pub fn near(here: u64, formula: u64) -> bool {
    here.abs_diff(formula) <= formula / 50 + 1
}
