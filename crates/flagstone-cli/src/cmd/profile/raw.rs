//! What the library keeps of a profile, `flagstone.profile.raw/1`, read from its file or from the process itself.
//!
//! ```text
//!   head: 14 numbers, then for each section where it begins and how many entries it has
//!   stacks │ frames │ live samples │ marks │ text of /proc/PID/maps (in a file)
//! ```
//!
//! The layout is `flagstone-process/src/profile/area.rs` and docs/profiles.md. A file may be damaged, and a
//! process may write while it is read: nothing here trusts a number before it has looked at it.

use std::io;

/// What a profile begins with.
pub const MAGIC: u64 = u64::from_le_bytes(*b"\x7ffsprof\x01");
/// Numbers of the head before its sections.
const FIGURES: usize = 14;
/// Bytes of the head.
pub const HEAD_BYTES: usize = 8 * (FIGURES + 2 * 5);
/// Objects are counted in this part of one.
const PARTS: f64 = 1024.0;
/// Bytes of an entry of each section but the last.
const ENTRY_BYTES: [usize; 4] = [48, 8, 32, 32];
/// Most entries of each of them that are believed.
const ENTRIES_MAX: [u64; 4] = [1 << 15, 1 << 20, 1 << 17, 2048];
/// Set in a live sample's stack number where a parent process took it.
const INHERITED: u32 = 1 << 31;

/// Bytes at a distance from the head.
pub trait Source {
    /// Fills the buffer.
    ///
    /// # Errors
    /// If there are not as many bytes, or they cannot be read.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()>;
}

impl Source for [u8] {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        let start = usize::try_from(at).ok();
        let part = start.and_then(|start| self.get(start..start.checked_add(buffer.len())?));
        buffer.copy_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// One place that allocates, and what its samples stand for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stack {
    /// Return addresses, innermost first.
    pub frames: Vec<u64>,
    /// Objects and bytes allocated.
    pub allocated: Weight,
    /// Those freed again.
    pub freed: Weight,
}

/// What samples stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Weight {
    /// Objects.
    pub objects: f64,
    /// Bytes.
    pub bytes: f64,
}

impl Weight {
    /// Both less those of another.
    pub fn less(self, other: Self) -> Self {
        Self {
            objects: (self.objects - other.objects).max(0.0),
            bytes: (self.bytes - other.bytes).max(0.0),
        }
    }

    /// Both this many times.
    pub fn times(self, factor: f64) -> Self {
        Self {
            objects: self.objects * factor,
            bytes: self.bytes * factor,
        }
    }
}

impl std::ops::AddAssign for Weight {
    fn add_assign(&mut self, other: Self) {
        self.objects += other.objects;
        self.bytes += other.bytes;
    }
}

/// A sampled block that is live.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Live {
    /// Bytes asked for.
    pub size: u64,
    /// Its stack's number.
    pub stack: usize,
    /// When it was allocated, by the monotonic clock.
    pub at_ns: u64,
}

/// Figures at one moment.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Mark {
    /// When, by the monotonic clock.
    pub at_ns: u64,
    /// Bytes live.
    pub live_bytes: u64,
    /// Bytes allocated so far.
    pub allocated_bytes: u64,
}

/// The tables of a profile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Raw {
    /// Mean bytes between samples.
    pub mean: u64,
    /// When it began, by the monotonic clock.
    pub began_ns: u64,
    /// When it was read or written.
    pub ended_ns: u64,
    /// The process.
    pub process: u64,
    /// Whether the process was at its end.
    pub is_last: bool,
    /// Samples taken.
    pub samples: u64,
    /// Samples that found no place among the live ones.
    pub lost_live: u64,
    /// Samples whose stack found no place.
    pub lost_stacks: u64,
    /// Samples whose stack was cut.
    pub cut_stacks: u64,
    /// The most bytes that were live.
    pub peak_bytes: u64,
    /// Bytes asked for and held by the heap's own account; `None` where it was not asked.
    pub account_bytes: Option<u64>,
    /// Stacks by number.
    pub stacks: Vec<Stack>,
    /// Live samples.
    pub live: Vec<Live>,
    /// Figures over time.
    pub marks: Vec<Mark>,
    /// Text of `/proc/PID/maps`; empty from a process.
    pub maps: String,
}

/// Whether a file is a profile of ours.
pub fn is_raw(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC.to_ne_bytes())
}

/// Reads a file.
///
/// # Errors
/// What is wrong with it, in a few words.
pub fn of_file(bytes: &[u8]) -> Result<Raw, String> {
    let (mut raw, sections) = tables(bytes)?;
    let text = usize::try_from(sections[4].0).ok();
    let text = text.and_then(|at| bytes.get(at..)).unwrap_or_default();
    raw.maps = String::from_utf8_lossy(text).into_owned();
    Ok(raw)
}

/// Reads the tables of a running process.
///
/// # Errors
/// What is wrong with them, in a few words.
pub fn of_process(source: &(impl Source + ?Sized)) -> Result<Raw, String> {
    tables(source).map(|(raw, _)| raw)
}

type Sections = [(u64, u64); 5];

fn tables(source: &(impl Source + ?Sized)) -> Result<(Raw, Sections), String> {
    let head = numbers(source, 0, HEAD_BYTES).map_err(|_| "it is too short".to_owned())?;
    if head[0] != MAGIC {
        return Err("it is no profile of this version of Flagstone".to_owned());
    }
    let mut sections = [(0, 0); 5];
    for (section, pair) in sections.iter_mut().zip(head[FIGURES..].chunks(2)) {
        *section = (pair[0], pair[1]);
    }
    let mut entries = Vec::new();
    for (which, &(at, count)) in sections[..4].iter().enumerate() {
        if count > ENTRIES_MAX[which] {
            return Err(format!("it is damaged: {count} entries in section {which}"));
        }
        let words = numbers(source, at, count as usize * ENTRY_BYTES[which]);
        entries.push(words.map_err(|_| "it is cut off".to_owned())?);
    }
    let (frames, live) = (&entries[1], &entries[2]);
    let stacks = entries[0].chunks(6).map(|words| stack(words, frames));
    let stacks: Vec<Stack> = stacks.collect();
    let live = live.chunks(4).filter(|words| words[0] != 0);
    let live = live.filter_map(|words| {
        let stack = words[2] as u32;
        (stack & INHERITED == 0 && (stack as usize) < stacks.len()).then_some(Live {
            size: words[1],
            stack: stack as usize,
            at_ns: words[3],
        })
    });
    let marks = entries[3].chunks(4).map(|words| Mark {
        at_ns: words[0],
        live_bytes: words[1],
        allocated_bytes: words[2],
    });
    let raw = Raw {
        mean: head[1].max(1),
        began_ns: head[2],
        ended_ns: head[3],
        process: head[4],
        is_last: head[5] != 0,
        samples: head[6],
        lost_live: head[7],
        lost_stacks: head[8],
        cut_stacks: head[9],
        peak_bytes: head[12],
        account_bytes: Some(head[13]).filter(|&bytes| bytes != 0),
        live: live.collect(),
        marks: marks.collect(),
        maps: String::new(),
        stacks,
    };
    Ok((raw, sections))
}

fn stack(words: &[u64], frames: &[u64]) -> Stack {
    let (at, depth) = (words[1] as u32 as usize, (words[1] >> 32) as usize);
    let frames = frames.get(at..at.saturating_add(depth)).unwrap_or_default();
    let weight = |objects: u64, bytes: u64| Weight {
        objects: objects as f64 / PARTS,
        bytes: bytes as f64,
    };
    Stack {
        frames: frames.to_vec(),
        allocated: weight(words[2], words[3]),
        freed: weight(words[4], words[5]),
    }
}

fn numbers(source: &(impl Source + ?Sized), at: u64, bytes: usize) -> io::Result<Vec<u64>> {
    let mut buffer = vec![0; bytes];
    source.read_at(&mut buffer, at)?;
    let words = buffer.chunks_exact(8);
    Ok(words
        .map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()))
        .collect())
}

impl Raw {
    /// What one sample of `size` bytes stands for.
    pub fn weight(&self, size: u64) -> Weight {
        let size = size.max(1) as f64;
        let taken = -(-size / self.mean as f64).exp_m1();
        Weight {
            objects: 1.0 / taken,
            bytes: size / taken,
        }
    }

    /// This profile from the moment on at which `before` was read.
    #[must_use]
    pub fn since(mut self, before: &Self) -> Self {
        for (now, then) in self.stacks.iter_mut().zip(&before.stacks) {
            now.allocated = now.allocated.less(then.allocated);
            now.freed = now.freed.less(then.freed);
        }
        self.samples = self.samples.saturating_sub(before.samples);
        self.began_ns = before.ended_ns;
        self.marks.retain(|mark| mark.at_ns >= before.ended_ns);
        self
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A file with two stacks of two frames, one live sample of each, and a mark.
    pub fn file(maps: &str) -> Vec<u8> {
        let mut words = vec![MAGIC, 1 << 19, 5, 10_000, 42, 1, 3, 0, 0, 0];
        words.extend([3 << 20, 2 << 20, 2 << 20, 2 << 20]);
        let frames = [0x1010, 0x1020, 0x1110, 0x1020];
        let stacks = [
            [7, 2 << 32, 2048, 2 << 20, 1024, 1 << 20],
            [8, 2 << 32 | 2, 1024, 1 << 20, 0, 0],
        ];
        let live = [[0x5000, 1 << 20, 0, 6], [0x6000, 1 << 20, 1, 7]];
        let marks = [[6, 1 << 20, 2 << 20, 1]];
        let mut at = HEAD_BYTES as u64;
        for (count, bytes) in [(2, 96), (4, 32), (2, 64), (1, 32), (0, 0)] {
            words.extend([at, count]);
            at += bytes;
        }
        words.extend(stacks.concat());
        words.extend(frames);
        words.extend(live.concat());
        words.extend(marks.concat());
        let bytes = words.iter().flat_map(|word| word.to_ne_bytes());
        bytes.chain(maps.bytes()).collect()
    }

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let raw = of_file(&file("1000-2000 r-xp 0 0:0 0 x")).unwrap();
        assert_eq!((raw.mean, raw.process, raw.is_last), (1 << 19, 42, true));
        assert_eq!(raw.stacks[1].frames, [0x1110, 0x1020]);
        assert_eq!(raw.stacks[0].allocated.objects, 2.0);
        assert_eq!(raw.live[1].stack, 1);
        assert_eq!(raw.maps, "1000-2000 r-xp 0 0:0 0 x");
        let rest = raw.clone().since(&raw);
        assert_eq!(rest.stacks[0].allocated, Weight::default());
    }

    #[test]
    fn a_damaged_file_is_refused_in_words_and_never_read_beyond_its_end() {
        let whole = file("");
        for len in [0, 7, 8, HEAD_BYTES, whole.len() - 1] {
            assert!(of_file(&whole[..len]).is_err(), "{len}");
        }
        for at in (0..whole.len()).step_by(8) {
            for value in [u64::MAX, 1 << 63, 1 << 31] {
                let mut bytes = whole.clone();
                bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
                let _read_or_refused = of_file(&bytes);
            }
        }
    }

    #[test]
    fn a_sample_stands_for_more_the_smaller_it_is() {
        let raw = of_file(&file("")).unwrap();
        let small = raw.weight(16);
        assert!((small.bytes - 524_296.0).abs() < 1.0, "{small:?}");
        let large = raw.weight(64 << 20);
        assert!((large.objects - 1.0).abs() < 1e-9);
    }
}
