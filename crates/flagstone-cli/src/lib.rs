//! The `flagstone` command as a library, so that benches and tests reach its parts.
//!
//! ```text
//!   cmd      one file (or folder) per subcommand: arguments, action, view
//!   api      commands as functions: words in, document out; for the Python package
//!   args     arguments that several commands have
//!   source   readers of what a kernel tells about itself
//!   preload  the library the command carries, and where it lies on disk
//!   html     the shell, style and chart library of reports in HTML
//!   outfile  files that a long command writes at its end
//!   progress the bar that long work shows on stderr
//!   suggest  "did you mean", policies and sizes as people write them
//!   terminal width and styles; what texts of all commands have in common
//!   version  what `--version` says: release, commit, model
//!   watch    a running process's heap, read and told
//!   exit     documented exit codes, one line per failure
//! ```

pub mod api;
mod args;
pub mod cmd;
pub mod exit;
mod html;
mod outfile;
pub mod preload;
mod progress;
pub mod source;
pub mod suggest;
mod terminal;
pub mod version;
pub mod watch;
