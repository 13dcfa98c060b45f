//! What a program asks and tells its heap: statistics, trim, knobs, version.

use core::ffi::{CStr, c_char, c_int, c_void};
use flagstone_process::account::Account;
use flagstone_process::knobs::{self, Refusal};
use flagstone_process::limit;

/// `struct flagstone_stats`; fields are only ever added at the end.
#[repr(C)]
#[derive(Default)]
pub struct Stats {
    size: usize,
    version: u32,
    reserved: u32,
    in_use: u64,
    huge: u64,
    slabs_and_runs: u64,
    free_resident: u64,
    committed: u64,
    metadata: u64,
    huge_blocks: u64,
    free_blocks: u64,
}

/// What `version` is now.
const STATS_VERSION: u32 = 1;
/// Bytes before the first figure.
const HEAD: usize = core::mem::offset_of!(Stats, in_use);

/// Fills as much of the structure as the caller's header has, which its `size` says; 0, or `EINVAL`.
///
/// # Safety
/// 1. `out` has as many writable bytes as its `size` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flagstone_stats_get(out: *mut Stats) -> c_int {
    // SAFETY: obligation 1.
    let size = unsafe { (*out).size };
    if !(HEAD..=4096).contains(&size) {
        return libc::EINVAL;
    }
    let account = Account::now();
    let now = Stats {
        size,
        version: STATS_VERSION,
        reserved: 0,
        in_use: (account.held + account.huge.bytes) as u64,
        huge: account.huge.bytes as u64,
        slabs_and_runs: account.blocks as u64,
        free_resident: account.free_resident as u64,
        committed: account.committed as u64,
        metadata: account.metadata as u64,
        huge_blocks: account.huge.blocks as u64,
        free_blocks: account.free_blocks as u64,
    };
    let known = size.min(size_of::<Stats>());
    // SAFETY: obligation 1.
    unsafe {
        (&raw const now)
            .cast::<u8>()
            .copy_to_nonoverlapping(out.cast(), known);
        // A newer header's figures are zero here.
        out.cast::<u8>().add(known).write_bytes(0, size - known);
    }
    0
}

/// Gives free memory back, but `keep` bytes; the bytes given back.
#[unsafe(no_mangle)]
pub extern "C" fn flagstone_trim(keep: usize) -> usize {
    flagstone_process::blocks::trim(keep)
}

/// Sets what the heap may hold, zero for no limit, and whom to ask at the limit; 0, or `EINVAL` for a limit that is too small.
///
/// # Safety
/// 1. `callback` may be called with `argument` from any thread until the limit is set anew.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flagstone_set_limit(
    bytes: usize,
    callback: Option<limit::Callback>,
    argument: *mut c_void,
) -> c_int {
    if bytes != 0 && (bytes as u64) < limit::LIMIT_MIN {
        return libc::EINVAL;
    }
    // The callback first: a limit may be met at once.
    limit::set_callback(callback, argument);
    if !limit::set(bytes as u64) {
        return libc::EINVAL;
    }
    0
}

fn number_of(refusal: Refusal) -> c_int {
    match refusal {
        Refusal::Unknown => libc::ENOENT,
        Refusal::ReadOnly => libc::EPERM,
        Refusal::Value => libc::EINVAL,
        Refusal::NoMemory => libc::ENOMEM,
    }
}

/// Reads a knob by its name; 0 or `ENOENT`.
///
/// # Safety
/// 1. `name` is a string, `value` writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flagstone_get(name: *const c_char, value: *mut u64) -> c_int {
    // SAFETY: obligation 1.
    match knobs::get(unsafe { CStr::from_ptr(name) }.to_bytes()) {
        Ok(found) => {
            // SAFETY: obligation 1.
            unsafe { value.write(found) };
            0
        }
        Err(refusal) => number_of(refusal),
    }
}

/// Sets a knob by its name; 0, `ENOENT`, `EPERM` for what can only be read, `EINVAL`.
///
/// # Safety
/// 1. `name` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flagstone_set(name: *const c_char, value: u64) -> c_int {
    // SAFETY: obligation 1.
    match knobs::set(unsafe { CStr::from_ptr(name) }.to_bytes(), value) {
        Ok(()) => 0,
        Err(refusal) => number_of(refusal),
    }
}

/// The library's version as text.
#[unsafe(no_mangle)]
pub extern "C" fn flagstone_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
