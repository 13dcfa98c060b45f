//! `libflagstone_record.so`: preloaded before an allocator, it notes every request and passes it on.
//!
//! ```text
//!   program ──► hooks, cxx ──► next allocator (glibc, libflagstone.so, any other)     next.rs
//!                  │ event
//!               stream       one buffer per thread, no lock                           stream.rs
//!                  │ 64 KiB of events
//!               sink         zstd, one append to the file                             sink.rs
//!   look, ranges: resident memory now and then, of the allocator and of the rest
//!   life: start, fork, thread exit, process exit      tls: which stream is mine
//! ```
//!
//! Threads share nothing on the way of an event. A chunk is appended by one `write` to a file opened
//! for appending, so threads and forked processes need no lock either. Nothing here calls `malloc`.
//!
//! Environment, set by `flagstone record`: `FLAGSTONE_RECORD_FILE` (absolute path),
//! `FLAGSTONE_RECORD_BYTES` (most bytes of the file), `FLAGSTONE_RECORD_SAMPLE` (one address in N).
#![no_std]

mod cxx;
mod hooks;
mod life;
mod line;
mod look;
mod next;
mod ranges;
mod sink;
mod stream;
mod tls;

use core::panic::PanicInfo;

// Whatever features the `libc` crate was built with for other members of the workspace: this
// library needs the C library and says so itself.
#[link(name = "c")]
unsafe extern "C" {}

/// A broken assumption of our own: one line, and the end.
#[panic_handler]
fn panicked(info: &PanicInfo<'_>) -> ! {
    let place = info.location();
    let (file, row) = place.map_or(("?", 0), |place| (place.file(), place.line()));
    line::say(
        &["flagstone record: broken invariant at ", file],
        u64::from(row),
    );
    // SAFETY: no preconditions.
    unsafe { libc::abort() }
}

// Parts of the compiler's own library name the function that would unwind them. Nothing unwinds here.
core::arch::global_asm!(
    ".pushsection .text.unlikely.flagstone_record_unwind,\"ax\",@progbits",
    ".globl rust_eh_personality",
    ".hidden rust_eh_personality",
    ".type rust_eh_personality,@function",
    "rust_eh_personality:",
    ".long 0",
    ".size rust_eh_personality, .-rust_eh_personality",
    ".popsection",
);
