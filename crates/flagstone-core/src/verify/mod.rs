//! The invariants, executable, mirroring the layers.
//!
//! A check walks a whole layer and names the first rule it finds broken, by the name the layer's
//! files use. Tests run checks after random programs; no layer depends on this module.

pub mod heap;
pub mod page;
pub mod slab;

pub use heap::{BrokenHeap, check_heap};
pub use page::{Broken, check_pages};
pub use slab::{BrokenSlab, check_cache, check_slabs, live_objects};
