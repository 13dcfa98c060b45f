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
//!            │         [o o o . o . . o | tail]          slab.rs, take.rs, put.rs
//!        page layer                                      page/
//! ```
//!
//! An allocation, step by step: pop from the main sheaf; else make the spare main; else trade
//! the empty sheaf for a full one in the barn; else fill it from partial slabs; else from a new
//! slab. A free goes the same way down: push on main; else the spare; else trade the full sheaf
//! for an empty one; else give its objects back to their slabs, and empty slabs beyond
//! `min_partial` to the page layer.

mod barn;
mod cache;
mod chain;
mod cpu_sheaf;
mod engine;
mod flush;
mod geometry;
mod index_set;
mod lists;
mod node;
mod put;
mod refill;
mod registry;
mod sheaf;
mod shrink;
#[cfg(all(loom, any(test, feature = "testing")))]
pub mod site_loom;
mod sizing;
#[expect(clippy::module_inception, reason = "the slab of the slab layer")]
mod slab;
mod slabs;
mod sparse;
mod state;
mod suspect;
mod sweep;
mod take;
mod tallies;
mod view;

pub use barn::{Barn, Limits};
pub use cache::{Cache, CacheRequest, CacheState, Constructor, NAME_BYTES};
pub use chain::Links;
pub use engine::{Broken, CpuHeld, Engines, ObjectEngine, Seen, Served};
pub use geometry::{Geometry, LinkPlace};
pub use lists::HeldList;
pub use node::{End, Node, PartialList};
pub use refill::Part;
pub use sheaf::{OwnSheaf, SHEAF_BYTES_MAX, SHEAF_BYTES_MIN, bytes_for, capacity_for};
pub use slab::{Chain, Slab};
pub use slabs::{CacheError, SHEAF_CACHES, Slabs};
pub use state::{NO_OBJECT, SlabState};
pub(crate) use suspect::Suspect;
pub use view::SlabView;

#[cfg(test)]
mod sizing_tests;
#[cfg(test)]
mod slabs_for_tests;
#[cfg(all(test, loom))]
mod slabs_loom;
