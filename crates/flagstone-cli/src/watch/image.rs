//! Pages of another process, at their own addresses in this one.
//!
//! ```text
//!   other process   [ heap ][ tables ][ slabs .... ]        read by pread of /proc/PID/mem
//!                       │       │         │
//!   this process    [  no access; a fault fetches 64 KiB  ] private: what is written here stays here
//! ```
//!
//! The core's types hold addresses, so a copy must lie where the original lies. Only a process of its own can
//! promise that, and only while nothing of its own lies there; else it ends with [`CONFLICT`] and is started
//! again, elsewhere. What cannot be fetched ends it with [`CHANGED`]: the other process unmapped it, or an
//! address was torn or damaged. Pages that the other process never touched are zeroes here and stay untouched
//! there.

use super::target::{Target, page_bytes};
use flagstone_linux::process::Place;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::OnceLock;

/// Exit status: something of this process lies where the heap lies in the other.
pub const CONFLICT: i32 = 71;
/// Exit status: what was read does not hold together.
pub const CHANGED: i32 = 72;

/// Bytes fetched at once.
const CHUNK: usize = 64 << 10;
/// Pages in a chunk, at most.
const CHUNK_PAGES: usize = CHUNK / 4096;
/// Bits of a word of `pagemap`: present, swapped out.
const THERE: u64 = 0b11 << 62;

/// One range of the other process.
#[derive(Debug)]
struct Range {
    start: usize,
    end: usize,
    /// Whether pages that are not there are zeroes.
    anonymous: bool,
}

#[derive(Debug)]
struct Image {
    /// Rising, without overlap.
    ranges: Vec<Range>,
    memory: i32,
    pagemap: i32,
    page: usize,
}

static IMAGE: OnceLock<Image> = OnceLock::new();

/// From now on the heap of `target` can be read and written here, as a copy.
///
/// # Errors
/// What the system refuses. Ends the process where the place is taken.
pub fn adopt(target: &Target, heap_bytes: usize) -> io::Result<()> {
    let heap = target.beacon.heap as usize;
    let mut ranges = Vec::new();
    for region in target.regions.iter().filter(|region| region.own) {
        let (start, end) = (region.mapping.start, region.mapping.end);
        let anonymous = region.mapping.place == Place::Anonymous;
        let holds_heap = start < heap + heap_bytes && heap < end;
        if !anonymous && !holds_heap {
            continue;
        }
        reserve(start, end - start)?;
        ranges.push(Range {
            start,
            end,
            anonymous,
        });
    }
    let image = Image {
        ranges,
        memory: target.memory.as_raw_fd(),
        pagemap: target.pagemap.as_raw_fd(),
        page: page_bytes(),
    };
    if IMAGE.set(image).is_err() {
        return Err(io::Error::other("one image a process"));
    }
    listen()
}

/// Brings a part of the copy here now, so that all of it is of nearly one instant.
pub fn bring(start: NonNull<u8>, bytes: usize) {
    for at in (0..bytes).step_by(CHUNK).chain(bytes.checked_sub(1)) {
        // SAFETY: what cannot be read ends the process (`on_fault`), as everywhere in a copy.
        unsafe { start.as_ptr().wrapping_add(at).read_volatile() };
    }
}

fn reserve(start: usize, bytes: usize) -> io::Result<()> {
    let flags =
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: a fresh mapping that replaces nothing.
    let got = unsafe { libc::mmap(start as *mut _, bytes, libc::PROT_NONE, flags, -1, 0) };
    if got == start as *mut _ {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if got != libc::MAP_FAILED || error.raw_os_error() == Some(libc::EEXIST) {
        leave(CONFLICT);
    }
    Err(error)
}

/// Ends the process at once: also from a handler.
pub fn leave(status: i32) -> ! {
    // SAFETY: may be called anywhere and does not return.
    unsafe { libc::_exit(status) }
}

fn listen() -> io::Result<()> {
    type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
    let handler: Handler = on_fault;
    // SAFETY: all zeroes are a value of this structure.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        // SAFETY: the handler calls only what a handler may.
        if unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

extern "C" fn on_fault(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel gives a structure with the address.
    let address = unsafe { (*info).si_addr() } as usize;
    let fetched = IMAGE.get().and_then(|image| image.fetch(address));
    if fetched.is_none() {
        leave(CHANGED);
    }
}

impl Image {
    /// Brings the chunk around `address` here; `None` if it cannot be had.
    fn fetch(&self, address: usize) -> Option<()> {
        let after = self.ranges.partition_point(|range| range.end <= address);
        let range = self
            .ranges
            .get(after)
            .filter(|range| range.start <= address)?;
        let chunk = address & !(CHUNK - 1);
        let (start, end) = (chunk.max(range.start), (chunk + CHUNK).min(range.end));
        let (place, bytes) = (start as *mut libc::c_void, end - start);
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: part of a range that `reserve` mapped and nobody uses.
        if unsafe { libc::mprotect(place, bytes, rights) } != 0 {
            return None;
        }
        let count = bytes / self.page;
        let mut words = [THERE; CHUNK_PAGES];
        if range.anonymous {
            let at = (start / self.page * 8) as libc::off_t;
            // SAFETY: the kernel writes at most as many words as there are.
            let got =
                unsafe { libc::pread(self.pagemap, words.as_mut_ptr().cast(), count * 8, at) };
            if got != (count * 8) as isize {
                return None;
            }
        }
        let mut at = 0;
        while at < count {
            let run = words[at..count]
                .iter()
                .take_while(|&&word| word & THERE != 0);
            let run = run.count();
            if run > 0 {
                self.copy(start + at * self.page, run * self.page)?;
            }
            at += run.max(1);
        }
        Some(())
    }

    fn copy(&self, start: usize, bytes: usize) -> Option<()> {
        let (place, at) = (start as *mut libc::c_void, start as libc::off_t);
        // SAFETY: inside the chunk made writable by the caller, which nobody has read yet.
        let got = unsafe { libc::pread(self.memory, place, bytes, at) };
        (got == bytes as isize).then_some(())
    }
}
