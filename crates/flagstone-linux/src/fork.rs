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
    let result = unsafe { at_fork(prepare, parent, child) };
    if result == 0 {
        Ok(())
    } else {
        Err(flagstone_core::platform::OutOfMemory)
    }
}

/// `pthread_atfork`, as far as it lies in the C library itself. glibc links a part of it into every
/// object, which would name the object by its start-up code; we have none of that.
///
/// # Safety
/// 1. The handlers are never unloaded.
unsafe fn at_fork(
    prepare: extern "C" fn(),
    parent: extern "C" fn(),
    child: extern "C" fn(),
) -> core::ffi::c_int {
    #[cfg(target_env = "gnu")]
    {
        unsafe extern "C" {
            fn __register_atfork(
                prepare: extern "C" fn(),
                parent: extern "C" fn(),
                child: extern "C" fn(),
                object: *mut core::ffi::c_void,
            ) -> core::ffi::c_int;
        }
        // SAFETY: obligation 1; without an object the handlers stay for good.
        unsafe { __register_atfork(prepare, parent, child, core::ptr::null_mut()) }
    }
    #[cfg(not(target_env = "gnu"))]
    {
        unsafe extern "C" {
            fn pthread_atfork(
                prepare: extern "C" fn(),
                parent: extern "C" fn(),
                child: extern "C" fn(),
            ) -> core::ffi::c_int;
        }
        // SAFETY: obligation 1.
        unsafe { pthread_atfork(prepare, parent, child) }
    }
}

/// What the child must do for this layer: locks of CPUs whose holders no longer exist are freed.
/// A step that was under way in another thread left its sheaf whole (each commits by one store).
pub fn child() {
    crate::slots::reset_after_fork();
    crate::membarrier::reset_after_fork();
}
