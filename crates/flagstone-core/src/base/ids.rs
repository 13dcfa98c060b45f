//! Names of things: a CPU, a memory node, a cache.

use core::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($repr:ty), $word:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $repr);

        impl $name {
            /// This id as an array index.
            #[inline]
            #[must_use]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($word, " {}"), self.0)
            }
        }
    };
}

id! {
    /// A CPU as the platform numbers them: dense from zero, below the platform's possible count.
    CpuId(u32), "cpu"
}
id! {
    /// A memory node (NUMA node), dense from zero.
    NodeId(u8), "node"
}
id! {
    /// A cache: its index in the heap's cache table.
    CacheId(u16), "cache"
}
