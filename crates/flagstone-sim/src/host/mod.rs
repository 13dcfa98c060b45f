//! The host itself: the same programs and the same core on real threads.
//!
//! ```text
//!   threads    CPUs this process may use, pinning, undisturbed time
//!   pace       how fast a CPU is just now
//!   way        how long a line travels between two just now
//!   ground     the core on the Linux world; a task's stage on it
//!   probe      what single steps cost: lines, atomics, faults                  ─┐
//!   between    the same between two CPUs: ways of lines, locks, wake-ups        │
//!   pair       all that two CPUs do to each other's lines                       │
//!   steps      small loops through the core, in either world                    ├─► profile
//!   loops      what they take here, and how that goes with the pace             │
//!   solve      prices of the core's work from both worlds                      ─┘
//!   validate   workloads here and on the virtual machine, side by side
//!   rows       the published rows' objects here, policy beside policy
//! ```
//!
//! Figures are of undisturbed stretches of time: those in which the thread had its CPU all the
//! while. What a hypervisor takes cannot be seen from inside and is in them.

pub mod between;
pub mod ground;
mod loops;
mod pace;
mod pair;
pub mod probe;
pub mod profile;
pub mod rows;
mod shape;
pub mod solve;
pub mod steps;
pub mod threads;
pub mod validate;
mod way;
