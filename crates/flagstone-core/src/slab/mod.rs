//! Layer 3: objects.
//!
//! ```text
//!             CPU 0                     CPU 1
//!        [main] [spare]            [main] [spare]        cpu_sheaf.rs   one slot step, no lock
//!            │  full and empty sheaves  │
//!        ┌───┴──────────────────────────┴───┐
//!        │ barn: full sheaves, empty ones   │            barn.rs        one short lock
//!        └───┬──────────────────────────────┘
//!            │  refill.rs   flush.rs
//!        partial list  slab ⇄ slab ⇄ slab                node.rs, lists.rs   list lock
//!            │         [o o o . o . . o | tail]          slab.rs        one compare-and-swap
//!        page layer                                      page/
//! ```
//!
//! An allocation, step by step: pop from the main sheaf; else make the spare main; else trade
//! the empty sheaf for a full one in the barn; else fill it from partial slabs; else from a new
//! slab. A free goes the same way down: push on main; else the spare; else trade the full sheaf
//! for an empty one; else give its objects back to their slabs, and empty slabs beyond
//! `min_partial` to the page layer.

mod array_cache;
mod barn;
mod cache;
mod chain;
mod cpu_sheaf;
mod cpu_slab;
mod cpu_slab_2007;
mod cpu_slab_alloc;
mod cpu_slab_free;
mod deactivate;
mod engine;
mod flush;
mod geometry;
mod index_set;
mod lists;
mod means;
mod node;
mod orphans;
mod refill;
mod sheaf;
mod shrink;
mod sizing;
#[expect(clippy::module_inception, reason = "the slab of the slab layer")]
mod slab;
mod slabs;
mod state;
mod suspect;
mod sweep;
mod view;

pub use barn::{Barn, Limits};
pub use cache::{Cache, CacheRequest, CacheState, Constructor, NAME_BYTES};
pub use engine::{CpuHeld, EngineCounts};
pub use geometry::{Geometry, LinkPlace};
pub use node::{End, Node, PartialList};
pub use sheaf::{OwnSheaf, SHEAF_BYTES_MAX, SHEAF_BYTES_MIN, bytes_for, capacity_for};
pub(crate) use slab::Slab;
pub use slabs::{CacheError, SHEAF_CACHES, Slabs};
pub use state::{NO_OBJECT, SlabState};
pub use view::{CpuSlabView, SlabView};

#[cfg(all(test, not(loom)))]
mod engine_tests;
#[cfg(all(test, not(loom)))]
mod engine_vectors;
#[cfg(all(test, not(loom)))]
mod sizing_tests;
#[cfg(all(test, loom))]
mod state_loom;
