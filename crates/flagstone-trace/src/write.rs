//! Writing a trace file from a program that may allocate: importers, `cut` and `merge`, tests.

use crate::encode::{CHUNK_BYTES_MAX, Encoder};
use crate::event::Event;
use crate::frame::{Kind, Record, TEXT_BYTES_MAX};
use crate::header::{Header, Process};
use crate::index::StreamId;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// zstd's level. Why 3: the library's default; files are written once and read often.
const LEVEL: i32 = 3;

/// A stream's buffer at first; it doubles up to [`CHUNK_BYTES_MAX`]. A file may have many small streams.
const FIRST_BYTES: usize = 1 << 10;

/// A file that is being written.
pub struct Writer<W: Write> {
    out: W,
    streams: BTreeMap<StreamId, Open>,
}

struct Open {
    thread: u32,
    encoder: Encoder,
    buffer: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// The system's; a header of more than a mebibyte is refused.
    pub fn new(mut out: W, header: &Header) -> io::Result<Self> {
        write_text(&mut out, Kind::Header, 0, &serde_json::to_vec(header)?)?;
        Ok(Self {
            out,
            streams: BTreeMap::new(),
        })
    }

    /// Describes a process.
    ///
    /// # Errors
    /// The system's.
    pub fn process(&mut self, process: &Process) -> io::Result<()> {
        let text = serde_json::to_vec(process)?;
        write_text(&mut self.out, Kind::Process, process.process, &text)
    }

    /// Appends an event to a stream; times of one stream never go backwards.
    ///
    /// # Errors
    /// The system's.
    pub fn event(&mut self, id: StreamId, thread: u32, time: u64, event: &Event) -> io::Result<()> {
        let open = self.streams.entry(id).or_insert_with(|| Open {
            thread,
            encoder: Encoder::new(),
            buffer: vec![0; FIRST_BYTES],
        });
        if open.encoder.is_full(&open.buffer) {
            match open.buffer.len() {
                CHUNK_BYTES_MAX => write_chunk(&mut self.out, id, open)?,
                bytes => open.buffer.resize(2 * bytes, 0),
            }
        }
        open.encoder.put(&mut open.buffer, time, event);
        Ok(())
    }

    /// Writes what is left of a stream that ends here. More events of it begin a new chunk.
    ///
    /// # Errors
    /// The system's.
    pub fn end(&mut self, id: StreamId) -> io::Result<()> {
        match self.streams.remove(&id) {
            Some(mut open) => write_chunk(&mut self.out, id, &mut open),
            None => Ok(()),
        }
    }

    /// Writes what is left and gives the file back.
    ///
    /// # Errors
    /// The system's.
    pub fn finish(mut self) -> io::Result<W> {
        for (id, mut open) in std::mem::take(&mut self.streams) {
            write_chunk(&mut self.out, id, &mut open)?;
        }
        self.out.flush()?;
        Ok(self.out)
    }
}

fn write_chunk(out: &mut impl Write, id: StreamId, open: &mut Open) -> io::Result<()> {
    if open.encoder.is_empty() {
        return Ok(());
    }
    let raw = &open.buffer[..open.encoder.len()];
    let packed = zstd::bulk::compress(raw, LEVEL)?;
    let (first, last) = open.encoder.times();
    let record = Record {
        kind: Kind::Chunk,
        stream: id.stream,
        process: id.process,
        image: id.image,
        thread: open.thread,
        events: open.encoder.events(),
        packed: packed.len() as u32,
        raw: raw.len() as u32,
        first,
        last,
    };
    out.write_all(&record.bytes())?;
    out.write_all(&packed)?;
    open.encoder.clear();
    Ok(())
}

/// Writes a frame of text.
///
/// # Errors
/// The system's; a text of more than a mebibyte is refused.
pub fn write_text(out: &mut impl Write, kind: Kind, process: u32, text: &[u8]) -> io::Result<()> {
    if text.len() > TEXT_BYTES_MAX as usize {
        return Err(io::Error::other("a description of more than 1 MiB"));
    }
    let packed = zstd::bulk::compress(text, LEVEL)?;
    let record = Record {
        kind,
        stream: 0,
        process,
        image: 0,
        thread: 0,
        events: 0,
        packed: packed.len() as u32,
        raw: text.len() as u32,
        first: 0,
        last: 0,
    };
    out.write_all(&record.bytes())?;
    out.write_all(&packed)
}
