//! Shared by the command's tests and benches.

pub mod hosts;
