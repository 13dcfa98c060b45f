//! The named policies: each base is one kernel, each `+name` one published patch.
//!
//! A name is `base[+modifier]...`; any modifier composes with any base, applied from left to
//! right. The table of bases is the whole difference between kernels, one line per knob.

use super::{PcpVersion, layout, order, sheaf};
use core::fmt;
use flagstone_core::base::Order;
use flagstone_core::policy::{
    BarnLimits, CpuPartialRule, CpuRule, Doubling, Engine, FlagstoneLimits, LargestClass,
    LayoutRule, MaxOrder, MinObjects, MinPartialRule, OrderRule, Policy, Remedies, Returns, Runs,
    SheafRule, SizeClasses, UNCAPPED,
};

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
    ("linux-6.19", "6.19: as 6.18, drains in chunks"),
    ("linux-7.0", "7.0: sheaves for nearly all caches, no cpu slab, drains in chunks"),
    ("linux-7.1", "7.1: as 7.0; barns on nodes without memory, of which no machine here has any"),
    ("linux-7.2", "7.2: as 7.0, but a refill begins with the first slab it took and leaves the rest last"),
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

/// kmalloc since 2.6.30: 8, 16, 32, 64, 96, 128, 192, 256 .. two pages.
pub const KMALLOC: SizeClasses = SizeClasses {
    min_bytes: 8,
    largest: LargestClass::TwoPages,
    steps_per_doubling: 1,
};

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

/// Policies by their names.
pub trait Named: Sized {
    /// The policy of this name: a base and any number of `+modifier`s.
    ///
    /// # Errors
    /// [`NameError`] names the part that is not known; its text lists those that are.
    fn parse(name: &str) -> Result<Self, NameError<'_>>;
}

impl Named for Policy {
    fn parse(name: &str) -> Result<Self, NameError<'_>> {
        let mut parts = name.split('+');
        let start = parts.next().unwrap_or("");
        let mut policy = base(start).ok_or(NameError::Base(start))?;
        for modifier in parts {
            modify(&mut policy, modifier).ok_or(NameError::Modifier(modifier))?;
        }
        Ok(policy)
    }
}

fn base(name: &str) -> Option<Policy> {
    Some(match name {
        "linux-2.6.24" => linux_2_6_24(),
        "slab-2.6.24" => Policy {
            engine: Engine::Slab2007,
            order_rule: order::SLAB,
            layout: layout::SLAB,
            size_classes: SizeClasses {
                min_bytes: 32,
                largest: LargestClass::Bytes(1 << 17),
                steps_per_doubling: 1,
            },
            ..linux_2_6_24()
        },
        "linux-2.6.26" => Policy {
            order_rule: order::A,
            max_order: MaxOrder::Fixed(Order::COSTLY),
            min_objects: MinObjects::ByCpus,
            cpu_rule: CpuRule::Possible,
            size_classes: SizeClasses {
                largest: LargestClass::Page,
                ..KMALLOC
            },
            ..linux_2_6_24()
        },
        "linux-3.16" => Policy {
            cpu_rule: CpuRule::Possible,
            cpu_partial_rule: CpuPartialRule::Objects2011,
            pcp_rule: PcpVersion::Classic.rule(),
            pcp_batch_scale_max: 0,
            ..linux_6_1()
        },
        "linux-6.1" | "linux-6.5" | "linux-6.6" => linux_6_1(),
        "linux-6.7" => linux_6_7(),
        "linux-6.12" => linux_6_12(),
        "linux-6.18" => linux_6_18(),
        "linux-6.19" => Policy {
            pcp_rule: PcpVersion::V6_19.rule(),
            ..linux_6_18()
        },
        "linux-7.0" | "linux-7.1" => linux_7_0(),
        "linux-7.2" => Policy {
            sheaf_rule: sheaf::all(Returns::Tail),
            ..linux_7_0()
        },
        "flagstone" => Policy::flagstone(),
        _ => return None,
    })
}

/// Applies one modifier; `None` if there is none of this name.
fn modify(policy: &mut Policy, name: &str) -> Option<()> {
    match name {
        "dynamic-min-partial" => policy.min_partial_rule = MinPartialRule::Log2,
        "defer-contended-free" => policy.remedies.defer_free = true,
        "avoid-contended-slab" => policy.remedies.avoid_contended = true,
        "order4" => {
            policy.runs = Runs::ByOrder;
            policy.max_order = MaxOrder::Fixed(Order::new(4)?);
            policy.big_system = Doubling::From32Cpus;
        }
        "least-waste" => fix_order(policy, order::LEAST_WASTE),
        "least-waste-repaired" => fix_order(policy, order::LEAST_WASTE_REPAIRED),
        _ => {
            let rule = match name.strip_prefix("pcp")? {
                "1" => PcpVersion::Series1,
                "2" => PcpVersion::Series2,
                "3" => PcpVersion::Series3,
                "4" => PcpVersion::Series4,
                "5" => PcpVersion::Series5,
                "6" => PcpVersion::Series6,
                "7" => PcpVersion::Series7,
                "8" => PcpVersion::Series8,
                "9" => PcpVersion::Series9,
                _ => return None,
            };
            policy.pcp_rule = rule.rule();
            policy.pcp_batch_scale_max = rule.default_scale_max();
        }
    }
    Some(())
}

/// One order per cache by `rule`, whatever the base did.
const fn fix_order(policy: &mut Policy, rule: OrderRule) {
    policy.runs = Runs::ByOrder;
    policy.order_rule = rule;
}

/// docs: linux-policies 1.3, 3, 4.1.
const fn linux_2_6_24() -> Policy {
    Policy {
        engine: Engine::CpuSlab2007,
        order_rule: order::A0,
        min_order: Order::ZERO,
        max_order: MaxOrder::ByPage2007,
        min_objects: MinObjects::ByPage2007,
        cpu_rule: CpuRule::Ignored,
        big_system: Doubling::Never,
        runs: Runs::ByOrder,
        layout: layout::V2007,
        cpu_partial_rule: CpuPartialRule::None,
        cpu_partial_set: None,
        cpu_partial_frozen: false,
        min_partial_rule: MinPartialRule::Constant(5),
        remedies: Remedies::NONE,
        sheaf_rule: SheafRule::None,
        sheaf_capacity_set: None,
        barn: BarnLimits::NONE,
        pcp_rule: PcpVersion::Classic.rule(),
        pcp_batch_scale_max: 0,
        pcp_high_fraction: 0,
        pcp_batch_set: None,
        pcp_high_min_set: None,
        pcp_high_max_set: None,
        size_classes: SizeClasses {
            largest: LargestClass::HalfPage,
            ..KMALLOC
        },
        limits: FlagstoneLimits::NONE,
    }
}

/// docs: linux-policies 1.4, 2, 3, 4.2 (model A2), 6.3.
const fn linux_6_1() -> Policy {
    Policy {
        engine: Engine::CpuSlab,
        order_rule: order::A,
        max_order: MaxOrder::Fixed(Order::COSTLY),
        min_objects: MinObjects::ByCpus,
        cpu_rule: CpuRule::PresentOrPossible,
        layout: layout::V2020,
        cpu_partial_rule: CpuPartialRule::Slabs2021,
        cpu_partial_frozen: true,
        min_partial_rule: MinPartialRule::HalfLog2,
        pcp_rule: PcpVersion::V6_1.rule(),
        pcp_batch_scale_max: UNCAPPED,
        size_classes: KMALLOC,
        ..linux_2_6_24()
    }
}

/// docs: linux-policies 1.5, 6.4.
const fn linux_6_7() -> Policy {
    Policy {
        order_rule: OrderRule::B,
        pcp_rule: PcpVersion::V6_7.rule(),
        pcp_batch_scale_max: 5,
        ..linux_6_1()
    }
}

/// docs: linux-policies 4.2 (model A3).
const fn linux_6_12() -> Policy {
    Policy {
        cpu_partial_frozen: false,
        layout: layout::V2024,
        ..linux_6_7()
    }
}

/// docs: linux-policies 5.6 (model B0), 6.5.
const fn linux_6_18() -> Policy {
    Policy {
        sheaf_rule: SheafRule::OptIn,
        barn: BarnLimits::KERNEL,
        pcp_rule: PcpVersion::V6_16.rule(),
        ..linux_6_12()
    }
}

/// docs: linux-policies 5 (model B1), 6.5.
const fn linux_7_0() -> Policy {
    Policy {
        engine: Engine::KernelSheaf,
        layout: LayoutRule::DEFAULT,
        cpu_partial_rule: CpuPartialRule::None,
        sheaf_rule: sheaf::all(Returns::Head),
        barn: BarnLimits::KERNEL,
        pcp_rule: PcpVersion::V6_19.rule(),
        ..linux_6_12()
    }
}

#[cfg(test)]
#[path = "presets_tests.rs"]
mod tests;
