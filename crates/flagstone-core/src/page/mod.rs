//! Layer 2: pages.
pub mod descriptor;
pub use descriptor::{Descriptor, LINKS_PER_PAGE, PageKind, flag};
