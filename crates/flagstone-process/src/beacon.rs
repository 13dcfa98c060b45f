//! The beacon: sixty-four bytes by which another process finds this heap.
//!
//! ```text
//!   0  magic       16 bytes, also in the file the heap came from
//!   16 version     16 bytes of text, zero-padded
//!   32 state       0 no heap yet · 1 by restartable sequences · 2 by one lock per CPU
//!   36 cpus
//!   40 heap        address of the static heap
//!   48 span        address of the reservation for slabs and runs
//!   56 span_bytes
//! ```
//!
//! A reader looks for the magic in the mapped files of a process, and so knows the address without
//! any symbol. Written once, when the heap is built, and never read here. Whoever changes the layout
//! changes the last byte of the magic.

use crate::init::{Linux, STORE};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use flagstone_core::heap::Ready;
use flagstone_core::platform::Platform;
use flagstone_linux::slots;

/// See the file's head.
#[repr(C, align(64))]
pub struct Beacon {
    magic: [u8; 16],
    version: [u8; 16],
    state: AtomicU32,
    cpus: AtomicU32,
    heap: AtomicU64,
    span: AtomicU64,
    span_bytes: AtomicU64,
}

const _: () = assert!(size_of::<Beacon>() == 64, "a line");

const fn version() -> [u8; 16] {
    let text = env!("CARGO_PKG_VERSION").as_bytes();
    let mut bytes = [0; 16];
    let mut at = 0;
    while at < text.len() && at < 16 {
        bytes[at] = text[at];
        at += 1;
    }
    bytes
}

/// This process's. Not zero from the start, so that it lies in the file.
#[used]
static BEACON: Beacon = Beacon {
    magic: *b"\x7fflagstone-heap\x01",
    version: version(),
    state: AtomicU32::new(0),
    cpus: AtomicU32::new(0),
    heap: AtomicU64::new(0),
    span: AtomicU64::new(0),
    span_bytes: AtomicU64::new(0),
};

/// Says that the heap is built.
pub(crate) fn light(ready: &Ready<Linux>) {
    let pages = ready.slabs().pages();
    let heap = &raw const STORE.heap;
    BEACON.cpus.store(Linux::cpu_count(), Ordering::Relaxed);
    BEACON.heap.store(heap.addr() as u64, Ordering::Relaxed);
    let (span, bytes) = (pages.base().addr().get(), pages.span_bytes());
    BEACON.span.store(span as u64, Ordering::Relaxed);
    BEACON.span_bytes.store(bytes as u64, Ordering::Relaxed);
    let state = if slots::fast() { 1 } else { 2 };
    BEACON.state.store(state, Ordering::Release);
}
