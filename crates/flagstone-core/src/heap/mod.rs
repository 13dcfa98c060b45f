//! Layer 4: malloc's operations.
//!
//! ```text
//!   gate.rs       what the fast paths read                  class.rs   size → cache
//!   ready.rs      the parts of a built heap                 forking.rs, refusals.rs, falls.rs  parts of it
//!   heap.rs       alloc · free · realloc · aligned          upkeep.rs  giving back
//!   huge.rs       blocks beyond a zone's                    bootstrap.rs  building in place, once
//!   huge_table.rs where they are                            kept.rs    freed ones for the next
//!   mark.rs       by which a second free is suspected       fork.rs    all locks around a fork
//!   objects.rs    objects of caches that the program made
//!   strays.rs     those freed at the wrong moment           unlisted.rs  those allocated then
//!   last_resort.rs  before a request is refused
//! ```
//!
//! `malloc(64)`: `Heap::alloc` → gate: class → `P::pop` of the CPU's main sheaf. Empty?
//! `alloc_cold` → `slab::cpu_sheaf`. `free(p)`: gate: page map → mark → `P::push`. Full?
//! `free_marked` → `slab::cpu_sheaf`. Marked before? `free_cold` → `slab::suspect`. Not a slab's
//! page? A run, or huge.

mod bootstrap;
mod class;
mod falls;
mod fork;
mod forking;
mod gate;
#[expect(clippy::module_inception, reason = "the layer's main type")]
mod heap;
mod huge;
mod huge_block;
mod huge_table;
mod kept;
mod last_resort;
#[cfg(test)]
mod lines_tests;
mod mark;
mod objects;
#[cfg(test)]
mod program_tests;
mod ready;
mod refusals;
mod stage;
mod strays;
#[cfg(test)]
pub(crate) mod test_heap;
mod unlisted;
mod upkeep;

pub use bootstrap::HeapConfig;
pub use class::TABLE_MAX;
pub use gate::{Gate, NEAR_MAX};
pub use heap::{Freed, Heap, MIN_ALIGN};
pub use huge_block::{HugeBlock, HugeCount};
pub(crate) use huge_table::HugeTable;
pub use mark::MARK_AT;
pub use ready::Ready;
