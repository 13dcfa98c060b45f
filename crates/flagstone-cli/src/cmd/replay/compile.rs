//! A trace as a program: addresses become slots, streams become lists of operations.
//!
//! ```text
//!   merged events:   t1 alloc A   t2 free A     t1 alloc B (A's address again)
//!   operations:      t1 alloc s0  t2 free s0    t1 alloc s1
//! ```
//!
//! A block has a slot while it lives; a free slot waits long before it is used again, so that threads
//! seldom wait for each other. Where they do, they wait for the slot's turn, that is for what came earlier in
//! the trace: never in a circle.
//!
//! One pass; memory goes with the live blocks and the number of threads, not with the trace's length.

use super::ancestry;
use super::chosen;
use super::feed::{Feed, Plan};
use super::file::{free_bytes, reserve, write_head};
use super::program::{Head, Op, SAMPLES_MAX, SEGMENT, STEP, Sample, kind};
use super::segments::{At, Late, Segments};
use crate::{outfile, terminal};
use flagstone_trace::index::{Stream, StreamId};
use flagstone_trace::{Error, Event, Request, Trace};
use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

/// Free slots that wait before one is used again.
const SLOTS_WAITING: usize = 64 << 10;

/// Points at which the operations done are known, at most.
const PROGRESS: usize = 8 << 10;

/// Points of the curve of live bytes.
const CURVE: u64 = 1000;

/// Samples of a run, some. A look takes a fifth of a millisecond and more.
const SAMPLES: u64 = 500;

/// With `--pace together` streams are so to this part of the trace's time. Why: it is what a curve over the
/// operations shows; closer means more waiting.
const WINDOWS: u64 = 1000;

/// They need not be nearer: a thread's turn on a busy processor takes longer.
const WINDOW_NS_MIN: u64 = 100_000;

/// Bytes of operations in a window of a program that does not fit its file. Why: sixteen million operations, made in
/// some seconds, and small enough to stay in the system's memory.
const WINDOW_BYTES: u64 = 256 << 20;

/// Bytes of a program that is kept whole, at most, where --spool says nothing.
const WHOLE_BYTES: u64 = 8 << 30;

/// A compiled trace.
pub struct Compiled {
    /// The program: a file without a name, so that a killed command leaves nothing behind.
    pub file: File,
    /// How it is made anew for each run; none if the file has it whole.
    pub plan: Option<Plan>,
    /// What it is.
    pub about: About,
}

impl Deref for Compiled {
    type Target = About;

    fn deref(&self) -> &About {
        &self.about
    }
}

/// What one pass over a trace tells.
pub struct About {
    /// The head as written.
    pub head: Head,
    /// The process that was chosen.
    pub process: u32,
    /// The program that it ran.
    pub image: u32,
    /// Live bytes over the trace's time: nanoseconds, bytes.
    pub live: Vec<(u64, u64)>,
    /// The most bytes live at once.
    pub peak_live: u64,
    /// Operations done at times of the trace: nanoseconds, operations.
    pub progress: Vec<(u64, u64)>,
    /// What the recorded process had in memory.
    pub own: Vec<Own>,
    /// Frees and resizes of blocks that the trace does not know.
    pub unknown: u64,
    /// Blocks whose free is missing.
    pub missing: u64,
}

impl Compiled {
    /// A path by which a child of this process opens the program.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into()
    }
}

/// A look of the recorder at its process.
#[derive(Clone, Copy, Debug)]
pub struct Own {
    /// Nanoseconds of the trace.
    pub ns: u64,
    /// Resident bytes of the allocator.
    pub heap: u64,
    /// Other resident bytes of the process's own.
    pub other: u64,
}

/// Why a trace cannot be replayed.
#[derive(Debug)]
pub enum Why {
    Trace(Error),
    Io(io::Error),
    /// Bytes that the program needs, and that are free.
    NoRoom(u64, u64),
    /// Longer than was asked for: no line for users.
    Long,
    NoEvents,
    NoProcess(u32, Vec<u32>),
}

impl std::fmt::Display for Why {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Trace(error) => error.fmt(out),
            Self::Io(error) => write!(
                out,
                "the program made of it, in {}: {error}; TMPDIR names another folder",
                outfile::spool_folder().display()
            ),
            Self::NoRoom(needs, free) => write!(
                out,
                "No space for the program made of it: it needs {} in {}, where {} are free; TMPDIR names another folder",
                terminal::size(*needs),
                outfile::spool_folder().display(),
                terminal::size(*free)
            ),
            Self::Long => write!(out, "it is longer than its file may be"),
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

/// What a process of a trace did, without a program.
///
/// # Errors
/// See [`Why`].
pub fn survey(trace: &Trace, process: Option<u32>) -> Result<About, Why> {
    let chosen = choose(trace, process)?;
    let work = pass(trace, chosen, Segments::measured(WINDOW_BYTES), u64::MAX)?;
    Ok(work.finish(chosen)?.about)
}

/// Compiles one process of a trace into a temporary file of at most `spool` bytes of operations.
///
/// # Errors
/// See [`Why`].
pub fn compile(trace: &Trace, process: Option<u32>, spool: Option<u64>) -> Result<Compiled, Why> {
    let chosen = choose(trace, process)?;
    let file = outfile::spool()?;
    let free = free_bytes(&file)?;
    let most = spool.unwrap_or(WHOLE_BYTES.min(free / 2));
    let own = |stream: &&Stream| (stream.id.process, stream.id.image) == chosen;
    let events: u64 = trace
        .streams()
        .iter()
        .filter(own)
        .map(|one| one.events)
        .sum();
    if events.saturating_mul(STEP as u64) <= most {
        match pass(trace, chosen, Segments::whole(file.try_clone()?), most) {
            Ok(work) => {
                let made = work.finish(chosen)?;
                let needs = made.about.head.bytes - made.about.head.slots_at;
                return made.into_compiled(file, needs, None);
            }
            Err(Why::Long) => file.set_len(0)?,
            Err(why) => return Err(why),
        }
    }
    let window_bytes = WINDOW_BYTES.min(most).max(SEGMENT as u64);
    let work = pass(trace, chosen, Segments::measured(window_bytes), u64::MAX)?;
    let made = work.finish(chosen)?;
    let needs = made.about.head.bytes;
    made.into_compiled(file, needs, Some(window_bytes))
}

/// Makes a program again for a player that waits for it.
///
/// # Errors
/// See [`Why`]; a broken pipe if the player has ended.
pub fn feed(trace: &Trace, compiled: &Compiled, feed: Feed, window_bytes: u64) -> Result<(), Why> {
    let chosen = (compiled.process, compiled.image);
    let work = pass(trace, chosen, Segments::fed(feed, window_bytes), u64::MAX)?;
    work.segments.finish()?;
    Ok(())
}

/// Reads a process of the trace from its beginning to its end; [`Why::Long`] if a window has more bytes than `most`.
fn pass(
    trace: &Trace,
    (process, image): (u32, u32),
    segments: Segments,
    most: u64,
) -> Result<Work, Why> {
    let own = |id: StreamId| (id.process, id.image) == (process, image);
    let parents = ancestry::of(trace, process, image);
    let until = |id: StreamId| {
        let parent = parents
            .iter()
            .find(|one| (one.process, one.image) == (id.process, id.image));
        parent.map_or(0, |parent| parent.until)
    };
    let first = StreamId {
        process,
        image,
        stream: 1,
    };
    let mut work = Work::new(segments);
    let mut merged = trace.merged(|stream| own(stream.id) || stream.times.0 < until(stream.id));
    let mut zero = None;
    while let Some((time, stream, event)) = merged.next()? {
        if own(stream) {
            let zero = *zero.get_or_insert(time);
            work.event(trace.ns(time - zero) as u64, stream, &event)?;
        } else if time < until(stream)
            && !matches!(
                event,
                Event::Resident { .. } | Event::Trim { .. } | Event::Exit
            )
        {
            work.event(0, first, &event)?;
        }
        work.segments.cut_if_full()?;
        if work.segments.bytes() > most {
            return Err(Why::Long);
        }
    }
    Ok(work)
}

fn choose(trace: &Trace, wanted: Option<u32>) -> Result<(u32, u32), Why> {
    chosen::of(trace, wanted).ok_or_else(|| match wanted {
        None => Why::NoEvents,
        Some(wanted) => Why::NoProcess(wanted, chosen::processes(trace)),
    })
}

/// Every second goes.
fn halve<T>(all: &mut Vec<T>) {
    let mut odd = false;
    all.retain(|_| {
        odd = !odd;
        odd
    });
}

/// A block that lives.
#[derive(Clone, Copy)]
struct Live {
    slot: u32,
    /// The slot's next turn.
    turn: u16,
    size: u64,
    /// Where the operation that made it is.
    made: At,
    /// Bytes that the last look found touched.
    extent: Option<u64>,
}

struct Work {
    segments: Segments,
    numbers: HashMap<StreamId, usize>,
    /// The stream of the event before.
    before: usize,
    live: HashMap<u64, Live>,
    /// Blocks whose address was handed out again before their resize was noted.
    moving: HashMap<u64, Live>,
    /// Slots and their next turns.
    free: VecDeque<(u32, u16)>,
    slots: u32,
    touched: HashMap<usize, u64>,
    ops: u64,
    bytes: u64,
    peak: u64,
    curve: Vec<(u64, u64)>,
    unknown: u64,
    progress: Vec<(u64, u64)>,
    progress_every: u64,
    touches: u64,
    /// Streams whose threads have ended.
    over: HashSet<usize>,
    /// How many of them a new thread waits for.
    ended: u64,
    /// The last event's time.
    last_ns: u64,
    own: Vec<Own>,
}

impl Work {
    fn new(segments: Segments) -> Self {
        Self {
            segments,
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
            progress: Vec::new(),
            progress_every: 1,
            touches: 0,
            over: HashSet::new(),
            ended: 0,
            last_ns: 0,
            own: Vec::new(),
        }
    }

    fn event(&mut self, ns: u64, id: StreamId, event: &Event) -> Result<(), Why> {
        let stream = self.stream(ns, id)?;
        if !matches!(event, Event::Exit) {
            self.before = stream;
        } else if self.before == stream {
            // An ended thread starts no other.
            self.before = (0..self.numbers.len())
                .find(|one| *one != stream && !self.over.contains(one))
                .unwrap_or(stream);
        }
        self.last_ns = self.last_ns.max(ns);
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
            Event::Resident { heap, other } => self.own.push(Own { ns, heap, other }),
            Event::Extent { address, bytes } => self.extent(ns, stream, address, bytes)?,
            Event::Exit => {
                if self.over.insert(stream) && !self.segments.goes_on(stream) {
                    self.ended += 1;
                }
                let op = Op {
                    ns,
                    kind: kind::EXIT,
                    ..Op::default()
                };
                self.push(stream, op)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// A look at a large block that lives: the first says how far the operation that made it touches it,
    /// later ones touch it further.
    fn extent(&mut self, ns: u64, stream: usize, address: u64, bytes: u64) -> Result<(), Why> {
        let Some(live) = self.live.get_mut(&address) else {
            return Ok(());
        };
        let bytes = bytes.min(live.size);
        let before = live.extent.replace(bytes);
        let live = *live;
        match before {
            None => self.learn(live, Some(bytes)),
            Some(before) if bytes > before => self.touch(ns, stream, live, bytes),
            Some(_) => Ok(()),
        }
    }

    fn touch(&mut self, ns: u64, stream: usize, live: Live, bytes: u64) -> Result<(), Why> {
        self.touches += 1;
        let op = Op {
            ns,
            touch: bytes,
            slot: live.slot,
            turn: live.turn,
            kind: kind::TOUCH,
            ..Op::default()
        };
        self.push(stream, op).map(drop)
    }

    /// A block's end: what was found then, beside what was known.
    fn ended(
        &mut self,
        ns: u64,
        stream: usize,
        live: Live,
        touched: Option<u64>,
    ) -> Result<(), Why> {
        match (live.extent, touched) {
            (None, touched) => self.learn(live, touched),
            (Some(before), Some(bytes)) if bytes.min(live.size) > before => {
                self.touch(ns, stream, live, bytes.min(live.size))
            }
            _ => Ok(()),
        }
    }

    /// The stream's number; a new one is started by the stream of the event before.
    fn stream(&mut self, ns: u64, id: StreamId) -> Result<usize, Why> {
        if let Some(&number) = self.numbers.get(&id) {
            return Ok(number);
        }
        let number = self.segments.stream();
        self.numbers.insert(id, number);
        if number > 0 {
            let ended = match self.over.contains(&self.before) {
                true => 0,
                false => self.ended,
            };
            let op = Op {
                ns,
                size: ended,
                slot: number as u32,
                kind: kind::SPAWN,
                ..Op::default()
            };
            self.push(self.before, op)?;
        }
        Ok(number)
    }

    fn push(&mut self, stream: usize, op: Op) -> Result<At, Why> {
        self.ops += 1;
        if self.ops.is_multiple_of(self.progress_every) {
            self.progress.push((op.ns, self.ops));
            if self.progress.len() >= PROGRESS {
                halve(&mut self.progress);
                self.progress_every *= 2;
            }
        }
        Ok(self.segments.push(stream, &op)?)
    }

    fn alloc(
        &mut self,
        ns: u64,
        stream: usize,
        address: u64,
        request: &Request,
    ) -> Result<(), Why> {
        let (slot, turn) = self.slot();
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
            turn,
        };
        let made = self.push(stream, op)?;
        let live = Live {
            slot,
            turn: turn.wrapping_add(1),
            size: request.size,
            made,
            extent: None,
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
        self.ended(ns, stream, live, touched)?;
        let op = Op {
            ns,
            slot: live.slot,
            turn: live.turn,
            kind: kind::FREE,
            ..Op::default()
        };
        self.push(stream, op)?;
        self.free.push_back((live.slot, live.turn.wrapping_add(1)));
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
        self.ended(ns, stream, live, touched)?;
        let op = Op {
            ns,
            size,
            touch: size,
            slot: live.slot,
            turn: live.turn,
            kind: kind::REALLOC,
            ..Op::default()
        };
        live.made = self.push(stream, op)?;
        live.extent = None;
        live.turn = live.turn.wrapping_add(1);
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
        Ok(self.segments.learn(live.made, touched, live.size)?)
    }

    fn slot(&mut self) -> (u32, u16) {
        if self.free.len() > SLOTS_WAITING
            && let Some(slot) = self.free.pop_front()
        {
            return slot;
        }
        self.slots += 1;
        (self.slots - 1, 0)
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
                halve(&mut self.curve);
            }
        }
    }

    fn spacing(&self) -> u64 {
        self.curve.last().map_or(0, |last| last.0) / (2 * CURVE)
    }

    fn finish(self, (process, image): (u32, u32)) -> Result<Made, Why> {
        if self.ops == 0 {
            return Err(Why::NoEvents);
        }
        let (tables, last, late) = self.segments.finish()?;
        let mut head = Head {
            slots: u64::from(self.slots),
            ops: self.ops,
            touches: self.touches,
            window_ns: (self.last_ns / WINDOWS).max(WINDOW_NS_MIN),
            sample_every: (self.ops / SAMPLES).max(64),
            ..tables
        };
        head.samples_at = head.slots_at + head.slots * 8;
        head.bytes = head.samples_at + SAMPLES_MAX * size_of::<Sample>() as u64;
        let about = About {
            head,
            process,
            image,
            live: self.curve,
            peak_live: self.peak,
            progress: self.progress,
            own: self.own,
            unknown: self.unknown,
            missing: self.moving.len() as u64,
        };
        Ok(Made { about, last, late })
    }
}

/// What a pass leaves.
struct Made {
    about: About,
    last: Vec<u64>,
    late: Vec<Late>,
}

impl Made {
    /// Lays out the file, of which `needs` bytes are not written yet.
    fn into_compiled(
        self,
        file: File,
        needs: u64,
        window_bytes: Option<u64>,
    ) -> Result<Compiled, Why> {
        let free = free_bytes(&file)?;
        if needs > free {
            return Err(Why::NoRoom(needs, free));
        }
        let Self { about, last, late } = self;
        if window_bytes.is_some() {
            reserve(&file, 0, about.head.slots_at)?;
        }
        write_head(&file, &about.head)?;
        let plan = window_bytes.map(|window_bytes| Plan {
            window_bytes,
            last,
            late,
        });
        Ok(Compiled { file, plan, about })
    }
}
