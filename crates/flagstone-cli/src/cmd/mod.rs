//! One file per subcommand: its arguments, its usage text, its action.

pub mod bench;
pub mod check;
pub mod completions;
pub mod host;
pub mod plan;
pub mod profile;
pub mod record;
pub mod replay;
pub mod reproduce;
pub mod run;
pub mod sim;
pub mod sweep;
pub mod trace;
pub mod tune;
pub mod watch;
