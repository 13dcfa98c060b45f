//! `libflagstone.so`: the C library's allocation functions and the C++ operators over the core.
//!
//! ```text
//!   hot       malloc · free · operator new and delete of the plainest forms
//!   c_abi     calloc · realloc · reallocarray · free_sized
//!   aligned   posix_memalign · aligned_alloc · memalign · valloc · pvalloc
//!   cxx       operator new and delete, every form
//!   inspect   malloc_usable_size · malloc_trim · mallinfo · malloc_stats · malloc_info · mallopt
//!   ──────────────────────────────────────────────────────────────────────────────────────
//!   init      the one static heap, built at the first call that needs it
//!   env       FLAGSTONE_<OPTION>, FLAGSTONE_CONF → Policy
//!   fork      handlers around fork       line   text without allocation
//!   deepbind  plugins that would bypass the library
//!   limits    setrlimit · prlimit: less address space
//!   report    where the memory went, for `flagstone run`
//! ```
//!
//! The first call may come from the dynamic loader, before any constructor ran and from any
//! thread; it builds the heap. Nothing here uses thread-local storage but the C library's `errno`,
//! and `errno` changes only where a function fails and its standard says so.
//!
//! Semantics: C23, POSIX.1-2024, and where both leave a choice, glibc's.
#![no_std]

mod aligned;
mod c_abi;
mod cxx;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod deepbind;
mod env;
mod fork;
mod hot;
mod init;
mod inspect;
mod limits;
mod line;
mod report;

use core::panic::PanicInfo;

// Whatever features the `libc` crate was built with for other members of the workspace: this
// library needs the C library and says so itself.
#[link(name = "c")]
unsafe extern "C" {}

/// A broken assumption of our own: one line with its place, and the end.
#[panic_handler]
fn panicked(info: &PanicInfo<'_>) -> ! {
    let mut text = line::Line::new();
    let place = info.location();
    let (file, row) = place.map_or(("?", 0), |place| (place.file(), place.line()));
    text.push("flagstone: broken invariant at ");
    text.push(file);
    text.push(":");
    text.push_number(u64::from(row));
    text.print();
    // SAFETY: no preconditions.
    unsafe { libc::abort() }
}

// Parts of the compiler's own library are built to be unwound through and name the function that
// would do it (128-bit division on aarch64). Nothing unwinds here. Hidden, so that no program's
// own function of that name is replaced.
core::arch::global_asm!(
    ".pushsection .text.unlikely.flagstone_unwind,\"ax\",@progbits",
    ".globl rust_eh_personality",
    ".hidden rust_eh_personality",
    ".type rust_eh_personality,@function",
    "rust_eh_personality:",
    ".long 0",
    ".size rust_eh_personality, .-rust_eh_personality",
    ".popsection",
);
