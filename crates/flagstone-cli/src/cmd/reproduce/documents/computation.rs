//! Computations with a name: what a formula in a document cannot say.
//!
//! `population` follows S2: the captured caches, each with the same factor more objects, so many that the base's
//! total memory is the published one. `slab-shape` and `own-pageset` are what the core says of itself.

use super::expression::{Expression, Names};
use flagstone_core::base::PageSize;
use flagstone_core::policy::{Cpus, Policy};
use flagstone_kernels::Named;
use flagstone_kernels::policy::{Population, Populations, estimated_live};
use serde::Deserialize;
use std::collections::BTreeMap;

const POPULATIONS: &str = include_str!("../../../../data/populations.csv");

/// What is computed.
#[derive(Debug, Deserialize)]
#[serde(tag = "name", rename_all = "kebab-case", deny_unknown_fields)]
pub(in crate::cmd::reproduce) enum Computation {
    /// Slab memory of a captured population.
    Population {
        cpus: u32,
        page_size: usize,
        /// The policy whose total is given.
        base: String,
        /// That total.
        total_kib: Expression,
    },
    /// The slab of one object size.
    SlabShape {
        cpus: u32,
        page_size: usize,
        size: usize,
    },
    /// The size of the core's pageset.
    OwnPageset,
}

impl Computation {
    /// The figures it has.
    pub(super) fn figures(&self) -> &'static [&'static str] {
        match self {
            Self::Population { .. } => &["tail_kib", "total_kib", "factor"],
            Self::SlabShape { .. } => &["order", "tail_bytes"],
            Self::OwnPageset => &["bytes"],
        }
    }

    /// Computes them.
    ///
    /// # Errors
    /// One line.
    pub(in crate::cmd::reproduce) fn run(
        &self,
        policy: &str,
        names: &impl Names,
    ) -> Result<BTreeMap<&'static str, f64>, String> {
        let parse = |name: &str| Policy::parse(name).map_err(|error| error.to_string());
        let page = |bytes| PageSize::new(bytes).ok_or_else(|| format!("{bytes} is no page size"));
        let values = match self {
            Self::Population {
                cpus,
                page_size,
                base,
                total_kib,
            } => {
                let caches = population(*cpus);
                let place = (page(*page_size)?, Cpus::new(*cpus));
                let total = total_kib.value(names)?.mean;
                let factor = factor(&parse(base)?, &caches, place, total);
                let cost = cost(&parse(policy)?, &caches, place, factor);
                let kib = |bytes: u64| bytes as f64 / 1024.0;
                vec![kib(cost.tail_bytes), kib(cost.bytes), factor]
            }
            Self::SlabShape {
                cpus,
                page_size,
                size,
            } => {
                let shape = parse(policy)?.slab_shape(*size, page(*page_size)?, Cpus::new(*cpus));
                let shape = shape.ok_or("no slab holds this object")?;
                vec![f64::from(shape.order.get()), shape.tail_bytes as f64]
            }
            Self::OwnPageset => vec![flagstone_core::page::PAGESET_BYTES as f64],
        };
        Ok(self.figures().iter().copied().zip(values).collect())
    }
}

/// One cache of a captured population.
#[derive(Clone, Debug, Deserialize)]
struct Cache {
    cpus: u32,
    size: usize,
    objects_per_slab: u64,
    active: u64,
    slabs: u64,
}

fn population(cpus: u32) -> Vec<Cache> {
    let mut reader = csv::Reader::from_reader(POPULATIONS.as_bytes());
    let rows = reader.deserialize::<Cache>();
    rows.map(|row| row.expect("the populations in the program are well formed"))
        .filter(|cache| cache.cpus == cpus)
        .collect()
}

/// What the caches cost with `factor` times the objects.
fn cost(
    policy: &Policy,
    caches: &[Cache],
    (page, cpus): (PageSize, Cpus),
    factor: f64,
) -> Population {
    caches.iter().fold(Population::default(), |sum, cache| {
        // One CPU was running when the capture was taken.
        let live = estimated_live(cache.active, cache.slabs, cache.objects_per_slab, 1);
        let live = ((live as f64 * factor).round() as u64).max(1);
        let cost = policy.population_spread(cache.size, page, cpus, live);
        sum.plus(cost.expect("captured strides have a slab under every policy here"))
    })
}

/// The factor that gives the base `kib` in total: bisection between a thousandth and ten thousand.
fn factor(policy: &Policy, caches: &[Cache], place: (PageSize, Cpus), kib: f64) -> f64 {
    let (mut low, mut high) = (1e-3f64, 1e4f64);
    for _ in 0..40 {
        let middle = (low * high).sqrt();
        if (cost(policy, caches, place, middle).bytes as f64) / 1024.0 < kib {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}
