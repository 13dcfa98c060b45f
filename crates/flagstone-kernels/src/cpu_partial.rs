//! How many slabs a CPU keeps on its list of partial slabs (docs: linux-policies 2).

use flagstone_core::base::PageSize;
use flagstone_core::policy::{CpuPartialRule, Cpus, Policy};

/// The limit of one cache's per-CPU partial list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CpuPartial {
    /// Objects, the number a kernel shows in sysfs.
    pub objects: u32,
    /// Slabs, the number 5.16 and later act on; assumes slabs are half full.
    pub slabs: u32,
}

impl CpuPartial {
    /// The limit of `objects`, for slabs of `objects_per_slab`.
    #[must_use]
    pub const fn from_objects(objects: u32, objects_per_slab: u32) -> Self {
        let per_slab = if objects_per_slab == 0 {
            1
        } else {
            objects_per_slab
        };
        Self {
            objects,
            slabs: (2 * objects).div_ceil(per_slab),
        }
    }
}

/// Objects for a stride of `size` bytes, or `None` where the rule keeps no such list.
const fn objects_by_rule(rule: CpuPartialRule, size: usize, page_size: PageSize) -> Option<u32> {
    let by_size: [u32; 4] = match rule {
        CpuPartialRule::None => return None,
        CpuPartialRule::Objects2011 => [2, 6, 13, 30],
        CpuPartialRule::Slabs2021 => [6, 24, 52, 120],
    };
    Some(if size >= page_size.bytes() {
        by_size[0]
    } else if size >= 1024 {
        by_size[1]
    } else if size >= 256 {
        by_size[2]
    } else {
        by_size[3]
    })
}

/// The limit of a cache's per-CPU partial list for stride `size` with `objects` per slab, or `None`
/// where the policy keeps no such list. Debugged caches use 0 instead.
#[must_use]
pub fn cpu_partial(
    policy: &Policy,
    size: usize,
    objects: u32,
    page_size: PageSize,
    cpus: Cpus,
) -> Option<CpuPartial> {
    let by_rule =
        objects_by_rule(policy.cpu_partial_rule, size, page_size)? * policy.doubling(cpus);
    Some(CpuPartial::from_objects(
        policy.cpu_partial_set.unwrap_or(by_rule),
        objects,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Named;

    #[test]
    fn objects_become_half_full_slabs() {
        // docs: linux-policies 2: 256 bytes, 16 objects per slab.
        let objects = objects_by_rule(CpuPartialRule::Slabs2021, 256, PageSize::K4).unwrap();
        assert_eq!(
            CpuPartial::from_objects(objects, 16),
            CpuPartial {
                objects: 52,
                slabs: 7
            }
        );
        assert_eq!(
            objects_by_rule(CpuPartialRule::None, 256, PageSize::K4),
            None
        );
        assert_eq!(
            objects_by_rule(CpuPartialRule::Slabs2021, 8192, PageSize::K64),
            Some(24)
        );
    }

    /// The limit of a list under a named policy.
    fn limit(name: &str, size: usize, objects: u32, cpus: u32) -> Option<CpuPartial> {
        let policy = Policy::parse(name).unwrap();
        cpu_partial(&policy, size, objects, PageSize::K4, Cpus::new(cpus))
    }

    #[test]
    fn order4_doubles_the_lists_on_32_cpus_and_not_on_31() {
        let kept = |cpus| limit("linux-6.5+order4", 64, 64, cpus).unwrap().objects;
        assert_eq!((kept(31), kept(32)), (120, 240));
        let slabs = |name, objects| limit(name, 256, objects, 224).unwrap().slabs;
        assert_eq!(
            (slabs("linux-6.5", 64), slabs("linux-6.5+order4", 128)),
            (2, 2)
        );
    }

    #[test]
    fn kernels_without_such_lists_have_no_limit() {
        for name in ["linux-2.6.24", "linux-7.0"] {
            assert_eq!(limit(name, 64, 64, 2), None);
        }
    }
}
