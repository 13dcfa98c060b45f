//! What the allocator says about itself: figures of every cache, and a ledger that closes.
//!
//! ```text
//!   residency   which pages the system really holds memory for: asked of the world
//!   survey      one walk over sheaves, barns, descriptors, huge blocks    (loose.rs, cached.rs, walk.rs)
//!     ├ caches  slabinfo's columns, and where the free objects are
//!     └ ledger  resident bytes by purpose, one line and one sentence each
//! ```
//!
//! A survey reads while others write: every read is of an atomic or under the lock of what is
//! read, so a busy heap gives figures that are off by what moved meanwhile, never a fault. It
//! allocates nothing but address space of its own, which it gives back.

mod cached;
mod counts;
mod in_use;
mod ledger;
mod loose;
mod residency;
mod survey;
mod walk;

pub use counts::CacheSurvey;
pub use in_use::bytes_in_use;
pub use ledger::{LINES, Ledger, Line};
pub use loose::each_owned_part;
pub use residency::{Everything, Residency};
pub use survey::{CacheFigures, Survey};

/// A number of this core's sources and compiler (build.rs): who has another reads no heap of this one.
pub const LAYOUT: &str = env!("CORE_LAYOUT_DIGEST");

#[cfg(test)]
mod tests;
