//! What the kernel tells about itself in text, read below a root directory.
//!
//! ```text
//!   Tree          a directory, or a tar file held in memory; every path below is relative to it
//!   ├─ slabinfo   proc/slabinfo               population per cache
//!   ├─ sys_slab   sys/kernel/slab/*           layout, limits and aliases per cache
//!   ├─ zoneinfo   proc/zoneinfo               zones, watermarks, per-CPU pagesets
//!   ├─ buddyinfo  proc/buddyinfo              free blocks per order
//!   ├─ cmdline    proc/cmdline                slab boot parameters
//!   ├─ meminfo    proc/meminfo                totals that need no privilege
//!   └─ topology   sys/devices/system/{cpu,node}
//! ```
//!
//! [`machine`] says in words where a report was made.
//!
//! Rules every reader keeps: decide by the presence of a file or field, never by a version
//! number; unknown lines and fields are skipped; a line that is there but wrong is a
//! [`Malformed`] with its number; no input makes a reader panic.

pub mod buddyinfo;
pub mod cmdline;
pub mod machine;
pub mod meminfo;
pub mod slabinfo;
pub mod sys_slab;
pub mod topology;
mod tree;
pub mod zoneinfo;

pub use tree::{Absent, MANIFEST, Tree};

use std::fmt;

/// A file that is there but does not say what its format promises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Path relative to the root, as `proc/slabinfo`; empty until the reader's caller names it.
    pub file: String,
    /// Line counted from one.
    pub line: usize,
    /// What is wrong, in words that quote the input.
    pub what: String,
}

impl Malformed {
    /// An error at `line` (counted from one) of a file that the caller will name.
    #[must_use]
    pub fn at(line: usize, what: impl Into<String>) -> Self {
        Self {
            file: String::new(),
            line,
            what: what.into(),
        }
    }

    /// The same error with the file's path filled in.
    #[must_use]
    pub fn in_file(mut self, file: &str) -> Self {
        self.file = file.to_owned();
        self
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: line {}: {}", self.file, self.line, self.what)
    }
}

/// Quotes a piece of input for a one-line message: control characters escaped, length bounded.
#[must_use]
pub fn quote(text: &str) -> String {
    let short: String = text.chars().take(40).collect();
    let dots = if short.len() < text.len() { "..." } else { "" };
    format!("\"{}{dots}\"", short.escape_debug())
}

/// Parses one decimal number, or says which `field` at `line` is not one.
///
/// # Errors
/// [`Malformed`] when `text` is not an unsigned decimal number that fits 64 bits.
pub fn number(text: &str, field: &str, line: usize) -> Result<u64, Malformed> {
    text.parse().map_err(|_| {
        Malformed::at(
            line,
            format!("{field} is {}, expected a number", quote(text)),
        )
    })
}
