//! Which pages are resident, as the kernel's page tables say.
//!
//! `PAGEMAP_SCAN` (Linux 6.7) answers in runs and tells the shared pages of zeros, which no
//! resident size counts, from memory. Older kernels are asked for one word a page (`pagemap`):
//! there a page of zeros looks like one that a forked child shares, so the caller says whether
//! any are shared. `mincore`, which tells neither, serves where there is no `/proc`.

use crate::sys;
use core::ptr::NonNull;
use flagstone_core::base::PageCount;
use flagstone_core::stats::Residency;

/// Pages asked about by one call of the older ways. Why 4096: 16 MiB by one call.
const CHUNK: usize = 4096;

/// Bytes of address space that one scan walks: the kernel holds the process's list of mappings so long,
/// which keeps its other threads from changing it. 32 MiB are 8192 pages, some tens of microseconds.
const SCAN_BYTES: usize = 32 << 20;

/// Runs of pages that one scan answers at most.
const REGIONS: usize = 128;

/// Request number of `PAGEMAP_SCAN`: `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: usize = 0xC060_6610;

/// Categories of pages (`linux/fs.h`).
const PAGE_IS_FILE: u64 = 1 << 2;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_PFNZERO: u64 = 1 << 5;

/// Bits of a word of `pagemap` (the kernel's admin-guide/mm/pagemap.rst).
const PRESENT: u64 = 1 << 63;
const OF_FILE: u64 = 1 << 61;
/// Mapped here and nowhere else, which no page of zeros is.
const EXCLUSIVE: u64 = 1 << 56;

/// A run of pages as the kernel answers it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

/// The argument of `PAGEMAP_SCAN`.
#[repr(C)]
struct ScanArgument {
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

const _: () = assert!(
    size_of::<ScanArgument>() == 96,
    "the request number holds this size"
);

/// Asks the kernel. Large: keep it in a static.
pub struct Resident {
    pagemap: Option<i32>,
    /// Whether the page map is of another process.
    other: bool,
    /// Whether pages of files count.
    files: bool,
    scans: bool,
    shares: bool,
    regions: [Region; REGIONS],
    words: [u64; CHUNK],
    pages: [u8; CHUNK],
}

impl Resident {
    /// Knows nothing yet; asks by `mincore` until [`Resident::open`].
    #[must_use]
    #[allow(clippy::new_without_default, reason = "only useful as a constant")]
    pub const fn new() -> Self {
        Self {
            pagemap: None,
            other: false,
            files: true,
            scans: true,
            shares: true,
            regions: [Region {
                start: 0,
                end: 0,
                categories: 0,
            }; REGIONS],
            words: [0; CHUNK],
            pages: [0; CHUNK],
        }
    }

    /// The same, for which pages of files do not count; without a page map it finds none.
    #[must_use]
    pub const fn of_no_file() -> Self {
        let mut resident = Self::new();
        resident.files = false;
        resident
    }

    /// Opens the process's page map.
    pub fn open(&mut self) {
        self.pagemap = sys::open(b"/proc/self/pagemap\0");
    }

    /// Whether there is a page map, which one that the kernel does not answer is not.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.pagemap.is_some()
    }

    /// Asks about another process, whose page map `pagemap` is; the caller closes it.
    pub fn look_at(&mut self, pagemap: i32) {
        self.pagemap = Some(pagemap);
        self.other = true;
    }

    /// Whether ranges without pages cost little, as far as is known: the kernel scans.
    #[must_use]
    pub fn scans(&self) -> bool {
        self.scans
    }

    /// Says whether another process maps pages of those that will be asked about: then pages that
    /// are not this process's alone count too. It may, until this is called.
    pub fn shares(&mut self, any: bool) {
        self.shares = any;
    }

    /// Closes what [`Resident::open`] opened.
    pub fn close(&mut self) {
        if let Some(fd) = self.pagemap.take() {
            sys::close(fd);
        }
    }

    /// Whether the kernel tells pages apart: one that was never touched must not be resident. (gVisor
    /// has no page map, and calls all that is mapped resident.)
    pub fn tells_pages(&mut self) -> bool {
        let page = crate::memory::page_size().bytes();
        let Some(start) = crate::memory::reserve(page, page) else {
            return true;
        };
        let untouched = self.count(start, PageCount(1)) == 0;
        // SAFETY: reserved above, used by nobody.
        unsafe { crate::memory::release(start, page) };
        untouched
    }

    /// One scan of `start..end`: regions found and where the walk ended; `None` if refused.
    fn scan(&mut self, fd: i32, start: usize, end: usize) -> Option<(usize, usize)> {
        let without = match self.files {
            true => PAGE_IS_PFNZERO,
            false => PAGE_IS_PFNZERO | PAGE_IS_FILE,
        };
        let mut argument = ScanArgument {
            size: size_of::<ScanArgument>() as u64,
            flags: 0,
            start: start as u64,
            end: end as u64,
            walk_end: 0,
            vec: self.regions.as_mut_ptr().addr() as u64,
            vec_len: REGIONS as u64,
            max_pages: 0,
            category_inverted: without,
            category_mask: PAGE_IS_PRESENT | without,
            category_anyof_mask: 0,
            return_mask: PAGE_IS_PRESENT,
        };
        // SAFETY: the kernel reads the argument and writes it and the regions it names.
        let found = unsafe {
            sys::call(
                libc::SYS_ioctl,
                [
                    fd as usize,
                    PAGEMAP_SCAN,
                    (&raw mut argument).expose_provenance(),
                    0,
                    0,
                    0,
                ],
            )
        };
        let found = usize::try_from(found).ok()?.min(REGIONS);
        Some((found, argument.walk_end as usize))
    }

    fn by_scan(
        &mut self,
        fd: i32,
        start: usize,
        bytes: usize,
        page: usize,
        run: &mut dyn FnMut(usize, usize),
    ) -> bool {
        let (mut at, end) = (start, start + bytes);
        while at < end {
            let Some((found, walked)) = self.scan(fd, at, end.min(at + SCAN_BYTES)) else {
                return false;
            };
            for region in &self.regions[..found] {
                let (from, to) = (region.start as usize, region.end as usize);
                run((from - start) / page, (to - from) / page);
            }
            if walked <= at {
                break;
            }
            at = walked;
        }
        true
    }

    /// Asks for as many pages at a time as `self.pages` holds: `ask` fills its start for the pages
    /// from an address on. `false` if it could not even once.
    fn by_page(
        &mut self,
        start: usize,
        count: usize,
        page: usize,
        run: &mut dyn FnMut(usize, usize),
        ask: impl Fn(&mut Self, usize, usize) -> bool,
    ) -> bool {
        let (mut done, mut answered) = (0, false);
        while done < count {
            let chunk = (count - done).min(CHUNK);
            if ask(self, start + done * page, chunk) {
                runs_of(&self.pages[..chunk], |first, len| run(done + first, len));
                answered = true;
            } else if !answered {
                return false;
            }
            done += chunk;
        }
        true
    }

    /// One word a page, from the page map; `false` if the kernel does not give them.
    fn ask_words(&mut self, fd: i32, page: usize, address: usize, count: usize) -> bool {
        // SAFETY: the kernel writes at most that many bytes.
        let got = unsafe {
            sys::call(
                libc::SYS_pread64,
                [
                    fd as usize,
                    self.words.as_mut_ptr().expose_provenance(),
                    count * size_of::<u64>(),
                    address / page * size_of::<u64>(),
                    0,
                    0,
                ],
            )
        };
        let wanted = if self.shares {
            PRESENT
        } else {
            PRESENT | EXCLUSIVE
        };
        let unwanted = if self.files { 0 } else { OF_FILE };
        for (page, word) in self.pages.iter_mut().zip(&self.words[..count]) {
            *page = u8::from(word & (wanted | unwanted) == wanted);
        }
        usize::try_from(got) == Ok(count * size_of::<u64>())
    }
}

/// One byte a page, its lowest bit set if the page is there; `false` if the kernel refuses.
#[must_use]
pub fn present(start: usize, bytes: usize, pages: &mut [u8]) -> bool {
    debug_assert!(bytes.div_ceil(crate::memory::page_size().bytes()) <= pages.len());
    let pages = pages.as_mut_ptr().expose_provenance();
    // SAFETY: the kernel writes one byte for each page.
    let result = unsafe { sys::call(libc::SYS_mincore, [start, bytes, pages, 0, 0, 0]) };
    result == 0
}

/// Calls `run` for every run of bytes whose lowest bit is set.
fn runs_of(pages: &[u8], mut run: impl FnMut(usize, usize)) {
    let mut at = 0;
    while at < pages.len() {
        let len = pages[at..].iter().take_while(|&&p| p & 1 != 0).count();
        if len > 0 {
            run(at, len);
        }
        at += len.max(1);
    }
}

impl Residency for Resident {
    fn resident_runs(
        &mut self,
        start: NonNull<u8>,
        pages: PageCount,
        run: &mut dyn FnMut(usize, usize),
    ) {
        let page = crate::memory::page_size().bytes();
        // Parts of the heap may begin inside a page.
        let start = start.addr().get() & !(page - 1);
        if let Some(fd) = self.pagemap {
            if self.scans {
                if self.by_scan(fd, start, pages.0 * page, page, run) {
                    return;
                }
                // Refused by the first call, so nothing was answered yet: an older kernel.
                self.scans = false;
            }
            let words = |me: &mut Self, at, count| me.ask_words(fd, page, at, count);
            if self.by_page(start, pages.0, page, run, words) || self.other {
                return;
            }
            self.close();
        }
        if self.files {
            self.by_page(start, pages.0, page, run, |me, at, count| {
                present(at, count * page, &mut me.pages)
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory;
    use std::boxed::Box;
    use std::vec::Vec;

    fn runs(resident: &mut Resident, start: NonNull<u8>, pages: usize) -> Vec<(usize, usize)> {
        let mut seen = Vec::new();
        resident.resident_runs(start, PageCount(pages), &mut |first, len| {
            seen.push((first, len));
        });
        seen
    }

    fn pages_of(seen: &[(usize, usize)]) -> Vec<usize> {
        seen.iter().flat_map(|&(f, n)| f..f + n).collect()
    }

    #[test]
    fn touched_pages_are_resident_and_others_are_not_by_every_way_of_asking() {
        let page = memory::page_size().bytes();
        let start = memory::reserve(64 * page, page).unwrap();
        // SAFETY: the reservation is ours; the bytes written are committed.
        unsafe {
            memory::commit(start, 32 * page).unwrap();
            for index in [3, 4, 5, 31] {
                start.add(index * page).write(1);
            }
        }
        let mut resident = Box::new(Resident::new());
        assert_eq!(pages_of(&runs(&mut resident, start, 64)), [3, 4, 5, 31]);
        assert!(resident.tells_pages());
        resident.open();
        assert!(resident.tells_pages());
        assert_eq!(pages_of(&runs(&mut resident, start, 64)), [3, 4, 5, 31]);
        assert_eq!(resident.count(start, PageCount(5)), 2);
        resident.scans = false;
        assert_eq!(pages_of(&runs(&mut resident, start, 64)), [3, 4, 5, 31]);
        resident.close();
        // SAFETY: reserved above, used by nobody.
        unsafe { memory::release(start, 64 * page) };
    }

    #[test]
    fn pages_of_zeros_are_no_memory() {
        let page = memory::page_size().bytes();
        let huge = 2 << 20;
        let start = memory::reserve(2 * huge, huge).unwrap();
        // SAFETY: the reservation is ours; what is read is committed.
        unsafe {
            memory::commit(start, 2 * huge).unwrap();
            sys::call(
                libc::SYS_madvise,
                [
                    start.addr().get(),
                    2 * huge,
                    libc::MADV_HUGEPAGE as usize,
                    0,
                    0,
                    0,
                ],
            );
            start.add(huge).read_volatile();
            start.write(1);
            assert_eq!(start.add(huge - page).read_volatile(), 0);
        }
        let mut resident = Box::new(Resident::new());
        resident.open();
        // Older kernels do not scan, whatever is asked.
        resident.shares(false);
        // The page of the write may be huge itself.
        let pages = PageCount(2 * huge / page);
        let memory = resident.count(start, pages);
        assert!(memory == 1 || memory == huge / page, "{memory}");
        resident.scans = false;
        assert_eq!(resident.count(start, pages), memory);
        resident.shares(true);
        assert!(resident.count(start, pages) > memory);
        resident.close();
        // SAFETY: reserved above, used by nobody.
        unsafe { memory::release(start, 2 * huge) };
    }

    #[test]
    fn a_page_of_a_file_counts_until_it_is_written() {
        let page = memory::page_size().bytes();
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
        let (none, flags) = (core::ptr::null_mut(), libc::MAP_PRIVATE);
        // SAFETY: two pages of a file longer than that, anywhere; one is read, the other written.
        let start = unsafe {
            let start = libc::mmap(none, 2 * page, rights, flags, fd, 0);
            assert_ne!(start, libc::MAP_FAILED);
            start.cast::<u8>().read_volatile();
            start.cast::<u8>().add(page).write_volatile(1);
            NonNull::new(start.cast::<u8>()).unwrap()
        };
        let mut all = Box::new(Resident::new());
        let mut own = Box::new(Resident::of_no_file());
        assert_eq!(own.count(start, PageCount(2)), 0, "no page map");
        for resident in [&mut all, &mut own] {
            resident.open();
        }
        for scans in [true, false] {
            (all.scans, own.scans) = (scans, scans);
            assert_eq!(pages_of(&runs(&mut all, start, 2)), [0, 1]);
            assert_eq!(pages_of(&runs(&mut own, start, 2)), [1]);
        }
        all.close();
        own.close();
    }

    #[test]
    fn more_runs_than_one_scan_answers_are_all_found() {
        let page = memory::page_size().bytes();
        let count = 3 * REGIONS;
        let start = memory::reserve(2 * count * page, page).unwrap();
        // SAFETY: the reservation is ours and committed.
        unsafe {
            memory::commit(start, 2 * count * page).unwrap();
            // Where the kernel gives huge pages unasked, one would make all pages of it resident.
            libc::madvise(
                start.as_ptr().cast(),
                2 * count * page,
                libc::MADV_NOHUGEPAGE,
            );
            for index in 0..count {
                start.add(2 * index * page).write(1);
            }
        }
        let mut resident = Box::new(Resident::new());
        resident.open();
        assert_eq!(resident.count(start, PageCount(2 * count)), count);
        resident.close();
        // SAFETY: reserved above, used by nobody.
        unsafe { memory::release(start, 2 * count * page) };
    }

    #[test]
    fn runs_are_maximal() {
        let mut seen = Vec::new();
        runs_of(&[1, 1, 0, 0x81, 0x80, 1], |first, len| {
            seen.push((first, len));
        });
        assert_eq!(seen, [(0, 2), (3, 1), (5, 1)]);
    }
}
