//! "Did you mean", policies and sizes as people write them: one set of rules for all commands.

pub use flagstone_lab::names::{closest, plain_size, policy, question, set};

/// A number of bytes, which may end in K, M, G or T.
#[must_use]
pub fn bytes(text: &str) -> Option<u64> {
    plain_size(text).parse().ok()
}
