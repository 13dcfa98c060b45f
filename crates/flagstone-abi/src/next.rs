//! Functions that this library interposes and passes on.

use core::ffi::CStr;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A function of the next library, found when this one is loaded, or at the first call if that is earlier.
///
/// Without its name, whose address would need a page of its own to be written at start-up.
pub struct Next(AtomicUsize);

impl Next {
    /// Not found yet.
    pub const fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// Where the function of that name is. Ends the program where there is none: then the caller had none to call.
    pub fn address(&self, name: &CStr) -> *const () {
        if self.0.load(Relaxed) == 0 {
            self.find(name);
        }
        core::ptr::with_exposed_provenance(self.0.load(Relaxed))
    }

    /// Finds it now: a later call may come where nothing can be looked up.
    #[cold]
    pub fn find(&self, name: &CStr) {
        // SAFETY: a zero-terminated name.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        self.0.store(found.expose_provenance(), Relaxed);
        if found.is_null() {
            // SAFETY: no preconditions.
            unsafe { libc::abort() }
        }
    }
}
