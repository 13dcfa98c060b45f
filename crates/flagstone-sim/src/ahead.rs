//! Fetching ahead. The tables of a large machine do not fit the host's caches, and a simulated
//! operation waits for memory longer than it computes; addresses that will be needed are known
//! before.

/// Asks for the line at `address` without waiting for it. A hint: the address may be anything.
#[inline(always)]
pub(crate) fn fetch(address: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch accesses nothing, never faults, and is part of every x86-64.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(
            core::ptr::without_provenance(address),
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
