//! The `flagstone` command as a library, so that benches and tests reach its parts.
//!
//! ```text
//!   cmd      one file (or folder) per subcommand: arguments, action, view
//!   source   readers of what a kernel tells about itself
//!   exit     documented exit codes, one line per failure
//! ```

pub mod cmd;
pub mod exit;
pub mod source;
