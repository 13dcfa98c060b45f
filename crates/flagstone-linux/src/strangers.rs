//! Threads whose area of restartable sequences the kernel does not keep up to date.
//!
//! ```text
//!   child of vfork         its parent's storage; the parent stands still, its index is another thread's soon
//!   thread of bare clone   storage of its own, all zeroes: index 0
//!   unregistered thread    the kernel leaves zeroes: index 0
//! ```
//!
//! A step in such a thread would run beside another thread's on the same index. Nothing in the area tells the
//! zeroes of a stranger from those of a thread on index 0, and the fast path asks nothing. So whoever makes
//! such a thread writes [`NOBODY`] into its area: that index has no sheaves, and `exchange` gives it none
//! (`rseq/x86_64.rs`). Such a thread takes the slow path at each call, which is sound for any number of threads.
//!
//! The index belongs to the kernel where it keeps the area. It overwrites ours when it knows better, so a thread
//! that lent its storage puts its index back only where [`NOBODY`] is still there, in one instruction.

use crate::rseq::INDEX_OFFSET;
use crate::thread;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The index of a thread that has none: it stands for the page of zeroes before all slots.
pub const NOBODY: u32 = u32::MAX;

/// The index in the storage that `thread_pointer` points to, if sequences are used.
fn index_at(thread_pointer: usize) -> Option<*const AtomicU32> {
    let distance = INDEX_OFFSET.load(Relaxed);
    let address = thread_pointer.wrapping_add_signed(distance);
    (distance != 0).then(|| core::ptr::with_exposed_provenance(address))
}

/// Takes the index away from a thread that does not run yet, or from the caller.
///
/// # Safety
/// 1. The C library's structure of a thread lies there, and the kernel does not keep its area, or its owner stands
///    still.
pub unsafe fn disown(thread_pointer: usize) {
    if let Some(index) = index_at(thread_pointer) {
        // SAFETY: obligation 1.
        unsafe { &*index }.store(NOBODY, Relaxed);
    }
}

/// Takes the index away from the caller, in the child that runs in its parent's storage.
///
/// # Safety
/// 1. As for [`disown`].
pub unsafe fn disown_caller() {
    // SAFETY: obligation 1.
    unsafe { disown(thread::token() as usize) };
}

/// Whether the C library's area of the calling thread is the one at `address`.
#[must_use]
pub fn is_area_of_caller(address: usize) -> bool {
    crate::rseq::area_of(thread::token()) == Some(address)
}

/// The caller's index before a child runs in its storage.
#[derive(Debug)]
pub struct Lent(u32);

impl Lent {
    /// To be called before the child starts.
    #[must_use]
    pub fn now() -> Self {
        // SAFETY: where sequences are used, each thread has an area.
        let index = index_at(thread::token() as usize).map(|index| unsafe { &*index });
        Self(index.map_or(NOBODY, |index| index.load(Relaxed)))
    }

    /// To be called when the child no longer runs there.
    pub fn take_back(self) {
        if let Some(index) = index_at(thread::token() as usize) {
            // SAFETY: as in `now`.
            let index = unsafe { &*index };
            let _ = index.compare_exchange(NOBODY, self.0, Relaxed, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_that_is_lent_has_no_index_and_comes_back() {
        crate::slots::start(crate::cpus::slot_count());
        if !crate::rseq::ready() {
            return;
        }
        let lent = Lent::now();
        // The kernel may write the index at any moment, as this thread runs; it does not when nobody moves it.
        // SAFETY: the caller is a thread of the C library.
        unsafe { disown_caller() };
        lent.take_back();
        assert_ne!(crate::rseq::index(), NOBODY);
    }
}
