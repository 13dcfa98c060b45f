//! /proc/zoneinfo: where zones begin, and what their pagesets hold.
//!
//! ```text
//!   Node 0, zone   Normal
//!           managed  5881410
//!     pagesets
//!       cpu: 0
//!                 count:    1372
//!                 high:     2160
//!                 batch:    63
//!     start_pfn:           1048576
//! ```
//!
//! Lines are found by their first word, so that kernels with more of them are read too.

use crate::header::{Pageset, Zone};

/// More CPUs than any machine has: the rest is left out.
const SETS_MAX: usize = 1 << 14;

/// Zones with pages and pagesets, with those of `after` where it has the same zones.
#[must_use]
pub fn zones(before: &str, after: &str) -> Vec<Zone> {
    let mut zones = read(before.lines());
    zones.retain(|zone| !zone.before.is_empty());
    let ended = read(after.lines());
    for zone in &mut zones {
        let same = |other: &&Zone| other.name == zone.name && other.start == zone.start;
        if let Some(other) = ended.iter().find(same) {
            zone.after.clone_from(&other.before);
        }
    }
    zones
}

/// Zones with pages, and the pagesets of each as `before`.
#[must_use]
pub fn read<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<Zone> {
    let mut zones: Vec<Zone> = Vec::new();
    for line in lines.map(str::trim) {
        if line.starts_with("Node ")
            && let Some((node, name)) = line.split_once("zone")
        {
            let node = node
                .trim_start_matches("Node ")
                .trim()
                .trim_end_matches(',');
            zones.push(Zone {
                name: format!("{node} {}", name.trim()),
                ..Zone::default()
            });
            continue;
        }
        let Some((zone, (key, value))) = zones.last_mut().zip(line.split_once(char::is_whitespace))
        else {
            continue;
        };
        let Ok(value) = value.trim().parse::<u64>() else {
            continue;
        };
        let small = u32::try_from(value).unwrap_or(u32::MAX);
        if key == "cpu:" && zone.before.len() < SETS_MAX {
            zone.before.push(Pageset::default());
        }
        match (key, zone.before.last_mut()) {
            ("managed", _) => zone.managed = value,
            ("start_pfn:", _) => zone.start = value,
            ("count:", Some(set)) => set.count = small,
            ("high:", Some(set)) => set.high = small,
            ("batch:", Some(set)) => set.batch = small,
            ("high_min:", Some(set)) => set.high_min = small,
            ("high_max:", Some(set)) => set.high_max = small,
            _ => {}
        }
    }
    zones.retain(|zone| zone.managed > 0);
    zones
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pagesets_of_zones_with_pages_are_read() {
        let text = |count: u32| {
            format!(
                "Node 0, zone      DMA\n  per-node stats\n        managed  0\n  pagesets\n    cpu: 0\n  start_pfn: 1\n\
                 Node 0, zone   Normal\n  pages free     97\n        high     40\n        managed  500\n  pagesets\n    cpu: 0\n\
                 \x20             count:    {count}\n              high:     900\n              batch:    63\n\
                 \x20             high_min: 300\n              high_max: 4000\n  vm stats threshold: 10\n    cpu: 1\n\
                 \x20             count:    7\n  start_pfn:           1048576\n"
            )
        };
        let zones = zones(&text(12), &text(15));
        assert_eq!(zones.len(), 1);
        assert_eq!(
            (zones[0].name.as_str(), zones[0].start, zones[0].managed),
            ("0 Normal", 1_048_576, 500)
        );
        let first = Pageset {
            count: 12,
            high: 900,
            batch: 63,
            high_min: 300,
            high_max: 4000,
        };
        assert_eq!((zones[0].before[0], zones[0].before[1].count), (first, 7));
        assert_eq!(zones[0].after[0].count, 15);
    }
}
