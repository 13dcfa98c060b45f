//! Policies that tests of the layers run under, besides the default.

use super::{
    BarnLimits, FlagstoneLimits, LargestClass, PcpRule, Policy, SheafRule, SizeClasses, SizeSteps,
};

/// Names of [`named`] that the sheaf engine serves with more than the default does.
pub(crate) const SHEAVES: [&str; 3] = ["flagstone", "plain", "bare"];

/// The policy that tests call `name`.
pub(crate) fn named(name: &str) -> Policy {
    match name {
        "flagstone" => Policy::default(),
        "plain" => plain(),
        "bare" => Policy {
            sheaf_rule: SheafRule::OptIn,
            ..plain()
        },
        _ => panic!("no policy of tests: {name}"),
    }
}

/// As a kernel would: one order for a cache, sheaves by size, a few classes, nothing bounded by bytes.
pub(crate) fn plain() -> Policy {
    Policy {
        runs: None,
        sheaf_rule: SheafRule::BySize(SizeSteps {
            page: 4,
            kib: 12,
            quarter: 28,
            small: 60,
        }),
        barn: BarnLimits::KERNEL,
        pcp_rule: PcpRule::V6_7,
        pcp_batch_scale_max: 5,
        size_classes: SizeClasses {
            min_bytes: 8,
            largest: LargestClass::TwoPages,
            steps_per_doubling: 1,
        },
        limits: FlagstoneLimits::NONE,
        ..Policy::default()
    }
}
