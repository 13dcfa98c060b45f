//! Several extents given back in one call: `process_madvise` of the process itself.
//!
//! ```text
//!   madvise, madvise, madvise     an interrupt of every CPU that runs a thread, for each
//!   process_madvise of 3          one for all (Linux 6.16; the call on oneself is of 6.13)
//! ```
//!
//! No program expects this call of a malloc. So it is made only where the face sees filters being installed
//! ([`filters_are_seen`]), none was there before the program started, and none was installed since
//! ([`crate::filter`]). An older kernel refuses it, and is asked no more.

use crate::filter::{self, Permit};
use crate::{memory, sys};
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};
use flagstone_core::platform::Extent;

/// `PIDFD_SELF_THREAD_GROUP`, Linux 6.14: this process, in place of a descriptor.
const SELF: usize = -10001_isize as usize;

/// What is known of the call.
static STATE: AtomicU8 = AtomicU8::new(REFUSED);
const REFUSED: u8 = 0;
const UNKNOWN: u8 = 1;
const SERVES: u8 = 2;

/// The face hears of every filter that the program installs: from now on the call may be tried.
pub fn filters_are_seen() {
    STATE.store(UNKNOWN, Relaxed);
}

/// Gives the contents of all extents back, as [`memory::decommit`] does of one.
///
/// # Safety
/// 1. As for `Platform::decommit_all`.
pub unsafe fn decommit_all(extents: &[Extent]) {
    // SAFETY: obligation 1.
    if extents.len() > 1 && unsafe { at_once(extents) } {
        return;
    }
    for extent in extents {
        // SAFETY: obligation 1.
        unsafe { memory::decommit(extent.start, extent.bytes) };
    }
}

/// `false`: the kernel did not do all of it, or was not asked.
///
/// # Safety
/// 1. As for [`decommit_all`].
unsafe fn at_once(extents: &[Extent]) -> bool {
    if STATE.load(Relaxed) == REFUSED {
        return false;
    }
    let Some(permit) = filter::permit() else {
        return false;
    };
    if STATE.load(Relaxed) == UNKNOWN {
        if began_confined(&permit) {
            STATE.store(REFUSED, Relaxed);
            return false;
        }
        STATE.store(SERVES, Relaxed);
    }
    // SAFETY: obligation 1; an extent is laid out as the call takes it.
    let done = unsafe {
        sys::call(
            libc::SYS_process_madvise,
            [
                SELF,
                extents.as_ptr().expose_provenance(),
                extents.len(),
                libc::MADV_DONTNEED as usize,
                0,
                0,
            ],
        )
    };
    if done < 0 {
        STATE.store(REFUSED, Relaxed);
    }
    // Less than all where a program has locked its memory: then each is given back by itself.
    done == extents.iter().map(|extent| extent.bytes).sum::<usize>() as isize
}

/// Whether a filter was there before the program started. Start-up makes calls of `prctl` as well.
fn began_confined(_permit: &Permit) -> bool {
    // SAFETY: asks about the caller, and changes nothing.
    unsafe {
        sys::call(
            libc::SYS_prctl,
            [libc::PR_GET_SECCOMP as usize, 0, 0, 0, 0, 0],
        ) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_together_is_zero_and_its_neighbours_are_not() {
        const PAGE: usize = 4096 * 16;
        let start = memory::map_usable(64 * PAGE).unwrap();
        let page = |index: usize| {
            // SAFETY: inside the mapping.
            unsafe { start.add(index * PAGE) }
        };
        for index in 0..64 {
            // SAFETY: mapped above, and used by nobody else.
            unsafe { page(index).write_bytes(7, PAGE) };
        }
        let mut extents = [Extent::NONE; 32];
        for (index, extent) in extents.iter_mut().enumerate() {
            *extent = Extent {
                start: page(2 * index),
                bytes: PAGE,
            };
        }
        for state in [UNKNOWN, REFUSED] {
            STATE.store(state, Relaxed);
            // SAFETY: every second page of the mapping.
            unsafe { decommit_all(&extents) };
            assert_ne!(STATE.load(Relaxed), UNKNOWN, "the kernel was asked");
            for index in 0..64 {
                // SAFETY: as above.
                let byte = unsafe { page(index).read() };
                assert_eq!(byte, if index % 2 == 0 { 0 } else { 7 });
                // SAFETY: as above.
                unsafe { page(index).write_bytes(7, PAGE) };
            }
        }
        STATE.store(UNKNOWN, Relaxed);
    }
}
