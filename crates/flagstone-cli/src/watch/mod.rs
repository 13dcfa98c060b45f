//! A running process's heap: read from outside, and told what to do.
//!
//! ```text
//!   target    /proc/PID/maps, pagemap, mem ─► the beacon: where the heap is, which version, which layout
//!   reading   starts a reader process, waits, tries again: the figures, or one line why not
//!     reader    in that process: the core's own survey over a copy of the heap's memory
//!       image     pages of the other process at their own addresses, fetched when first touched
//!       world     the core's platform there: no locks, no system, one thread
//!       figures   the survey as a document
//!       maps      the list of mappings, with the heap's parts named
//!   tell      requests through the words of `flagstone_linux::beacon`, answered by a slow path
//! ```
//!
//! The process is not stopped, runs no thread of ours and needs not cooperate in being read (ADR 0032).

mod figures;
mod image;
pub(crate) mod maps;
mod reader;
pub(crate) mod reading;
pub(crate) mod target;
pub(crate) mod tell;
mod world;

pub use reader::reader_process;
