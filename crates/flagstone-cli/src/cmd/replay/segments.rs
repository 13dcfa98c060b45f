//! Operations on their way into a program's file.
//!
//! ```text
//!   push ─► a stream's open segment (16 KiB in memory) ─ full ─► the file
//!   learn ────────┴───────────────────────────────────────────────┘   what is known of an operation later
//! ```
//!
//! Memory goes with the number of streams, and 32 bytes for each thousand operations.

use super::program::{HEAD_BYTES, Head, Op, SEGMENT, Segment, TOUCH_AT};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// An operation's place.
#[derive(Clone, Copy)]
pub struct At {
    /// The stream.
    pub stream: usize,
    /// Number of the segment.
    segment: usize,
    /// Byte of the segment.
    byte: usize,
}

/// A stream on its way.
struct Open {
    first: usize,
    /// Number of the open segment.
    segment: usize,
    began: u64,
    bytes: Vec<u8>,
}

/// All segments.
pub struct Segments {
    file: File,
    end: u64,
    all: Vec<Segment>,
    streams: Vec<Open>,
}

impl Segments {
    /// Into an empty file.
    pub fn new(file: File) -> Self {
        Self {
            file,
            end: HEAD_BYTES,
            all: Vec::new(),
            streams: Vec::new(),
        }
    }

    /// Adds a stream; its number.
    pub fn stream(&mut self) -> usize {
        let segment = self.all.len();
        self.all.push(Segment::default());
        self.streams.push(Open {
            first: segment,
            segment,
            began: 0,
            bytes: Vec::new(),
        });
        self.streams.len() - 1
    }

    /// Adds an operation to a stream.
    ///
    /// # Errors
    /// The file's.
    pub fn push(&mut self, stream: usize, op: &Op) -> io::Result<At> {
        let open = &self.streams[stream];
        let apart = op.ns.saturating_sub(open.began);
        let full = open.bytes.len() + op.len() > SEGMENT || apart > u64::from(u32::MAX);
        if full && !open.bytes.is_empty() {
            self.write(stream)?;
            let next = self.all.len();
            self.all.push(Segment::default());
            let open = &mut self.streams[stream];
            self.all[open.segment].next = next as u64 + 1;
            open.segment = next;
        }
        let open = &mut self.streams[stream];
        if open.bytes.is_empty() {
            open.began = op.ns;
        }
        let byte = open.bytes.len();
        op.pack(open.began, &mut open.bytes);
        Ok(At {
            stream,
            segment: open.segment,
            byte,
        })
    }

    /// Writes a stream's open segment.
    fn write(&mut self, stream: usize) -> io::Result<()> {
        let open = &mut self.streams[stream];
        self.file.write_all_at(&open.bytes, self.end)?;
        let segment = &mut self.all[open.segment];
        segment.offset = self.end;
        segment.bytes = open.bytes.len() as u64;
        segment.began = open.began;
        self.end += segment.bytes;
        open.bytes.clear();
        Ok(())
    }

    /// An operation that made a block of more than a page touches no more than this of it. Others touch
    /// theirs whole.
    ///
    /// # Errors
    /// The file's.
    pub fn learn(&mut self, at: At, touched: u64, size: u64) -> io::Result<()> {
        let made = Op {
            size,
            touch: size,
            ..Op::default()
        };
        if made.len() <= TOUCH_AT {
            return Ok(());
        }
        let (word, byte) = (touched.to_ne_bytes(), at.byte + TOUCH_AT);
        let open = &mut self.streams[at.stream];
        if open.segment == at.segment {
            open.bytes[byte..byte + word.len()].copy_from_slice(&word);
            return Ok(());
        }
        let offset = self.all[at.segment].offset + byte as u64;
        self.file.write_all_at(&word, offset)
    }

    /// Writes what is open, and the tables; the head has their places.
    ///
    /// # Errors
    /// The file's.
    pub fn finish(mut self) -> io::Result<(File, Head)> {
        for stream in 0..self.streams.len() {
            self.write(stream)?;
        }
        let words = |open: &Open| [open.first as u64 + 1, u64::MAX];
        let streams: Vec<u8> = self
            .streams
            .iter()
            .flat_map(words)
            .flat_map(u64::to_ne_bytes)
            .collect();
        let words = |one: &Segment| [one.offset, one.bytes, one.began, one.next];
        let segments: Vec<u8> = self
            .all
            .iter()
            .flat_map(words)
            .flat_map(u64::to_ne_bytes)
            .collect();
        let streams_at = self.end;
        let segments_at = streams_at + streams.len() as u64;
        self.file.write_all_at(&streams, streams_at)?;
        self.file.write_all_at(&segments, segments_at)?;
        let head = Head {
            streams: self.streams.len() as u64,
            streams_at,
            segments: self.all.len() as u64,
            segments_at,
            slots_at: (segments_at + segments.len() as u64).next_multiple_of(4096),
            ..Head::default()
        };
        Ok((self.file, head))
    }
}
