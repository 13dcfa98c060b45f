//! The few kernel caches whose creator asked for something the size alone does not tell.
//!
//! Each line was seen on running kernels (`docs/exactness.md`). Needed only when a policy is
//! compared with a real kernel; flagstone's own caches ask through their creation flags.
#![forbid(unsafe_code)]

use flagstone_core::policy::{LayoutRule, SheafRule};

/// What is special about one kernel cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KernelCache {
    /// Name as in `/proc/slabinfo`.
    pub name: &'static str,
    /// Sheaf capacity its creator asks for, objects; 0 if it does not ask.
    pub sheaf_requested: u32,
    /// Made before sheaves exist, so it never gets any.
    pub before_sheaves: bool,
    /// From this layout on its free pointer has a place inside the object although the cache has
    /// a constructor or RCU readers.
    pub free_pointer_inside: Option<LayoutRule>,
}

const fn plain(name: &'static str) -> KernelCache {
    KernelCache {
        name,
        sheaf_requested: 0,
        before_sheaves: false,
        free_pointer_inside: None,
    }
}

/// Every special cache.
pub const KERNEL_CACHES: &[KernelCache] = &[
    KernelCache {
        sheaf_requested: 32,
        ..plain("maple_node")
    },
    // 6.12 itself still keeps the pointer outside; 6.16 and later do not.
    KernelCache {
        sheaf_requested: 32,
        free_pointer_inside: Some(LayoutRule::V2024),
        ..plain("vm_area_struct")
    },
    KernelCache {
        before_sheaves: true,
        ..plain("kmem_cache")
    },
    KernelCache {
        before_sheaves: true,
        ..plain("kmem_cache_node")
    },
    KernelCache {
        free_pointer_inside: Some(LayoutRule::V2026),
        ..plain("TCP")
    },
    KernelCache {
        free_pointer_inside: Some(LayoutRule::V2026),
        ..plain("TCPv6")
    },
    KernelCache {
        free_pointer_inside: Some(LayoutRule::V2026),
        ..plain("ext4_inode_cache")
    },
];

impl KernelCache {
    /// What is known about the cache of this name: usually nothing special.
    #[must_use]
    pub fn named(name: &str) -> Self {
        KERNEL_CACHES
            .iter()
            .find(|cache| cache.name == name)
            .copied()
            .unwrap_or(plain(""))
    }

    /// The sheaf capacity of this cache under `rule`, given what its size alone would get.
    #[must_use]
    pub fn sheaf_capacity(&self, rule: SheafRule, by_size: u32) -> u32 {
        match rule {
            SheafRule::OptIn | SheafRule::All if self.before_sheaves => 0,
            SheafRule::OptIn => self.sheaf_requested,
            SheafRule::All => by_size.max(self.sheaf_requested),
            SheafRule::None | SheafRule::Bytes => by_size,
        }
    }
}
