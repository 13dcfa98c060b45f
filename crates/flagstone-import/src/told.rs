//! What a recording tells, whatever its format.

use crate::Error;
use flagstone_trace::Move;

/// One event as a reader found it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What<'a> {
    /// A block or an object.
    Alloc {
        /// Where.
        pointer: u64,
        /// Its cache; `None` for a program's block.
        cache: Option<&'a str>,
        /// Bytes asked for.
        requested: u64,
        /// Bytes of the cache's objects, or of the block.
        given: u64,
    },
    /// A block or an object given back.
    Free {
        /// Where.
        pointer: u64,
        /// Its cache, where the event names it.
        cache: Option<&'a str>,
    },
    /// Pages from the page allocator.
    PageAlloc {
        /// First page frame.
        pfn: u64,
        /// Order of the block.
        order: u8,
        /// Migrate type as the kernel numbers it.
        migratetype: u8,
    },
    /// Pages given back.
    PageFree {
        /// First page frame.
        pfn: u64,
        /// Order of the block.
        order: u8,
    },
    /// Pages between a pageset and its zone: what the allocator does itself.
    PageMove {
        /// What happens.
        what: Move,
        /// First page frame.
        pfn: u64,
        /// Order of the block.
        order: u8,
        /// Migrate type of its list.
        migratetype: u8,
    },
    /// Events that the recorder had no room for.
    Lost(u64),
}

/// Receives events.
pub trait Sink {
    /// An event of stream `stream` (a CPU, or a thread's number) at `ns`.
    ///
    /// # Errors
    /// What ends the import.
    fn event(&mut self, stream: u32, ns: u64, what: &What<'_>) -> Result<(), Error>;
}

/// What a file says about itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct About {
    /// The recorded command, if one was.
    pub command: Vec<String>,
    /// System and release of the machine.
    pub machine: String,
    /// Its CPUs; zero if the file does not say.
    pub cpus: u32,
    /// Bytes of a page; zero if the file does not say.
    pub page_size: u64,
    /// Seconds since 1970; zero if the file does not say.
    pub began: u64,
    /// Lines or records that are no allocation events.
    pub others: u64,
    /// Times that went backwards and were put right by the reader.
    pub backwards: u64,
    /// What a reader of the trace should know, a sentence each.
    pub notes: Vec<String>,
}
