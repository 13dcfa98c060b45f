//! The per-CPU pagesets: their marks, how much they hold, how much they may hold, and what the
//! tuning does here.

use flagstone_core::policy::{PcpMarks, Policy};
use serde::Serialize;

use super::formula::{self, Divisor, Formula};
use super::gather::Host;
use crate::source::zoneinfo::Zone;

/// One populated zone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// NUMA node.
    pub node: u64,
    /// Zone name.
    pub zone: String,
    /// Managed pages.
    pub managed: u64,
    /// Pagesets (online CPUs).
    pub cpus: usize,
    /// Pages per refill or drain.
    pub batch: u64,
    /// Lower mark: as printed, else by the formula.
    pub high_min: u64,
    /// Upper mark: as printed, else by the formula; equal to `high_min` without tuning.
    pub high_max: u64,
    /// Whether the kernel printed the marks.
    pub marks_printed: bool,
    /// Smallest `high` of the pagesets.
    pub high_lowest: u64,
    /// Largest `high` of the pagesets.
    pub high_highest: u64,
    /// Pages all pagesets hold now.
    pub held: u64,
    /// Pages all pagesets may hold as they stand: the sum of `high`.
    pub may_hold: u64,
    /// Pages they may hold if every one were tuned to its upper mark.
    pub may_hold_max: u64,
    /// What the tuning does here.
    pub tuning: Tuning,
}

/// The state of a zone's pageset tuning (docs: linux-policies 6.2, 6.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tuning {
    /// The marks are equal: `high` is fixed.
    Off,
    /// No pageset was used since boot.
    Unused,
    /// `high` stands at its lower mark.
    AtRest,
    /// Load raised `high` on some CPU.
    Raised,
    /// `high` stands at its upper mark on some CPU.
    AtTop,
}

impl Tuning {
    fn of(high_min: u64, high_max: u64, highest: u64) -> Self {
        if high_min >= high_max {
            Self::Off
        } else if highest == 0 {
            Self::Unused
        } else if highest >= high_max.saturating_sub(high_max / 16) {
            Self::AtTop
        } else if highest > high_min.saturating_add(high_min / 16) {
            Self::Raised
        } else {
            Self::AtRest
        }
    }

    /// One or two words.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Unused => "unused",
            Self::AtRest => "at rest",
            Self::Raised => "raised",
            Self::AtTop => "at top",
        }
    }

    /// Whether load has raised `high`.
    #[must_use]
    pub const fn is_raised(self) -> bool {
        matches!(self, Self::Raised | Self::AtTop)
    }
}

/// Marks of one zone under one policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WhatIf {
    /// The policy.
    pub policy: String,
    /// NUMA node.
    pub node: u64,
    /// Zone name.
    pub zone: String,
    /// Pages per refill or drain.
    pub batch: u32,
    /// Lower mark.
    pub high_min: u32,
    /// Upper mark.
    pub high_max: u32,
    /// Bytes all pagesets of the zone may hold at the upper mark.
    pub may_hold_bytes_max: u64,
}

/// The populated zones with pagesets.
#[must_use]
pub fn rows(host: &Host, formula: Option<&Formula>) -> Vec<Row> {
    let populated = host
        .zones
        .iter()
        .filter(|z| z.managed > 0 && !z.pagesets.is_empty());
    populated.map(|zone| row(zone, host, formula)).collect()
}

fn row(zone: &Zone, host: &Host, formula: Option<&Formula>) -> Row {
    let sets = &zone.pagesets;
    let first = sets[0];
    let marks = formula.map(|f| {
        f.policy
            .pcp_marks(&formula::pcp_zone(zone, host, f.divisor))
    });
    let sum = |value: fn(&crate::source::zoneinfo::Pageset) -> u64| {
        sets.iter().map(value).fold(0, u64::saturating_add)
    };
    let highs = || sets.iter().map(|set| set.high);
    let high_lowest = highs().min().unwrap_or(0);
    let high_highest = highs().max().unwrap_or(0);
    let by_formula = |mark: fn(&PcpMarks) -> u32| marks.as_ref().map(|m| u64::from(mark(m)));
    let high_min = first
        .high_min
        .or(by_formula(|m| m.high_min))
        .unwrap_or(high_lowest);
    let high_max = first
        .high_max
        .or(by_formula(|m| m.high_max))
        .unwrap_or(high_highest);
    let cpus = sets.len() as u64;
    Row {
        node: zone.node,
        zone: zone.name.clone(),
        managed: zone.managed,
        cpus: sets.len(),
        batch: first.batch,
        high_min,
        high_max,
        marks_printed: first.high_min.is_some(),
        high_lowest,
        high_highest,
        held: sum(|set| set.count),
        may_hold: sum(|set| set.high),
        may_hold_max: high_max.max(high_highest).saturating_mul(cpus),
        tuning: Tuning::of(high_min, high_max, high_highest),
    }
}

/// Marks of every populated zone under `policy`.
#[must_use]
pub fn what_if(name: &str, policy: &Policy, host: &Host, divisor: Divisor) -> Vec<WhatIf> {
    let populated = host.zones.iter().filter(|zone| zone.managed > 0);
    populated
        .map(|zone| {
            let input = formula::pcp_zone(zone, host, divisor);
            let marks = policy.pcp_marks(&input);
            let sets = if zone.pagesets.is_empty() {
                u64::from(host.cpus.online)
            } else {
                zone.pagesets.len() as u64
            };
            let pages = u64::from(marks.high_max).saturating_mul(sets);
            WhatIf {
                policy: name.to_owned(),
                node: zone.node,
                zone: zone.name.clone(),
                batch: marks.batch,
                high_min: marks.high_min,
                high_max: marks.high_max,
                may_hold_bytes_max: pages.saturating_mul(host.page_size.bytes() as u64),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::Tuning;

    #[test]
    fn the_tuning_is_told_by_where_high_stands() {
        let got = [0, 100, 300, 790].map(|highest| Tuning::of(100, 800, highest));
        assert_eq!(
            got,
            [
                Tuning::Unused,
                Tuning::AtRest,
                Tuning::Raised,
                Tuning::AtTop
            ]
        );
        assert_eq!(Tuning::of(100, 100, 100), Tuning::Off);
    }
}
