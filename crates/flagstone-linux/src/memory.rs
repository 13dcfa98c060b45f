//! Address space and memory: reserve, commit, decommit, release, remap.
//!
//! ```text
//!   reserve   mmap PROT_NONE      address space only; no memory, no commit charge (not writable)
//!   commit    mprotect writable   in place; charged now, so an impossible size is refused here;
//!                                 the first 4 MiB, and all under a limit, get plain pages (MADV_NOHUGEPAGE)
//!   decommit  MADV_DONTNEED       contents gone, reads as zero, stays committed
//!   release   munmap
//!   remap     mremap MAYMOVE      moves page tables, never bytes
//!   claim     no call             addresses half as high as where the kernel maps now
//!   map_at    mmap writable       only where nothing is mapped (MAP_FIXED_NOREPLACE, Linux 4.17)
//!   unmap     munmap
//! ```

use crate::sys;
use core::ffi::CStr;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use flagstone_core::base::PageSize;
use flagstone_core::platform::{NotMapped, OutOfMemory};

/// `MADV_DONTNEED_LOCKED`, Linux 5.18: as `MADV_DONTNEED`, also for locked memory.
const MADV_DONTNEED_LOCKED: usize = 24;

/// Bytes from which on memory that is committed at once may have huge pages. Why 4 MiB: one of 2 MiB lies in it wherever
/// it begins.
const HUGE_PAGES_MIN: usize = 4 << 20;

/// Whether the next memory of that length is the first, in which small programs stay. Where the system gives huge pages to
/// everybody, a first malloc would else zero 2 MiB.
static FIRST: AtomicBool = AtomicBool::new(true);

/// Whether it asks for them.
static HUGE_PAGES: AtomicBool = AtomicBool::new(false);

/// From now on memory of 4 MiB and more that is committed at once asks the kernel for transparent huge pages, or no more.
pub fn ask_for_huge_pages(on: bool) {
    HUGE_PAGES.store(on, Relaxed);
}

/// Whether huge blocks get names.
static NAMES: AtomicBool = AtomicBool::new(false);

/// What `/proc/PID/smaps` calls a huge block where names are asked for.
const HUGE_BLOCK: &CStr = c"flagstone huge block";

/// From now on the mapping of every huge block gets a name, or no more: one more system call for each.
pub fn name_huge_blocks(on: bool) {
    NAMES.store(on, Relaxed);
}

/// Names a huge block where that is asked for. Beside a system-call filter it does nothing: a filter need
/// not expect `prctl` of a malloc.
pub(crate) fn name_huge(start: usize, bytes: usize) {
    if !NAMES.load(Relaxed) {
        return;
    }
    if let Some(_permit) = crate::filter::permit() {
        name_mapping(start, bytes, HUGE_BLOCK);
    }
}

/// The kernel's page size, from the auxiliary vector.
pub fn page_size() -> PageSize {
    // SAFETY: reads the auxiliary vector, which the C library keeps.
    let bytes = unsafe { libc::getauxval(libc::AT_PAGESZ) } as usize;
    PageSize::new(bytes).unwrap_or(PageSize::K4)
}

/// `PR_SET_VMA` and `PR_SET_VMA_ANON_NAME`, Linux 5.17 with `CONFIG_ANON_VMA_NAME`.
const PR_SET_VMA: usize = 0x5356_4d41;
const PR_SET_VMA_ANON_NAME: usize = 0;

/// Gives anonymous memory a name in `/proc/PID/maps`, where the kernel keeps names.
pub fn name_mapping(start: usize, bytes: usize, name: &'static CStr) {
    let name = name.as_ptr() as usize;
    // SAFETY: changes what the kernel says about the range, nothing else.
    unsafe {
        sys::call(
            libc::SYS_prctl,
            [PR_SET_VMA, PR_SET_VMA_ANON_NAME, start, bytes, name, 0],
        )
    };
}

fn map(bytes: usize) -> Option<NonNull<u8>> {
    map_with(bytes, libc::PROT_NONE)
}

/// Fresh memory of whole pages, zeroes, usable at once.
pub fn map_usable(bytes: usize) -> Option<NonNull<u8>> {
    map_with(bytes, libc::PROT_READ | libc::PROT_WRITE)
}

fn map_with(bytes: usize, protection: i32) -> Option<NonNull<u8>> {
    let address = mmap(0, bytes, protection, 0);
    if (-4095..0).contains(&address) {
        return None;
    }
    NonNull::new(core::ptr::with_exposed_provenance_mut(address as usize))
}

/// A fresh anonymous mapping at an address of the kernel's choice, or where nothing is mapped: the
/// answer of the system call.
fn mmap(at: usize, bytes: usize, protection: i32, more_flags: i32) -> isize {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | more_flags;
    // SAFETY: no flag lets it replace a mapping.
    unsafe {
        sys::call(
            libc::SYS_mmap,
            [
                at,
                bytes,
                protection as usize,
                flags as usize,
                usize::MAX,
                0,
            ],
        )
    }
}

/// A range that nobody uses now: half as high as where the kernel maps, which is far from the program,
/// its heap, its stack and its libraries on every layout of an address space, and as random as they are.
pub fn claim(bytes: usize, align: usize) -> Option<NonNull<u8>> {
    let page = page_size().bytes();
    let probe = map(page)?;
    // SAFETY: mapped just now, used by nobody.
    unsafe { release(probe, page) };
    let start = probe.addr().get() / 2 / align * align;
    let end = start.checked_add(bytes)?;
    (end < probe.addr().get())
        .then(|| NonNull::new(core::ptr::with_exposed_provenance_mut(start)))
        .flatten()
}

/// Maps a range where nothing is mapped, readable and writable.
///
/// # Safety
/// 1. As for `Platform::map`.
pub unsafe fn map_at(start: NonNull<u8>, bytes: usize) -> Result<(), NotMapped> {
    let at = start.addr().get();
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let address = mmap(at, bytes, protection, libc::MAP_FIXED_NOREPLACE);
    if address == at as isize {
        // SAFETY: mapped just now, used by nobody.
        unsafe { choose_pages(start, bytes) };
        return Ok(());
    }
    if !(-4095..0).contains(&address) {
        // A kernel that does not know the flag chose another address.
        let other = NonNull::new(core::ptr::with_exposed_provenance_mut(address as usize));
        if let Some(other) = other {
            // SAFETY: mapped just now, used by nobody.
            unsafe { release(other, bytes) };
        }
        return Err(NotMapped::Taken);
    }
    Err(if address == -(libc::EEXIST as isize) {
        NotMapped::Taken
    } else {
        NotMapped::Refused
    })
}

/// Unmaps a range; `false`, and nothing changed, where the kernel cannot split one more mapping.
///
/// # Safety
/// 1. As for `Platform::unmap`.
pub unsafe fn unmap(start: NonNull<u8>, bytes: usize) -> bool {
    // SAFETY: obligation 1.
    unsafe { sys::call(libc::SYS_munmap, [start.addr().get(), bytes, 0, 0, 0, 0]) == 0 }
}

/// Reserves `bytes` of address space aligned to `align`.
///
/// The first try asks for just the bytes, since an exact fit may be all that a limit leaves; only
/// if the kernel's address is misaligned is more reserved and cut to shape.
pub fn reserve(bytes: usize, align: usize) -> Option<NonNull<u8>> {
    debug_assert!(align.is_power_of_two());
    let page = page_size().bytes();
    let bytes = bytes.checked_next_multiple_of(page)?;
    if bytes == 0 {
        return None;
    }
    let first = map(bytes)?;
    if first.addr().get() % align == 0 {
        return Some(first);
    }
    // SAFETY: mapped just now, used by nobody.
    unsafe { release(first, bytes) };
    let span = bytes.checked_add(align - page)?;
    let start = map(span)?;
    let lead = start.addr().get().next_multiple_of(align) - start.addr().get();
    // SAFETY: `lead <= align - page`, so all three parts lie inside the span.
    let aligned = unsafe { start.add(lead) };
    if lead != 0 {
        // SAFETY: the part before the aligned start; nobody uses it.
        unsafe { release(start, lead) };
    }
    let tail = span - lead - bytes;
    if tail != 0 {
        // SAFETY: as above.
        let after = unsafe { aligned.add(bytes) };
        // SAFETY: the part after the aligned range; nobody uses it.
        unsafe { release(after, tail) };
    }
    Some(aligned)
}

/// Makes a reserved range readable and writable.
///
/// # Safety
/// 1. As for `Platform::commit`.
pub unsafe fn commit(start: NonNull<u8>, bytes: usize) -> Result<(), OutOfMemory> {
    if crate::limits::address_space_forbids(bytes) {
        return Err(OutOfMemory);
    }
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    // SAFETY: obligation 1: the range is ours.
    let result = unsafe {
        sys::call(
            libc::SYS_mprotect,
            [start.addr().get(), bytes, protection, 0, 0, 0],
        )
    };
    if result != 0 {
        return Err(OutOfMemory);
    }
    // SAFETY: obligation 1.
    unsafe { choose_pages(start, bytes) };
    Ok(())
}

/// Says what pages fresh memory is to have. A kernel that refuses the advice does without.
///
/// # Safety
/// 1. As for `Platform::commit`.
unsafe fn choose_pages(start: NonNull<u8>, bytes: usize) {
    if bytes < HUGE_PAGES_MIN {
        return;
    }
    let first = FIRST.swap(false, Relaxed);
    let advice = if crate::cap::limit() != 0 {
        // What nobody touched of a huge page is resident, and not counted.
        libc::MADV_NOHUGEPAGE
    } else if HUGE_PAGES.load(Relaxed) {
        libc::MADV_HUGEPAGE
    } else if first {
        libc::MADV_NOHUGEPAGE
    } else {
        return;
    };
    // SAFETY: obligation 1; the advice changes no contents.
    unsafe { advise(start, bytes, advice as usize) };
}

/// # Safety
/// 1. As for `Platform::decommit`.
unsafe fn advise(start: NonNull<u8>, bytes: usize, advice: usize) -> bool {
    // SAFETY: obligation 1.
    unsafe {
        sys::call(
            libc::SYS_madvise,
            [start.addr().get(), bytes, advice, 0, 0, 0],
        ) == 0
    }
}

/// Gives contents back; the range reads as zero afterwards, also where a program has locked its
/// memory and the kernel refuses.
///
/// # Safety
/// 1. As for `Platform::decommit`.
pub unsafe fn decommit(start: NonNull<u8>, bytes: usize) {
    // SAFETY: obligation 1.
    if unsafe { advise(start, bytes, libc::MADV_DONTNEED as usize) } {
        return;
    }
    // SAFETY: obligation 1.
    if unsafe { advise(start, bytes, MADV_DONTNEED_LOCKED) } {
        return;
    }
    // SAFETY: obligation 1: committed, and nobody uses what it held.
    unsafe { start.write_bytes(0, bytes) };
}

/// Ends part of a reservation. Where the kernel cannot split one more mapping, the range keeps
/// its addresses and loses its memory.
///
/// # Safety
/// 1. As for `Platform::release`.
pub unsafe fn release(start: NonNull<u8>, bytes: usize) {
    // SAFETY: obligation 1.
    let result = unsafe { sys::call(libc::SYS_munmap, [start.addr().get(), bytes, 0, 0, 0, 0]) };
    if result != 0 {
        // SAFETY: obligation 1; the advice is harmless where the range was never committed.
        unsafe { advise(start, bytes, libc::MADV_DONTNEED as usize) };
    }
}

/// Resizes a reservation, moving it if need be.
///
/// # Safety
/// 1. As for `Platform::remap`.
pub unsafe fn remap(start: NonNull<u8>, old: usize, new: usize) -> Option<NonNull<u8>> {
    // SAFETY: obligation 1.
    let address = unsafe {
        sys::call(
            libc::SYS_mremap,
            [
                start.addr().get(),
                old,
                new,
                libc::MREMAP_MAYMOVE as usize,
                0,
                0,
            ],
        )
    };
    if (-4095..0).contains(&address) {
        return None;
    }
    NonNull::new(core::ptr::with_exposed_provenance_mut(address as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn a_reservation_has_the_alignment_asked_for() {
        for align in [4096, MIB, 64 * MIB] {
            let start = reserve(3 * MIB, align).unwrap();
            assert!(start.addr().get().is_multiple_of(align));
            // SAFETY: reserved above, used by nobody.
            unsafe { release(start, 3 * MIB) };
        }
    }

    #[test]
    fn committed_memory_is_zero_and_zero_again_after_decommit() {
        let start = reserve(MIB, 4096).unwrap();
        // SAFETY: the reservation is ours; the bytes written are committed.
        unsafe {
            commit(start, MIB).unwrap();
            assert_eq!(start.read(), 0);
            start.write_bytes(7, MIB);
            decommit(start, MIB);
            assert_eq!((start.read(), start.add(MIB - 1).read()), (0, 0));
            release(start, MIB);
        }
    }

    #[test]
    fn remapping_keeps_contents() {
        let start = reserve(MIB, 4096).unwrap();
        // SAFETY: the reservation is ours and committed before use.
        unsafe {
            commit(start, MIB).unwrap();
            start.write(9);
            let moved = remap(start, MIB, 8 * MIB).unwrap();
            assert_eq!((moved.read(), moved.add(8 * MIB - 1).read()), (9, 0));
            release(moved, 8 * MIB);
        }
    }

    #[test]
    fn a_claim_is_mapped_once_and_again_after_it_was_unmapped() {
        let start = claim(64 * MIB, MIB).unwrap();
        assert!(start.addr().get().is_multiple_of(MIB));
        // SAFETY: the claim is ours; what is written is mapped.
        unsafe {
            map_at(start, MIB).unwrap();
            start.write(7);
            assert_eq!(map_at(start, MIB), Err(NotMapped::Taken));
            assert!(unmap(start, MIB));
            map_at(start, 2 * MIB).unwrap();
            assert_eq!((start.read(), start.add(2 * MIB - 1).read()), (0, 0));
            assert!(unmap(start, 2 * MIB));
        }
    }

    #[test]
    fn impossible_reservations_are_refused() {
        assert!(reserve(usize::MAX - 4096, 4096).is_none());
        assert!(reserve(1 << 60, 4096).is_none());
        assert!(reserve(0, 4096).is_none());
    }
}
