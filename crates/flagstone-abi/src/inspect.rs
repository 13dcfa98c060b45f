//! Questions about blocks and about the heap.
//!
//! The numbers of `mallinfo` and its kin were made for another design; what they mean here:
//! `arena` committed bytes, `uordblks` bytes the program holds, `fordblks` the other bytes of slabs
//! and resident free blocks, `hblks`/`hblkhd` huge blocks, `ordblks` free blocks, `keepcost` what a
//! trim could give back at once.

use core::ffi::{c_char, c_int, c_void};
use core::fmt::Write;
use flagstone_linux::{filter, held, process};
use flagstone_process::account::Account;
use flagstone_process::line::Line;
use flagstone_process::{blocks, env, fork, report};

/// Bytes of a block that may be used: the same for all of its life. Zero for null.
///
/// # Safety
/// 1. `address` is null or a live block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(address: *mut c_void) -> usize {
    // SAFETY: obligation 1.
    unsafe { blocks::usable_size(address.cast()) }
}

/// Gives free memory back to the system, but `keep` bytes; 1 if there was any, else 0.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_trim(keep: usize) -> c_int {
    c_int::from(blocks::trim(keep) != 0)
}

/// glibc's `struct mallinfo2`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct MallInfo2 {
    arena: usize,
    ordblks: usize,
    smblks: usize,
    hblks: usize,
    hblkhd: usize,
    usmblks: usize,
    fsmblks: usize,
    uordblks: usize,
    fordblks: usize,
    keepcost: usize,
}

/// glibc's `struct mallinfo`: the same in `int`, which saturates here instead of wrapping.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct MallInfo([c_int; 10]);

/// The heap's numbers; see this file's head.
#[unsafe(no_mangle)]
pub extern "C" fn mallinfo2() -> MallInfo2 {
    let account = Account::now();
    MallInfo2 {
        arena: account.committed,
        ordblks: account.free_blocks,
        hblks: account.huge.blocks,
        hblkhd: account.huge.bytes,
        uordblks: account.held + account.huge.bytes,
        fordblks: account.free_resident + account.blocks.saturating_sub(account.held),
        keepcost: account.free_resident,
        ..MallInfo2::default()
    }
}

/// The heap's numbers in `int`.
#[unsafe(no_mangle)]
pub extern "C" fn mallinfo() -> MallInfo {
    let info = mallinfo2();
    let int = |value: usize| c_int::try_from(value).unwrap_or(c_int::MAX);
    MallInfo([
        int(info.arena),
        int(info.ordblks),
        int(info.smblks),
        int(info.hblks),
        int(info.hblkhd),
        int(info.usmblks),
        int(info.fsmblks),
        int(info.uordblks),
        int(info.fordblks),
        int(info.keepcost),
    ])
}

/// Prints the heap's numbers on standard error: first the lines programs look for in glibc's
/// `malloc_stats`, the heap being the one arena, then our own.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_stats() {
    let account = Account::now();
    let huge = account.huge.bytes;
    for (head, system, in_use) in [
        ("Arena 0:", account.committed, account.held),
        (
            "Total (incl. mmap):",
            account.committed + huge,
            account.held + huge,
        ),
    ] {
        let mut line = Line::new();
        let _ = write!(
            line,
            "{head}\nsystem bytes     = {system:>10}\nin use bytes     = {in_use:>10}"
        );
        line.print();
    }
    for (what, number) in [
        ("max mmap regions", account.huge_peak.blocks),
        ("max mmap bytes  ", account.huge_peak.bytes),
    ] {
        let mut line = Line::new();
        let _ = write!(line, "{what} = {number:>10}");
        line.print();
    }
    for (what, bytes) in [
        ("held by the program", account.held),
        ("slabs and runs", account.blocks),
        ("huge blocks", huge),
        ("free, resident", account.free_resident),
        ("committed", account.committed),
        ("the allocator's own", account.metadata),
    ] {
        let mut line = Line::new();
        let _ = write!(line, "flagstone: {what:<20} {bytes:>14} bytes");
        line.print();
    }
}

/// Writes the heap's numbers as XML to `stream`; 0, `EINVAL` for options that are not zero (as the
/// value: glibc leaves `errno` alone here), or -1 if the stream refuses.
///
/// # Safety
/// 1. `stream` is an open stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_info(options: c_int, stream: *mut libc::FILE) -> c_int {
    if options != 0 {
        return libc::EINVAL;
    }
    let account = Account::now();
    let mut line = Line::new();
    let _ = write!(
        line,
        "<malloc version=\"1\" allocator=\"flagstone {}\">\n\
         <total type=\"in_use\" size=\"{}\"/>\n<total type=\"mmap\" size=\"{}\"/>\n\
         <total type=\"free\" count=\"{}\" size=\"{}\"/>\n\
         <system type=\"current\" size=\"{}\"/>\n<own size=\"{}\"/>\n</malloc>\n",
        env!("CARGO_PKG_VERSION"),
        account.held,
        account.huge.bytes,
        account.free_blocks,
        account.free_resident,
        account.committed + account.huge.bytes,
        account.metadata,
    );
    // SAFETY: obligation 1; the line ends in a zero byte.
    if unsafe { libc::fputs(line.terminated().cast::<c_char>(), stream) } < 0 {
        return -1;
    }
    0
}

/// Refuses every parameter (0): those glibc knows name parts of another design, and what nobody does
/// is not said to be done.
#[unsafe(no_mangle)]
pub extern "C" fn mallopt(_parameter: c_int, _value: c_int) -> c_int {
    0
}

/// At exit: the statistics, if wanted, and the last look for double frees. What the program wrote goes out
/// first: the look may end it.
pub extern "C" fn at_exit() {
    if env::show_stats() {
        malloc_stats();
    }
    if Account::exists() && may_look() {
        // SAFETY: the C library does the same next; no other thread holds a stream.
        unsafe { libc::fflush(core::ptr::null_mut()) };
        held::never_wait();
        blocks::last_look();
    }
}

/// Whether the last look is worth its price. Not where a report is still to come, which would not show the
/// sheaves any more; nor beside other threads, which go on and would find their sheaves gone; nor beside a filter.
/// Nor in a child that began in the middle of another process: the threads that held locks there are
/// not here to give them back.
fn may_look() -> bool {
    let Some(_permit) = filter::permit() else {
        return false;
    };
    !report::is_on() && fork::in_its_process() && process::is_alone()
}
