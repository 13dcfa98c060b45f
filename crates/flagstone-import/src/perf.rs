//! `perf.data`: what `perf record -e 'kmem:*'` writes, to a file or through a pipe.
//!
//! ```text
//!   file   head | attributes | records ... | sections: event formats, machine, command, ...
//!   pipe   head | records, the attributes and event formats among them
//! ```
//!
//! Tracepoints' samples carry the event as the kernel wrote it; the formats in the file say where its
//! fields lie. CPUs' buffers are written in turns: each CPU's samples are in order, the file's are not.

use crate::formats::Formats;
use crate::input::{Input, Source, number};
use crate::perf_samples::{Attr, Samples};
use crate::{About, Error, Sink, What};

/// Kinds of records.
mod kind {
    pub const LOST: u32 = 2;
    pub const SAMPLE: u32 = 9;
    pub const LOST_SAMPLES: u32 = 13;
    pub const ATTR: u32 = 64;
    pub const TRACING_DATA: u32 = 66;
    pub const AUXTRACE: u32 = 71;
    pub const COMPRESSED: u32 = 81;
    pub const COMPRESSED2: u32 = 83;
}

/// Sections behind the records, by their bit in the head's flags.
mod feature {
    pub const TRACING_DATA: u32 = 1;
    pub const OSRELEASE: u32 = 4;
    pub const ARCH: u32 = 6;
    pub const NRCPUS: u32 = 7;
    pub const CMDLINE: u32 = 11;
}

/// A record's length is a number of two bytes.
const RECORD_BYTES_MAX: usize = 1 << 16;

/// Attributes of a file.
const ATTRS_MAX: u64 = 1 << 16;

/// Words of the recorded command.
const WORDS_MAX: u32 = 1 << 10;

/// Most unpacked bytes that may wait for the rest of their record.
const WAITING_MAX: usize = 1 << 20;

/// Hands on what the file tells.
pub fn read(source: &mut dyn Source, sink: &mut dyn Sink) -> Result<About, Error> {
    let mut input = Input::new(source)?;
    input.skip(8)?;
    let mut work = Work {
        formats: Formats::default(),
        samples: Samples::default(),
        about: About::default(),
        lost: 0,
        unpacker: None,
        waiting: Vec::new(),
        sink,
    };
    const PIPE_HEAD: u64 = 16;
    let head = input.u64()?;
    if head == PIPE_HEAD {
        let rest = input.left();
        work.records(&mut input, rest)?;
    } else {
        work.file(&mut input)?;
    }
    if work.lost > 0 {
        work.sink.event(0, 0, &What::Lost(work.lost))?;
    }
    if work.formats.is_empty() {
        return Err(Error::Foreign(
            "no kmem events' formats in it; record with `perf record -e 'kmem:*' -a`".into(),
        ));
    }
    Ok(work.about)
}

struct Work<'s> {
    formats: Formats,
    samples: Samples,
    about: About,
    lost: u64,
    /// Packed records are one zstd stream over the whole file.
    unpacker: Option<zstd::stream::raw::Decoder<'static>>,
    waiting: Vec<u8>,
    sink: &'s mut dyn Sink,
}

impl Work<'_> {
    fn file(&mut self, input: &mut Input<'_>) -> Result<(), Error> {
        let attr_bytes = input.u64()?;
        let (attrs, data) = (section(input)?, section(input)?);
        let _types = section(input)?;
        let flags = [input.u64()?, input.u64()?, input.u64()?, input.u64()?];
        self.attrs(input, attr_bytes, attrs)?;
        let (at, bytes) = data;
        if bytes == 0 {
            // A recording that was killed has no length here, and no sections behind it.
            return Err(Error::Foreign(
                "a perf.data whose recording did not end well: it has no event formats, which `perf record` \
                 writes last; end it by Ctrl-C, or record by `perf record -o -`, which writes them first"
                    .into(),
            ));
        }
        let end = at
            .checked_add(bytes)
            .ok_or_else(|| input.damage("records behind its end"))?;
        input.seek(end)?;
        let mut sections = Vec::new();
        for bit in 0..256_u32 {
            if flags[bit as usize / 64] >> (bit % 64) & 1 != 0 {
                sections.push((bit, section(input)?));
            }
        }
        for (bit, (at, bytes)) in sections {
            input.seek(at)?;
            self.feature(input, bit, bytes)?;
        }
        input.seek(at)?;
        self.records(input, bytes)
    }

    fn attrs(
        &mut self,
        input: &mut Input<'_>,
        each: u64,
        (at, bytes): (u64, u64),
    ) -> Result<(), Error> {
        const SECTION_BYTES: u64 = 16;
        if !(64..=4096).contains(&each) || bytes / each > ATTRS_MAX {
            return Err(input.damage("attributes of an unknown kind"));
        }
        for index in 0..bytes / each {
            input.seek(at.saturating_add(index * each))?;
            let text = input.take(each, 4096)?;
            let place = (each - SECTION_BYTES) as usize;
            let attr = Attr::read(&text[..place]);
            let (at, bytes) = (number(&text, place, 8), number(&text, place + 8, 8));
            let (Some(attr), Some(at), Some(bytes)) = (attr, at, bytes) else {
                return Err(input.damage("an attribute is cut off"));
            };
            input.seek(at)?;
            let ids = input.take(bytes, RECORD_BYTES_MAX * 8)?;
            self.samples.add(attr, &ids);
        }
        Ok(())
    }

    fn feature(&mut self, input: &mut Input<'_>, bit: u32, bytes: u64) -> Result<(), Error> {
        match bit {
            feature::TRACING_DATA => tracing_data(input, &mut self.formats, &mut self.about)?,
            feature::OSRELEASE => {
                self.about.machine = format!("Linux {}", string(input)?);
            }
            feature::ARCH => {
                let arch = string(input)?;
                self.about.machine = format!("{} {arch}", self.about.machine).trim().to_owned();
            }
            feature::NRCPUS if bytes >= 8 => {
                let _available = input.u32()?;
                self.about.cpus = input.u32()?;
            }
            feature::CMDLINE => {
                for _ in 0..input.u32()?.min(WORDS_MAX) {
                    let word = string(input)?;
                    self.about.command.push(word);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn records(&mut self, input: &mut Input<'_>, bytes: u64) -> Result<(), Error> {
        let end = input.at() + bytes.min(input.left());
        let mut body = Vec::new();
        while input.at() + 8 <= end {
            let kind = input.u32()?;
            let _misc = input.u16()?;
            let length = u64::from(input.u16()?);
            let Some(length) = length
                .checked_sub(8)
                .filter(|length| *length <= end - input.at())
            else {
                return Err(
                    input.damage("a record is longer than the file, or shorter than its head")
                );
            };
            input.take_into(&mut body, length, RECORD_BYTES_MAX)?;
            match kind {
                kind::TRACING_DATA => {
                    let bytes =
                        number(&body, 0, 4).ok_or_else(|| input.damage("a record is cut off"))?;
                    let begin = input.at();
                    tracing_data(input, &mut self.formats, &mut self.about)?;
                    input.seek(begin)?;
                    input.skip(bytes.next_multiple_of(8))?;
                }
                kind::AUXTRACE => {
                    let bytes =
                        number(&body, 0, 8).ok_or_else(|| input.damage("a record is cut off"))?;
                    input.skip(bytes)?;
                }
                kind::COMPRESSED => self.unpack(input, &body)?,
                kind::COMPRESSED2 => {
                    let bytes = number(&body, 0, 8).unwrap_or(0) as usize;
                    let packed = body.get(8..8_usize.saturating_add(bytes));
                    let packed = packed.ok_or_else(|| input.damage("a record is cut off"))?;
                    self.unpack(input, packed)?;
                }
                kind => self.record(kind, &body)?,
            }
        }
        Ok(())
    }

    /// Unpacks records and takes those that are whole.
    fn unpack(&mut self, input: &Input<'_>, packed: &[u8]) -> Result<(), Error> {
        use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};
        let refused = |error: std::io::Error| input.damage(format!("cannot be unpacked: {error}"));
        let mut unpacker = match self.unpacker.take() {
            Some(unpacker) => unpacker,
            None => Decoder::new().map_err(refused)?,
        };
        let mut from = InBuffer::around(packed);
        let mut room = vec![0; RECORD_BYTES_MAX];
        loop {
            let mut to = OutBuffer::around(&mut room[..]);
            unpacker.run(&mut from, &mut to).map_err(refused)?;
            let full = to.pos() == RECORD_BYTES_MAX;
            let made = to.pos();
            self.waiting.extend_from_slice(&room[..made]);
            let mut at = 0;
            while let Some(length) = number(&self.waiting, at + 6, 2) {
                let length = length as usize;
                if length < 8 {
                    return Err(input.damage("a packed record is shorter than its head"));
                }
                let Some(record) = self.waiting.get(at..at + length) else {
                    break;
                };
                let kind = number(record, 0, 4).unwrap_or(0) as u32;
                let body = record[8..].to_vec();
                self.record(kind, &body)?;
                at += length;
            }
            self.waiting.drain(..at);
            if self.waiting.len() > WAITING_MAX {
                return Err(input.damage("packed records without an end"));
            }
            if !full && from.pos() == packed.len() {
                break;
            }
            if !full && made == 0 {
                return Err(input.damage("packed records that do not go on"));
            }
        }
        self.unpacker = Some(unpacker);
        Ok(())
    }

    fn record(&mut self, kind: u32, body: &[u8]) -> Result<(), Error> {
        match kind {
            kind::SAMPLE => {
                let event = self.samples.read(body).and_then(|sample| {
                    Some((sample.cpu, sample.ns, self.formats.decode(sample.raw)?))
                });
                match event {
                    Some((cpu, ns, what)) => return self.sink.event(cpu, ns, &what),
                    None => self.about.others += 1,
                }
            }
            kind::LOST => self.lost = self.lost.saturating_add(number(body, 8, 8).unwrap_or(0)),
            kind::LOST_SAMPLES => {
                self.lost = self.lost.saturating_add(number(body, 0, 8).unwrap_or(0));
            }
            kind::ATTR => {
                // The attribute says how long it is; its numbers follow.
                let bytes = number(body, 4, 4).unwrap_or(0) as usize;
                if let Some(text) = body.get(..bytes)
                    && let Some(attr) = Attr::read(text)
                {
                    self.samples.add(attr, &body[bytes..]);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

fn section(input: &mut Input<'_>) -> Result<(u64, u64), Error> {
    Ok((input.u64()?, input.u64()?))
}

/// A string behind its length.
fn string(input: &mut Input<'_>) -> Result<String, Error> {
    let bytes = input.u32()?;
    let text = input.take(u64::from(bytes), RECORD_BYTES_MAX)?;
    let end = text
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(text.len());
    Ok(String::from_utf8_lossy(&text[..end]).into_owned())
}

/// Event formats as perf copies them from tracefs.
fn tracing_data(
    input: &mut Input<'_>,
    formats: &mut Formats,
    about: &mut About,
) -> Result<(), Error> {
    let magic = input.take(10, 10)?;
    if magic != crate::dat::MAGIC {
        return Err(input.damage("no event formats where they must be"));
    }
    let _version = input.string(16)?;
    if input.u8()? != 0 {
        return Err(input.damage("event formats of the other byte order"));
    }
    let _long = input.u8()?;
    about.page_size = u64::from(input.u32()?);
    for _ in ["header_page", "header_event"] {
        let _name = input.string(16)?;
        let bytes = input.u64()?;
        input.skip(bytes)?;
    }
    for _ in 0..input.u32()? {
        let bytes = input.u64()?;
        input.skip(bytes)?;
    }
    formats.read(input)
}
