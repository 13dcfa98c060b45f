//! The answer: one row per policy, machine and size; computed without printing.

use super::ask::Ask;
use crate::exit::Failure;
use flagstone_core::base::PageSize;
use flagstone_core::policy::{Cpus, Engine, ObjectSpec, PcpZone, Policy, Runs};
use flagstone_kernels::KernelCache;
use flagstone_kernels::policy::{Population, Populations};
use serde::Serialize;

/// A policy and the name it was asked for by.
pub struct NamedPolicy {
    /// As given.
    pub name: String,
    /// With the question's settings applied.
    pub policy: Policy,
}

/// What a rule may know of a machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Machine {
    /// Page size.
    pub page_size: PageSize,
    /// CPU counts.
    pub cpus: Cpus,
}

/// What slabs are to be made of.
#[derive(Clone, Copy, Debug)]
pub enum Object {
    /// Objects of this stride in bytes.
    Stride(usize),
    /// Objects whose stride each policy derives.
    Spec(ObjectSpec),
}

/// One cache under one policy. `null` where a policy has no such knob or finds no order.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row<'a> {
    /// Policy as given.
    pub policy: &'a str,
    /// CPUs: present ones.
    pub cpus: u32,
    /// Bytes.
    pub page_size: usize,
    /// Stride in bytes.
    pub size: usize,
    /// Order of the preferred slab.
    pub order: Option<u32>,
    /// Objects in it.
    pub objects: Option<u32>,
    /// Bytes behind its last object.
    pub tail_bytes: Option<usize>,
    /// Per-CPU partial list, objects.
    pub cpu_partial: Option<u32>,
    /// Per-CPU partial list, slabs.
    pub cpu_partial_slabs: Option<u32>,
    /// Slabs kept on a node's partial list.
    pub min_partial: Option<u32>,
    /// Objects per sheaf.
    pub sheaf_capacity: Option<u32>,
    /// Bytes of a cache's first slab, where slabs follow the population; `order` and `objects` are
    /// then those of the slab they never exceed for the same objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_slab_bytes: Option<usize>,
    /// Objects in that first slab.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_slab_objects: Option<u32>,
    /// Cache, with `--from`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<&'a str>,
    /// Bytes asked for, with `--object-size`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object_size: Option<usize>,
    /// What the captured population costs, with `--from`.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
}

/// What a population costs under one policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Cost {
    /// Objects room is made for.
    pub population: u64,
    /// Slabs.
    pub slabs: u64,
    /// Bytes behind the last object of every slab.
    pub waste_bytes: u64,
    /// Bytes of all slabs.
    pub total_bytes: u64,
    /// `waste_bytes` if every CPU had slabs of its own; absent where that cannot be said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waste_bytes_spread: Option<u64>,
    /// `total_bytes` if every CPU had slabs of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_bytes_spread: Option<u64>,
}

impl Cost {
    fn of(objects: u64, all: Population, spread: Option<Population>) -> Self {
        Self {
            population: objects,
            slabs: all.slabs,
            waste_bytes: all.tail_bytes,
            total_bytes: all.bytes,
            waste_bytes_spread: spread.map(|spread| spread.tail_bytes),
            total_bytes_spread: spread.map(|spread| spread.bytes),
        }
    }

    fn add(&mut self, other: &Self) {
        let sum = |a: Option<u64>, b: Option<u64>| Some(a? + b?);
        self.population += other.population;
        self.slabs += other.slabs;
        self.waste_bytes += other.waste_bytes;
        self.total_bytes += other.total_bytes;
        self.waste_bytes_spread = sum(self.waste_bytes_spread, other.waste_bytes_spread);
        self.total_bytes_spread = sum(self.total_bytes_spread, other.total_bytes_spread);
    }
}

/// A whole capture under one policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Total<'a> {
    /// Policy as given; `captured` for what the capture itself holds.
    pub policy: &'a str,
    /// Present CPUs.
    pub cpus: u32,
    /// Bytes.
    pub page_size: usize,
    /// Caches counted.
    pub caches: usize,
    /// Caches the policy finds no order for; left out of the sums.
    pub caches_without_order: usize,
    /// The sums.
    #[serde(flatten)]
    pub cost: Cost,
}

/// One zone under one policy, pages.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PcpRow<'a> {
    /// Policy as given.
    pub policy: &'a str,
    /// CPUs of the zone's node.
    pub cpus: u32,
    /// Managed pages.
    pub zone_pages: u64,
    /// Pages moved at once.
    pub batch: u32,
    /// Where the limit starts.
    pub high_min: u32,
    /// How far it may rise; equal where there is no tuning.
    pub high_max: u32,
    /// Bytes per page.
    pub page_size: usize,
    /// Low watermark the marks follow from.
    pub wmark_low: u64,
    /// High watermark; below it pagesets shrink since 6.7.
    pub wmark_high: u64,
}

/// The whole answer.
#[derive(Serialize)]
pub struct Plan<'a> {
    schema: &'static str,
    /// Caches.
    pub rows: Vec<Row<'a>>,
    /// Sums of a capture.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub totals: Vec<Total<'a>>,
    /// Zones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pcp: Vec<PcpRow<'a>>,
}

/// One cache under one policy: the inner loop of everything here.
#[must_use]
pub fn row<'a>(named: &'a NamedPolicy, machine: &Machine, object: &Object) -> Row<'a> {
    let policy = &named.policy;
    let Machine { page_size, cpus } = *machine;
    let (size, object_size, debugged) = match object {
        Object::Stride(size) => (*size, None, false),
        Object::Spec(spec) => (
            policy.layout(spec).size,
            Some(spec.object_size),
            spec.debugged(),
        ),
    };
    let shape = policy.slab_shape(size, page_size, cpus);
    let limit = shape.and_then(|shape| {
        flagstone_kernels::cpu_partial(policy, size, shape.objects, page_size, cpus)
    });
    let first = match policy.runs {
        Runs::ByPopulation => policy.next_slab(size, page_size, cpus, &Population::default()),
        Runs::ByOrder => None,
    };
    // Debugging turns per-CPU lists off.
    let per_cpu = |count: u32| if debugged { 0 } else { count };
    Row {
        policy: &named.name,
        cpus: cpus.present,
        page_size: page_size.bytes(),
        size,
        order: shape.map(|shape| shape.order.get()),
        objects: shape.map(|shape| shape.objects),
        tail_bytes: shape.map(|shape| shape.tail_bytes),
        cpu_partial: limit.map(|limit| per_cpu(limit.objects)),
        cpu_partial_slabs: limit.map(|limit| per_cpu(limit.slabs)),
        // SLAB counts free objects, not slabs.
        min_partial: (policy.engine != Engine::Slab2007).then(|| policy.min_partial(size)),
        sheaf_capacity: policy.sheaf_capacity(size, page_size).map(per_cpu),
        first_slab_bytes: first.map(|slab| slab.bytes(policy.slab_unit(page_size))),
        first_slab_objects: first.map(|slab| slab.objects),
        cache: None,
        object_size,
        cost: None,
    }
}

impl<'a> Plan<'a> {
    /// Answers a question.
    pub fn of(ask: &'a Ask) -> Result<Self, Failure> {
        let mut plan = Self {
            schema: "flagstone.plan/1",
            rows: Vec::new(),
            totals: Vec::new(),
            pcp: Vec::new(),
        };
        for machine in &ask.machines {
            for object in &ask.objects {
                plan.rows
                    .extend(ask.policies.iter().map(|named| row(named, machine, object)));
            }
            if !ask.captured.is_empty() {
                plan.cost_capture(ask, machine);
            }
            for zone in &ask.zones {
                plan.pcp.extend(
                    ask.policies
                        .iter()
                        .map(|named| pcp_row(named, machine, zone)),
                );
            }
        }
        Ok(plan)
    }

    fn cost_capture(&mut self, ask: &'a Ask, machine: &Machine) {
        let Machine { page_size, cpus } = *machine;
        let total = |policy: &'a str| Total {
            policy,
            cpus: cpus.present,
            page_size: page_size.bytes(),
            caches: 0,
            caches_without_order: 0,
            cost: Cost {
                waste_bytes_spread: Some(0),
                total_bytes_spread: Some(0),
                ..Cost::default()
            },
        };
        let mut here = total("captured");
        let mut sums: Vec<_> = ask
            .policies
            .iter()
            .map(|named| total(&named.name))
            .collect();
        for cache in &ask.captured {
            here.caches += 1;
            here.cost
                .add(&Cost::of(cache.here.objects, cache.here, None));
            let objects = cache.objects(cpus.online);
            for (named, sum) in ask.policies.iter().zip(&mut sums) {
                let mut row = row(named, machine, &Object::Stride(cache.size));
                row.cache = Some(&cache.name);
                let policy = &named.policy;
                // A capture names its caches, and a few ask for what their size does not tell.
                let known = KernelCache::named(&cache.name);
                row.sheaf_capacity = row
                    .sheaf_capacity
                    .map(|by_size| known.sheaf_capacity(policy.sheaf_rule, by_size));
                let all = policy.population(cache.size, page_size, cpus, objects);
                let spread = policy.population_spread(cache.size, page_size, cpus, objects);
                row.cost = all.map(|all| Cost::of(objects, all, spread));
                sum.caches += 1;
                match &row.cost {
                    Some(cost) => sum.cost.add(cost),
                    None => sum.caches_without_order += 1,
                }
                self.rows.push(row);
            }
        }
        if machine == &ask.machines[0] {
            self.totals.push(here);
        }
        self.totals.extend(sums);
    }
}

fn pcp_row<'a>(named: &'a NamedPolicy, machine: &Machine, zone: &super::ask::Zone) -> PcpRow<'a> {
    let (low, high) = zone.watermarks(machine.page_size);
    let marks = named.policy.pcp_marks(&PcpZone {
        managed: zone.pages,
        low,
        cpus: machine.cpus.online,
        high_fraction: 0,
        page_size: machine.page_size,
    });
    PcpRow {
        policy: &named.name,
        cpus: machine.cpus.online,
        zone_pages: zone.pages,
        batch: marks.batch,
        high_min: marks.high_min,
        high_max: marks.high_max,
        page_size: machine.page_size.bytes(),
        wmark_low: low,
        wmark_high: high,
    }
}
