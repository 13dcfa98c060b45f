//! Which module an address lies in, and where that one's unwind tables are, without a lock.
//!
//! ```text
//!   _dl_find_object   glibc 2.35: every module
//!   AT_PHDR           the program's own headers, where there is no such function, and in static programs
//! ```
//!
//! `_dl_find_object` is made for unwinders: it may be called anywhere, and beside `dlopen` and `dlclose`. `dlsym` may
//! not: it takes the loader's lock, which a thread may hold that waits for this one. So the name is a weak one,
//! which the loader resolves, or leaves, when it loads this library.

use super::cursor::Cursor;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
core::arch::global_asm!(".weak _dl_find_object");

/// `_dl_find_object`.
type FindObject = unsafe extern "C" fn(*mut c_void, *mut Object) -> c_int;

/// glibc's `struct dl_find_object`.
#[repr(C)]
struct Object {
    flags: u64,
    start: usize,
    end: usize,
    link_map: usize,
    eh_frame: usize,
    reserved: [u64; 7],
}

/// Where it is; zero for nowhere.
static FIND: AtomicUsize = AtomicUsize::new(0);
/// The program's own code, and the header of its tables.
static OWN: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];

const PT_LOAD: u32 = 1;
const PT_PHDR: u32 = 6;
const PT_GNU_EH_FRAME: u32 = 0x6474_E550;
/// Bytes of a program header in files of 64 bits.
const HEADER_BYTES: usize = 56;

/// Finds out what there is to ask. Once, when a profile begins.
pub fn prepare() {
    // SAFETY: reads the auxiliary vector.
    let [headers, count] =
        [libc::AT_PHDR, libc::AT_PHNUM].map(|which| unsafe { libc::getauxval(which) } as usize);
    FIND.store(find_object(), Relaxed);
    if headers != 0 {
        note_program(headers, count);
    }
}

/// The header of the unwind tables of the module that has `address`.
#[inline]
pub fn tables_of(address: u64) -> Option<usize> {
    let find = FIND.load(Relaxed);
    if find == 0 {
        let [start, end, tables] = [0, 1, 2].map(|at| OWN[at].load(Relaxed));
        return (start..end)
            .contains(&(address as usize))
            .then_some(tables)
            .filter(|&tables| tables != 0);
    }
    let mut object = Object {
        flags: 0,
        start: 0,
        end: 0,
        link_map: 0,
        eh_frame: 0,
        reserved: [0; 7],
    };
    // SAFETY: the symbol's type.
    let find = unsafe { core::mem::transmute::<usize, FindObject>(find) };
    let place: *mut c_void = core::ptr::without_provenance_mut(address as usize);
    // SAFETY: the function takes any address and writes one such structure.
    let answer = unsafe { find(place, &raw mut object) };
    (answer == 0 && object.eh_frame != 0).then_some(object.eh_frame)
}

/// A program header: kind, address in the image, bytes.
fn header(at: usize) -> Option<(u32, usize, usize)> {
    // SAFETY: one of as many headers as the image says.
    let mut header = unsafe { Cursor::new(at, at + HEADER_BYTES) };
    let (kind, _flags, _offset) = (header.u32()?, header.u32()?, header.u64()?);
    let (address, _physical, _in_file) = (header.u64()?, header.u64()?, header.u64()?);
    Some((kind, address as usize, header.u64()? as usize))
}

fn note_program(headers: usize, count: usize) {
    let each = || (0..count).filter_map(|index| header(headers + index * HEADER_BYTES));
    // Where the headers say they are and where they are differ by where the program lies.
    let said = each().find(|&(kind, ..)| kind == PT_PHDR);
    let Some((_, said, _)) = said else { return };
    let base = headers.wrapping_sub(said);
    let tables = each().find(|&(kind, ..)| kind == PT_GNU_EH_FRAME);
    let Some((_, tables, _)) = tables else { return };
    let loads = || each().filter(|&(kind, ..)| kind == PT_LOAD);
    let start = loads().map(|(_, address, _)| address).min().unwrap_or(0);
    let end = loads().map(|(_, address, bytes)| address + bytes).max();
    for (place, value) in OWN.iter().zip([start, end.unwrap_or(0), tables]) {
        place.store(base.wrapping_add(value), Relaxed);
    }
}

/// The address of `_dl_find_object`, if this C library has it.
#[cfg(target_arch = "x86_64")]
fn find_object() -> usize {
    let address: usize;
    // SAFETY: reads an entry of the global offset table.
    unsafe {
        core::arch::asm!("mov {}, qword ptr [rip + _dl_find_object@GOTPCREL]", out(reg) address,
            options(nostack, pure, readonly, preserves_flags));
    }
    address
}

/// The address of `_dl_find_object`, if this C library has it.
#[cfg(target_arch = "aarch64")]
fn find_object() -> usize {
    let address: usize;
    // SAFETY: reads an entry of the global offset table.
    unsafe {
        core::arch::asm!(
            "adrp {0}, :got:_dl_find_object",
            "ldr {0}, [{0}, :got_lo12:_dl_find_object]",
            out(reg) address,
            options(nostack, pure, readonly, preserves_flags));
    }
    address
}

/// Nobody is asked on other machines.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn find_object() -> usize {
    0
}
