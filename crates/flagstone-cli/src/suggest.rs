//! "Did you mean", policies and sizes as people write them: one set of rules for all commands.

pub use flagstone_lab::names::{closest, plain_size, policy, question, set};
