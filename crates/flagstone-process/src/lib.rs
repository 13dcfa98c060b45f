//! The one heap of a process.
//!
//! ```text
//!   blocks   allocate and free, for all faces     account  where the bytes are
//!   beacon   by which another process finds this heap
//!   control  what a running process is told from outside
//!   init     the one static heap, built at the first call that needs it
//!   env      FLAGSTONE_<OPTION>, FLAGSTONE_CONF → Policy      nearest  "did you mean"
//!   knobs    figures and knobs by name
//!   limit    what the heap may hold, and what happens there
//!   pressure memory pressure answered by giving back
//!   objects  typed caches
//!   fork     handlers around fork                 line     text without allocation
//!   report   where the memory went, for `flagstone run`
//!   profile  where its memory comes from, by samples
//!   confine  a system-call filter comes
//!   start    what a program with the heap linked in runs before `main`
//! ```
//!
//! Every face stands on this crate: the C and C++ surface (`flagstone_abi`) and the Rust crate
//! (`flagstone`). A program that has both has one heap. The first call may come from the dynamic
//! loader, before any constructor ran and from any thread; it builds the heap.
#![no_std]

pub mod account;
mod beacon;
pub mod blocks;
pub mod confine;
mod control;
pub mod env;
pub mod fork;
mod init;
pub mod knobs;
pub mod limit;
pub mod line;
mod nearest;
pub mod objects;
pub mod pressure;
pub mod profile;
pub mod report;
pub mod start;

pub use init::{CS_OFFSET, Linux, STORE, Store, heap, static_heap};

// Whatever features the `libc` crate was built with for other members of the workspace: this
// heap needs the C library and says so itself.
#[link(name = "c")]
unsafe extern "C" {}
