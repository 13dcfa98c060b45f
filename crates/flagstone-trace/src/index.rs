//! A trace file: its header, its processes, and where each chunk lies.
//!
//! Opening reads the records alone and skips the payloads, so the memory it takes is some eighty
//! bytes per chunk of up to 64 KiB, whatever the file's length. A file that ends in the middle of a
//! frame is read up to there: [`Trace::unread`] says how many bytes are left over.

use crate::encode::CHUNK_BYTES_MAX;
use crate::event::Event;
use crate::frame::{Kind, PROCESS_BYTES_MAX, RECORD_BYTES, Record, TEXT_BYTES_MAX};
use crate::header::{Header, Process, SCHEMA};
use crate::{Damage, Decoder};
use core::ops::RangeInclusive;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Why a file cannot be read.
#[derive(Debug)]
pub enum Error {
    /// The system refused.
    Io(io::Error),
    /// The file does not begin as a trace does.
    Foreign,
    /// A chunk is damaged: the byte of the file where its frame begins, and what is wrong.
    Damaged {
        /// Byte of the file.
        offset: u64,
        /// What is wrong.
        what: String,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(out),
            Self::Foreign => write!(
                out,
                "not a flagstone-trace/1 file; `flagstone trace import` reads other formats"
            ),
            Self::Damaged { offset, what } => {
                write!(out, "damaged at byte {offset}: {what}")
            }
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Which thread of which program a chunk is of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct StreamId {
    /// The process.
    pub process: u32,
    /// Which program of it.
    pub image: u32,
    /// The thread's number within it.
    pub stream: u32,
}

/// A chunk's place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub record: Record,
    /// Where its frame begins.
    pub offset: u64,
}

/// A stream as the index shows it.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Which.
    pub id: StreamId,
    /// The thread as the system numbered it.
    pub thread: u32,
    /// Its events.
    pub events: u64,
    /// Time of its first and last event.
    pub times: (u64, u64),
    /// Its chunks, oldest first.
    pub(crate) chunks: Vec<Place>,
}

/// Bytes that are kept of a program's name.
const NAME_BYTES_MAX: usize = 1 << 10;

/// An open trace file.
#[derive(Debug)]
pub struct Trace {
    file: File,
    header: Header,
    processes: Vec<Process>,
    streams: Vec<Stream>,
    unread: u64,
    bytes: u64,
}

impl Trace {
    /// Opens a file and reads its index.
    ///
    /// # Errors
    /// [`Error::Foreign`] for another kind of file, [`Error::Damaged`] where a text is no JSON.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::of(File::open(path)?)
    }

    /// Reads the index of an open file.
    ///
    /// # Errors
    /// As for [`Trace::open`].
    pub fn of(mut file: File) -> Result<Self, Error> {
        let bytes = file.seek(SeekFrom::End(0))?;
        let mut header = None;
        let mut processes = Vec::new();
        let mut streams: BTreeMap<StreamId, Stream> = BTreeMap::new();
        let mut offset = 0;
        while let Some(record) = record_at(&file, offset, bytes)? {
            let place = Place { record, offset };
            match record.kind {
                Kind::Header => {
                    let text = unpack(&file, &place)?;
                    let found: Header = json(&text, offset)?;
                    if found.schema != SCHEMA {
                        return Err(Error::Foreign);
                    }
                    header.get_or_insert(found);
                }
                Kind::Process => {
                    let mut process: Process = json(&unpack(&file, &place)?, offset)?;
                    process
                        .name
                        .truncate(process.name.floor_char_boundary(NAME_BYTES_MAX));
                    process.name.shrink_to_fit();
                    processes.push(process);
                }
                Kind::Chunk => add(&mut streams, place),
            }
            offset += RECORD_BYTES as u64 + u64::from(record.packed);
        }
        Ok(Self {
            file,
            header: header.ok_or(Error::Foreign)?,
            processes,
            streams: streams.into_values().collect(),
            unread: bytes - offset,
            bytes,
        })
    }

    /// The file's header.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Programs that were recorded.
    #[must_use]
    pub fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// Threads of those programs.
    #[must_use]
    pub fn streams(&self) -> &[Stream] {
        &self.streams
    }

    /// Bytes at the end that are no whole frame: the recorder was killed, or the disk was full.
    #[must_use]
    pub fn unread(&self) -> u64 {
        self.unread
    }

    /// Bytes of the file.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Events of all streams.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.streams.iter().map(|stream| stream.events).sum()
    }

    /// Nanoseconds of a span of time.
    #[must_use]
    pub fn ns(&self, ticks: u64) -> f64 {
        ticks as f64 * self.header.tick_ns
    }

    /// A chunk's payload.
    pub(crate) fn payload(&self, place: &Place) -> Result<Vec<u8>, Error> {
        unpack(&self.file, place)
    }

    /// Visits every event of one stream, oldest first. Its times never go back: a chunk that begins before the last
    /// one ended counts from there.
    ///
    /// # Errors
    /// The visitor's, and [`Error::Damaged`].
    pub fn each<E: From<Error>>(
        &self,
        stream: &Stream,
        visit: impl FnMut(u64, Event) -> Result<(), E>,
    ) -> Result<(), E> {
        self.each_about(stream, 0..=u64::MAX, visit)
    }

    /// The same for the chunks that have a part in these times; the others are not read.
    ///
    /// # Errors
    /// As for [`Trace::each`].
    pub fn each_about<E: From<Error>>(
        &self,
        stream: &Stream,
        times: RangeInclusive<u64>,
        mut visit: impl FnMut(u64, Event) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut last = 0;
        for place in &stream.chunks {
            let record = &place.record;
            if record.last.max(last) < *times.start() || record.first.max(last) > *times.end() {
                last = record.last.max(last);
                continue;
            }
            let payload = self.payload(place)?;
            let mut decoder = Decoder::new(&payload, place.record.first.max(last));
            while let Some((time, event)) = decoder.next().map_err(|d| damaged(place, &d))? {
                last = time;
                visit(time, event)?;
            }
        }
        Ok(())
    }
}

/// A damaged chunk as an error.
pub(crate) fn damaged(place: &Place, damage: &Damage) -> Error {
    Error::Damaged {
        offset: place.offset,
        what: format!("{} (byte {} of the chunk)", damage.what, damage.at),
    }
}

fn add(streams: &mut BTreeMap<StreamId, Stream>, place: Place) {
    let record = place.record;
    let id = StreamId {
        process: record.process,
        image: record.image,
        stream: record.stream,
    };
    let stream = streams.entry(id).or_insert_with(|| Stream {
        id,
        thread: record.thread,
        events: 0,
        times: (record.first, record.first),
        chunks: Vec::new(),
    });
    stream.events += u64::from(record.events);
    stream.times.1 = stream.times.1.max(record.last);
    stream.chunks.push(place);
}

/// The record at `offset` if its whole frame is there.
fn record_at(file: &File, offset: u64, bytes: u64) -> Result<Option<Record>, Error> {
    let mut head = [0; RECORD_BYTES];
    if bytes - offset < RECORD_BYTES as u64 {
        return Ok(None);
    }
    file.read_exact_at(&mut head, offset)?;
    let Some(record) = Record::read(&head) else {
        return Ok(None);
    };
    let end = offset + RECORD_BYTES as u64 + u64::from(record.packed);
    Ok((end <= bytes).then_some(record))
}

/// Unpacks a payload. Sizes are checked before memory is taken.
fn unpack(file: &File, place: &Place) -> Result<Vec<u8>, Error> {
    let record = &place.record;
    let damage = |what: &str| Error::Damaged {
        offset: place.offset,
        what: what.to_owned(),
    };
    let most = match record.kind {
        Kind::Chunk => CHUNK_BYTES_MAX as u32,
        Kind::Header => TEXT_BYTES_MAX,
        Kind::Process => PROCESS_BYTES_MAX,
    };
    if record.raw > most || record.packed > 2 * most {
        return Err(damage("a frame of this kind cannot be so long"));
    }
    let mut packed = vec![0; record.packed as usize];
    file.read_exact_at(&mut packed, place.offset + RECORD_BYTES as u64)?;
    // Into a buffer of the size it says: what is longer is an error, and takes no more memory.
    let raw = zstd::bulk::decompress(&packed, record.raw as usize)
        .map_err(|error| damage(&error.to_string()))?;
    if raw.len() != record.raw as usize {
        return Err(damage("the payload is not as long as its record says"));
    }
    Ok(raw)
}

fn json<T: serde::de::DeserializeOwned>(text: &[u8], offset: u64) -> Result<T, Error> {
    serde_json::from_slice(text).map_err(|error| Error::Damaged {
        offset,
        what: error.to_string(),
    })
}
