//! What of a process's own memory is its allocator's, counted page by page, without allocating.
//!
//! ```text
//!   smaps_rollup   all anonymous pages
//!   maps           data of programs and libraries, the first stack, zeroed data behind a file's: as
//!                  far as its ELF header says, for an allocator's memory may lie right behind
//!   known          what the caller knows: mappings of the program, stacks of threads
//!   pagemap        which pages of those are there        heap = all - those
//! ```
//!
//! The system's own counters (`statm`) are batched for each CPU and off by some hundred KiB; these are not.

use crate::pages::{self, File, Pagemap};

/// Bytes read of a file at a time.
const READ: usize = 32 << 10;

/// Pages of other memory looked at at most; beyond there is no answer.
const PAGES_MAX: usize = 4 << 20;

/// A mapping of a file larger than this that nobody can write holds no pages of the process's own.
const READ_ONLY_MAX: usize = 64 << 20;

/// Memory to work in.
pub struct Scratch {
    text: [u8; READ],
    pages: [u64; 2048],
}

impl Scratch {
    /// Empty.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            text: [0; READ],
            pages: [0; 2048],
        }
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

/// Resident bytes that are the process's own: not of files, not shared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Resident {
    /// Of the allocator.
    pub heap: u64,
    /// All others.
    pub other: u64,
}

/// A process's memory beside its allocator's, as far as the caller knows. Ranges lie apart from each other; a
/// pair of zeroes is none.
#[derive(Clone, Copy, Default)]
pub struct Known<'a> {
    /// Mappings of the program, and stacks of threads that live.
    pub ranges: &'a [[usize; 2]],
    /// Stacks of threads that have ended. A C library keeps some of them for the next threads and unmaps others, whose
    /// place may be the allocator's by now: one counts while a mapping begins where it does, above its guard page.
    pub ended: &'a [[usize; 2]],
}

/// Looks at this process. No answer without `/proc`, or where other memory is too large to look at.
pub fn look(scratch: &mut Scratch, known: Known<'_>) -> Option<Resident> {
    let all = anonymous(scratch)?;
    let other = other(scratch, known)?;
    Some(Resident {
        heap: all.saturating_sub(other),
        other,
    })
}

/// All anonymous bytes.
fn anonymous(scratch: &mut Scratch) -> Option<u64> {
    let file = File::open(c"/proc/self/smaps_rollup")?;
    let mut end = 0;
    while let Some(read @ 1..) = file.read(&mut scratch.text[end..]) {
        end += read;
    }
    let name = b"\nAnonymous:";
    let text = &scratch.text[..end];
    let at = text.windows(name.len()).position(|part| part == name)?;
    let digits = text[at + name.len()..]
        .iter()
        .skip_while(|byte| **byte == b' ')
        .take_while(|byte| byte.is_ascii_digit());
    Some(digits.fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')) << 10)
}

/// A line of `maps`.
struct Map {
    start: usize,
    end: usize,
    /// Its first byte's place in the file.
    offset: usize,
    /// The file's number, its digits read as others; zero for none.
    file: usize,
    writable: bool,
    /// Private, and readable or writable: it may hold pages of its own.
    own: bool,
    named: bool,
    heap: bool,
}

fn hex(text: &[u8]) -> Option<usize> {
    text.iter().try_fold(0_usize, |sum, byte| {
        let digit = (*byte as char).to_digit(16)?;
        Some(sum << 4 | digit as usize)
    })
}

impl Map {
    fn of(line: &[u8]) -> Option<Self> {
        let mut words = line
            .split(|byte| *byte == b' ')
            .filter(|word| !word.is_empty());
        let (places, rights) = (words.next()?, words.next()?);
        let dash = places.iter().position(|byte| *byte == b'-')?;
        let offset = hex(words.next()?)?;
        let file = hex(words.nth(1)?)?;
        let name = words.next().unwrap_or_default();
        let right = |at: usize, which: u8| rights.get(at) == Some(&which);
        Some(Self {
            start: hex(&places[..dash])?,
            end: hex(&places[dash + 1..])?,
            offset,
            file,
            writable: right(1, b'w'),
            own: right(3, b'p') && (right(0, b'r') || right(1, b'w')),
            named: !name.is_empty(),
            heap: name.starts_with(b"[heap") || name.starts_with(b"[anon"),
        })
    }
}

/// Hands over the lines of `maps`; no answer where a line has none.
fn each_map(
    maps: &File,
    text: &mut [u8; READ],
    mut each: impl FnMut(&Map) -> Option<()>,
) -> Option<()> {
    let mut end = 0;
    loop {
        let read = maps.read(&mut text[end..])?;
        end += read;
        let mut at = 0;
        while let Some(length) = text[at..end].iter().position(|byte| *byte == b'\n') {
            if let Some(map) = Map::of(&text[at..at + length]) {
                each(&map)?;
            }
            at += length + 1;
        }
        text.copy_within(at..end, 0);
        end -= at;
        if read == 0 || end == text.len() {
            return Some(());
        }
    }
}

/// Hands over this process's anonymous mappings without a name, before anything was allocated: they are the loader's and
/// the threads' own. None where a heap stands already.
pub fn before(scratch: &mut Scratch, mut each: impl FnMut(usize, usize)) {
    let text = &mut scratch.text;
    let mut all = |each: &mut dyn FnMut(&Map) -> Option<()>| {
        let maps = File::open(c"/proc/self/maps")?;
        each_map(&maps, text, each)
    };
    let no_heap = |map: &Map| (!map.heap).then_some(());
    if all(&mut { no_heap }).is_some() {
        all(&mut |map| {
            if map.own && !map.named {
                each(map.start, map.end);
            }
            Some(())
        });
    }
}

/// Resident bytes of the process's own outside its allocator.
fn other(scratch: &mut Scratch, known: Known<'_>) -> Option<u64> {
    let maps = File::open(c"/proc/self/maps")?;
    let pagemap = Pagemap::open()?;
    let memory = File::open(c"/proc/self/mem")?;
    let Scratch { text, pages } = scratch;
    let mut count = Count {
        pagemap,
        memory,
        pages,
        left: PAGES_MAX,
        found: 0,
        image: (0, 0),
        data_ends: 0,
    };
    each_map(&maps, text, |map| count.map(map, known))?;
    Some(count.found * pages::size() as u64)
}

struct Count<'a> {
    pagemap: Pagemap,
    memory: File,
    pages: &'a mut [u64; 2048],
    left: usize,
    found: u64,
    /// Where the last file's first byte lies, and its number.
    image: (usize, usize),
    /// Where the last file's writable data end.
    data_ends: usize,
}

impl Count<'_> {
    fn map(&mut self, map: &Map, known: Known<'_>) -> Option<()> {
        let of_file = map.named && !map.heap;
        if of_file && map.offset == 0 && map.file != self.image.1 {
            self.image = (map.start, map.file);
        }
        if !map.own {
            return Some(());
        }
        if of_file {
            if map.writable {
                self.data_ends = map.end;
            }
            if map.writable || map.end - map.start <= READ_ONLY_MAX {
                return self.range(map.start, map.end);
            }
            return Some(());
        }
        let mut start = map.start;
        if !map.named && start == self.data_ends {
            // Zeroed data of a program or library.
            let end = image_end(&self.memory, self.image.0).clamp(start, map.end);
            self.range(start, end)?;
            start = end;
        }
        let ended = known.ended.iter().filter(|range| range[0] == map.start);
        for range in known.ranges.iter().chain(ended) {
            let (start, end) = (range[0].max(start), range[1].min(map.end));
            if start < end {
                self.range(start, end)?;
            }
        }
        Some(())
    }

    /// Counts pages that are there and are no file's.
    fn range(&mut self, start: usize, end: usize) -> Option<()> {
        let page = pages::size();
        let pages = (end.div_ceil(page)) - start / page;
        self.left = self.left.checked_sub(pages)?;
        self.found += self.pagemap.own(start, end, self.pages)?;
        Some(())
    }
}

/// Bytes of an ELF header with its table of segments, at most.
const HEADERS: usize = 64 + 56 * 24;

/// Where the program or library at `image` ends, by its own headers; zero if it is none. They are read as a
/// file: another thread may be unmapping it.
fn image_end(memory: &File, image: usize) -> usize {
    let mut bytes = [0_u8; HEADERS];
    let Some(read) = memory.read_at(&mut bytes, image) else {
        return 0;
    };
    image_bytes(&bytes[..read]).map_or(0, |length| image.saturating_add(length))
}

/// Bytes from the first to the last loaded segment, whole pages.
fn image_bytes(headers: &[u8]) -> Option<usize> {
    const LOAD: usize = 1;
    let field = |at: usize, bytes: usize| {
        let part = headers.get(at..at.checked_add(bytes)?)?;
        let words = part.iter().rev();
        Some(words.fold(0_usize, |sum, byte| sum << 8 | usize::from(*byte)))
    };
    // The mark, 64 bits, little-endian.
    if !headers.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (table, size, count) = (field(32, 8)?, field(54, 2)?, field(56, 2)?);
    let (mut first, mut last) = (usize::MAX, 0);
    for at in 0..count {
        let segment = table.checked_add(at * size)?;
        if field(segment, 4)? == LOAD {
            let start = field(segment + 16, 8)?;
            first = first.min(start & !0xfff);
            last = last.max(start.checked_add(field(segment + 40, 8)?)?);
        }
    }
    last.checked_next_multiple_of(4096)?.checked_sub(first)
}

/// The calling thread's stack, if the C library tells.
#[must_use]
pub fn stack() -> Option<[usize; 2]> {
    // SAFETY: plain integers; all zeroes is a value.
    let mut about: libc::pthread_attr_t = unsafe { core::mem::zeroed() };
    let (mut start, mut bytes) = (core::ptr::null_mut(), 0);
    // SAFETY: structures to fill, and given back.
    unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), &raw mut about) != 0 {
            return None;
        }
        libc::pthread_attr_getstack(&raw const about, &raw mut start, &raw mut bytes);
        libc::pthread_attr_destroy(&raw mut about);
    }
    (bytes > 0).then_some([start as usize, start as usize + bytes])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Mutex, PoisonError};

    /// Held by tests that compare looks at this one process.
    static ALONE: Mutex<()> = Mutex::new(());

    #[test]
    fn lines_of_maps_say_what_they_are() {
        let map = Map::of(b"7f00a000-7f00b000 rw-p 00001000 fe:00 12  /lib/x.so").unwrap();
        assert_eq!((map.start, map.end), (0x7f00_a000, 0x7f00_b000));
        assert!(map.own && map.named && map.writable && !map.heap);
        let map = Map::of(b"7f00b000-7f00c000 ---p 00000000 00:00 0 ").unwrap();
        assert!(!map.own && !map.named);
        assert!(
            Map::of(b"1000-2000 rw-p 00000000 00:00 0   [heap]")
                .unwrap()
                .heap
        );
        assert!(
            !Map::of(b"1000-2000 rw-s 00000000 00:01 5 /dev/zero")
                .unwrap()
                .own
        );
        assert!(Map::of(b"nonsense").is_none());
    }

    #[test]
    fn an_image_ends_where_its_last_segment_does() {
        let mut headers = vec![0_u8; 64 + 2 * 56];
        headers[..6].copy_from_slice(b"\x7fELF\x02\x01");
        headers[32] = 64;
        headers[54] = 56;
        headers[56] = 2;
        for (at, start, length) in [(64, 0_u64, 0x500_u64), (120, 0x1f80, 0x2100)] {
            headers[at] = 1;
            headers[at + 16..at + 24].copy_from_slice(&start.to_le_bytes());
            headers[at + 40..at + 48].copy_from_slice(&length.to_le_bytes());
        }
        assert_eq!(image_bytes(&headers), Some(0x5000));
        assert_eq!(image_bytes(&headers[..150]), None, "cut");
        headers[0] = 0;
        assert_eq!(image_bytes(&headers), None);
    }

    /// Anonymous memory right behind a file's writable page, as an allocator's may lie behind a library.
    #[test]
    fn memory_behind_a_file_is_the_heaps() {
        const BYTES: usize = 8 << 20;
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let program = std::fs::File::open("/proc/self/exe").unwrap();
        let map = |at: usize, bytes: usize, flags: i32, file: i32| {
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            let place = core::ptr::without_provenance_mut(at);
            // SAFETY: anywhere, or within the mapping that the first call made.
            let start = unsafe { libc::mmap(place, bytes, rights, flags, file, 0) };
            assert_ne!(start, libc::MAP_FAILED);
            start as usize
        };
        let mut scratch = Box::new(Scratch::new());
        let before = look(&mut scratch, Known::default()).unwrap();
        let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let start = map(0, BYTES + 4096, anonymous, -1);
        let fixed = libc::MAP_PRIVATE | libc::MAP_FIXED;
        let file = std::os::fd::AsRawFd::as_raw_fd(&program);
        map(start, 4096, fixed, file);
        let behind = core::ptr::with_exposed_provenance_mut::<u8>(start + 4096);
        // SAFETY: the mapping's other pages.
        unsafe { behind.write_bytes(1, BYTES) };
        let after = look(&mut scratch, Known::default()).unwrap();
        assert!(
            after.heap >= before.heap + BYTES as u64 / 2,
            "{before:?} {after:?}"
        );
    }

    #[test]
    fn a_range_of_ones_own_is_not_the_heaps() {
        const BYTES: usize = 8 << 20;
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: a mapping of its own, written within.
        let start = unsafe {
            let start = libc::mmap(
                core::ptr::null_mut(),
                BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(start, libc::MAP_FAILED);
            start.cast::<u8>().write_bytes(1, BYTES);
            start as usize
        };
        let mut scratch = Box::new(Scratch::new());
        let with = look(&mut scratch, Known::default()).unwrap();
        let ranges = &[[start, start + BYTES]];
        let known = Known {
            ranges,
            ..Known::default()
        };
        let without = look(&mut scratch, known).unwrap();
        assert!(
            without.heap + (BYTES as u64) <= with.heap + (1 << 20),
            "{with:?} {without:?}"
        );
        assert!(
            without.other >= with.other + BYTES as u64,
            "{with:?} {without:?}"
        );
    }

    /// A stack that a thread left is other memory as long as it stands; what lies across its place is not.
    #[test]
    fn a_stack_that_was_left_is_not_the_heaps_while_it_stands() {
        const BYTES: usize = 8 << 20;
        const GUARD: usize = 4096;
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: a mapping of its own, its first page made a guard, the others written.
        let start = unsafe {
            let start = libc::mmap(
                core::ptr::null_mut(),
                GUARD + BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(start, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(start, GUARD, libc::PROT_NONE), 0);
            start.cast::<u8>().add(GUARD).write_bytes(1, BYTES);
            start as usize + GUARD
        };
        let mut scratch = Box::new(Scratch::new());
        let mut heap = |ended: [usize; 2]| {
            let known = Known {
                ended: &[ended],
                ..Known::default()
            };
            look(&mut scratch, known).unwrap().heap
        };
        let (none, stack) = (heap([0; 2]), heap([start, start + BYTES]));
        let across = heap([start + GUARD, start + BYTES]);
        assert!(stack + BYTES as u64 <= none + (1 << 20), "{stack} {none}");
        assert!(across + (1 << 20) >= none, "{across} {none}");
    }
}
