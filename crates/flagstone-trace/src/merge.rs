//! Streams merged by time.
//!
//! ```text
//!   stream 1   a1 ─── a4 ──────── a9          a heap of the streams' next events; one chunk of each
//!   stream 2      b2 ─── b5 ─ b6              stream that has begun and not ended is in memory
//!   merged     a1 b2 a4 b5 b6 a9
//! ```
//!
//! Chunks of more streams than [`HELD_MAX`] has room for are dropped and read again, so a file of many
//! streams that live at once takes no more memory.
//!
//! Of events at the same time a free comes before an allocation, so that an address is never handed
//! out twice.

use crate::decode::{Decoder, State};
use crate::event::Event;
use crate::index::{Error, Stream, StreamId, Trace, damaged};
use core::ops::Deref;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Most bytes of unpacked chunks that are held.
const HELD_MAX: usize = 256 << 20;

/// One stream on its way.
struct Cursor {
    /// Its place in the trace's list of streams.
    stream: usize,
    /// The next chunk to read.
    chunk: usize,
    payload: Vec<u8>,
    state: State,
    next: Option<Event>,
}

/// Time, allocations after frees, place in the list of streams.
type Turn = Reverse<(u64, bool, usize)>;

/// All events of chosen streams, oldest first, of a trace that `T` holds.
pub struct Merged<T: Deref<Target = Trace>> {
    trace: T,
    cursors: Vec<Cursor>,
    turns: BinaryHeap<Turn>,
    /// Bytes of the cursors' payloads, and whose is dropped next.
    held: usize,
    drop_next: usize,
}

impl Trace {
    /// The events of all streams that `choose` answers yes to, merged by time.
    #[must_use]
    pub fn merged(&self, choose: impl FnMut(&Stream) -> bool) -> Merged<&Self> {
        Merged::of(self, choose)
    }
}

impl<T: Deref<Target = Trace>> Merged<T> {
    /// The same for a trace that is held otherwise, in an `Arc` for example.
    #[must_use]
    pub fn of(trace: T, mut choose: impl FnMut(&Stream) -> bool) -> Self {
        let streams = trace.streams().iter().enumerate();
        let chosen = streams.filter(|(_, stream)| choose(stream));
        let (cursors, firsts): (Vec<_>, Vec<_>) = chosen
            .map(|(at, stream)| {
                let cursor = Cursor {
                    stream: at,
                    chunk: 0,
                    payload: Vec::new(),
                    state: State::new(stream.times.0),
                    next: None,
                };
                (cursor, stream.times.0)
            })
            .unzip();
        // A stream's first chunk is read when its time comes.
        let turns = firsts
            .into_iter()
            .enumerate()
            .map(|(at, first)| Reverse((first, false, at)))
            .collect();
        Self {
            trace,
            cursors,
            turns,
            held: 0,
            drop_next: 0,
        }
    }
}

impl<T: Deref<Target = Trace>> Merged<T> {
    /// The next event with its time and its stream; `None` at the end.
    ///
    /// # Errors
    /// [`Error::Damaged`], or what the system answered.
    #[allow(
        clippy::should_implement_trait,
        reason = "an iterator over results would hide the stop"
    )]
    pub fn next(&mut self) -> Result<Option<(u64, StreamId, Event)>, Error> {
        while let Some(Reverse((time, _, at))) = self.turns.pop() {
            let event = self.cursors[at].next.take();
            let before = self.cursors[at].payload.len();
            let read = self.cursors[at].read(&self.trace)?;
            self.held = self.held + self.cursors[at].payload.len() - before;
            if self.held > HELD_MAX {
                self.drop_payloads(at);
            }
            if let Some((next_time, next)) = read {
                let allocates = !matches!(next, Event::Free { .. } | Event::Touched { .. });
                self.cursors[at].next = Some(next);
                self.turns.push(Reverse((next_time, allocates, at)));
            }
            if let Some(event) = event {
                let stream = &self.trace.streams()[self.cursors[at].stream];
                return Ok(Some((time, stream.id, event)));
            }
        }
        Ok(None)
    }
}

impl<T: Deref<Target = Trace>> Merged<T> {
    /// Drops payloads in turn until half of the room is free; not that of the stream at `keep`.
    fn drop_payloads(&mut self, keep: usize) {
        for _ in 0..self.cursors.len() {
            if self.held <= HELD_MAX / 2 {
                return;
            }
            self.drop_next = (self.drop_next + 1) % self.cursors.len();
            if self.drop_next != keep {
                let payload = core::mem::take(&mut self.cursors[self.drop_next].payload);
                self.held -= payload.len();
            }
        }
    }
}

impl Cursor {
    fn read(&mut self, trace: &Trace) -> Result<Option<(u64, Event)>, Error> {
        let stream = &trace.streams()[self.stream];
        if self.payload.is_empty()
            && let Some(before) = self.chunk.checked_sub(1)
            && let Some(place) = stream.chunks.get(before)
        {
            self.payload = trace.payload(place)?;
        }
        loop {
            let mut decoder = Decoder::resume(&self.payload, self.state.clone());
            let place = self.chunk.checked_sub(1).map(|at| &stream.chunks[at]);
            let read = decoder.next().map_err(|damage| match place {
                Some(place) => damaged(place, &damage),
                None => Error::Foreign,
            })?;
            if read.is_some() {
                self.state = decoder.state();
                return Ok(read);
            }
            let Some(place) = stream.chunks.get(self.chunk) else {
                self.payload = Vec::new();
                return Ok(None);
            };
            self.chunk += 1;
            self.payload = trace.payload(place)?;
            self.state = State::new(place.record.first.max(self.state.time()));
        }
    }
}
