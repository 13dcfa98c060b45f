//! Policies that tests of the layers run under, besides the default.

use super::{
    BarnLimits, FlagstoneLimits, LargestClass, Policy, Returns, Runs, SheafRule, SizeClasses,
    SizeSteps,
};

/// Powers of two with 96 and 192 between them, up to two pages.
pub(crate) const POWERS: SizeClasses = SizeClasses {
    min_bytes: 8,
    largest: LargestClass::TwoPages,
    steps_per_doubling: 1,
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
        runs: Runs::ByOrder,
        sheaf_rule: SheafRule::BySize(
            SizeSteps {
                page: 4,
                kib: 12,
                quarter: 28,
                small: 60,
            },
            Returns::Head,
        ),
        barn: BarnLimits::KERNEL,
        pcp_batch_scale_max: 5,
        size_classes: POWERS,
        limits: FlagstoneLimits::NONE,
        ..Policy::default()
    }
}
