//! The default policy.
#![forbid(unsafe_code)]

use super::{
    BarnLimits, CpuPartialRule, CpuRule, Doubling, Engine, FlagstoneLimits, LayoutRule, MaxOrder,
    MinObjects, MinPartialRule, OrderRule, PcpRule, Policy, Remedies, Runs, SheafRule, SizeClasses,
};
use crate::base::Order;

impl Policy {
    /// The product's own: the shape of Linux 7.0 with every parked byte bounded.
    #[must_use]
    pub const fn flagstone() -> Self {
        Self {
            engine: Engine::Sheaf,
            order_rule: OrderRule::B,
            min_order: Order::ZERO,
            max_order: MaxOrder::Fixed(Order::COSTLY),
            min_objects: MinObjects::ByCpus,
            cpu_rule: CpuRule::PresentOrPossible,
            big_system: Doubling::Never,
            runs: Runs::ByPopulation,
            layout: LayoutRule::DEFAULT,
            cpu_partial_rule: CpuPartialRule::None,
            cpu_partial_set: None,
            cpu_partial_frozen: false,
            min_partial_rule: MinPartialRule::HalfLog2,
            remedies: Remedies::NONE,
            sheaf_rule: SheafRule::Bytes,
            sheaf_capacity_set: None,
            barn: BarnLimits::KERNEL,
            pcp_rule: PcpRule::FLAGSTONE,
            pcp_batch_scale_max: 2,
            pcp_high_fraction: 0,
            pcp_batch_set: None,
            pcp_high_min_set: None,
            pcp_high_max_set: None,
            size_classes: SizeClasses::EIGHTHS,
            limits: FlagstoneLimits::DEFAULT,
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::flagstone()
    }
}
