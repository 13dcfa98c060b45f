//! Functions that this library interposes and passes on.

use core::ffi::CStr;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A function of the next library, found when this one is loaded, or at the first call if that is earlier.
pub struct Next {
    address: AtomicUsize,
    name: &'static CStr,
}

impl Next {
    /// The function of that name.
    pub const fn new(name: &'static CStr) -> Self {
        Self {
            address: AtomicUsize::new(0),
            name,
        }
    }

    /// Where it is. Ends the program where there is none: then the caller had none to call.
    pub fn address(&self) -> *const () {
        if self.address.load(Relaxed) == 0 {
            self.find();
        }
        core::ptr::with_exposed_provenance(self.address.load(Relaxed))
    }

    /// Finds it now: a later call may come where nothing can be looked up.
    #[cold]
    pub fn find(&self) {
        // SAFETY: a zero-terminated name.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.address.store(found.expose_provenance(), Relaxed);
        if found.is_null() {
            // SAFETY: no preconditions.
            unsafe { libc::abort() }
        }
    }
}
