//! What a process may use of its machine, as far as it bounds what is worth caching.
#![forbid(unsafe_code)]

/// Memory and CPUs of a process: its container's, or the machine's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Means {
    /// Bytes of memory it may use in all.
    pub memory_bytes: usize,
    /// CPUs it may keep busy: a quota, rounded up.
    pub cpus: u32,
    /// CPUs it may run on; at least `cpus`. Under a quota threads wander over all of them.
    pub cpus_in_reach: u32,
}

impl Means {
    /// A store of free memory may hold this part of all memory: a sixty-fourth.
    ///
    /// Why: there are four stores (free pages, pagesets, barns, sheaves), so a 64 MiB container
    /// has 4 MiB in them at most, and from 512 MiB for each CPU on no default is touched. Halving
    /// the divisor doubles what an idle program keeps in a small container.
    pub const STORE_SHARE: usize = 64;

    /// Most bytes one store may hold, all CPUs and nodes together.
    #[must_use]
    pub const fn store_bytes(&self) -> usize {
        self.memory_bytes / Self::STORE_SHARE
    }

    /// Most bytes one CPU's part of a store may hold.
    #[must_use]
    pub const fn store_bytes_per_cpu(&self) -> usize {
        self.store_bytes() / max(self.cpus_in_reach, 1)
    }

    /// What one CPU may hold where each could hold `bytes` without a quota: together no more than
    /// the CPUs of the quota would.
    #[must_use]
    pub const fn by_quota(&self, bytes: usize) -> usize {
        if self.cpus >= self.cpus_in_reach {
            return bytes;
        }
        bytes / self.cpus_in_reach as usize * max(self.cpus, 1)
    }
}

const fn max(left: u32, right: u32) -> usize {
    if left > right {
        left as usize
    } else {
        right as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_divides_what_the_cpus_in_reach_may_hold_together() {
        let means = Means {
            memory_bytes: 1 << 30,
            cpus: 2,
            cpus_in_reach: 64,
        };
        assert_eq!(64 * means.by_quota(8 << 20), 2 * (8 << 20));
        assert_eq!(64 * means.store_bytes_per_cpu(), 16 << 20);
        let free = Means { cpus: 64, ..means };
        assert_eq!(free.by_quota(8 << 20), 8 << 20);
    }

    #[test]
    fn no_cpus_at_all_divide_nothing_by_zero() {
        let means = Means {
            memory_bytes: 64 << 20,
            cpus: 0,
            cpus_in_reach: 0,
        };
        assert_eq!(means.store_bytes_per_cpu(), 1 << 20);
        assert_eq!(means.by_quota(100), 100);
    }
}
