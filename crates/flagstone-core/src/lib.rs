//! The Linux slab and page allocator stack as one portable core.
//!
//! ```text
//!   faces     malloc library, Rust crate, simulator, kernels        (other crates)
//!   ─────────────────────────────────────────────────────────────
//!   heap      size classes, large and huge blocks, realloc           4
//!   slab      caches, slabs, node lists, sheaves, barns, engines     3
//!   page      descriptors, buddy, zones, per-CPU pagesets            2
//!   policy    every published knob as data, and the rules over it    1½
//!   platform  what the world below must offer: `P: Platform`         1
//!   base      units, ids, means                                      0
//! ```
//!
//! A layer names only layers below it. `stats` and `verify` may look at every layer; no layer
//! looks at `verify`. The world (Linux, virtual machine, model checker, a kernel) arrives
//! through the type parameter `P: Platform`; core has no operating system, no `alloc`, no
//! statics and no assembly.
#![no_std]

#[cfg(any(test, loom, feature = "testing"))]
extern crate std;

pub mod base;
pub mod heap;
pub mod page;
pub mod platform;
pub mod policy;
pub mod slab;
pub mod stats;
pub mod sync;
pub mod verify;
