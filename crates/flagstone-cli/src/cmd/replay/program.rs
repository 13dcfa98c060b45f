//! A compiled trace as a file that a player maps: it takes no memory from the allocator it measures.
//!
//! ```text
//!   0        head: counts and places
//!   4096     operations, in segments of one stream each
//!   places   segments · streams · slots · samples      (tables; slots and samples begin as zeroes)
//! ```
//!
//! Everything is plain little words, aligned to eight bytes, written and read by the same program.

/// Bytes before the first operation.
pub const HEAD_BYTES: u64 = 4096;

/// Operations of a segment at most.
pub const SEGMENT: usize = 1024;

/// Samples a run may leave.
pub const SAMPLES_MAX: u64 = 16 << 10;

/// What an operation does.
pub mod kind {
    /// `malloc`.
    pub const ALLOC: u8 = 0;
    /// `calloc`.
    pub const ZEROED: u8 = 1;
    /// `aligned_alloc`.
    pub const ALIGNED: u8 = 2;
    /// `free`.
    pub const FREE: u8 = 3;
    /// `realloc`.
    pub const REALLOC: u8 = 4;
    /// Another stream's thread starts.
    pub const SPAWN: u8 = 5;
    /// `malloc_trim`; the size is what to keep.
    pub const TRIM: u8 = 6;
    /// A block that lives is touched further.
    pub const TOUCH: u8 = 7;
}

/// One operation.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Op {
    /// Nanoseconds after the trace's first event.
    pub ns: u64,
    /// Bytes asked for.
    pub size: u64,
    /// Bytes to touch; for a resize of the part that is new.
    pub touch: u64,
    /// The block's slot, or the stream to start.
    pub slot: u32,
    /// See [`kind`].
    pub kind: u8,
    /// The alignment's logarithm.
    pub align_log2: u8,
    /// Which of the slot's operations it is, counted from 0, the sixteen low bits; of a touch, before which.
    pub turn: u16,
}

/// Bytes of an operation.
pub const OP_BYTES: u64 = 32;
const _: () = assert!(size_of::<Op>() as u64 == OP_BYTES, "operations are packed");

impl Op {
    /// As it lies in the file.
    pub fn bytes(&self) -> [u8; OP_BYTES as usize] {
        let mut bytes = [0; OP_BYTES as usize];
        bytes[..8].copy_from_slice(&self.ns.to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.size.to_ne_bytes());
        bytes[16..24].copy_from_slice(&self.touch.to_ne_bytes());
        bytes[24..28].copy_from_slice(&self.slot.to_ne_bytes());
        bytes[28] = self.kind;
        bytes[29] = self.align_log2;
        bytes[30..].copy_from_slice(&self.turn.to_ne_bytes());
        bytes
    }
}

/// Where [`Op::touch`] lies in an operation.
pub const TOUCH_AT: u64 = 16;

/// A run of operations of one stream.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// Byte of the file.
    pub offset: u64,
    /// Operations.
    pub count: u64,
    /// The stream's next segment, plus one; zero ends them.
    pub next: u64,
}

/// A stream.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamHead {
    /// Its first segment, plus one; zero for none.
    pub first: u64,
}

/// One look at the process's memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    /// Place in the trace: nanoseconds after its first event.
    pub trace_ns: u64,
    /// Nanoseconds after the run's start.
    pub run_ns: u64,
    /// Resident bytes of the allocator.
    pub bytes: u64,
}

/// The file's first words.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Head {
    /// Bytes of the file.
    pub bytes: u64,
    /// Streams, and where their heads lie.
    pub streams: u64,
    /// Byte of the streams' table.
    pub streams_at: u64,
    /// Segments' table.
    pub segments: u64,
    /// Byte of the segments' table.
    pub segments_at: u64,
    /// Slots.
    pub slots: u64,
    /// Byte of the slots.
    pub slots_at: u64,
    /// Byte of the samples.
    pub samples_at: u64,
    /// Operations of all streams.
    pub ops: u64,
    /// Operations between two samples.
    pub sample_every: u64,
    /// Operations that touch a block further.
    pub touches: u64,
    // What a run leaves.
    /// Samples taken.
    pub samples: u64,
    /// Nanoseconds from the first operation to the last thread's end.
    pub run_ns: u64,
    /// Resident bytes of the allocator before the first operation.
    pub base_bytes: u64,
    /// Minor and major faults of the run.
    pub faults: u64,
    /// Nanoseconds of processor time.
    pub cpu_ns: u64,
    /// Requests that the allocator refused.
    pub refused: u64,
}
