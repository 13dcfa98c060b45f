//! Fork handlers.

/// Has the C library call these around `fork`: `prepare` before, in the forking thread;
/// `parent` and `child` after. Handlers run in reverse order of registration before the fork, so
/// the earliest registration locks last and unlocks first, under everybody else's handlers.
///
/// Registering may allocate; the heap must work when this is called.
///
/// # Errors
/// `Err` if the C library has no memory for the registration.
pub fn register(
    prepare: extern "C" fn(),
    parent: extern "C" fn(),
    child: extern "C" fn(),
) -> Result<(), flagstone_core::platform::OutOfMemory> {
    // SAFETY: the handlers live as long as the program: the library is never unloaded.
    let result = unsafe { pthread_atfork(Some(prepare), Some(parent), Some(child)) };
    if result == 0 {
        Ok(())
    } else {
        Err(flagstone_core::platform::OutOfMemory)
    }
}

unsafe extern "C" {
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> core::ffi::c_int;
}

/// What the child must do for this layer: locks of CPUs whose holders no longer exist are freed.
/// A step that was under way in another thread left its sheaf whole (each commits by one store).
pub fn child() {
    crate::slots::reset_after_fork();
    crate::membarrier::reset_after_fork();
}
