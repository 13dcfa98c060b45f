//! The Linux world: what flagstone's core asks of a platform, answered by Linux.
//!
//! ```text
//!   world      impl Platform for Linux: one line per answer
//!   ├ memory      reserve · commit · decommit · release · remap
//!   ├ batch       several extents given back in one call
//!   ├ limits      memory.max, RLIMIT_AS, overcommit: how much to reserve and to keep
//!   ├ cap         the user's limit on what the heap holds
//!   ├ cpus        how many slots, which nodes, how much cache
//!   ├ slots       per-CPU slots: rseq/ where the C library registered an area, locks elsewhere
//!   ├ take_over   taking sheaves out of the slots of any CPUs
//!   ├ filter      what may be asked of the kernel beside a system-call filter
//!   ├ strangers   threads whose area of sequences the kernel does not keep
//!   ├ seizing     one thread at a time takes sheaves from other CPUs, and none while one forks
//!   ├ membarrier  the fence that aborts critical sections on other CPUs
//!   ├ thread      token and waiting
//!   ├ clock · entropy · report · fork
//!   ├ tls         thread-local storage for handlers, as a macro
//!   ├ held        what the calling thread holds of the core's locks, as one word
//!   ├ countdown   bytes to the calling thread's next sample, as one word
//!   ├ observe · hook                  functions of the face: who looks at the heap, who is told
//!   ├ beacon      what the command reads and writes in a running process
//!   ├ knobs       the names of knobs, for the face and the command
//!   ├ process · residency · outside   what the kernel says about this process
//!   ├ look        how the process's own memory is shared between its allocator and the rest
//!   └ sys · text  system calls without errno, files read on the stack
//! ```
//!
//! Nothing here allocates or touches `errno`, and two words are all its thread-local storage; all of it
//! may run inside a signal handler and before the first constructor.
//!
//! [`init`] is called once, by the face, before the heap is built.
#![no_std]

#[cfg(test)]
extern crate std;

mod batch;
pub mod beacon;
pub mod cap;
pub mod clock;
pub mod countdown;
pub mod cpus;
mod entropy;
pub mod filter;
pub mod fork;
pub mod held;
mod hook;
pub mod knobs;
pub mod limits;
pub mod look;
pub mod membarrier;
mod memory;
pub mod observe;
pub mod outside;
pub mod process;
mod report;
pub mod residency;
mod rseq;
mod seizing;
pub mod slots;
pub mod strangers;
pub mod sys;
mod take_over;
pub mod text;
mod thread;
mod tls;
mod world;

pub use batch::filters_are_seen;
pub use memory::{ask_for_huge_pages, name_huge_blocks, name_mapping};
pub use report::write_line;
pub use world::{Linux, LinuxWith, init};
