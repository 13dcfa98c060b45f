//! No restartable sequences on this architecture yet: the locked form serves.

use core::ptr::NonNull;
use flagstone_core::platform::{CpuArea, SheafWord, Slot};

/// No area is used here.
pub fn registered() -> Option<isize> {
    None
}

/// Zero: there is no area to read.
pub fn index() -> u32 {
    0
}

/// Zero: there is no area to read.
pub fn node() -> u32 {
    0
}

/// Never called: sequences are not ready here.
///
/// # Safety
/// 1. As for `Platform::pop`.
pub unsafe fn pop(_area: CpuArea, _slot: Slot) -> Option<NonNull<u8>> {
    None
}

/// Never called: sequences are not ready here.
///
/// # Safety
/// 1. As for `Platform::push`.
pub unsafe fn push(_area: CpuArea, _slot: Slot, _object: NonNull<u8>) -> bool {
    false
}

/// Never called: sequences are not ready here.
///
/// # Safety
/// 1. As for `Platform::exchange`.
pub unsafe fn exchange_below(
    _count: u32,
    _area: CpuArea,
    _slot: Slot,
    new: SheafWord,
) -> SheafWord {
    new
}
