//! The named policies: each base is one kernel, each `+name` one published patch.
//!
//! A name is `base[+modifier]...`; any modifier composes with any base, applied from left to
//! right. The table of bases is the whole difference between kernels, one line per knob.
#![forbid(unsafe_code)]

use super::classes::{LargestClass, SizeClasses};
use super::cpus::CpuRule;
use super::layout::LayoutRule;
use super::order::OrderRule;
use super::partial::{CpuPartialRule, MinPartialRule};
use super::pcp_rule::PcpRule;
use super::remedies::Remedies;
use super::runs::RunRule;
use super::sheaf::{BarnLimits, SheafRule};
use super::{Doubling, Engine, FlagstoneLimits, MaxOrder, MinObjects, Policy};
use crate::base::Order;
use core::fmt;

/// Every base policy, oldest first, with the kernels it stands for.
#[rustfmt::skip] // One line each.
pub const BASES: &[(&str, &str)] = &[
    ("linux-2.6.24", "SLUB of 2.6.24: a lock per slab, order rule a0, min_partial 5"),
    ("slab-2.6.24", "SLAB of 2.6.24: per-CPU arrays, shared array, three slab lists"),
    ("linux-2.6.26", "SLUB of 2.6.26: order rule a by possible CPUs, min_partial 5"),
    ("linux-3.16", "3.16: order rule a by possible CPUs, cpu partial lists counted in objects"),
    ("linux-6.1", "6.1: order rule a by present CPUs, cpu partial lists counted in slabs"),
    ("linux-6.5", "6.5: the base of the order-4 patch; as 6.1"),
    ("linux-6.6", "6.6: the base of the pageset series; as 6.1"),
    ("linux-6.7", "6.7: order rule b, pageset high auto-tuning"),
    ("linux-6.12", "6.12: cpu partial slabs no longer frozen, natural kmalloc alignment"),
    ("linux-6.18", "6.18: opt-in sheaves, longer wait before high-order drains"),
    ("linux-7.0", "7.0: sheaves for nearly all caches, no cpu slab, drains in chunks"),
    ("flagstone", "the default: sheaves bounded by bytes, order at most 3, bounded pagesets"),
];

/// Every modifier, with what it stands for.
#[rustfmt::skip] // One line each.
pub const MODIFIERS: &[(&str, &str)] = &[
    ("dynamic-min-partial", "2008: min_partial is the logarithm of the size, 5 to 10"),
    ("defer-contended-free", "2007: a free that meets contention on its slab waits for a batch"),
    ("avoid-contended-slab", "2007: no allocation from a slab that frees contend for"),
    ("order4", "2023: largest slab order 4; on 32 CPUs and more twice the objects wanted and kept"),
    ("least-waste", "2023: the order with the smallest tail, as published"),
    ("least-waste-repaired", "the same, serving objects larger than the largest slab order too"),
    ("pcp1", "2023: only consecutive high-order frees drain the pageset"),
    ("pcp2", "pcp1 and the CPUs' cache slices known"),
    ("pcp3", "pcp2 and high-order drains waiting for a batch where the cache is large"),
    ("pcp4", "pcp3 and the doubling of drains capped"),
    ("pcp5", "pcp4 and doubling refills"),
    ("pcp6", "pcp5 and two marks, high_min and high_max"),
    ("pcp7", "pcp6 and high tuned between them"),
    ("pcp8", "pcp7 and shrinking below the zone's high watermark"),
    ("pcp9", "pcp8 and frees counted: the whole series as merged for 6.7"),
];

/// A policy name that could not be understood.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NameError<'a> {
    /// The part before the first `+` is no known base.
    Base(&'a str),
    /// A part after a `+` is no known modifier.
    Modifier(&'a str),
}

impl fmt::Display for NameError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, name, known) = match *self {
            Self::Base(name) => ("policy", name, BASES),
            Self::Modifier(name) => ("policy modifier", name, MODIFIERS),
        };
        write!(f, "unknown {kind} '{name}'; known: ")?;
        for (index, (name, _)) in known.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            let plus = if matches!(self, Self::Modifier(_)) {
                "+"
            } else {
                ""
            };
            write!(f, "{separator}{plus}{name}")?;
        }
        if matches!(self, Self::Base(_)) {
            f.write_str("; each may be followed by ")?;
            for (index, (name, _)) in MODIFIERS.iter().enumerate() {
                write!(f, "{}+{name}", if index == 0 { "" } else { ", " })?;
            }
        }
        Ok(())
    }
}

impl core::error::Error for NameError<'_> {}

impl Policy {
    /// The policy of this name: a base and any number of `+modifier`s.
    ///
    /// # Errors
    /// [`NameError`] names the part that is not known; its text lists those that are.
    pub fn parse(name: &str) -> Result<Self, NameError<'_>> {
        let mut parts = name.split('+');
        let base = parts.next().unwrap_or("");
        let mut policy = Self::base(base).ok_or(NameError::Base(base))?;
        for modifier in parts {
            policy
                .modify(modifier)
                .ok_or(NameError::Modifier(modifier))?;
        }
        Ok(policy)
    }

    fn base(name: &str) -> Option<Self> {
        Some(match name {
            "linux-2.6.24" => Self::linux_2_6_24(),
            "slab-2.6.24" => Self {
                engine: Engine::Slab2007,
                order_rule: OrderRule::Slab2007,
                layout: LayoutRule::Slab2007,
                size_classes: SizeClasses {
                    min_bytes: 32,
                    largest: LargestClass::Bytes(1 << 17),
                    steps_per_doubling: 1,
                },
                ..Self::linux_2_6_24()
            },
            "linux-2.6.26" => Self {
                order_rule: OrderRule::A,
                max_order: MaxOrder::Fixed(Order::COSTLY),
                min_objects: MinObjects::ByCpus,
                cpu_rule: CpuRule::Possible,
                size_classes: SizeClasses {
                    largest: LargestClass::Page,
                    ..SizeClasses::KMALLOC
                },
                ..Self::linux_2_6_24()
            },
            "linux-3.16" => Self {
                cpu_rule: CpuRule::Possible,
                cpu_partial_rule: CpuPartialRule::Objects2011,
                pcp_rule: PcpRule::Classic,
                pcp_batch_scale_max: 0,
                ..Self::linux_6_1()
            },
            "linux-6.1" | "linux-6.5" | "linux-6.6" => Self::linux_6_1(),
            "linux-6.7" => Self::linux_6_7(),
            "linux-6.12" => Self::linux_6_12(),
            "linux-6.18" => Self {
                sheaf_rule: SheafRule::OptIn,
                barn: BarnLimits::KERNEL,
                pcp_rule: PcpRule::V6_16,
                ..Self::linux_6_12()
            },
            "linux-7.0" => Self::linux_7_0(),
            "flagstone" => Self::flagstone(),
            _ => return None,
        })
    }

    /// Applies one modifier; `None` if there is none of this name.
    fn modify(&mut self, name: &str) -> Option<()> {
        match name {
            "dynamic-min-partial" => self.min_partial_rule = MinPartialRule::Log2,
            "defer-contended-free" => self.remedies.defer_free = true,
            "avoid-contended-slab" => self.remedies.avoid_contended = true,
            "order4" => {
                self.runs = None;
                self.max_order = MaxOrder::Fixed(Order::new(4)?);
                self.big_system = Doubling::From32Cpus;
            }
            "least-waste" => self.fix_order(OrderRule::LeastWaste),
            "least-waste-repaired" => self.fix_order(OrderRule::LeastWasteRepaired),
            _ => {
                let rule = match name.strip_prefix("pcp")? {
                    "1" => PcpRule::Series1,
                    "2" => PcpRule::Series2,
                    "3" => PcpRule::Series3,
                    "4" => PcpRule::Series4,
                    "5" => PcpRule::Series5,
                    "6" => PcpRule::Series6,
                    "7" => PcpRule::Series7,
                    "8" => PcpRule::Series8,
                    "9" => PcpRule::Series9,
                    _ => return None,
                };
                self.pcp_rule = rule;
                self.pcp_batch_scale_max = rule.default_scale_max();
            }
        }
        Some(())
    }

    /// One order per cache by `rule`, whatever the base did.
    const fn fix_order(&mut self, rule: OrderRule) {
        self.runs = None;
        self.order_rule = rule;
    }

    /// docs: linux-policies 1.3, 3, 4.1.
    const fn linux_2_6_24() -> Self {
        Self {
            engine: Engine::CpuSlab2007,
            order_rule: OrderRule::A0,
            min_order: Order::ZERO,
            max_order: MaxOrder::ByPage2007,
            min_objects: MinObjects::ByPage2007,
            cpu_rule: CpuRule::Ignored,
            big_system: Doubling::Never,
            runs: None,
            layout: LayoutRule::V2007,
            cpu_partial_rule: CpuPartialRule::None,
            cpu_partial_set: None,
            cpu_partial_frozen: false,
            min_partial_rule: MinPartialRule::Constant(5),
            remedies: Remedies::NONE,
            sheaf_rule: SheafRule::None,
            sheaf_capacity_set: None,
            barn: BarnLimits::NONE,
            pcp_rule: PcpRule::Classic,
            pcp_batch_scale_max: 0,
            pcp_high_fraction: 0,
            pcp_batch_set: None,
            pcp_high_min_set: None,
            pcp_high_max_set: None,
            size_classes: SizeClasses {
                largest: LargestClass::HalfPage,
                ..SizeClasses::KMALLOC
            },
            limits: FlagstoneLimits::NONE,
        }
    }

    /// docs: linux-policies 1.4, 2, 3, 4.2 (model A2), 6.3.
    const fn linux_6_1() -> Self {
        Self {
            engine: Engine::CpuSlab,
            order_rule: OrderRule::A,
            max_order: MaxOrder::Fixed(Order::COSTLY),
            min_objects: MinObjects::ByCpus,
            cpu_rule: CpuRule::PresentOrPossible,
            layout: LayoutRule::V2020,
            cpu_partial_rule: CpuPartialRule::Slabs2021,
            cpu_partial_frozen: true,
            min_partial_rule: MinPartialRule::HalfLog2,
            pcp_rule: PcpRule::V6_1,
            pcp_batch_scale_max: super::pcp_rule::UNCAPPED,
            size_classes: SizeClasses::KMALLOC,
            ..Self::linux_2_6_24()
        }
    }

    /// docs: linux-policies 1.5, 6.4.
    const fn linux_6_7() -> Self {
        Self {
            order_rule: OrderRule::B,
            pcp_rule: PcpRule::V6_7,
            pcp_batch_scale_max: 5,
            ..Self::linux_6_1()
        }
    }

    /// docs: linux-policies 4.2 (model A3).
    const fn linux_6_12() -> Self {
        Self {
            cpu_partial_frozen: false,
            layout: LayoutRule::V2024,
            ..Self::linux_6_7()
        }
    }

    /// docs: linux-policies 5 (model B1), 6.5.
    const fn linux_7_0() -> Self {
        Self {
            engine: Engine::KernelSheaf,
            layout: LayoutRule::V2026,
            cpu_partial_rule: CpuPartialRule::None,
            sheaf_rule: SheafRule::All,
            barn: BarnLimits::KERNEL,
            pcp_rule: PcpRule::V6_19,
            ..Self::linux_6_12()
        }
    }

    /// The product's own default: `linux-7.0`'s shape with every parked byte bounded.
    #[must_use]
    pub const fn flagstone() -> Self {
        Self {
            engine: Engine::Sheaf,
            runs: Some(RunRule::DEFAULT),
            sheaf_rule: SheafRule::Bytes,
            pcp_rule: PcpRule::Flagstone,
            pcp_batch_scale_max: 2,
            size_classes: SizeClasses::EIGHTHS,
            limits: FlagstoneLimits::DEFAULT,
            ..Self::linux_7_0()
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::flagstone()
    }
}

#[cfg(test)]
#[path = "presets_tests.rs"]
mod tests;
