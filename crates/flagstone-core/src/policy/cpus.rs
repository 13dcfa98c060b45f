//! How many CPUs a rule believes the machine has.
//!
//! A kernel knows three counts (possible, present, online) and its versions disagree about which
//! one a slab's size should follow (docs: linux-policies 1.2). The value is sampled when a cache
//! is created; hotplug later changes nothing.
#![forbid(unsafe_code)]

/// The CPU counts of one machine; each at least 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cpus {
    /// CPUs that could ever exist here (`nr_cpu_ids`).
    pub possible: u32,
    /// CPUs plugged in (`num_present_cpus`).
    pub present: u32,
    /// CPUs running when the caches are created.
    pub online: u32,
}

impl Cpus {
    /// A machine whose possible, present and online counts agree; 0 is taken as 1.
    #[must_use]
    pub const fn new(count: u32) -> Self {
        let count = if count == 0 { 1 } else { count };
        Self {
            possible: count,
            present: count,
            online: count,
        }
    }
}

/// Which count a kernel's `min_objects` follows (docs: linux-policies 1.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CpuRule {
    /// No CPU term at all: 2.6.24.
    Ignored,
    /// Possible CPUs: 2.6.26 to 5.10.
    Possible,
    /// Online CPUs: 5.11-rc1 to rc7 only; early caches saw one CPU and got small slabs.
    Online,
    /// Present CPUs, or possible ones if only one is present: 5.11 and later.
    PresentOrPossible,
}

impl CpuRule {
    /// The count this rule uses.
    #[must_use]
    pub const fn count(self, cpus: Cpus) -> u32 {
        match self {
            Self::Ignored => 1,
            Self::Possible => cpus.possible,
            Self::Online => cpus.online,
            Self::PresentOrPossible if cpus.present <= 1 => cpus.possible,
            Self::PresentOrPossible => cpus.present,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_present_cpu_is_not_believed() {
        let hotplug = Cpus {
            possible: 64,
            present: 1,
            online: 1,
        };
        assert_eq!(CpuRule::PresentOrPossible.count(hotplug), 64);
        let roomy = Cpus {
            possible: 16,
            ..Cpus::new(2)
        };
        assert_eq!(CpuRule::PresentOrPossible.count(roomy), 2);
        assert_eq!(CpuRule::Possible.count(roomy), 16);
        assert_eq!(CpuRule::Online.count(hotplug), 1);
    }
}
