//! The object engines of kernels, as guests of flagstone's core.
//!
//! ```text
//!   cpu_slab      a slab per CPU: 3.2 to 6.18
//!     with_locks  its first form, a lock for each slab: 2.6.22 to 2.6.30
//!   sheaves       arrays of objects per CPU and node, over cpu slabs in 6.18, alone since 7.0
//!   array_cache   SLAB: an array of objects per CPU, three lists of slabs per node
//!   ─────────────────────────────────────────────────────────────────────────
//!   rules         what a cache of theirs keeps in its room
//!   host          the core's slabs, with what these engines share
//!   state         a slab's word as cpu slabs change it
//!   tally         what their slow paths did
//!   check         their invariants, for `flagstone_core::verify`
//!   ─────────────────────────────────────────────────────────────────────────
//!   policy         the policies of kernels by name, and their rules
//!   kernel_caches  what a few of the kernels' own caches ask for
//! ```
//!
//! A world whose engine is [`Kernels`] serves every policy: `TestingWith<Kernels>`,
//! `LinuxWith<Kernels>`, the simulator's virtual machine. The library that programs preload is
//! built without this crate (ADR 0028).
#![no_std]

#[cfg(test)]
extern crate std;

mod array_cache;
mod check;
mod cpu_partial;
mod cpu_slab;
mod host;
mod kernel_caches;
pub mod policy;
mod rules;
mod sheaves;
mod state;
mod tally;

#[cfg(all(test, loom))]
mod cpu_slab_loom;
#[cfg(test)]
mod engine_tests;
#[cfg(test)]
mod engine_vectors;
#[cfg(test)]
mod ledger_tests;
#[cfg(test)]
mod orphans_tests;
#[cfg(test)]
mod pagesets_tests;
#[cfg(test)]
mod sheaves_tests;

pub use cpu_partial::{CpuPartial, cpu_partial};
pub use host::{Kernels, counts};
pub use kernel_caches::{FreePointer, KERNEL_CACHES, KernelCache};
pub use policy::{BASES, MODIFIERS, NameError, Named};
pub use sheaves::prefill::{Prefilled, give_back, prefill};
pub use sheaves::rcu::{Deferral, after_grace, free_rcu};
pub use tally::EngineCounts;
