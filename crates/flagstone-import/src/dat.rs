//! `trace.dat` of trace-cmd, versions 6 and 7.
//!
//! ```text
//!   6   magic | header_page, event formats, kallsyms, ... | CPUs | options | flyrecord: pages of each CPU
//!   7   magic | first options ─► sections (formats, ...) and buffers (pages of each CPU), packed or not
//! ```
//!
//! Each CPU's events are in order; the pages are those of the kernel's ring buffer (ring.rs).

use crate::formats::Formats;
use crate::input::{Input, Source, number};
use crate::ring::{self, PageLayout};
use crate::{About, Error, Sink, What};
use std::io::{Cursor, Read};

/// The first bytes.
pub const MAGIC: [u8; 10] = *b"\x17\x08\x44tracing";

/// Bounds of what is held in memory.
const PAGE_BYTES_MAX: usize = 1 << 20;
const TEXT_BYTES_MAX: usize = 64 << 10;
const SECTION_BYTES_MAX: usize = 64 << 20;
const CHUNK_BYTES_MAX: usize = 16 << 20;
const CPUS_MAX: u32 = 1 << 16;
/// Options sections and options of a file: a chain of them may be a circle.
const OPTIONS_MAX: usize = 1 << 16;

/// How version 7 packs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Packing {
    None,
    Zlib,
    Zstd,
}

/// Where the pages of a CPU lie.
struct Part {
    cpu: u32,
    offset: u64,
    bytes: u64,
}

/// What the file has told so far.
#[derive(Default)]
struct Known {
    formats: Formats,
    layout: Option<PageLayout>,
    about: About,
    /// Buffers of version 7: with packed pages or not; and their CPUs.
    buffers: Vec<(bool, Vec<Part>)>,
    lost: u64,
}

/// Hands on what the file tells, one CPU after the other.
pub fn read(source: &mut dyn Source, sink: &mut dyn Sink) -> Result<About, Error> {
    let mut input = Input::new(source)?;
    input.skip(MAGIC.len() as u64)?;
    let version = input.string(16)?;
    if input.u8()? != 0 {
        return Err(Error::Foreign(
            "a trace.dat of a machine with the other byte order; import the text of `trace-cmd report` \
             instead"
                .into(),
        ));
    }
    let _long = input.u8()?;
    let page = input.u32()?;
    let mut known = Known::default();
    known.about.page_size = u64::from(page);
    let packing = match version.as_str() {
        "6" => {
            six(&mut input, &mut known)?;
            Packing::None
        }
        "7" => seven(&mut input, &mut known)?,
        other => {
            return Err(Error::Foreign(format!(
                "a trace.dat of version {other:?}; versions 6 and 7 are read, and the text of `trace-cmd report`"
            )));
        }
    };
    let layout = known
        .layout
        .ok_or_else(|| input.damage("it has no header_page"))?;
    let page = usize::try_from(page).unwrap_or(0);
    if !page.is_power_of_two() || !(256..=PAGE_BYTES_MAX).contains(&page) {
        return Err(input.damage(format!("pages of {page} bytes")));
    }
    let mut reader = Reader {
        known,
        layout,
        page,
        sink,
        lost: 0,
    };
    for (packed, parts) in std::mem::take(&mut reader.known.buffers) {
        for part in parts {
            let packing = if packed { packing } else { Packing::None };
            reader.part(&mut input, &part, packing)?;
        }
    }
    let mut about = reader.known.about;
    let lost = reader.known.lost;
    if lost > 0 {
        reader.sink.event(0, 0, &What::Lost(lost))?;
    }
    if reader.lost > 0 {
        about.notes.push(format!(
            "The kernel's rings overran before {} pages of events.",
            reader.lost
        ));
    }
    Ok(about)
}

fn six(input: &mut Input<'_>, known: &mut Known) -> Result<(), Error> {
    header_info(input, known)?;
    for _ in 0..input.u32()? {
        let bytes = input.u64()?;
        input.skip(bytes)?;
    }
    known.formats.read(input)?;
    for _ in ["kallsyms", "printk"] {
        let bytes = input.u32()?;
        input.skip(u64::from(bytes))?;
    }
    let bytes = input.u64()?;
    input.skip(bytes)?;
    let cpus = input.u32()?;
    known.about.cpus = cpus;
    let mut places = Vec::new();
    loop {
        let kind = input.take(10, 10)?;
        match &kind[..] {
            b"options  \0" => six_options(input, known, &mut places)?,
            b"flyrecord\0" => break,
            b"latency  \0" => return Err(latency()),
            _ => return Err(input.damage("no part of a trace.dat begins so")),
        }
    }
    let parts = six_parts(input, cpus)?;
    known.buffers.push((false, parts));
    for place in places {
        input.seek(place)?;
        // Older files have the number of CPUs only at the main buffer.
        if input.take(10, 10)? == b"flyrecord\0" {
            let parts = six_parts(input, cpus)?;
            known.buffers.push((false, parts));
        }
    }
    Ok(())
}

fn latency() -> Error {
    Error::Foreign(
        "a trace.dat of a latency tracer, without raw events; import the text of `trace-cmd report`".into(),
    )
}

fn six_options(
    input: &mut Input<'_>,
    known: &mut Known,
    buffers: &mut Vec<u64>,
) -> Result<(), Error> {
    for _ in 0..OPTIONS_MAX {
        let id = input.u16()?;
        if id == 0 {
            return Ok(());
        }
        let bytes = u64::from(input.u32()?);
        if id == 3 {
            let data = input.take(bytes, TEXT_BYTES_MAX)?;
            buffers.extend(number(&data, 0, 8));
        } else {
            option(input, known, id, bytes)?;
        }
    }
    Err(input.damage("more options than any file has"))
}

/// An option that both versions have.
fn option(input: &mut Input<'_>, known: &mut Known, id: u16, bytes: u64) -> Result<(), Error> {
    const CPUSTAT: u16 = 2;
    const UNAME: u16 = 5;
    const CPUCOUNT: u16 = 8;
    match id {
        CPUSTAT => {
            let data = input.take(bytes, TEXT_BYTES_MAX)?;
            known.lost += lost(&String::from_utf8_lossy(&data));
        }
        UNAME => {
            let data = input.take(bytes, TEXT_BYTES_MAX)?;
            let name = String::from_utf8_lossy(&data);
            known.about.machine = name
                .trim_end_matches('\0')
                .trim()
                .chars()
                .take(200)
                .collect();
        }
        CPUCOUNT if bytes == 4 => known.about.cpus = input.u32()?,
        _ => input.skip(bytes)?,
    }
    Ok(())
}

/// What a CPU's statistics say was lost.
fn lost(stats: &str) -> u64 {
    let of = |name: &str| {
        let line = stats.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim_end_matches('\0').trim().parse::<u64>().ok()
    };
    of("overrun:")
        .unwrap_or(0)
        .saturating_add(of("dropped events:").unwrap_or(0))
}

fn six_parts(input: &mut Input<'_>, cpus: u32) -> Result<Vec<Part>, Error> {
    if cpus > CPUS_MAX {
        return Err(input.damage(format!("{cpus} CPUs")));
    }
    let mut parts = Vec::new();
    for cpu in 0..cpus {
        let (offset, bytes) = (input.u64()?, input.u64()?);
        parts.push(Part { cpu, offset, bytes });
    }
    Ok(parts)
}

fn header_info(input: &mut Input<'_>, known: &mut Known) -> Result<(), Error> {
    for name in ["header_page", "header_event"] {
        if input.string(16)? != name {
            return Err(input.damage(format!("no {name} where one must be")));
        }
        let bytes = input.u64()?;
        let text = input.take(bytes, TEXT_BYTES_MAX)?;
        if name == "header_page" {
            known.layout = PageLayout::parse(&String::from_utf8_lossy(&text));
        }
    }
    Ok(())
}

fn seven(input: &mut Input<'_>, known: &mut Known) -> Result<Packing, Error> {
    let name = input.string(64)?;
    let _version = input.string(64)?;
    let packing = match name.as_str() {
        "none" => Packing::None,
        "zlib" => Packing::Zlib,
        "zstd" => Packing::Zstd,
        other => {
            return Err(Error::Foreign(format!(
                "a trace.dat packed by {other:?}; none, zlib and zstd are read"
            )));
        }
    };
    let mut next = input.u64()?;
    let (mut sections, mut buffers) = (Vec::new(), Vec::new());
    let mut seen = 0;
    while next != 0 {
        input.seek(next)?;
        let text = section(input, packing)?;
        let mut text = Cursor::new(text);
        let mut options = Input::new(&mut text)?;
        next = seven_options(&mut options, known, &mut sections, &mut buffers)?;
        seen += 1;
        if seen > OPTIONS_MAX {
            return Err(input.damage("its options are a circle"));
        }
    }
    for (id, place) in sections {
        input.seek(place)?;
        let text = section(input, packing)?;
        let mut text = Cursor::new(text);
        let mut inside = Input::new(&mut text)?;
        match id {
            HEADER_INFO => header_info(&mut inside, known)?,
            _ => known.formats.read(&mut inside)?,
        }
    }
    for (place, parts) in buffers {
        input.seek(place)?;
        let _id = input.u16()?;
        let packed = input.u16()? & 1 != 0;
        known.buffers.push((packed, parts));
    }
    Ok(packing)
}

const HEADER_INFO: u16 = 16;
const EVENT_FORMATS: u16 = 18;
const BUFFER: u16 = 3;
const BUFFER_TEXT: u16 = 22;

/// Reads one section of options; answers where the next is.
fn seven_options(
    input: &mut Input<'_>,
    known: &mut Known,
    sections: &mut Vec<(u16, u64)>,
    buffers: &mut Vec<(u64, Vec<Part>)>,
) -> Result<u64, Error> {
    while input.left() > 0 {
        let id = input.u16()?;
        let bytes = u64::from(input.u32()?);
        match id {
            0 => return if bytes >= 8 { input.u64() } else { Ok(0) },
            HEADER_INFO | EVENT_FORMATS if sections.len() < OPTIONS_MAX => {
                let place = input.u64()?;
                input.skip(bytes.saturating_sub(8))?;
                sections.push((id, place));
            }
            BUFFER if buffers.len() < OPTIONS_MAX => {
                let end = input.at().saturating_add(bytes);
                let place = input.u64()?;
                let (_name, _clock) = (input.string(4096)?, input.string(64)?);
                let page = u64::from(input.u32()?);
                if page != known.about.page_size {
                    known.about.page_size = known.about.page_size.max(page);
                }
                let cpus = input.u32()?;
                if cpus > CPUS_MAX {
                    return Err(input.damage(format!("{cpus} CPUs")));
                }
                let mut parts = Vec::new();
                for _ in 0..cpus {
                    let (cpu, offset, bytes) = (input.u32()?, input.u64()?, input.u64()?);
                    parts.push(Part { cpu, offset, bytes });
                }
                buffers.push((place, parts));
                input.seek(end)?;
            }
            BUFFER_TEXT => return Err(latency()),
            id => option(input, known, id, bytes)?,
        }
    }
    Ok(0)
}

/// The text of a section at this place, unpacked.
fn section(input: &mut Input<'_>, packing: Packing) -> Result<Vec<u8>, Error> {
    let _id = input.u16()?;
    let packed = input.u16()? & 1 != 0;
    let _description = input.u32()?;
    let bytes = input.u64()?;
    if !packed {
        return input.take(bytes, SECTION_BYTES_MAX);
    }
    unpacked(input, packing, SECTION_BYTES_MAX)
}

/// Two lengths and packed bytes.
fn unpacked(input: &mut Input<'_>, packing: Packing, most: usize) -> Result<Vec<u8>, Error> {
    let (packed, raw) = (input.u32()?, input.u32()? as usize);
    if raw > most {
        return Err(input.damage(format!("a part of {raw} bytes where {most} are the most")));
    }
    let data = input.take(u64::from(packed), most)?;
    let refused = |error: std::io::Error| input.damage(format!("cannot be unpacked: {error}"));
    match packing {
        Packing::None => Ok(data),
        // Into a buffer of the size it says: nothing that is longer takes more memory.
        Packing::Zstd => zstd::bulk::decompress(&data, raw).map_err(refused),
        Packing::Zlib => {
            let mut text = Vec::new();
            let reader = flate2::read::ZlibDecoder::new(&data[..]);
            reader
                .take(raw as u64)
                .read_to_end(&mut text)
                .map_err(refused)?;
            Ok(text)
        }
    }
}

struct Reader<'s> {
    known: Known,
    layout: PageLayout,
    page: usize,
    sink: &'s mut dyn Sink,
    /// Pages before which events are missing.
    lost: u64,
}

impl Reader<'_> {
    fn part(&mut self, input: &mut Input<'_>, part: &Part, packing: Packing) -> Result<(), Error> {
        if part.bytes == 0 {
            return Ok(());
        }
        input.seek(part.offset)?;
        if packing == Packing::None {
            // A recording that was cut off has fewer pages than it says.
            let mut left = part.bytes.min(input.left());
            let mut page = Vec::new();
            while left > 0 {
                let bytes = left.min(self.page as u64);
                input.take_into(&mut page, bytes, self.page)?;
                self.one(part.cpu, &page)?;
                left -= bytes;
            }
            return Ok(());
        }
        for _ in 0..input.u32()? {
            let chunk = unpacked(input, packing, CHUNK_BYTES_MAX)?;
            for page in chunk.chunks(self.page) {
                self.one(part.cpu, page)?;
            }
        }
        Ok(())
    }

    fn one(&mut self, cpu: u32, page: &[u8]) -> Result<(), Error> {
        let (formats, sink, others) = (
            &self.known.formats,
            &mut self.sink,
            &mut self.known.about.others,
        );
        let missed = ring::page(self.layout, page, |ns, record| {
            match formats.decode(record) {
                Some(what) => sink.event(cpu, ns, &what),
                None => {
                    *others += 1;
                    Ok(())
                }
            }
        })?;
        self.lost += u64::from(missed);
        Ok(())
    }
}
