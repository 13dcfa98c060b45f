//! The limits of the default policy within what the process may use.
//!
//! ```text
//!   free pages   retain_bytes_min      ≤ a store
//!   barns        barns_bytes_quiet     ≤ a store             (all caches together)
//!                barn_bytes_max        ≤ half a store        (one cache's)
//!   pagesets     pcp_bytes_max         ≤ a store / CPUs      and by the CPU quota
//!   sheaves      sheaf_bytes_max       ≤ a store / CPUs / 64  and by the CPU quota
//!                sheaf_bytes_busy      likewise
//! ```
//!
//! A store is a share of all memory ([`Means::STORE_SHARE`]). Kernel presets have no such limits
//! and stay as published.
#![forbid(unsafe_code)]

use super::FlagstoneLimits;
use crate::base::Means;

/// Sheaves of one CPU that may be full at once when memory is short: two of each of 32 busy
/// caches. Doubling halves the size of sheaves in small containers.
const SHEAVES_PER_CPU: usize = 64;

impl FlagstoneLimits {
    /// The same limits, none above what `means` allow.
    #[must_use]
    pub fn within(&self, means: &Means) -> Self {
        let store = means.store_bytes();
        let each = means.store_bytes_per_cpu();
        let sheaf = means.by_quota(self.sheaf_bytes_max);
        let busy = means.by_quota(self.sheaf_bytes_busy);
        let pageset = means.by_quota(usize::try_from(self.pcp_bytes_max).unwrap_or(usize::MAX));
        Self {
            sheaf_bytes_max: sheaf.min(least(self.sheaf_bytes_max, each / SHEAVES_PER_CPU)),
            sheaf_bytes_busy: busy.min(least(self.sheaf_bytes_busy, each / SHEAVES_PER_CPU)),
            barns_bytes_quiet: self
                .barns_bytes_quiet
                .min(least(self.barns_bytes_quiet, store)),
            barn_bytes_max: self
                .barn_bytes_max
                .min(least(self.barn_bytes_max, store / 2)),
            retain_bytes_min: self.retain_bytes_min.min(store.max(1)),
            pcp_bytes_max: pageset.min(least(pageset, each)) as u64,
            ..*self
        }
    }
}

/// A bound that is set stays set: zero would mean unbounded.
const fn least(limit: usize, bound: usize) -> usize {
    if limit != 0 && bound == 0 { 1 } else { bound }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn within(memory_bytes: usize, cpus: u32, cpus_in_reach: u32) -> FlagstoneLimits {
        FlagstoneLimits::DEFAULT.within(&Means {
            memory_bytes,
            cpus,
            cpus_in_reach,
        })
    }

    #[test]
    fn a_container_of_64_mib_keeps_a_few_mib() {
        let limits = within(64 * MIB, 2, 2);
        assert_eq!(limits.retain_bytes_min, MIB);
        assert_eq!(2 * limits.barn_bytes_max, MIB);
        assert_eq!(limits.barns_bytes_quiet, MIB);
        assert_eq!(2 * limits.pcp_bytes_max, MIB as u64);
        assert_eq!(limits.sheaf_bytes_max, 8 << 10);
        assert_eq!(limits.sheaf_bytes_busy, 8 << 10);
    }

    #[test]
    fn a_machine_with_room_keeps_the_defaults() {
        assert_eq!(within(64 << 30, 16, 16), FlagstoneLimits::DEFAULT);
        assert_eq!(within(896 << 30, 224, 224), FlagstoneLimits::DEFAULT);
        let less = within(16 << 30, 16, 16);
        assert!(less.sheaf_bytes_busy < FlagstoneLimits::DEFAULT.sheaf_bytes_busy);
        assert_eq!(less.pcp_bytes_max, FlagstoneLimits::DEFAULT.pcp_bytes_max);
    }

    #[test]
    fn a_quota_of_two_cpus_among_64_leaves_what_two_would_hold() {
        let limits = within(256 << 30, 2, 64);
        assert_eq!(
            64 * limits.pcp_bytes_max,
            2 * FlagstoneLimits::DEFAULT.pcp_bytes_max
        );
        assert_eq!(
            limits.sheaf_bytes_max,
            FlagstoneLimits::DEFAULT.sheaf_bytes_max / 32
        );
    }

    #[test]
    fn what_is_unbounded_stays_so_and_what_is_bounded_never_becomes_unbounded() {
        let tiny = Means {
            memory_bytes: 1,
            cpus: 1,
            cpus_in_reach: 1,
        };
        assert_eq!(FlagstoneLimits::NONE.within(&tiny), FlagstoneLimits::NONE);
        let limits = FlagstoneLimits::DEFAULT.within(&tiny);
        assert!(limits.sheaf_bytes_max > 0 && limits.barn_bytes_max > 0);
        assert!(limits.sheaf_bytes_busy > 0 && limits.barns_bytes_quiet > 0);
        assert!(limits.retain_bytes_min > 0 && limits.pcp_bytes_max > 0);
    }
}
