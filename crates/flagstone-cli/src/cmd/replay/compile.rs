//! A trace as a program: addresses become slots, streams become lists of operations.
//!
//! ```text
//!   merged events:   t1 alloc A   t2 free A     t1 alloc B (A's address again)
//!   operations:      t1 alloc s0  t2 free s0    t1 alloc s1
//! ```
//!
//! A block has a slot while it lives; a free slot waits long before it is used again, so that threads
//! seldom wait for each other. Where they do, they wait for what came earlier in the trace: never in a
//! circle.
//!
//! One pass; memory goes with the live blocks and the number of threads, not with the trace's length.

use super::program::{
    HEAD_BYTES, Head, OP_BYTES, Op, SAMPLES_MAX, SEGMENT, Sample, Segment, StreamHead, TOUCH_AT,
    kind,
};
use flagstone_trace::index::StreamId;
use flagstone_trace::{Error, Event, Request, Trace};
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use tempfile::NamedTempFile;

/// Free slots that wait before one is used again.
const SLOTS_WAITING: usize = 64 << 10;

/// Points of the curve of live bytes.
const CURVE: u64 = 1000;

/// A compiled trace.
pub struct Compiled {
    /// The program.
    pub file: NamedTempFile,
    /// The head as written.
    pub head: Head,
    /// The process that was chosen.
    pub process: u32,
    /// Live bytes over the trace's time: nanoseconds, bytes.
    pub live: Vec<(u64, u64)>,
    /// The most bytes live at once.
    pub peak_live: u64,
    /// Frees and resizes of blocks that the trace does not know.
    pub unknown: u64,
    /// Blocks whose free is missing.
    pub missing: u64,
}

/// Why a trace cannot be replayed.
#[derive(Debug)]
pub enum Why {
    Trace(Error),
    Io(io::Error),
    NoEvents,
    NoProcess(u32, Vec<u32>),
}

impl std::fmt::Display for Why {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Trace(error) => error.fmt(out),
            Self::Io(error) => write!(out, "the program made of it: {error}"),
            Self::NoEvents => write!(out, "no allocation in it to replay"),
            Self::NoProcess(wanted, known) => {
                write!(out, "no process {wanted} in it; it has {known:?}")
            }
        }
    }
}

impl From<Error> for Why {
    fn from(error: Error) -> Self {
        Self::Trace(error)
    }
}

impl From<io::Error> for Why {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Compiles one process of a trace.
///
/// # Errors
/// See [`Why`].
pub fn compile(trace: &Trace, process: Option<u32>) -> Result<Compiled, Why> {
    let (process, image) = choose(trace, process)?;
    let is_of = |id: StreamId| (id.process, id.image) == (process, image);
    let mut work = Work::new()?;
    let mut merged = trace.merged(|stream| is_of(stream.id));
    let mut first = None;
    while let Some((time, stream, event)) = merged.next()? {
        let zero = *first.get_or_insert(time);
        work.event(trace.ns(time - zero) as u64, stream, &event)?;
    }
    work.finish(process)
}

fn choose(trace: &Trace, wanted: Option<u32>) -> Result<(u32, u32), Why> {
    let mut events: HashMap<(u32, u32), u64> = HashMap::new();
    for stream in trace.streams() {
        *events
            .entry((stream.id.process, stream.id.image))
            .or_default() += stream.events;
    }
    let most = events
        .iter()
        .filter(|((process, _), _)| wanted.is_none_or(|wanted| wanted == *process))
        .max_by_key(|(id, count)| (**count, **id));
    match (most, wanted) {
        (Some((&id, _)), _) => Ok(id),
        (None, None) => Err(Why::NoEvents),
        (None, Some(wanted)) => {
            let mut known: Vec<u32> = events.keys().map(|(process, _)| *process).collect();
            known.sort_unstable();
            known.dedup();
            Err(Why::NoProcess(wanted, known))
        }
    }
}

/// A block that lives.
#[derive(Clone, Copy)]
struct Live {
    slot: u32,
    size: u64,
    /// Where the operation that made it is.
    made: At,
}

/// An operation's place: a stream's open segment, or the file once that is written.
#[derive(Clone, Copy)]
struct At {
    stream: usize,
    segment: usize,
    index: usize,
}

/// A stream on its way.
struct Open {
    ops: Vec<Op>,
    /// Number of the open segment.
    segment: usize,
    first: u64,
    /// The last written segment.
    last: Option<usize>,
}

struct Work {
    file: NamedTempFile,
    end: u64,
    segments: Vec<Segment>,
    streams: Vec<Open>,
    numbers: HashMap<StreamId, usize>,
    /// The stream of the event before.
    before: usize,
    live: HashMap<u64, Live>,
    /// Blocks whose address was handed out again before their resize was noted.
    moving: HashMap<u64, Live>,
    free: VecDeque<u32>,
    slots: u32,
    touched: HashMap<usize, u64>,
    ops: u64,
    bytes: u64,
    peak: u64,
    curve: Vec<(u64, u64)>,
    unknown: u64,
}

impl Work {
    fn new() -> Result<Self, Why> {
        Ok(Self {
            file: NamedTempFile::with_prefix("flagstone-replay-")?,
            end: HEAD_BYTES,
            segments: Vec::new(),
            streams: Vec::new(),
            numbers: HashMap::new(),
            before: 0,
            live: HashMap::new(),
            moving: HashMap::new(),
            free: VecDeque::new(),
            slots: 0,
            touched: HashMap::new(),
            ops: 0,
            bytes: 0,
            peak: 0,
            curve: Vec::new(),
            unknown: 0,
        })
    }

    fn event(&mut self, ns: u64, id: StreamId, event: &Event) -> Result<(), Why> {
        let stream = self.stream(ns, id)?;
        self.before = stream;
        match *event {
            Event::Alloc { address: 0, .. } | Event::Realloc { new: 0, .. } => {}
            Event::Alloc { address, request } => self.alloc(ns, stream, address, &request)?,
            Event::Free { address } => self.free(ns, stream, address)?,
            Event::Realloc { old, new, size } => self.realloc(ns, stream, (old, new), size)?,
            Event::Touched { bytes } => {
                self.touched.insert(stream, bytes);
            }
            Event::Trim { keep } => {
                let op = Op {
                    ns,
                    size: keep,
                    kind: kind::TRIM,
                    ..Op::default()
                };
                self.push(stream, op)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// The stream's number; a new one is started by the stream of the event before.
    fn stream(&mut self, ns: u64, id: StreamId) -> Result<usize, Why> {
        if let Some(&number) = self.numbers.get(&id) {
            return Ok(number);
        }
        let number = self.streams.len();
        self.numbers.insert(id, number);
        self.streams.push(Open {
            ops: Vec::with_capacity(SEGMENT),
            segment: 0,
            first: 0,
            last: None,
        });
        if number > 0 {
            let op = Op {
                ns,
                slot: number as u32,
                kind: kind::SPAWN,
                ..Op::default()
            };
            self.push(self.before, op)?;
        }
        Ok(number)
    }

    fn push(&mut self, stream: usize, op: Op) -> Result<At, Why> {
        if self.streams[stream].ops.len() == SEGMENT {
            self.close(stream)?;
        }
        let open = &mut self.streams[stream];
        open.ops.push(op);
        self.ops += 1;
        Ok(At {
            stream,
            segment: open.segment,
            index: open.ops.len() - 1,
        })
    }

    /// Writes a stream's open segment.
    fn close(&mut self, stream: usize) -> Result<(), Why> {
        let ops = std::mem::take(&mut self.streams[stream].ops);
        let bytes: Vec<u8> = ops.iter().flat_map(Op::bytes).collect();
        self.file.as_file().write_all_at(&bytes, self.end)?;
        let number = self.segments.len();
        self.segments.push(Segment {
            offset: self.end,
            count: ops.len() as u64,
            next: 0,
        });
        self.end += bytes.len() as u64;
        let open = &mut self.streams[stream];
        match open.last.replace(number) {
            Some(last) => self.segments[last].next = number as u64 + 1,
            None => open.first = number as u64 + 1,
        }
        open.segment += 1;
        open.ops = ops;
        open.ops.clear();
        Ok(())
    }

    fn alloc(
        &mut self,
        ns: u64,
        stream: usize,
        address: u64,
        request: &Request,
    ) -> Result<(), Why> {
        let slot = self.slot();
        let op = Op {
            ns,
            size: request.size,
            touch: request.size,
            slot,
            kind: match (request.align_log2, request.zeroed) {
                (1.., _) => kind::ALIGNED,
                (0, true) => kind::ZEROED,
                (0, false) => kind::ALLOC,
            },
            align_log2: request.align_log2,
            unused: 0,
        };
        let made = self.push(stream, op)?;
        let live = Live {
            slot,
            size: request.size,
            made,
        };
        if let Some(before) = self.live.insert(address, live) {
            self.moving.insert(address, before);
        }
        self.grew(ns, request.size);
        Ok(())
    }

    fn free(&mut self, ns: u64, stream: usize, address: u64) -> Result<(), Why> {
        let touched = self.touched.remove(&stream);
        let Some(live) = self.live.remove(&address) else {
            self.unknown += 1;
            return Ok(());
        };
        self.learn(live, touched)?;
        let op = Op {
            ns,
            slot: live.slot,
            kind: kind::FREE,
            ..Op::default()
        };
        self.push(stream, op)?;
        self.free.push_back(live.slot);
        self.bytes -= live.size;
        self.mark(ns);
        Ok(())
    }

    fn realloc(
        &mut self,
        ns: u64,
        stream: usize,
        (old, new): (u64, u64),
        size: u64,
    ) -> Result<(), Why> {
        let touched = self.touched.remove(&stream);
        let known = self.moving.remove(&old).or_else(|| self.live.remove(&old));
        let Some(mut live) = known else {
            self.unknown += 1;
            let request = Request {
                size,
                ..Request::default()
            };
            return self.alloc(ns, stream, new, &request);
        };
        self.learn(live, touched)?;
        let op = Op {
            ns,
            size,
            touch: size,
            slot: live.slot,
            kind: kind::REALLOC,
            ..Op::default()
        };
        live.made = self.push(stream, op)?;
        self.bytes -= live.size;
        live.size = size;
        if let Some(before) = self.live.insert(new, live) {
            self.moving.insert(new, before);
        }
        self.grew(ns, size);
        Ok(())
    }

    /// The operation that made a block touches no more than the program did.
    fn learn(&mut self, live: Live, touched: Option<u64>) -> Result<(), Why> {
        let Some(touched) = touched.filter(|&bytes| bytes < live.size) else {
            return Ok(());
        };
        let open = &mut self.streams[live.made.stream];
        if open.segment == live.made.segment {
            open.ops[live.made.index].touch = touched;
            return Ok(());
        }
        // Segments of a stream are chained; a large block's is found by walking the chain.
        let mut number = open.first;
        for _ in 0..live.made.segment {
            number = self.segments[number as usize - 1].next;
        }
        let segment = &self.segments[number as usize - 1];
        let at = segment.offset + live.made.index as u64 * OP_BYTES + TOUCH_AT;
        self.file
            .as_file()
            .write_all_at(&touched.to_ne_bytes(), at)?;
        Ok(())
    }

    fn slot(&mut self) -> u32 {
        if self.free.len() > SLOTS_WAITING
            && let Some(slot) = self.free.pop_front()
        {
            return slot;
        }
        self.slots += 1;
        self.slots - 1
    }

    fn grew(&mut self, ns: u64, by: u64) {
        self.bytes += by;
        self.peak = self.peak.max(self.bytes);
        self.mark(ns);
    }

    /// Adds a point to the curve; when it has twice as many as wanted, every second one goes.
    fn mark(&mut self, ns: u64) {
        let apart = self.curve.last().map_or(0, |last| last.0) + self.spacing();
        if self.curve.is_empty() || ns >= apart {
            self.curve.push((ns, self.bytes));
            if self.curve.len() as u64 >= 2 * CURVE {
                let mut odd = false;
                self.curve.retain(|_| {
                    odd = !odd;
                    odd
                });
            }
        }
    }

    fn spacing(&self) -> u64 {
        self.curve.last().map_or(0, |last| last.0) / (2 * CURVE)
    }

    fn finish(mut self, process: u32) -> Result<Compiled, Why> {
        if self.ops == 0 {
            return Err(Why::NoEvents);
        }
        for stream in 0..self.streams.len() {
            self.close(stream)?;
        }
        let mut head = Head {
            streams: self.streams.len() as u64,
            segments: self.segments.len() as u64,
            slots: u64::from(self.slots),
            ops: self.ops,
            sample_every: (self.ops / (SAMPLES_MAX / 8)).max(64),
            ..Head::default()
        };
        let streams: Vec<u8> = self
            .streams
            .iter()
            .flat_map(|open| StreamHead { first: open.first }.first.to_ne_bytes())
            .collect();
        let words = |segment: &Segment| [segment.offset, segment.count, segment.next];
        let segments: Vec<u8> = self
            .segments
            .iter()
            .flat_map(words)
            .flat_map(u64::to_ne_bytes)
            .collect();
        let file = self.file.as_file();
        head.streams_at = self.end;
        file.write_all_at(&streams, head.streams_at)?;
        head.segments_at = head.streams_at + streams.len() as u64;
        file.write_all_at(&segments, head.segments_at)?;
        head.slots_at = (head.segments_at + segments.len() as u64).next_multiple_of(4096);
        head.samples_at = head.slots_at + head.slots * 8;
        head.bytes = head.samples_at + SAMPLES_MAX * size_of::<Sample>() as u64;
        write_head(file, &head)?;
        Ok(Compiled {
            file: self.file,
            head,
            process,
            live: self.curve,
            peak_live: self.peak,
            unknown: self.unknown,
            missing: self.moving.len() as u64,
        })
    }
}

/// The head's words, in order.
pub fn head_words(head: &Head) -> [u64; 16] {
    [
        head.bytes,
        head.streams,
        head.streams_at,
        head.segments,
        head.segments_at,
        head.slots,
        head.slots_at,
        head.samples_at,
        head.ops,
        head.sample_every,
        head.samples,
        head.run_ns,
        head.base_pages,
        head.faults,
        head.cpu_ns,
        head.refused,
    ]
}

/// Writes the head, and zeroes what a run left behind.
pub fn write_head(file: &File, head: &Head) -> io::Result<()> {
    let bytes: Vec<u8> = head_words(head)
        .iter()
        .flat_map(|word| word.to_ne_bytes())
        .collect();
    file.write_all_at(&bytes, 0)?;
    file.set_len(head.slots_at)?;
    file.set_len(head.bytes)
}
