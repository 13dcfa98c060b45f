//! Layer 2: pages.
//!
//! ```text
//!   allocator   PageAllocator: blocks and runs, addresses, upkeep
//!     ├ zone    one per memory node: lock, frontier, watermarks
//!     │   ├ pageset   per-CPU lists of small blocks; cached takes and puts, moves refills and drains
//!     │   ├ buddy     free areas: split and merge
//!     │   ├ frontier  pages never used yet
//!     │   ├ deferred  frees from signal handlers on top of the lock's holder, on a stack
//!     │   ├ span      giving up address space where a limit was lowered
//!     │   ├ keep      how much of it stays resident after falls
//!     │   └ release   giving the rest back to the system, by extents
//!     ├ budget  what all stores of free memory may hold together
//!     └ memmap  descriptors, page map, resident bits, all in one reservation
//!         └ whole   a bit for each free block of the largest order of which nothing is resident
//! ```

pub mod allocator;
pub(crate) mod buddy;
mod budget;
mod build;
mod cached;
mod config;
mod deferred;
pub mod descriptor;
mod extents;
mod frontier;
mod keep;
mod list;
pub(crate) mod memmap;
mod moves;
mod pageset;
mod release;
pub(crate) mod resident;
mod snapshot;
mod span;
pub(crate) mod stack;
mod upkeep;
pub(crate) mod whole;
pub(crate) mod zone;
mod zone_size;

pub use allocator::PageAllocator;
pub use buddy::ORDERS;
pub use budget::Budget;
pub use config::{PageConfig, Retention};
pub use descriptor::{Descriptor, OBJECTS_PER_PAGE_MAX, PageKind, Spacing, flag};
pub use extents::Extents;
pub use list::PageList;
pub use memmap::Memmap;
pub use pageset::{PAGESET_BYTES, PagesetCounters, PagesetSnapshot, Pagesets};
pub use snapshot::{PageSnapshot, ZoneSnapshot};
pub use upkeep::TICK_NS;
pub use zone::{Block, ZoneCounters};

#[cfg(test)]
mod pageset_tests;
