//! Bodies of the fuzz targets, which ordinary tests run as well: whatever the text, an answer.

use crate::pagesets;
use crate::record::Record;
use crate::sweep::plan;
use std::path::Path;

/// Runs of a sweep that is tried.
const RUNS_MAX: usize = 1000;

/// Reads a sweep's file; how many runs it asks for.
///
/// # Errors
/// The line that the command would print.
pub fn sweep(text: &str) -> Result<usize, String> {
    let nowhere = Path::new("/nonexistent");
    plan::at_most("grid.toml", text, nowhere, RUNS_MAX).map(|plan| plan.specs.len())
}

/// Reads a record and the spec in it.
///
/// # Errors
/// The line that the command would print.
pub fn record(text: &str) -> Result<(), String> {
    Record::from_json(text)?.spec()?.check()
}

/// Reads recorded pagesets; how many traces they are.
///
/// # Errors
/// The line that the command would print.
pub fn pagesets(text: &str) -> Result<usize, String> {
    pagesets::bundle("pagesets", text).map(|traces| traces.len())
}
