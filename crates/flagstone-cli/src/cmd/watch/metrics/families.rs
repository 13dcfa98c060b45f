//! Names, types and labels of what is exported. A name that was released never changes.

use crate::cmd::run::reports::{Cache, Zone};
use crate::watch::reading::Reading;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use std::fmt;

/// One value and its labels, those of the process excepted.
type Sample = (Vec<(&'static str, String)>, u64);

/// What a metric counts.
#[derive(Clone, Copy)]
enum Measure {
    /// Bytes now.
    Bytes,
    /// A number now.
    Count,
    /// A number since the start.
    Total,
}

/// One metric.
struct Family {
    name: &'static str,
    help: &'static str,
    measure: Measure,
    /// Its values of one process.
    of: fn(&Reading) -> Vec<Sample>,
}

impl Family {
    const fn new(
        name: &'static str,
        help: &'static str,
        measure: Measure,
        of: fn(&Reading) -> Vec<Sample>,
    ) -> Self {
        Self {
            name,
            help,
            measure,
            of,
        }
    }

    fn unit(&self) -> Option<Unit> {
        matches!(self.measure, Measure::Bytes).then_some(Unit::Bytes)
    }

    fn kind(&self) -> MetricType {
        match self.measure {
            Measure::Total => MetricType::Counter,
            Measure::Bytes | Measure::Count => MetricType::Gauge,
        }
    }
}

fn one(value: u64) -> Vec<Sample> {
    vec![(Vec::new(), value)]
}

/// A figure of a heap that has a limit.
fn limited(r: &Reading, value: u64) -> Vec<Sample> {
    match r.bounds.limit_bytes {
        0 => Vec::new(),
        _ => one(value),
    }
}

/// All metrics; docs/metrics.md says the same, which a test compares.
const FAMILIES: [Family; 22] = [
    Family::new(
        "flagstone_process",
        "1 for each process that is read, with its version and how its slots are reached",
        Measure::Count,
        |r| {
            let slots = if r.restartable_sequences {
                "sequences"
            } else {
                "locks"
            };
            vec![(
                vec![("version", r.version.clone()), ("slots", slots.into())],
                1,
            )]
        },
    ),
    Family::new(
        "flagstone_resident",
        "Resident size as the kernel counts it",
        Measure::Bytes,
        |r| r.rss_bytes.map_or(Vec::new(), one),
    ),
    Family::new(
        "flagstone_ledger",
        "Resident memory by purpose; the lines add up to the resident size",
        Measure::Bytes,
        |r| {
            let lines = r.ledger.iter();
            lines
                .map(|line| (vec![("line", line.line.clone())], line.bytes))
                .collect()
        },
    ),
    Family::new(
        "flagstone_outside",
        "Resident memory outside the heap by kind of mapping",
        Measure::Bytes,
        |r| {
            let kinds = r.outside.iter();
            kinds
                .map(|kind| (vec![("kind", kind.kind.clone())], kind.bytes))
                .collect()
        },
    ),
    Family::new(
        "flagstone_released",
        "Free blocks given back or never used: address space only",
        Measure::Bytes,
        |r| one(r.released_bytes),
    ),
    Family::new(
        "flagstone_untouched",
        "Blocks in use that are not resident",
        Measure::Bytes,
        |r| one(r.untouched_bytes),
    ),
    Family::new(
        "flagstone_limit",
        "What the heap may hold; none without a limit",
        Measure::Bytes,
        |r| limited(r, r.bounds.limit_bytes),
    ),
    Family::new(
        "flagstone_limit_reached",
        "Requests that met the limit",
        Measure::Total,
        |r| limited(r, r.bounds.limit_reached),
    ),
    Family::new(
        "flagstone_limit_refused",
        "Those of them that were answered with NULL",
        Measure::Total,
        |r| limited(r, r.bounds.limit_refused),
    ),
    Family::new(
        "flagstone_pressure_relieved",
        "Times free memory was given back for memory pressure",
        Measure::Total,
        |r| one(r.bounds.relieved),
    ),
    Family::new(
        "flagstone_pressure_relieved_pages",
        "Pages given back for it",
        Measure::Total,
        |r| one(r.bounds.relieved_bytes / r.pages.page_bytes.max(1)),
    ),
    Family::new(
        "flagstone_cache_resident",
        "Resident memory of a cache's slabs",
        Measure::Bytes,
        |r| of_caches(r, |c| vec![("", c.resident_bytes)], ""),
    ),
    Family::new(
        "flagstone_cache_waste",
        "What of that no live request asked for",
        Measure::Bytes,
        |r| of_caches(r, |c| vec![("", c.waste_bytes)], ""),
    ),
    Family::new(
        "flagstone_cache_object_size",
        "Bytes the program may use of an object",
        Measure::Bytes,
        |r| of_caches(r, |c| vec![("", c.object_size)], ""),
    ),
    Family::new(
        "flagstone_cache_objects",
        "Objects of a cache by where they are",
        Measure::Count,
        |r| {
            let of = |c: &Cache| {
                vec![
                    ("active", c.active),
                    ("in_sheaves", c.in_sheaves),
                    ("in_barns", c.in_barns),
                    ("free_in_slabs", c.free_in_slabs),
                ]
            };
            of_caches(r, of, "state")
        },
    ),
    Family::new(
        "flagstone_cache_slabs",
        "Slabs of a cache by what holds them",
        Measure::Count,
        |r| {
            let of = |c: &Cache| {
                let used = c.slabs.saturating_sub(c.empty_slabs + c.pinned_slabs);
                vec![
                    ("used", used),
                    ("pinned", c.pinned_slabs),
                    ("empty", c.empty_slabs),
                ]
            };
            of_caches(r, of, "state")
        },
    ),
    Family::new(
        "flagstone_zone",
        "Pages of a memory node by what they serve",
        Measure::Bytes,
        |r| {
            let page = r.pages.page_bytes;
            let of = |z: &Zone| {
                vec![
                    ("in_use", z.in_use_pages * page),
                    ("free_resident", z.free_resident_pages * page),
                    (
                        "free_released",
                        (z.free_pages - z.free_resident_pages.min(z.free_pages)) * page,
                    ),
                    ("pagesets", z.pageset_pages * page),
                ]
            };
            of_zones(r, of, "state")
        },
    ),
    Family::new(
        "flagstone_zone_lock_takes",
        "Times a zone's lock was taken",
        Measure::Total,
        |r| of_zones(r, |z| vec![("", z.lock_takes)], ""),
    ),
    Family::new(
        "flagstone_zone_lock_waits",
        "Times it was waited for",
        Measure::Total,
        |r| of_zones(r, |z| vec![("", z.lock_waits)], ""),
    ),
    Family::new(
        "flagstone_zone_allocated_pages",
        "Pages a zone handed out",
        Measure::Total,
        |r| of_zones(r, |z| vec![("", z.alloc_pages)], ""),
    ),
    Family::new(
        "flagstone_zone_fresh_pages",
        "Pages a zone took for the first time",
        Measure::Total,
        |r| of_zones(r, |z| vec![("", z.fresh_pages)], ""),
    ),
    Family::new(
        "flagstone_zone_released_pages",
        "Pages a zone gave back to the system",
        Measure::Total,
        |r| of_zones(r, |z| vec![("", z.released_pages)], ""),
    ),
];

fn of_caches(
    r: &Reading,
    of: fn(&Cache) -> Vec<(&'static str, u64)>,
    key: &'static str,
) -> Vec<Sample> {
    let mut samples = Vec::new();
    for cache in &r.caches {
        for (state, value) in of(cache) {
            let mut labels = vec![("cache", cache.name.clone())];
            if !key.is_empty() {
                labels.push((key, state.to_owned()));
            }
            samples.push((labels, value));
        }
    }
    samples
}

fn of_zones(
    r: &Reading,
    of: impl Fn(&Zone) -> Vec<(&'static str, u64)>,
    key: &'static str,
) -> Vec<Sample> {
    let mut samples = Vec::new();
    for zone in &r.pages.zones {
        for (state, value) in of(zone) {
            let mut labels = vec![("node", zone.node.to_string())];
            if !key.is_empty() {
                labels.push((key, state.to_owned()));
            }
            samples.push((labels, value));
        }
    }
    samples
}

/// All families of some readings. Caches of one name in one process are told apart by no label: the first
/// counts, as it does for knobs.
#[derive(Debug)]
struct Figures {
    readings: Vec<Reading>,
    unreadable: u64,
}

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for family in &FAMILIES {
            let (name, unit) = (family.name, family.unit());
            let mut metric =
                encoder.encode_descriptor(name, family.help, unit.as_ref(), family.kind())?;
            for reading in &self.readings {
                let mut seen = Vec::new();
                for (labels, value) in (family.of)(reading) {
                    let labels = with_process(reading, labels);
                    if seen.contains(&labels) {
                        continue;
                    }
                    let mut sample = metric.encode_family(&labels)?;
                    match family.kind() {
                        MetricType::Counter => {
                            sample.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
                        }
                        _ => sample.encode_gauge(&value)?,
                    }
                    seen.push(labels);
                }
            }
        }
        let help = "Processes with a heap that could not be read";
        encoder
            .encode_descriptor("flagstone_unreadable", help, None, MetricType::Gauge)?
            .encode_gauge(&self.unreadable)
    }
}

fn with_process(
    reading: &Reading,
    labels: Vec<(&'static str, String)>,
) -> Vec<(&'static str, String)> {
    let process = [
        ("pid", reading.pid.to_string()),
        ("program", reading.program.clone()),
    ];
    process.into_iter().chain(labels).collect()
}

/// The text.
///
/// # Errors
/// None that a string could make.
pub fn text(readings: &[Reading], unreadable: u64) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Figures {
        readings: readings.to_vec(),
        unreadable,
    }));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_lists_every_name_and_no_other() {
        let document = include_str!("../../../../../../docs/metrics.md");
        let mut names: Vec<String> = FAMILIES.iter().map(name_of).collect();
        names.push("flagstone_unreadable".into());
        let listed: Vec<&str> = document
            .lines()
            .filter_map(|line| line.strip_prefix("| `flagstone_")?.split('`').next())
            .collect();
        for name in &names {
            let short = name.trim_start_matches("flagstone_");
            assert!(listed.contains(&short), "{name} is not in docs/metrics.md");
        }
        assert_eq!(listed.len(), names.len(), "{listed:?}");
    }

    fn name_of(family: &Family) -> String {
        match (family.unit(), family.kind()) {
            (Some(_), _) => format!("{}_bytes", family.name),
            (None, MetricType::Counter) => format!("{}_total", family.name),
            (None, _) => family.name.to_owned(),
        }
    }
}
