//! The body of the fuzz target, which ordinary tests run as well: whatever the bytes, an answer.

use crate::{Error, Trace};
use std::fs::File;

/// Reads a file as the commands do: its index, then all streams merged by time. Answers how many events
/// it has.
///
/// # Errors
/// The line that a command would print.
pub fn read(file: File) -> Result<u64, Error> {
    let trace = Trace::of(file)?;
    let mut events = 0;
    let mut merged = trace.merged(|_| true);
    while merged.next()?.is_some() {
        events += 1;
    }
    Ok(events)
}
