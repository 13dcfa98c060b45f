//! The `flagstone` command as a library, so that benches and tests reach its parts.
//!
//! ```text
//!   cmd      one file (or folder) per subcommand: arguments, action, view
//!   source   readers of what a kernel tells about itself
//!   preload  the library the command carries, and where it lies on disk
//!   exit     documented exit codes, one line per failure
//! ```

pub mod cmd;
pub mod exit;
pub mod preload;
pub mod source;
