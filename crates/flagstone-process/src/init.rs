//! The one static heap, and how it comes to life.
//!
//! The heap is all zeroes at first; its gate is closed, so every first call takes a cold path,
//! and every cold path asks [`heap`]. Fork handlers ([`crate::fork::register`]) are registered by a
//! constructor of the face: before that no other thread exists that could be in the middle of
//! anything.

use crate::env;
use core::ffi::CStr;
use flagstone_core::heap::{Heap, HeapConfig, Ready};
use flagstone_linux::slots::{self, Place};
use flagstone_linux::{cap, limits};

#[cfg(feature = "kernels")]
type Engine = flagstone_kernels::Kernels;
#[cfg(not(feature = "kernels"))]
type Engine = flagstone_core::platform::SheavesOnly;

/// Linux, with the object engine this heap was built with.
pub type Linux = flagstone_linux::LinuxWith<Engine>;

/// All that is large and static, in one piece: what lies at a fixed distance from what a hot path
/// has in a register already needs no address of its own.
#[repr(C)]
pub struct Store {
    /// The heap; its gate is the first thing in it.
    pub heap: Heap<Linux>,
    /// The slots of its CPUs.
    pub slots: Place,
}

/// The heap of this process and the slots of its CPUs.
pub static STORE: Store = Store {
    heap: Heap::new(),
    slots: Place::new(),
};

/// The heap, built or not. Hot paths use it directly; all else goes through [`heap`].
#[inline(always)]
pub fn static_heap() -> &'static Heap<Linux> {
    &STORE.heap
}

/// Distance from the thread pointer to `rseq_cs` in the C library of the building machine. Zero if
/// that is not one distance (build.rs): then there is no near gate, and the far functions are all.
#[cfg(flagstone_near)]
pub const CS_OFFSET: isize = match isize::from_str_radix(env!("RSEQ_CS_OFFSET"), 10) {
    Ok(offset) => offset,
    Err(_) => 0,
};
#[cfg(not(flagstone_near))]
pub const CS_OFFSET: isize = 0;

/// The heap, built if it was not yet; `None` where that cannot be: no memory, or a signal handler
/// on top of the thread that is building it.
#[inline]
pub fn heap() -> Option<&'static Heap<Linux>> {
    (STORE.heap.ready_if_built().is_some() || build()).then_some(&STORE.heap)
}

/// Builds the heap, or waits for the thread that does; whether there is one now.
#[cold]
#[inline(never)]
fn build() -> bool {
    STORE.heap.init_by(prepare, finish).is_ok()
}

/// Prepares the world. A heap that gets no memory is tried again, and then this runs again.
fn prepare() -> HeapConfig {
    flagstone_linux::init();
    slots::offer(&STORE.slots);
    HeapConfig {
        policy: env::policy(),
        span_bytes: limits::reservation_wish(),
    }
}

/// Opens what only this one heap has.
fn finish(ready: &Ready<Linux>) {
    if slots::lie_at(&STORE.slots, CS_OFFSET) {
        STORE.heap.open_near();
    }
    name_mappings(ready);
    cap::begin();
    crate::control::begin();
    crate::beacon::light(ready);
    if env::limit_is_asked() {
        crate::limit::begin(ready);
    }
    if env::pressure_is_asked() {
        crate::pressure::begin();
    }
}

/// Names the reservations made at the start, so that `/proc/PID/smaps` says what they are. Huge blocks
/// come later, when a program may have given up the system call that names: `FLAGSTONE_NAMES` asks for theirs.
fn name_mappings(ready: &Ready<Linux>) {
    let pages = ready.slabs().pages();
    let base = pages.base().addr().get();
    pages.each_reserved_part(|start: usize, end| {
        let name = if start < base { TABLES } else { HEAP };
        flagstone_linux::name_mapping(start, end - start, name);
    });
}

/// What `/proc/PID/smaps` calls slabs and runs.
const HEAP: &CStr = c"flagstone heap";
/// What it calls page descriptors, the page map, zones and pagesets.
const TABLES: &CStr = c"flagstone tables";
