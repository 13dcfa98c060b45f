//! Bodies of the fuzz targets, which ordinary tests run as well: whatever the bytes, an answer.

use crate::{Error, Format, Sink, What};
use std::io::Cursor;

/// Counts what it is handed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Count {
    /// Events.
    pub events: u64,
    /// Sum of their times and addresses, so that nothing is left unread.
    pub sum: u64,
}

impl Sink for Count {
    fn event(&mut self, stream: u32, ns: u64, what: &What<'_>) -> Result<(), Error> {
        self.events += 1;
        let number = match *what {
            What::Alloc { pointer, given, .. } => pointer ^ given,
            What::Free { pointer, .. } => pointer,
            What::PageAlloc { pfn, .. } | What::PageFree { pfn, .. } => pfn,
            What::PageMove { pfn, .. } => pfn,
            What::Lost(count) => count,
        };
        self.sum = self
            .sum
            .wrapping_add(number)
            .wrapping_add(ns)
            .wrapping_add(stream.into());
        Ok(())
    }
}

/// Reads bytes as `flagstone trace import` reads a file: finds the format, hands every event on.
///
/// # Errors
/// The line that the command would print.
pub fn import(bytes: &[u8]) -> Result<Count, Error> {
    let mut source = Cursor::new(bytes);
    let format = Format::detect(&mut source)?;
    let mut count = Count::default();
    crate::read(format, &mut source, &mut count)?;
    Ok(count)
}
