//! A compiled trace as a file that a player maps: it takes no memory from the allocator it measures.
//!
//! ```text
//!   0        head: counts and places
//!   4096     operations of a window, in segments of one stream each      read piece by piece
//!   places   streams · segments · slots · samples      mapped; slots and samples begin as zeroes
//! ```
//!
//! A program is one window, or several that take each other's place ([`super::feed`]).
//!
//! Everything is plain little words, aligned to eight bytes, written and read by the same program. An
//! operation takes one step of 16 bytes, or two if it is long; see [`Op::pack`].

/// Bytes before the first operation.
pub const HEAD_BYTES: u64 = 4096;

/// Bytes of a step.
pub const STEP: usize = 16;

/// Bytes of a segment at most: a player's thread has one on its stack. Why 16 KiB: a read costs a microsecond
/// and gives a thousand operations.
pub const SEGMENT: usize = 16 << 10;

/// Blocks of more bytes have long operations, which say how far the block is touched. Others are touched
/// whole.
const SHORT_MAX: u64 = 4096;

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
    /// Another stream's thread starts; the size is how many threads have ended before.
    pub const SPAWN: u8 = 5;
    /// `malloc_trim`; the size is what to keep.
    pub const TRIM: u8 = 6;
    /// A block that lives is touched further.
    pub const TOUCH: u8 = 7;
    /// The stream's thread ends. One without it lives until the program ends.
    pub const EXIT: u8 = 8;
}

/// One operation.
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

/// Of a kind: the operation is long.
const LONG: u8 = 0x80;

/// Where [`Op::touch`] lies in a long operation.
pub const TOUCH_AT: usize = 24;

impl Op {
    /// Whether it takes two steps.
    fn is_long(&self) -> bool {
        self.kind != kind::SPAWN && (self.size > SHORT_MAX || self.touch != self.size)
    }

    /// Bytes in the file.
    pub fn len(&self) -> usize {
        if self.is_long() { 2 * STEP } else { STEP }
    }

    /// As it lies in a segment whose first operation is at `began`: nanoseconds after that, size, slot,
    /// kind, alignment and turn; if it is long, size and touched bytes in full.
    pub fn pack(&self, began: u64, out: &mut Vec<u8>) {
        let long = if self.is_long() { LONG } else { 0 };
        out.extend((self.ns.saturating_sub(began) as u32).to_ne_bytes());
        out.extend((self.size as u32).to_ne_bytes());
        out.extend(self.slot.to_ne_bytes());
        out.extend([self.kind | long, self.align_log2]);
        out.extend(self.turn.to_ne_bytes());
        if long != 0 {
            out.extend(self.size.to_ne_bytes());
            out.extend(self.touch.to_ne_bytes());
        }
    }

    /// The first operation of `bytes`, and what follows it; none at their end.
    pub fn unpack(bytes: &[u8], began: u64) -> Option<(Self, &[u8])> {
        let (step, mut rest) = bytes.split_first_chunk::<STEP>()?;
        let word =
            |at: usize| u32::from_ne_bytes([step[at], step[at + 1], step[at + 2], step[at + 3]]);
        let mut op = Self {
            ns: began + u64::from(word(0)),
            size: u64::from(word(4)),
            touch: u64::from(word(4)),
            slot: word(8),
            kind: step[12] & !LONG,
            align_log2: step[13],
            turn: u16::from_ne_bytes([step[14], step[15]]),
        };
        if step[12] & LONG != 0 {
            let (size, after) = rest.split_first_chunk()?;
            let (touch, after) = after.split_first_chunk()?;
            (op.size, op.touch) = (u64::from_ne_bytes(*size), u64::from_ne_bytes(*touch));
            rest = after;
        }
        Some((op, rest))
    }
}

/// A run of operations of one stream.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Segment {
    /// Byte of the file.
    pub offset: u64,
    /// Bytes of its operations.
    pub bytes: u64,
    /// Nanoseconds of its first operation.
    pub began: u64,
    /// The stream's next segment, plus one; zero ends them.
    pub next: u64,
}

impl Segment {
    /// Its words, in order.
    pub fn words(&self) -> [u64; 4] {
        [self.offset, self.bytes, self.began, self.next]
    }
}

/// A stream.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamHead {
    /// Its first segment of a window, plus one; zero for none.
    pub first: u64,
    /// That window, counted from 1.
    pub window: u64,
    /// The last window in which it has operations; zero for none.
    pub last: u64,
    /// While it is played: nanoseconds of its next operation, or a little less.
    pub next_ns: u64,
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
    /// Nanoseconds by which a stream may be ahead of another.
    pub window_ns: u64,
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
    // What passes between the command and the player meanwhile.
    /// Windows that are there to be played.
    pub published: u64,
    /// Segments that are read.
    pub consumed: u64,
    /// Segments of all windows so far.
    pub handed: u64,
    /// Not zero if there will be no other window: the player ends.
    pub failed: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_come_back_as_they_were_packed() {
        let plain = Op {
            ns: 1007,
            size: 48,
            touch: 48,
            slot: 70_000,
            kind: kind::ZEROED,
            align_log2: 4,
            turn: 65_535,
        };
        let large = Op {
            size: 5 << 32,
            touch: 4096,
            ..plain
        };
        let free = Op {
            size: 0,
            touch: 0,
            kind: kind::FREE,
            ..plain
        };
        let mut bytes = Vec::new();
        for op in [plain, large, free] {
            op.pack(1000, &mut bytes);
        }
        assert_eq!(bytes.len(), 4 * STEP);
        let mut rest = &bytes[..];
        for op in [plain, large, free] {
            let (found, after) = Op::unpack(rest, 1000).unwrap();
            assert_eq!(found, op);
            rest = after;
        }
        assert!(Op::unpack(rest, 1000).is_none());
    }
}
