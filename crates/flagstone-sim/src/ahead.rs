//! Fetching ahead. The tables of a large machine do not fit the host's caches, and a simulated
//! operation waits for memory longer than it computes; addresses that will be needed are known
//! before.

use core::cell::Cell;
use flagstone_core::platform::Platform;
use flagstone_linux::Linux;

/// Asks for the line at `address` without waiting for it. A hint: the address may be anything.
#[inline(always)]
pub(crate) fn fetch(address: usize) {
    Linux::fetch_ahead(core::ptr::without_provenance(address));
}

/// What a thread's next turn begins with looking at: addresses, or anything. Fetched while the
/// thread before it runs.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Wants {
    /// A shared line and its entry in the directory, or a slot and the entry of its sheaf.
    first: Cell<[usize; 2]>,
    /// Entries of the objects it may use next.
    objects: Cell<[usize; 4]>,
}

impl Wants {
    /// It goes on with these two.
    #[inline]
    pub(crate) fn set_first(&self, two: [usize; 2]) {
        self.first.set(two);
    }

    /// It may use an object soon, whose entry in the directory is there.
    #[inline]
    pub(crate) fn add_object(&self, entry: usize) {
        let [_, before @ ..] = self.objects.get();
        let [second, third, fourth] = before;
        self.objects.set([second, third, fourth, entry]);
    }

    /// Asks for all of it, and for the end of the thread's stack.
    #[inline]
    pub(crate) fn fetch(&self, stack: usize) {
        /// Frames that a thread returns through before it does anything else, about.
        const FRAMES: usize = 448;
        for line in (0..FRAMES).step_by(64) {
            fetch(stack.wrapping_add(line));
        }
        let [line, entry] = self.first.get();
        let [first, second, third, fourth] = self.objects.get();
        for address in [line, entry, first, second, third, fourth] {
            fetch(address);
        }
    }
}
