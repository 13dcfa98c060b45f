//! The texts of a file: what was recorded, where and how.

use serde::{Deserialize, Serialize};

/// The value of [`Header::schema`].
pub const SCHEMA: &str = "flagstone-trace/1";

/// The first frame of a file.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Header {
    /// [`SCHEMA`].
    pub schema: String,
    /// What recorded: the command and its version, or the tool that was imported from.
    pub recorder: String,
    /// The recorded command.
    #[serde(default)]
    pub command: Vec<String>,
    /// The allocator that served it.
    #[serde(default)]
    pub allocator: String,
    /// The machine: system, release, architecture.
    #[serde(default)]
    pub machine: String,
    /// CPUs of the machine.
    #[serde(default)]
    pub cpus: u32,
    /// Bytes of a page.
    pub page_size: u64,
    /// Nanoseconds of one unit of time.
    pub tick_ns: f64,
    /// Seconds since 1970 when recording began.
    #[serde(default)]
    pub began: u64,
    /// One block in so many was recorded.
    #[serde(default = "all")]
    pub sample: u32,
    /// Names of sites and caches, from number 1.
    #[serde(default)]
    pub sites: Vec<String>,
    /// What the importer had to infer, with counts; a sentence each.
    #[serde(default)]
    pub notes: Vec<String>,
    /// A kernel's caches, in the order of `sites`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub caches: Vec<Cache>,
    /// A kernel's zones, where their pagesets were looked at; lowest pages first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<Zone>,
}

/// A zone of a recorded kernel.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Zone {
    /// Its name, with its node's number.
    pub name: String,
    /// Its first page frame.
    pub start: u64,
    /// Pages that it manages.
    pub managed: u64,
    /// Its pagesets when recording began, one for each CPU.
    pub before: Vec<Pageset>,
    /// The same when it ended.
    #[serde(default)]
    pub after: Vec<Pageset>,
}

/// What /proc/zoneinfo said of a pageset, in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Pageset {
    /// Pages in it.
    pub count: u32,
    /// Pages at which it drains.
    pub high: u32,
    /// Pages moved at a time.
    pub batch: u32,
    /// Bounds of `high`; zero where the kernel has none.
    pub high_min: u32,
    /// The upper one.
    pub high_max: u32,
}

/// A cache of a recorded kernel.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Cache {
    /// Its name.
    pub name: String,
    /// Bytes from one object to the next.
    pub object_size: u64,
    /// Objects of a slab; zero if nobody looked.
    #[serde(default)]
    pub objects_per_slab: u32,
    /// Pages of a slab; zero if nobody looked.
    #[serde(default)]
    pub pages_per_slab: u32,
    /// Objects that the trace allocates at its beginning: those of slabs that stood then.
    #[serde(default)]
    pub older: u64,
    /// Those of them that it gives back at once: they were free then.
    #[serde(default)]
    pub older_free: u64,
    /// When recording began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Level>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Level>,
}

/// What /proc/slabinfo said of a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Level {
    /// Objects in use, those that CPUs keep among them.
    pub active: u64,
    /// Objects that its slabs have room for.
    pub objects: u64,
    /// Slabs.
    pub slabs: u64,
}

fn all() -> u32 {
    1
}

/// A process begins, or an `exec` replaces its program.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub process: u32,
    /// Its parent's.
    #[serde(default)]
    pub parent: u32,
    /// Which program of the process.
    #[serde(default)]
    pub image: u32,
    /// It began as a copy of its parent, blocks included.
    #[serde(default)]
    pub forked: bool,
    /// The program's name.
    #[serde(default)]
    pub name: String,
}
