//! The policies of kernels, by name, and the rules in which they differ from the default one.
//!
//! ```text
//!   presets   "linux-6.5+order4" -> Policy
//!   order     a0, a, least-waste             layout    2007, 2020, 2024
//!   slab2007  the SLAB peer's own shape      sheaf     capacities of 7.0
//!   pagesets  how pages move, 2.6.24 to 6.19
//!   runs      live objects -> the next slab's run, and what a population costs
//! ```
//!
//! A rule is a value that a policy holds: the core asks it and does not know whose it is.
#![forbid(unsafe_code)]

mod layout;
mod order;
mod pagesets;
mod presets;
mod runs;
mod sheaf;
pub mod slab2007;

#[cfg(test)]
mod space_tests;

pub use layout::{V2007, V2020, V2024};
pub use pagesets::{KernelPages, PcpVersion};
pub use presets::{BASES, KMALLOC, MODIFIERS, NameError, Named};
pub use runs::{Population, Populations, estimated_live};
