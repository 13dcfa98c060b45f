//! `libflagstone.so`: the surface of `flagstone_abi` as a library of its own, and how it ends where a
//! program has no other runtime of Rust.
#![no_std]

use core::panic::PanicInfo;
// For its symbols: they are the library.
use flagstone_abi as _;
use flagstone_process::line::Line;

/// A broken assumption of our own: one line with its place, and the end.
#[panic_handler]
fn panicked(info: &PanicInfo<'_>) -> ! {
    let mut text = Line::new();
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
