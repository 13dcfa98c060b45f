//! Operations on their way into a program's file.
//!
//! ```text
//!   push ─► a stream's open segment (16 KiB in memory) ─ full ─► the file
//!   learn ────────┴───────────────────────────────────────────────┘   what is known of an operation later
//!   cut  ─► a window ends: its segments and its tables are played before the next takes their place
//! ```
//!
//! A program that fits its file is one window, and its segments stay. A longer one is measured first, then made
//! once more for each run, window by window; what was learned of an operation after its window is known by then.
//!
//! Memory goes with the number of streams, 32 bytes for each thousand operations of a window, and 24 bytes for
//! each block whose pages were found in a later window than the one that made it.

use super::feed::Feed;
use super::program::{HEAD_BYTES, Head, Op, SEGMENT, Segment, StreamHead, TOUCH_AT};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// An operation's place.
#[derive(Clone, Copy)]
pub struct At {
    /// The stream.
    pub stream: usize,
    /// The window.
    window: u32,
    /// Number of the segment in its window.
    segment: u32,
    /// Byte of the segment.
    byte: u32,
}

/// What was learned of an operation after its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Late {
    /// The window.
    window: u32,
    segment: u32,
    byte: u32,
    touched: u64,
}

/// A stream on its way.
#[derive(Default)]
pub struct Open {
    /// Its first segment of the window, plus one; zero for none.
    pub first: u64,
    /// The last window in which it has operations, counted from 1.
    pub last: u64,
    /// Number of the open segment.
    segment: Option<usize>,
    began: u64,
    bytes: Vec<u8>,
}

/// Where segments go.
enum Sink {
    /// They stay in the file.
    Whole(File),
    /// Nowhere: how much room they need is counted.
    Measured,
    /// To a player that waits for them.
    Fed(Box<Feed>),
}

/// How much room the windows of a program need.
#[derive(Clone, Copy, Default, Debug)]
pub struct Needs {
    /// Bytes of the operations of a window at most.
    bytes: u64,
    /// Segments of a window at most.
    segments: u64,
}

/// All segments.
pub struct Segments {
    sink: Sink,
    /// Bytes of operations after which a window ends.
    window_bytes: u64,
    /// Windows that have ended.
    window: u32,
    /// Bytes of operations in this window.
    bytes: u64,
    end: u64,
    all: Vec<Segment>,
    streams: Vec<Open>,
    late: Vec<Late>,
    needs: Needs,
}

impl Segments {
    /// Into an empty file, which holds them all.
    pub fn whole(file: File) -> Self {
        Self::of(Sink::Whole(file), u64::MAX)
    }

    /// Counted only.
    pub fn measured(window_bytes: u64) -> Self {
        Self::of(Sink::Measured, window_bytes)
    }

    /// To a player.
    pub fn fed(feed: Feed, window_bytes: u64) -> Self {
        Self::of(Sink::Fed(Box::new(feed)), window_bytes)
    }

    fn of(sink: Sink, window_bytes: u64) -> Self {
        Self {
            sink,
            window_bytes,
            window: 0,
            bytes: 0,
            end: HEAD_BYTES,
            all: Vec::new(),
            streams: Vec::new(),
            late: Vec::new(),
            needs: Needs::default(),
        }
    }

    /// Adds a stream; its number.
    pub fn stream(&mut self) -> usize {
        self.streams.push(Open::default());
        self.streams.len() - 1
    }

    /// Bytes of operations of the window on its way.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether a stream has operations after this window, as far as is known.
    pub fn goes_on(&self, stream: usize) -> bool {
        match &self.sink {
            Sink::Fed(feed) => feed.last(stream) > u64::from(self.window) + 1,
            Sink::Whole(_) | Sink::Measured => false,
        }
    }

    /// Adds an operation to a stream.
    ///
    /// # Errors
    /// The file's.
    pub fn push(&mut self, stream: usize, op: &Op) -> io::Result<At> {
        let open = &self.streams[stream];
        let apart = op.ns.saturating_sub(open.began);
        let full = open.bytes.len() + op.len() > SEGMENT || apart > u64::from(u32::MAX);
        let segment = match open.segment {
            Some(segment) if !full => segment,
            before => self.open(stream, before, op.ns)?,
        };
        let open = &mut self.streams[stream];
        let byte = open.bytes.len();
        op.pack(open.began, &mut open.bytes);
        self.bytes += op.len() as u64;
        Ok(At {
            stream,
            window: self.window,
            segment: segment as u32,
            byte: byte as u32,
        })
    }

    /// Opens a stream's next segment; its number.
    fn open(&mut self, stream: usize, before: Option<usize>, ns: u64) -> io::Result<usize> {
        let next = self.all.len();
        self.all.push(Segment::default());
        if let Some(before) = before {
            self.write(stream)?;
            self.all[before].next = next as u64 + 1;
        }
        let open = &mut self.streams[stream];
        if before.is_none() {
            open.first = next as u64 + 1;
        }
        open.segment = Some(next);
        open.began = ns;
        open.last = u64::from(self.window) + 1;
        Ok(next)
    }

    /// Writes a stream's open segment.
    fn write(&mut self, stream: usize) -> io::Result<()> {
        let open = &mut self.streams[stream];
        let Some(segment) = open.segment.take() else {
            return Ok(());
        };
        match &self.sink {
            Sink::Whole(file) => file.write_all_at(&open.bytes, self.end)?,
            Sink::Fed(feed) => feed.file().write_all_at(&open.bytes, self.end)?,
            Sink::Measured => {}
        }
        self.all[segment] = Segment {
            offset: self.end,
            bytes: open.bytes.len() as u64,
            began: open.began,
            next: 0,
        };
        self.end += open.bytes.len() as u64;
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
        let late = Late {
            window: at.window,
            segment: at.segment,
            byte: at.byte,
            touched,
        };
        if at.window != self.window {
            if let Sink::Measured = self.sink {
                self.late.push(late);
            }
            return Ok(());
        }
        let open = &mut self.streams[at.stream];
        if open.segment == Some(at.segment as usize) {
            let byte = at.byte as usize + TOUCH_AT;
            let word = touched.to_ne_bytes();
            open.bytes[byte..byte + word.len()].copy_from_slice(&word);
            return Ok(());
        }
        self.mend(late)
    }

    /// Puts what was learned into a segment that is written.
    fn mend(&self, late: Late) -> io::Result<()> {
        let offset = self.all[late.segment as usize].offset + u64::from(late.byte);
        let (word, at) = (late.touched.to_ne_bytes(), offset + TOUCH_AT as u64);
        match &self.sink {
            Sink::Whole(file) => file.write_all_at(&word, at),
            Sink::Fed(feed) => feed.file().write_all_at(&word, at),
            Sink::Measured => Ok(()),
        }
    }

    /// Ends the window if it is full.
    ///
    /// # Errors
    /// The file's; a player that has ended.
    pub fn cut_if_full(&mut self) -> io::Result<()> {
        match self.bytes >= self.window_bytes {
            true => self.cut(false),
            false => Ok(()),
        }
    }

    fn cut(&mut self, at_end: bool) -> io::Result<()> {
        self.close()?;
        let late = match &mut self.sink {
            Sink::Fed(feed) => feed.late_of(self.window),
            Sink::Whole(_) | Sink::Measured => Vec::new(),
        };
        for late in late {
            self.mend(late)?;
        }
        if let Sink::Fed(feed) = &mut self.sink {
            feed.hand_over(&self.all, &self.streams, at_end)?;
        }
        self.window += 1;
        (self.bytes, self.end) = (0, HEAD_BYTES);
        self.all.clear();
        for open in &mut self.streams {
            open.first = 0;
        }
        Ok(())
    }

    /// Ends the last window: the head with the places of the tables, the last window of each stream, and what was
    /// learned late. A whole program's tables are written.
    ///
    /// # Errors
    /// As for [`Segments::cut_if_full`].
    pub fn finish(mut self) -> io::Result<(Head, Vec<u64>, Vec<Late>)> {
        let whole = matches!(self.sink, Sink::Whole(_));
        match whole {
            true => self.close()?,
            false => self.cut(true)?,
        }
        let mut head = places(self.streams.len(), self.needs);
        if let Sink::Whole(file) = &self.sink {
            let words = |open: &Open| [open.first, open.last, open.last, u64::MAX];
            let streams = self.streams.iter().flat_map(words);
            let streams: Vec<u8> = streams.flat_map(u64::to_ne_bytes).collect();
            file.write_all_at(&streams, head.streams_at)?;
            file.write_all_at(&table(&self.all), head.segments_at)?;
            head.published = 1;
        }
        self.late.sort_unstable();
        let last = self.streams.iter().map(|open| open.last).collect();
        Ok((head, last, self.late))
    }

    /// Writes all open segments.
    fn close(&mut self) -> io::Result<()> {
        for stream in 0..self.streams.len() {
            self.write(stream)?;
        }
        self.needs.bytes = self.needs.bytes.max(self.end - HEAD_BYTES);
        self.needs.segments = self.needs.segments.max(self.all.len() as u64);
        Ok(())
    }
}

/// Segments as they lie in the file.
pub fn table(segments: &[Segment]) -> Vec<u8> {
    let words = segments.iter().flat_map(Segment::words);
    words.flat_map(u64::to_ne_bytes).collect()
}

impl Late {
    /// The window of the operation.
    pub fn window(&self) -> u32 {
        self.window
    }
}

/// Where the tables lie.
fn places(streams: usize, needs: Needs) -> Head {
    let streams_at = (HEAD_BYTES + needs.bytes).next_multiple_of(8);
    let segments_at = streams_at + (streams * size_of::<StreamHead>()) as u64;
    let end = segments_at + needs.segments * size_of::<Segment>() as u64;
    Head {
        streams: streams as u64,
        streams_at,
        segments: needs.segments,
        segments_at,
        slots_at: end.next_multiple_of(4096),
        ..Head::default()
    }
}
