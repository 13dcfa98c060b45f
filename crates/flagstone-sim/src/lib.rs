//! Flagstone's core on virtual CPUs in virtual time.
//!
//! The allocator here is `flagstone-core` itself, compiled for the platform [`Virtual`]: nothing
//! of it exists a second time. A [`Machine`] profile says what lines, locks and work cost; a
//! workload is a program of allocations and frees; the same seed gives the same run, event by
//! event, on every host.
//!
//! ```text
//!   machine · topology · costs      what a step costs where                (data)
//!   vm · clock · schedule · locking who runs when, and waits for whom      (time)
//!   world · access                  the core's platform on top of it; what accesses cost
//!   served · subject                the core: a heap, or the caches of a kernel
//!   workload/ · fifo                the programs that use it
//!   scenario · window               one run, and when it is steady
//!   progress                        how far runs are, for whoever waits
//!   lines · cache · rcu · arena     where lines, data, deferred frees and memory are
//!   predictor                       which of the core's branches a CPU predicts wrong
//! ```

mod access;
mod ahead;
mod arena;
mod cache;
pub mod chance;
mod clock;
pub mod costs;
mod fiber;
mod fifo;
mod hash;
pub mod host;
pub mod interleave;
mod interrupt;
mod lines;
mod locking;
pub mod machine;
mod mapping;
mod options;
mod predictor;
pub mod progress;
mod rcu;
mod ready;
pub mod scenario;
mod schedule;
mod served;
mod stack;
pub mod subject;
mod tagged;
pub mod tally;
mod thread;
pub mod topology;
mod vm;
mod waiters;
pub mod watch;
pub mod window;
pub mod workload;
mod world;

/// The number of the simulated behaviour. A figure of one version may differ from that of another;
/// figures of one version are equal for equal specs. It goes up when a cost, a workload, a policy's
/// rules or the order of the core's accesses changes, and not when a comment does;
/// `tests/golden.rs` notices.
pub const MODEL_VERSION: u32 = 12;

pub use machine::Machine;
pub use options::{Failure, Faults, Gear, Options, Plant};
pub use rcu::Deferred;
pub use schedule::Program;
pub use tally::Totals;
pub use topology::Placement;
pub use vm::Vm;
pub use world::Virtual;
