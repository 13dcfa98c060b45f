//! Anonymous memory that exists only where it is touched.

use core::ptr::NonNull;

/// A private mapping of zeroes, readable and writable, populated page by page on first use.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

impl Mapping {
    /// A mapping of `bytes`, or `None` if the system refuses.
    #[must_use]
    pub fn new(bytes: usize) -> Option<Self> {
        // SAFETY: an anonymous mapping at an address the system chooses disturbs nobody.
        let start = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return None;
        }
        NonNull::new(start.cast()).map(|start| Self { start, bytes })
    }

    /// Where it starts.
    #[inline]
    #[must_use]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Asks for large pages: for tables that are read at random and filled densely.
    #[must_use]
    pub fn dense(self) -> Self {
        self.dense_part(0, self.bytes);
        self
    }

    /// As [`Mapping::dense`], for a page-aligned part.
    pub fn dense_part(&self, offset: usize, bytes: usize) {
        assert!(offset + bytes <= self.bytes, "inside the mapping");
        // SAFETY: advice about our own mapping, inside it as just checked; it never changes what the
        // memory holds.
        unsafe {
            libc::madvise(
                self.start.as_ptr().add(offset).cast(),
                bytes,
                libc::MADV_HUGEPAGE,
            );
        }
    }

    /// Asks for small pages: for tables of which little is used here and there.
    #[must_use]
    pub fn sparse(self) -> Self {
        // SAFETY: advice about our own mapping, whole; it never changes what the memory holds.
        unsafe {
            libc::madvise(
                self.start.as_ptr().cast(),
                self.bytes,
                libc::MADV_NOHUGEPAGE,
            );
        }
        self
    }

    /// Nobody may touch the first `bytes` any more: whole pages of the system.
    ///
    /// # Panics
    /// If the system refuses.
    pub fn forbid(&self, bytes: usize) {
        assert!(bytes <= self.bytes, "inside the mapping");
        // SAFETY: inside our own mapping, as just checked; what is forbidden is no longer handed out.
        let refused = unsafe { libc::mprotect(self.start.as_ptr().cast(), bytes, libc::PROT_NONE) };
        assert_eq!(refused, 0, "memory can be forbidden");
    }

    /// Drops the contents of a page-aligned part: it reads as zero afterwards.
    pub fn forget(&self, offset: usize, bytes: usize) {
        assert!(offset + bytes <= self.bytes, "inside the mapping");
        // SAFETY: the range is inside our own mapping, as just checked; callers own its contents.
        unsafe {
            libc::madvise(
                self.start.as_ptr().add(offset).cast(),
                bytes,
                libc::MADV_DONTNEED,
            );
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, whole, and nothing outlives it (the owner's contract).
        unsafe {
            libc::munmap(self.start.as_ptr().cast(), self.bytes);
        }
    }
}
