//! Overrides by name: the kernel's boot parameters, its sysfs files, and flagstone's own bounds.
#![forbid(unsafe_code)]

use super::partial::MinPartialRule;
use super::{MaxOrder, MinObjects, Policy, Runs};
use crate::base::Order;
use core::fmt;

/// Every key [`Policy::set`] takes, with its meaning and unit. The older spellings `slub_*` of
/// the first three are accepted too.
#[rustfmt::skip] // One line each.
pub const KEYS: &[(&str, &str)] = &[
    ("slab_max_order", "largest slab order, 0 to 10"),
    ("slab_min_order", "smallest slab order, 0 to 10"),
    ("slab_min_objects", "objects wanted per slab; 0 returns to the rule by CPUs"),
    ("cpu_partial", "objects on a per-CPU partial list, every cache"),
    ("min_partial", "slabs kept on a node's partial list, every cache"),
    ("sheaf_capacity", "objects per sheaf, every cache"),
    ("check", "1: no sheaves: every double free is noticed at once, even if the block was written to; slow"),
    ("barn_full", "full sheaves per barn"),
    ("barn_empty", "empty sheaves per barn"),
    ("percpu_pagelist_high_fraction", "0, or at least 8: fixes the pageset marks"),
    ("pcp_batch", "pages per pageset refill or drain"),
    ("pcp_high_min", "pages, lower pageset mark"),
    ("pcp_high_max", "pages, upper pageset mark"),
    ("pcp_batch_scale_max", "doublings of a batch, 0 to 6"),
    ("pcp_bytes_max", "bytes per CPU and zone in pagesets; 0 is unbounded"),
    ("sheaf_capacity_max", "most objects per sheaf; 0 is unbounded"),
    ("sheaf_bytes_max", "most bytes per sheaf; 0 is unbounded"),
    ("sheaf_bytes_busy", "the same where objects go round between CPUs"),
    ("sheaf_spread", "a sheaf may have one slot in so many fewer, each another number; 0: all are alike"),
    ("barn_bytes_max", "most bytes in a barn's full sheaves; 0 is unbounded"),
    ("barns_bytes_quiet", "bytes that the barns of all caches may hold; more only as a sixteenth of what is in use"),
    ("retain_bytes_min", "least bytes that free pages, barns, kept huge blocks and sheaves may hold together; above, memory goes back as far as the allowance pays (ADR 0036)"),
    ("retain_share", "the same as a divisor of the bytes in use; 0 is none. Nothing else is kept for later, but pagesets (`pcp_bytes_max`)"),
];

/// Why an override was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetProblem {
    /// No knob of this name.
    UnknownKey,
    /// The value is not a whole number.
    NotANumber,
    /// The value lies outside what the knob takes.
    OutOfRange {
        /// Smallest value.
        min: u64,
        /// Largest value.
        max: u64,
    },
    /// A fraction must be 0 or at least 8.
    Fraction,
}

/// A refused override: what, and what to write instead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SetError<'a> {
    /// The key as given.
    pub key: &'a str,
    /// The value as given.
    pub value: &'a str,
    /// What is wrong with it.
    pub problem: SetProblem,
}

impl fmt::Display for SetError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            key,
            value,
            problem,
        } = self;
        match problem {
            SetProblem::UnknownKey => {
                write!(f, "unknown setting '{key}'; known: ")?;
                for (index, (name, _)) in KEYS.iter().enumerate() {
                    write!(f, "{}{name}", if index == 0 { "" } else { ", " })?;
                }
                Ok(())
            }
            SetProblem::NotANumber => {
                write!(f, "setting {key}={value}: the value must be a whole number")
            }
            SetProblem::OutOfRange { min, max } => {
                write!(
                    f,
                    "setting {key}={value}: the value must be from {min} to {max}"
                )
            }
            SetProblem::Fraction => {
                write!(
                    f,
                    "setting {key}={value}: the fraction must be 0 or at least 8"
                )
            }
        }
    }
}

impl core::error::Error for SetError<'_> {}

const U32: u64 = u32::MAX as u64;
/// Pages: marks stay below 2^31 so that sums of two never wrap.
const PAGES: u64 = i32::MAX as u64;

impl Policy {
    /// Overrides one knob: `key` from [`KEYS`], `value` a whole number.
    ///
    /// As at boot, raising the smallest order above the largest raises the largest with it, and
    /// lowering the largest below the smallest lowers the smallest (docs: linux-policies 9).
    /// A fixed order also ends slabs by population, as those have no one order.
    ///
    /// # Errors
    /// [`SetError`] says which key or value was refused and what would be accepted.
    pub fn set<'a>(&mut self, key: &'a str, value: &'a str) -> Result<(), SetError<'a>> {
        let refuse = |problem| SetError {
            key,
            value,
            problem,
        };
        let ranged = |min: u64, max: u64| {
            let number: u64 = value.parse().map_err(|_| refuse(SetProblem::NotANumber))?;
            if (min..=max).contains(&number) {
                Ok(number)
            } else {
                Err(refuse(SetProblem::OutOfRange { min, max }))
            }
        };
        let order = || {
            let number = ranged(0, u64::from(Order::MAX.get()))?;
            Ok(Order::new(number as u32).unwrap_or(Order::MAX))
        };
        let small = |max: u64| ranged(0, max).map(|number| number as u32);
        let bytes = || ranged(0, isize::MAX as u64);
        match key {
            "slab_max_order" | "slub_max_order" => {
                let order = order()?;
                self.runs = Runs::ByOrder;
                self.max_order = MaxOrder::Fixed(order);
                self.min_order = self.min_order.min(order);
            }
            "slab_min_order" | "slub_min_order" => {
                let order = order()?;
                self.runs = Runs::ByOrder;
                self.min_order = order;
                if let MaxOrder::Fixed(max) = self.max_order {
                    self.max_order = MaxOrder::Fixed(max.max(order));
                }
            }
            "slab_min_objects" | "slub_min_objects" => {
                self.min_objects = match small(U32)? {
                    0 => MinObjects::ByCpus,
                    objects => MinObjects::Fixed(objects),
                };
            }
            "cpu_partial" => self.cpu_partial_set = Some(small(PAGES)?),
            "min_partial" => self.min_partial_rule = MinPartialRule::Constant(small(U32)?),
            "sheaf_capacity" => self.sheaf_capacity_set = Some(small(1 << 16)?),
            "check" => {
                if small(1)? == 1 {
                    self.sheaf_capacity_set = Some(0);
                }
            }
            "barn_full" => self.barn.full = small(U32)?,
            "barn_empty" => self.barn.empty = small(U32)?,
            "percpu_pagelist_high_fraction" => {
                let fraction = small(U32)?;
                if (1..8).contains(&fraction) {
                    return Err(refuse(SetProblem::Fraction));
                }
                self.pcp_high_fraction = fraction;
            }
            "pcp_batch" => self.pcp_batch_set = Some(ranged(1, 1 << 20)? as u32),
            "pcp_high_min" => self.pcp_high_min_set = Some(small(PAGES)?),
            "pcp_high_max" => self.pcp_high_max_set = Some(small(PAGES)?),
            "pcp_batch_scale_max" => self.pcp_batch_scale_max = small(6)? as u8,
            "pcp_bytes_max" => self.limits.pcp_bytes_max = bytes()?,
            "sheaf_capacity_max" => self.limits.sheaf_capacity_max = small(1 << 16)?,
            "sheaf_bytes_max" => self.limits.sheaf_bytes_max = bytes()? as usize,
            "sheaf_bytes_busy" => self.limits.sheaf_bytes_busy = bytes()? as usize,
            "sheaf_spread" => self.limits.sheaf_spread = small(1 << 16)?,
            "barn_bytes_max" => self.limits.barn_bytes_max = bytes()? as usize,
            "barns_bytes_quiet" => self.limits.barns_bytes_quiet = bytes()? as usize,
            "retain_bytes_min" => self.limits.retain_bytes_min = bytes()? as usize,
            "retain_share" => self.limits.retain_share = small(U32)?,
            _ => return Err(refuse(SetProblem::UnknownKey)),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::PageSize;
    use crate::policy::for_tests::plain;
    use crate::policy::{Cpus, PcpZone};
    use std::string::ToString;

    fn with(mut policy: Policy, settings: &[(&str, &str)]) -> Policy {
        for (key, value) in settings {
            policy.set(key, value).unwrap();
        }
        policy
    }

    #[test]
    fn every_listed_key_is_accepted_and_changes_the_policy() {
        for (key, _) in KEYS {
            let before = Policy::default();
            // 16 suits every knob but the two with narrower ranges.
            let value = match *key {
                "pcp_batch_scale_max" => "6",
                "check" => "1",
                key if key.ends_with("_order") => "4",
                _ => "17",
            };
            let after = with(Policy::default(), &[(key, value)]);
            assert_ne!(before, after, "{key} changed nothing");
        }
    }

    #[test]
    fn old_and_new_spellings_of_the_boot_parameters_agree() {
        for name in ["max_order", "min_order", "min_objects"] {
            let (old, new) = (std::format!("slub_{name}"), std::format!("slab_{name}"));
            assert_eq!(with(plain(), &[(&old, "2")]), with(plain(), &[(&new, "2")]));
        }
    }

    #[test]
    fn the_order_limits_drag_each_other_along() {
        let raised = with(plain(), &[("slab_min_order", "5")]);
        assert_eq!(raised.max_order(PageSize::K4).get(), 5);
        let lowered = with(plain(), &[("slab_min_order", "2"), ("slab_max_order", "1")]);
        assert_eq!(lowered.min_order.get(), 1);
        let shape = lowered.slab_shape(64, PageSize::K4, Cpus::new(2)).unwrap();
        assert_eq!(shape.order.get(), 1);
    }

    #[test]
    fn a_refused_setting_says_what_would_be_accepted() {
        let mut policy = Policy::default();
        let text = |result: Result<(), SetError<'_>>| result.unwrap_err().to_string();
        assert!(text(policy.set("slab_max_odor", "3")).contains("known: slab_max_order"));
        assert_eq!(
            text(policy.set("slab_max_order", "11")),
            "setting slab_max_order=11: the value must be from 0 to 10"
        );
        assert_eq!(
            text(policy.set("cpu_partial", "-1")),
            "setting cpu_partial=-1: the value must be a whole number"
        );
        assert!(text(policy.set("percpu_pagelist_high_fraction", "7")).ends_with("at least 8"));
        assert_eq!(
            policy,
            Policy::default(),
            "a refused setting changes nothing"
        );
    }

    #[test]
    fn pageset_marks_follow_their_settings() {
        let zone = PcpZone {
            managed: 1_000_000,
            low: 10_000,
            cpus: 4,
            high_fraction: 0,
            page_size: PageSize::K4,
        };
        let fixed = with(plain(), &[("percpu_pagelist_high_fraction", "8")]).pcp_marks(&zone);
        assert_eq!((fixed.high_min, fixed.high_max), (31_250, 31_250));
        let by_hand = with(plain(), &[("pcp_batch", "7"), ("pcp_high_min", "100")]);
        let marks = by_hand.pcp_marks(&zone);
        assert_eq!(
            (marks.batch, marks.high_min, marks.high_max),
            (7, 100, 31_250)
        );
    }
}
