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

use crate::process::{Mapping, Place, each_map, hexadecimal, kibibytes};
use crate::{memory, residency, sys, text};
use core::ptr::NonNull;
use flagstone_core::base::PageCount;
use flagstone_core::stats::Residency;

/// Bytes read of a file at a time.
const READ: usize = 32 << 10;

/// Pages of other memory looked at at most; beyond there is no answer.
const PAGES_MAX: usize = 4 << 20;

/// A mapping of a file larger than this that nobody can write holds no pages of the process's own.
const READ_ONLY_MAX: usize = 64 << 20;

/// Memory to work in.
pub struct Scratch {
    text: [u8; READ],
    pages: residency::Resident,
}

impl Scratch {
    /// Empty.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "only useful as a constant")]
    pub const fn new() -> Self {
        Self {
            text: [0; READ],
            pages: residency::Resident::of_no_file(),
        }
    }
}

/// Resident bytes that are the process's own: not of files, not shared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Share {
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

/// A look at this process, whose page map is open meanwhile.
pub struct Look<'a>(&'a mut Scratch);

impl<'a> Look<'a> {
    /// None without `/proc`.
    pub fn open(scratch: &'a mut Scratch) -> Option<Self> {
        scratch.pages.open();
        scratch.pages.is_open().then_some(Self(scratch))
    }

    /// How the process's own memory is shared. No answer where other memory is too large to look at.
    pub fn share(&mut self, known: Known<'_>) -> Option<Share> {
        let rollup = text::Path::of(&[b"/proc/self/smaps_rollup"]).read(&mut self.0.text)?;
        let all = text::lines(rollup).find_map(|line| kibibytes(line, b"Anonymous:"))?;
        let other = self.other(known)?;
        Some(Share {
            heap: all.saturating_sub(other),
            other,
        })
    }

    /// The process's own pages from `start` to `end`, if the kernel tells.
    pub fn own(&mut self, start: usize, end: usize) -> Option<usize> {
        own(&mut self.0.pages, start, end)
    }

    /// Resident bytes of the process's own outside its allocator.
    fn other(&mut self, known: Known<'_>) -> Option<u64> {
        let Scratch { text, pages } = &mut *self.0;
        let memory = sys::open(b"/proc/self/mem\0")?;
        let mut count = Count {
            pages,
            memory,
            left: PAGES_MAX,
            found: 0,
            image: (0, 0),
            data_ends: 0,
        };
        let mut all = Some(());
        let read = each_map(text, |map, line| {
            all = all.and_then(|()| count.map(&map, line, known));
        });
        sys::close(memory);
        all.filter(|()| read)?;
        Some((count.found * memory::page_size().bytes()) as u64)
    }
}

impl Drop for Look<'_> {
    fn drop(&mut self) {
        self.0.pages.close();
    }
}

fn own(pages: &mut residency::Resident, start: usize, end: usize) -> Option<usize> {
    let page = memory::page_size().bytes();
    let count = PageCount(end.div_ceil(page) - start / page);
    let found = NonNull::new(core::ptr::without_provenance_mut(start))
        .map_or(0, |start| pages.count(start, count));
    pages.is_open().then_some(found)
}

/// What `maps` says of a mapping beside its place.
struct Rights {
    writable: bool,
    /// Private, and readable or writable: it may hold pages of its own.
    own: bool,
    /// Its first byte's place in the file.
    offset: usize,
}

impl Rights {
    fn of(line: &[u8]) -> Option<Self> {
        let mut words = line.split(|&byte| byte == b' ').skip(1);
        let rights = words.next()?;
        let has = |at: usize, right: u8| rights.get(at) == Some(&right);
        Some(Self {
            writable: has(1, b'w'),
            own: has(3, b'p') && (has(0, b'r') || has(1, b'w')),
            offset: hexadecimal(words.next()?)?.0,
        })
    }
}

/// Hands over this process's anonymous mappings without a name, before anything was allocated: they are the loader's and
/// the threads' own. None where a heap stands already.
pub fn before(scratch: &mut Scratch, mut each: impl FnMut(usize, usize)) {
    // `[heap]` or `[anon:...]`.
    let named = |line: &[u8]| line.ends_with(b"]");
    let mut heap = false;
    each_map(&mut scratch.text, |map, line| {
        heap |= map.place == Place::Anonymous && named(line);
    });
    each_map(&mut scratch.text, |map, line| {
        let own = map.place == Place::Anonymous && Rights::of(line).is_some_and(|r| r.own);
        if own && !heap {
            each(map.start, map.end);
        }
    });
}

struct Count<'a> {
    pages: &'a mut residency::Resident,
    memory: i32,
    left: usize,
    found: usize,
    /// Where the last file's first byte lies, and its number.
    image: (usize, u64),
    /// Where the last file's writable data end.
    data_ends: usize,
}

impl Count<'_> {
    fn map(&mut self, map: &Mapping, line: &[u8], known: Known<'_>) -> Option<()> {
        let Some(rights) = Rights::of(line) else {
            return Some(());
        };
        match map.place {
            Place::File(file) if rights.offset == 0 && file != self.image.1 => {
                self.image = (map.start, file);
            }
            _ => {}
        }
        if !rights.own {
            return Some(());
        }
        if map.place != Place::Anonymous {
            if rights.writable {
                self.data_ends = map.end;
            }
            if rights.writable || map.end - map.start <= READ_ONLY_MAX {
                return self.range(map.start, map.end);
            }
            return Some(());
        }
        let mut start = map.start;
        if start == self.data_ends {
            // Zeroed data of a program or library.
            let end = image_end(self.memory, self.image.0).clamp(start, map.end);
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
        let pages = (end - start).div_ceil(memory::page_size().bytes());
        self.left = self.left.checked_sub(pages)?;
        self.found += own(self.pages, start, end)?;
        Some(())
    }
}

/// Bytes of an ELF header with its table of segments, at most.
const HEADERS: usize = 64 + 56 * 24;

/// Where the program or library at `image` ends, by its own headers; zero if it is none. They are read as a
/// file: another thread may be unmapping it.
fn image_end(memory: i32, image: usize) -> usize {
    let mut bytes = [0_u8; HEADERS];
    let read = sys::read_at(memory, &mut bytes, image);
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
    use std::boxed::Box;
    use std::sync::{Mutex, PoisonError};

    /// Held by tests that compare looks at this one process.
    static ALONE: Mutex<()> = Mutex::new(());

    fn share(scratch: &mut Scratch, known: Known<'_>) -> Share {
        Look::open(scratch).unwrap().share(known).unwrap()
    }

    #[test]
    fn lines_of_maps_say_what_may_be_done() {
        let of = |line: &[u8]| Rights::of(line).unwrap();
        let data = of(b"7f00a000-7f00b000 rw-p 00001000 fe:00 12  /lib/x.so");
        assert!(data.own && data.writable && data.offset == 0x1000);
        assert!(!of(b"7f00b000-7f00c000 ---p 00000000 00:00 0 ").own);
        assert!(!of(b"1000-2000 rw-s 00000000 00:01 5 /dev/zero").own);
        let code = of(b"1000-2000 r-xp 00000000 00:01 5 /lib/x.so");
        assert!(code.own && !code.writable);
        // The kernel's own page at the end of the address space.
        assert!(!of(b"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]").own);
    }

    #[test]
    fn an_image_ends_where_its_last_segment_does() {
        let mut headers = [0_u8; 64 + 2 * 56];
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
        let before = share(&mut scratch, Known::default());
        let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let start = map(0, BYTES + 4096, anonymous, -1);
        let fixed = libc::MAP_PRIVATE | libc::MAP_FIXED;
        let file = std::os::fd::AsRawFd::as_raw_fd(&program);
        map(start, 4096, fixed, file);
        let behind = core::ptr::with_exposed_provenance_mut::<u8>(start + 4096);
        // SAFETY: the mapping's other pages.
        unsafe { behind.write_bytes(1, BYTES) };
        let after = share(&mut scratch, Known::default());
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
        let with = share(&mut scratch, Known::default());
        let ranges = &[[start, start + BYTES]];
        let known = Known {
            ranges,
            ..Known::default()
        };
        let without = share(&mut scratch, known);
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
            share(&mut scratch, known).heap
        };
        let (none, stack) = (heap([0; 2]), heap([start, start + BYTES]));
        let across = heap([start + GUARD, start + BYTES]);
        assert!(stack + BYTES as u64 <= none + (1 << 20), "{stack} {none}");
        assert!(across + (1 << 20) >= none, "{across} {none}");
    }
}
