//! What real kernels chose: the rows under `tests/data`, parsed.
#![allow(dead_code, reason = "each test file reads the part it compares")]

use flagstone_core::base::PageSize;
use flagstone_core::policy::{Cpus, Policy};
use flagstone_kernels::Named;

/// One boot of one kernel.
pub struct Boot {
    pub name: &'static str,
    pub kernel: &'static str,
    pub arch: &'static str,
    pub page_size: PageSize,
    pub cpus: Cpus,
    pub parameters: &'static str,
}

/// One cache of one boot.
pub struct CacheRow {
    pub boot: usize,
    pub cache: &'static str,
    pub object_size: usize,
    pub size: usize,
    pub order: u32,
    pub objects: u32,
    pub cpu_partial: u32,
    pub min_partial: u32,
    pub sheaf_capacity: Option<u32>,
    pub align: usize,
    /// C constructor, R reclaimable, T type-safe by RCU, H cache-line aligned, D DMA,
    /// Z red zones, P poisoned, U owner tracked, F checked.
    pub flags: &'static str,
    pub active: u64,
    pub slabs: u64,
}

/// One zone of one boot; marks a kernel does not print are `None`.
pub struct ZoneRow {
    pub boot: usize,
    pub node: u32,
    pub zone: &'static str,
    pub node_cpus: u32,
    pub managed: u64,
    pub min: u64,
    pub low: u64,
    pub high: u64,
    pub promo: Option<u64>,
    pub batch: u32,
    pub high_min: Option<u32>,
    pub high_max: Option<u32>,
    pub min_free_kib: u64,
    pub scale_factor: u64,
    pub high_fraction: u32,
    pub least_high: u32,
}

impl Boot {
    /// The preset that claims this kernel, with the boot's own slab parameters applied.
    pub fn policy(&self) -> Policy {
        let mut release = self
            .kernel
            .split(['.', '-', '+'])
            .map(|n| n.parse::<u32>().unwrap_or(0));
        let version = (release.next().unwrap(), release.next().unwrap());
        let preset = match version {
            (6, 1..=3) => "linux-6.1",
            (6, 7..=17) => "linux-6.12",
            (6, 18..=19) => "linux-6.18",
            (7, _) => "linux-7.0",
            other => panic!("no preset claims kernel {other:?}"),
        };
        let mut policy = Policy::parse(preset).unwrap();
        for word in self.parameters.split(' ') {
            match word.split_once('=') {
                Some((key, value)) if key.contains("_order") || key.contains("_objects") => {
                    policy.set(key, value).unwrap();
                }
                _ => {}
            }
        }
        policy
    }
}

fn rows(text: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    text.lines().skip(1).map(|line| line.split(',').collect())
}

fn number<T: std::str::FromStr>(field: &str) -> T {
    field
        .parse()
        .unwrap_or_else(|_| panic!("'{field}' is not a number"))
}

fn optional<T: std::str::FromStr>(field: &str) -> Option<T> {
    (!field.is_empty()).then(|| number(field))
}

pub fn boots() -> Vec<Boot> {
    rows(include_str!("../data/boots.csv"))
        .map(|f| Boot {
            name: f[1],
            kernel: f[2],
            arch: f[3],
            page_size: PageSize::new(number(f[4])).unwrap(),
            cpus: Cpus {
                possible: number(f[5]),
                present: number(f[6]),
                online: number(f[7]),
            },
            parameters: f[10],
        })
        .collect()
}

pub fn caches() -> Vec<CacheRow> {
    rows(include_str!("../data/caches.csv"))
        .map(|f| CacheRow {
            boot: number(f[0]),
            cache: f[1],
            object_size: number(f[2]),
            size: number(f[3]),
            order: number(f[4]),
            objects: number(f[5]),
            cpu_partial: number(f[6]),
            min_partial: number(f[7]),
            sheaf_capacity: optional(f[8]),
            align: number(f[9]),
            flags: f[10],
            active: number(f[11]),
            slabs: number(f[13]),
        })
        .collect()
}

pub fn zones() -> Vec<ZoneRow> {
    rows(include_str!("../data/zones.csv"))
        .map(|f| ZoneRow {
            boot: number(f[0]),
            node: number(f[1]),
            zone: f[2],
            node_cpus: number(f[3]),
            managed: number(f[5]),
            min: number(f[6]),
            low: number(f[7]),
            high: number(f[8]),
            promo: optional(f[9]),
            batch: number(f[10]),
            high_min: optional(f[11]),
            high_max: optional(f[12]),
            min_free_kib: number(f[13]),
            scale_factor: number(f[14]),
            high_fraction: number(f[15]),
            least_high: number(f[16]),
        })
        .collect()
}
