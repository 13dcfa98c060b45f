//! Atomics, chosen once.
//!
//! Under `--cfg loom` they are those of `sync_loom.rs`: words in their own memory, of which a test names the ones
//! that the model checker follows (ADR 0052).

#[cfg(not(loom))]
pub use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering,
    compiler_fence,
};

#[cfg(loom)]
pub use followed::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering,
    compiler_fence,
};

#[cfg(loom)]
#[path = "sync_loom.rs"]
pub mod followed;
