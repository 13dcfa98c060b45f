//! What two processes share: a beacon by which one finds the heap of the other, and words to tell it
//! something.
//!
//! ```text
//!   beacon                                      control: words of eight bytes
//!     0  magic       16 bytes                     0     guard        never written
//!    16  version     16 bytes of text             1     generation   of the request, written last
//!    32  state       0 none · 1 · 2 (below)       2..5  verb, value, bytes of the name
//!    36  cpus                                     5..21 name
//!    40  heap        its address                 21     sum of all that, by the command
//!    48  span        address of the pages        24     generation   of the answer, written last
//!    56  span_bytes                              25..29 result and three figures
//!    64  layout      of the core's types         29     sum of that, by the process
//!    72  tables      address of what describes the pages
//!    80  bell        address of the count of slow paths (`Ready::bell`)
//!    88  control     its address
//!    96  gauges      address of figures beside the heap's own
//! ```
//!
//! State 1: slots by restartable sequences; 2: by one lock per CPU. Whoever changes this layout changes the
//! last byte of the magic. Words of control are plain numbers: a sum tells a request or an answer that is
//! not whole, or that the program wrote over (ADR 0032).

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// What a beacon of any version begins with.
pub const NAME: [u8; 15] = *b"\x7fflagstone-heap";
/// What one of this layout begins with.
pub const MAGIC: [u8; 16] = *b"\x7fflagstone-heap\x03";

/// See the file's head.
#[repr(C, align(64))]
pub struct Beacon {
    /// [`MAGIC`].
    pub magic: [u8; 16],
    /// Text, zero-padded.
    pub version: [u8; 16],
    /// Written last.
    pub state: AtomicU32,
    /// CPU slots.
    pub cpus: AtomicU32,
    /// Address of the heap.
    pub heap: AtomicU64,
    /// Address of the pages for slabs and runs.
    pub span: AtomicU64,
    /// Their bytes.
    pub span_bytes: AtomicU64,
    /// Of the core's types.
    pub layout: u64,
    /// Address of what describes the pages, which ends where they begin.
    pub tables: AtomicU64,
    /// Address of the count of slow paths.
    pub bell: AtomicU64,
    /// Address of [`Control`].
    pub control: AtomicU64,
    /// Address of [`Gauges`].
    pub gauges: AtomicU64,
    /// Fills the line.
    pub rest: [u64; 3],
}

const _: () = assert!(size_of::<Beacon>() == 128, "two lines");

/// The layouts of the core this is built with.
pub const LAYOUT: u64 = match u64::from_str_radix(flagstone_core::stats::LAYOUT, 10) {
    Ok(layout) => layout,
    Err(_) => 0,
};

/// Figures of a process beside its heap's own, which a reader shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Gauge {
    /// Mean bytes between samples of the profile that is taken; 0 for none.
    Profile,
    /// The limit on what the heap holds, in bytes; 0 for none.
    Limit,
    /// Requests that met it after the heap had given back all it kept.
    LimitReached,
    /// Those of them that were answered with NULL.
    LimitRefused,
    /// Times the program's callback was asked.
    LimitAsked,
    /// Whether memory pressure is looked at.
    Pressure,
    /// Looks at it.
    PressureLooks,
    /// Times memory was given back for it, and the bytes.
    Relieved,
    /// See [`Gauge::Relieved`].
    RelievedBytes,
}

/// Words for gauges.
pub const GAUGES: usize = 16;

/// The gauges of a process.
#[repr(C, align(64))]
pub struct Gauges([AtomicU64; GAUGES]);

impl Gauges {
    /// All zero.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "only useful as a constant")]
    pub const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; GAUGES])
    }

    /// A gauge's value.
    #[inline]
    #[must_use]
    pub fn get(&self, gauge: Gauge) -> u64 {
        self.0[gauge as usize].load(Ordering::Relaxed)
    }

    /// Sets a gauge.
    #[inline]
    pub fn set(&self, gauge: Gauge, value: u64) {
        self.0[gauge as usize].store(value, Ordering::Relaxed);
    }

    /// Adds to a gauge.
    #[inline]
    pub fn add(&self, gauge: Gauge, value: u64) {
        self.0[gauge as usize].fetch_add(value, Ordering::Relaxed);
    }
}

/// What a process may be told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Verb {
    /// Set the named knob to the value. Answers what it is then.
    Set = 1,
    /// Give memory back, but the value of bytes. Answers by how many bytes the resident size fell, and how
    /// many bytes of free pages the allocator counted.
    Trim = 2,
    /// Take a heap profile with the value as mean bytes between samples, or none for 0. The name is eight bytes: the
    /// moment of the monotonic clock after which none is taken ([`Request::until`]). Answers the mean that holds now,
    /// where the tables are, and the mean that held before.
    Profile = 3,
}

/// What came of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Done {
    /// All well.
    Well = 1,
    /// There is no such knob.
    Unknown = 2,
    /// It can only be read.
    ReadOnly = 3,
    /// The value is out of its range.
    Value = 4,
    /// The request was not whole.
    Torn = 5,
    /// There is no memory for it.
    NoMemory = 6,
}

impl Done {
    /// From its number.
    #[must_use]
    pub fn of(number: u64) -> Option<Self> {
        let all = [
            Self::Well,
            Self::Unknown,
            Self::ReadOnly,
            Self::Value,
            Self::Torn,
            Self::NoMemory,
        ];
        all.into_iter().find(|done| *done as u64 == number)
    }
}

/// Words of control.
pub const WORDS: usize = 32;
/// Bytes of a name.
pub const NAME_BYTES: usize = 128;
/// What word 0 holds.
pub const GUARD: u64 = u64::from_le_bytes(*b"flagctl\x01");

/// Where a request begins: its generation.
pub const REQUEST: usize = 1;
/// The word of its sum, behind it.
pub const REQUEST_SUM: usize = 21;
/// Where an answer begins: its generation.
pub const ANSWER: usize = 24;
/// The word of its sum, behind it.
pub const ANSWER_SUM: usize = 29;

const _: () = assert!(REQUEST + 4 + NAME_BYTES / 8 == REQUEST_SUM);

/// The words. Each is read and written whole.
#[repr(C, align(64))]
pub struct Control([AtomicU64; WORDS]);

impl Control {
    /// Nothing asked. Its guard is not zero, so that it lies in the file.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "only useful as a constant")]
    pub const fn new() -> Self {
        let mut words = [const { AtomicU64::new(0) }; WORDS];
        words[0] = AtomicU64::new(GUARD);
        Self(words)
    }

    /// The generation of the last request that has no answer.
    #[must_use]
    #[inline]
    pub fn asked(&self) -> Option<u64> {
        let asked = self.0[REQUEST].load(Ordering::Acquire);
        (asked != self.0[ANSWER].load(Ordering::Relaxed)).then_some(asked)
    }

    /// Forgets a request: the child of a fork was not asked.
    pub fn forget(&self) {
        let asked = self.0[REQUEST].load(Ordering::Relaxed);
        self.0[ANSWER].store(asked, Ordering::Relaxed);
    }

    /// The request, if it is whole.
    #[must_use]
    pub fn request(&self) -> Option<Request> {
        let words = core::array::from_fn(|at| self.0[at].load(Ordering::Relaxed));
        Request::of(&words)
    }

    /// Answers request `generation`.
    pub fn answer(&self, generation: u64, done: Done, figures: [u64; 3]) {
        let words = answer(generation, done, figures);
        for (at, word) in words.into_iter().enumerate().skip(1) {
            self.0[ANSWER + at].store(word, Ordering::Relaxed);
        }
        self.0[ANSWER].store(generation, Ordering::Release);
    }
}

/// Something to do.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// What.
    pub verb: u64,
    /// With which value.
    pub value: u64,
    name: [u8; NAME_BYTES],
    len: usize,
}

impl Request {
    /// A request; `None` if the name is too long.
    #[must_use]
    pub fn new(verb: Verb, name: &[u8], value: u64) -> Option<Self> {
        let mut bytes = [0; NAME_BYTES];
        bytes.get_mut(..name.len())?.copy_from_slice(name);
        Some(Self {
            verb: verb as u64,
            value,
            name: bytes,
            len: name.len(),
        })
    }

    /// The name, where the verb has one.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.name[..self.len]
    }

    /// The moment that a request for a profile ends at, in place of a name; 0 for none.
    #[must_use]
    pub fn until(&self) -> u64 {
        let bytes = self.name().try_into();
        bytes.map_or(0, u64::from_le_bytes)
    }

    /// The words from [`REQUEST`] to [`REQUEST_SUM`].
    #[must_use]
    pub fn words(&self, generation: u64) -> [u64; REQUEST_SUM - REQUEST + 1] {
        let mut words = [0; REQUEST_SUM - REQUEST + 1];
        words[..4].copy_from_slice(&[generation, self.verb, self.value, self.len as u64]);
        for (word, bytes) in words[4..].iter_mut().zip(self.name.chunks_exact(8)) {
            *word = bytes
                .iter()
                .rfold(0, |word, &byte| word << 8 | u64::from(byte));
        }
        let end = words.len() - 1;
        words[end] = sum(&words[..end]);
        words
    }

    /// The request that lies in these words of control, if it is whole.
    #[must_use]
    pub fn of(words: &[u64; WORDS]) -> Option<Self> {
        let request = &words[REQUEST..REQUEST_SUM];
        let len = usize::try_from(request[3]).ok()?;
        if words[0] != GUARD || sum(request) != words[REQUEST_SUM] || len > NAME_BYTES {
            return None;
        }
        let mut name = [0; NAME_BYTES];
        for (bytes, word) in name.chunks_exact_mut(8).zip(&request[4..]) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        Some(Self {
            verb: request[1],
            value: request[2],
            name,
            len,
        })
    }
}

/// The words from [`ANSWER`] to [`ANSWER_SUM`].
#[must_use]
pub fn answer(generation: u64, done: Done, figures: [u64; 3]) -> [u64; ANSWER_SUM - ANSWER + 1] {
    let [a, b, c] = figures;
    let mut words = [generation, done as u64, a, b, c, 0];
    words[5] = sum(&words[..5]);
    words
}

/// FNV-1a over the words, never zero: tells a request that is not whole; not a protection.
#[must_use]
pub fn sum(words: &[u64]) -> u64 {
    let bytes = words.iter().flat_map(|word| word.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    }) | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control(words: [u64; WORDS]) -> Control {
        Control(words.map(AtomicU64::new))
    }

    #[test]
    fn a_whole_request_is_read_and_one_with_a_changed_word_is_not() {
        let request = Request::new(Verb::Set, b"cache.malloc-64.min_partial", 7).unwrap();
        let mut words = [0; WORDS];
        words[0] = GUARD;
        words[REQUEST..=REQUEST_SUM].copy_from_slice(&request.words(99));
        let there = control(words);
        assert_eq!(there.asked(), Some(99));
        let got = there.request().unwrap();
        assert_eq!((got.verb, got.value), (Verb::Set as u64, 7));
        assert_eq!(got.name(), b"cache.malloc-64.min_partial");
        for at in 0..=REQUEST_SUM {
            let mut torn = words;
            torn[at] ^= 1 << 9;
            assert!(control(torn).request().is_none(), "word {at}");
        }
        there.answer(99, Done::Well, [1, 2, 3]);
        assert_eq!(there.asked(), None);
        let said: [u64; 6] =
            core::array::from_fn(|at| there.0[ANSWER + at].load(Ordering::Relaxed));
        assert_eq!(said, answer(99, Done::Well, [1, 2, 3]));
    }

    #[test]
    fn a_request_for_a_profile_has_its_end_in_place_of_a_name() {
        let request = Request::new(Verb::Profile, &77_u64.to_le_bytes(), 4096).unwrap();
        assert_eq!((request.until(), request.value), (77, 4096));
        assert_eq!(Request::new(Verb::Profile, b"", 0).unwrap().until(), 0);
    }

    #[test]
    fn a_name_that_is_too_long_is_no_request() {
        assert!(Request::new(Verb::Set, &[b'x'; NAME_BYTES + 1], 0).is_none());
        assert!(Request::new(Verb::Set, &[b'x'; NAME_BYTES], 0).is_some());
    }
}
