//! Which pages of a range are the process's own: there, of no file, and not the page of zeroes that all memory shares
//! which was read and never written.
//!
//! ```text
//!   PAGEMAP_SCAN   stretches of such pages (Linux 6.7)
//!   pagemap        a word a page elsewhere; it does not tell the page of zeroes from others
//! ```

use core::ffi::CStr;

/// An open `pagemap` of this process.
#[derive(Debug)]
pub struct Pagemap(File);

impl Pagemap {
    /// None without `/proc`.
    #[must_use]
    pub fn open() -> Option<Self> {
        File::open(c"/proc/self/pagemap").map(Self)
    }

    /// Counts the process's own pages from `start` to `end`; `room` is for answers, of three words at least.
    pub fn own(&self, start: usize, end: usize, room: &mut [u64]) -> Option<u64> {
        scanned(self.0.0, start, end, room).or_else(|| read(self.0.0, start, end, room))
    }
}

/// An open file.
#[derive(Debug)]
pub(crate) struct File(i32);

impl File {
    pub(crate) fn open(path: &CStr) -> Option<Self> {
        // SAFETY: a path that ends in a zero.
        let file = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
        (file >= 0).then_some(Self(file))
    }

    pub(crate) fn read(&self, into: &mut [u8]) -> Option<usize> {
        // SAFETY: a buffer of that many bytes.
        let read = unsafe { libc::read(self.0, into.as_mut_ptr().cast(), into.len()) };
        usize::try_from(read).ok()
    }

    /// The same at `offset`.
    pub(crate) fn read_at(&self, into: &mut [u8], offset: usize) -> Option<usize> {
        let (to, bytes) = (into.as_mut_ptr().cast(), into.len());
        // SAFETY: a buffer of that many bytes.
        let read = unsafe { libc::pread(self.0, to, bytes, offset as libc::off_t) };
        usize::try_from(read).ok()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: an open file of ours.
        unsafe { libc::close(self.0) };
    }
}

/// Bytes of a page.
pub(crate) fn size() -> usize {
    // SAFETY: sysconf with a valid name has no obligations.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// The argument of `PAGEMAP_SCAN`, as the kernel lays it out (`struct pm_scan_arg`).
#[repr(C)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

const PAGEMAP_SCAN: libc::c_ulong = 0xc060_6610;
const IS_FILE: u64 = 1 << 2;
const IS_PRESENT: u64 = 1 << 3;
const IS_ZERO: u64 = 1 << 5;

/// Words of one answer: first byte, end, categories.
const ANSWER: usize = 3;

/// No answer where the kernel does not know the call.
fn scanned(pagemap: i32, start: usize, end: usize, room: &mut [u64]) -> Option<u64> {
    let page = size();
    let mut scan = Scan {
        size: size_of::<Scan>() as u64,
        flags: 0,
        start: (start / page * page) as u64,
        end: end.next_multiple_of(page) as u64,
        walk_end: 0,
        vec: room.as_mut_ptr().expose_provenance() as u64,
        vec_len: (room.len() / ANSWER) as u64,
        max_pages: 0,
        category_inverted: IS_FILE | IS_ZERO,
        category_mask: IS_PRESENT | IS_FILE | IS_ZERO,
        category_anyof_mask: 0,
        return_mask: IS_PRESENT,
    };
    let mut bytes = 0;
    while scan.start < scan.end {
        // SAFETY: an argument as the call takes it, and room for as many answers as it says.
        let found = unsafe { libc::ioctl(pagemap, PAGEMAP_SCAN, &raw mut scan) };
        let found = usize::try_from(found).ok()?;
        if scan.walk_end <= scan.start {
            return None;
        }
        let answers = room.chunks_exact(ANSWER).take(found);
        bytes += answers.map(|answer| answer[1] - answer[0]).sum::<u64>();
        scan.start = scan.walk_end;
    }
    Some(bytes / page as u64)
}

fn read(pagemap: i32, start: usize, end: usize, room: &mut [u64]) -> Option<u64> {
    const PRESENT: u64 = 1 << 63;
    const OF_FILE: u64 = 1 << 61;
    let page = size();
    let (mut at, end) = (start / page, end.div_ceil(page));
    let mut found = 0;
    while at < end {
        let wanted = (end - at).min(room.len());
        // SAFETY: a buffer of that many words.
        let read = unsafe {
            libc::pread(
                pagemap,
                room.as_mut_ptr().cast(),
                wanted * 8,
                (at * 8) as libc::off_t,
            )
        };
        let read = usize::try_from(read).ok()? / 8;
        if read == 0 {
            break;
        }
        let there = |word: &&u64| *word & PRESENT != 0 && *word & OF_FILE == 0;
        found += room[..read].iter().filter(there).count() as u64;
        at += read;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_was_only_read_is_not_the_processs_own() {
        let page = size();
        // SAFETY: a mapping of its own.
        let start = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                2048 * page,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(start, libc::MAP_FAILED);
        // SAFETY: as above; no huge pages, each page is for itself.
        unsafe { libc::madvise(start, 2048 * page, libc::MADV_NOHUGEPAGE) };
        for at in (0..2048).step_by(2) {
            // SAFETY: inside the mapping.
            unsafe {
                start.cast::<u8>().add(at * page).write_volatile(1);
                if at % 4 == 0 {
                    start.cast::<u8>().add((at + 1) * page).read_volatile();
                }
            }
        }
        let pagemap = Pagemap::open().unwrap();
        let (file, start) = (pagemap.0.0, start as usize);
        let (end, mut room) = (start + 2048 * page, [0; 300]);
        // More stretches than one call answers.
        if let Some(found) = scanned(file, start, end, &mut room) {
            assert_eq!(found, 1024);
        }
        assert_eq!(read(file, start, end, &mut room), Some(1024 + 512));
    }
}
