//! The few kernel caches whose creator asked for something the size alone does not tell.
//!
//! Each line was seen on running kernels (`docs/exactness.md`). Needed only when a policy is
//! compared with a real kernel; flagstone's own caches ask through their creation flags.
#![forbid(unsafe_code)]

use flagstone_core::policy::{LayoutRule, SheafRule};

/// Where the free pointer of a kernel cache may lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FreePointer {
    /// Where the cache's flags put it.
    BySpec,
    /// Inside, where the layout lets caches with RCU readers say so.
    InsideRcu,
    /// Inside, where it lets caches with a constructor say so too.
    InsideCtor,
}

/// What is special about one kernel cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KernelCache {
    /// Name as in `/proc/slabinfo`.
    pub name: &'static str,
    /// Sheaf capacity its creator asks for, objects; 0 if it does not ask.
    pub sheaf_requested: u32,
    /// Made before sheaves exist, so it never gets any.
    pub before_sheaves: bool,
    /// Whether its free pointer has a place inside the object although the cache has RCU readers, or also a
    /// constructor: under layouts that allow it.
    pub free_pointer: FreePointer,
}

const fn plain(name: &'static str) -> KernelCache {
    KernelCache {
        name,
        sheaf_requested: 0,
        before_sheaves: false,
        free_pointer: FreePointer::BySpec,
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
        free_pointer: FreePointer::InsideRcu,
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
        free_pointer: FreePointer::InsideCtor,
        ..plain("TCP")
    },
    KernelCache {
        free_pointer: FreePointer::InsideCtor,
        ..plain("TCPv6")
    },
    KernelCache {
        free_pointer: FreePointer::InsideCtor,
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

    /// Whether the free pointer has a place inside the object under `layout`.
    #[must_use]
    pub const fn has_free_pointer_inside(&self, layout: &LayoutRule) -> bool {
        match self.free_pointer {
            FreePointer::BySpec => false,
            FreePointer::InsideRcu => layout.rcu_offset,
            FreePointer::InsideCtor => layout.ctor_offset,
        }
    }

    /// The sheaf capacity of this cache under `rule`, given what its size alone would get.
    #[must_use]
    pub fn sheaf_capacity(&self, rule: SheafRule, by_size: u32) -> u32 {
        match rule {
            SheafRule::OptIn | SheafRule::BySize(..) if self.before_sheaves => 0,
            SheafRule::OptIn => self.sheaf_requested,
            SheafRule::BySize(..) => by_size.max(self.sheaf_requested),
            SheafRule::None | SheafRule::Bytes => by_size,
        }
    }
}
