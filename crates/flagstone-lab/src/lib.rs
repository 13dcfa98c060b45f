//! Experiments on the simulator: what to run, what it showed, and many of them at once.
//!
//! ```text
//!   names ─► Spec ─────────► Record, one per seed ─────────► Row, Table, files
//!            digest           names all to run it again        computed from records
//! ```
//!
//! For programs that simulate without the command:
//!
//! - [`Spec::new`]`(workload, machine, policy) -> Result<Spec, String>`, then its public fields;
//!   [`Spec::run`]`(&self) -> Result<Run, String>`: one run, here and now.
//! - [`sim`]`(specs: &[Spec], options: &Options, done: impl Fn(&Answer) + Sync) -> Vec<Answer>`: many runs,
//!   on as many threads as the host has cores, answered from a cache where there is one. A failed run is
//!   an answer of its own.
//! - [`fit::fit`]: a few prices fitted to base rows, with every setting that was tried.
//! - [`sweep::parse`]`(name: &str, text: &str, folder: &Path) -> Result<sweep::Plan, String>`: a sweep's file
//!   as specs; [`sweep::Shard`]: a part of them.
//! - [`sweep::sweep`]`(specs: &[Spec], folder: &Path, options: &Options, done: impl Fn(&Answer) + Sync)
//!   -> Result<sweep::Done, String>`: those of them that the folder lacks, a file for each record.
//! - [`sweep::collect`]`(folder: &Path) -> Result<Vec<Record>, String>`: all records of a folder.
//! - [`Record::to_json`], [`table::csv`], [`table::parquet`]: records as JSON lines, CSV and Parquet.
//!
//! The simulator knows nothing of all this.
#![forbid(unsafe_code)]

pub mod cache;
pub mod fit;
pub mod names;
pub mod pagesets;
pub mod probe;
pub mod record;
mod row;
mod runs;
mod settings;
pub mod spec;
pub mod sweep;
pub mod table;
pub mod tape;
pub mod tune;
pub mod units;

pub use cache::Cache;
pub use flagstone_sim::MODEL_VERSION;
pub use record::{History, Record, Run};
pub use row::{Row, deviation_of as deviation};
pub use runs::{Answer, Options, sim};
pub use spec::{Rules, Spec, Task, Window};
