//! `flagstone-trace/1`: what a program allocated and freed, as a file that can be read after a crash.
//!
//! ```text
//!   file    [header] [process] [chunk] [chunk] [process] [chunk] ...          frame.rs
//!   frame   index record in a skippable zstd frame | payload in a zstd frame
//!   chunk   events of one thread: tag, time, size, address as differences     encode.rs, decode.rs
//!   read    index first, then streams merged by time                         index.rs, merge.rs
//! ```
//!
//! A chunk decodes by itself, so a file that ends in the middle of one loses that chunk only. The
//! specification is `docs/trace-format.md`. Without the feature `std` the crate is what a recorder
//! inside another program needs: no allocation, no files.
#![cfg_attr(not(feature = "std"), no_std)]
#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "the processor's counter is an instruction")]
pub mod clock;
pub mod decode;
pub mod encode;
pub mod event;
pub mod extent;
pub mod frame;
pub mod steady;
pub mod varint;

#[cfg(feature = "std")]
pub mod header;
#[cfg(feature = "std")]
pub mod index;
#[cfg(feature = "std")]
pub mod merge;
#[cfg(feature = "std")]
pub mod probe;
#[cfg(feature = "std")]
pub mod write;
#[cfg(feature = "std")]
pub mod zoneinfo;

pub use decode::{Damage, Decoder};
pub use encode::Encoder;
pub use event::{Event, Move, Request};
#[cfg(feature = "std")]
pub use header::{Header, Process};
#[cfg(feature = "std")]
pub use index::{Error, Trace};
