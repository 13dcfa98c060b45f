//! What runs when the library is loaded and when the program ends, and who else registers handlers
//! around `fork`.
//!
//! Ours are registered before all others: every registration of the process comes through here
//! first where the library is preloaded, be it of a library whose constructor ran before ours. A
//! static program has one constructor of ours, and registrations that the linker resolved.

use core::ffi::c_int;
#[cfg(feature = "preload")]
use core::ffi::c_void;
use flagstone_linux::fork::Handler;
use flagstone_process::{env, fork, profile, report};

/// Every registration of the process, under glibc's name for it: ours, then the others.
#[cfg(feature = "preload")]
#[unsafe(no_mangle)]
pub extern "C" fn __register_atfork(
    prepare: Handler,
    parent: Handler,
    child: Handler,
    library: *mut c_void,
) -> c_int {
    begin();
    flagstone_linux::fork::pass_on(prepare, parent, child, library)
}

/// The same under its own name, which is what programs call where the C library is not glibc. (A
/// program for glibc has a copy of its own, which calls the function above.)
#[cfg(feature = "preload")]
#[unsafe(no_mangle)]
pub extern "C" fn pthread_atfork(prepare: Handler, parent: Handler, child: Handler) -> c_int {
    begin();
    flagstone_linux::fork::pass_on(prepare, parent, child, core::ptr::null_mut())
}

#[cfg(not(feature = "preload"))]
unsafe extern "C" {
    safe fn pthread_atfork(prepare: Handler, parent: Handler, child: Handler) -> c_int;
}

/// Registers with the C library.
pub fn at_fork(prepare: Handler, parent: Handler, child: Handler) -> c_int {
    #[cfg(feature = "preload")]
    return flagstone_linux::fork::pass_on(prepare, parent, child, core::ptr::null_mut());
    #[cfg(not(feature = "preload"))]
    pthread_atfork(prepare, parent, child)
}

fn begin() {
    fork::register(at_fork);
}

/// Finds the functions that are interposed and passed on.
fn find_next() {
    #[cfg(feature = "preload")]
    {
        crate::children::find();
        crate::confine::find();
        flagstone_linux::filters_are_seen();
    }
}

/// What runs when the library is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = {
    extern "C" fn construct() {
        begin();
        find_next();
        // One look through the environment: most programs start without a variable of ours.
        if env::has_any() {
            report::begin(at_fork, crate::exit::register);
            profile::begin(at_fork, crate::exit::register);
        }
    }
    construct
};

/// What runs when the program ends.
#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = crate::inspect::at_exit;
