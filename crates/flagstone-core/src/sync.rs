//! Atomics, chosen once: the only file that knows a model checker exists.
//!
//! A word of this module is loom's under `--cfg loom`, a word of [`plain`] never: words in memory that is mapped
//! zeroed, in values that constants make, and counts that may be lost. Loom's can be none of the three.

#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering};

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Words that the model checker does not follow.
pub mod plain {
    pub use core::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering,
        compiler_fence,
    };
}
