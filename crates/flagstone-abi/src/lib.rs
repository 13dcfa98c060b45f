//! The C library's allocation functions and the C++ operators over the heap of the process.
//!
//! ```text
//!   hot       malloc · free · operator new and delete of the plainest forms
//!   c_abi     calloc · realloc · reallocarray · free_sized
//!   aligned   posix_memalign · aligned_alloc · memalign · valloc · pvalloc
//!   cxx       operator new and delete, every form
//!   inspect   malloc_usable_size · malloc_trim · mallinfo · malloc_stats · malloc_info · mallopt
//!   objects   fs_cache_*, fs_sheaf_*: typed caches
//!   control   flagstone_*: statistics, trim, knobs, version
//!   ──────────────────────────────────────────────────────────────────────────────────────
//!   start     what runs at load and at exit; handlers around fork
//!   deepbind  plugins that would bypass the library
//!   children  vfork · clone: strangers in a thread's storage
//!   confine   prctl · syscall: a system-call filter comes
//!   limits    setrlimit · prlimit: less address space
//!   exit      the end of the process, for the report of `flagstone run`
//! ```
//!
//! A program that links this crate gets these functions instead of its C library's. The heap itself
//! is `flagstone_process`'s. Nothing here uses thread-local storage but the C library's `errno`,
//! and `errno` changes only where a function fails and its standard says so.
//!
//! Semantics: C23, POSIX.1-2024, and where both leave a choice, glibc's.
#![no_std]

mod aligned;
mod c_abi;
#[cfg(feature = "preload")]
mod children;
#[cfg(feature = "preload")]
mod confine;
mod control;
mod cxx;
#[cfg(all(
    feature = "preload",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
mod deepbind;
mod exit;
mod hot;
mod inspect;
mod limits;
#[cfg(feature = "preload")]
mod next;
mod objects;
mod start;
