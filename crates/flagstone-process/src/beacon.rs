//! This process's beacon, by which another process finds its heap (`flagstone_linux::beacon`).
//!
//! A reader looks for the magic in the process's memory, and so knows the address without any symbol
//! and without a file. Written once, when the heap is built, and never read here.

use crate::control::CONTROL;
use crate::init::{Linux, STORE};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use flagstone_core::heap::Ready;
use flagstone_core::platform::Platform;
use flagstone_linux::beacon::{Beacon, Gauges, LAYOUT, MAGIC};
use flagstone_linux::slots;

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
#[unsafe(link_section = ".probes")]
static BEACON: Beacon = Beacon {
    magic: MAGIC,
    version: version(),
    state: AtomicU32::new(0),
    cpus: AtomicU32::new(0),
    heap: AtomicU64::new(0),
    span: AtomicU64::new(0),
    span_bytes: AtomicU64::new(0),
    layout: LAYOUT,
    tables: AtomicU64::new(0),
    bell: AtomicU64::new(0),
    control: AtomicU64::new(0),
    gauges: AtomicU64::new(0),
    rest: [0; 3],
};

/// This process's figures beside those of the heap.
pub(crate) static GAUGES: Gauges = Gauges::new();

/// Says that the heap is built. A function of its own: what builds the heap fills its part of the library
/// (layout.ld) to the last bytes.
#[inline(never)]
pub(crate) fn light(ready: &Ready<Linux>) {
    let pages = ready.slabs().pages();
    let store = |word: &AtomicU64, value: usize| word.store(value as u64, Ordering::Relaxed);
    BEACON.cpus.store(Linux::cpu_count(), Ordering::Relaxed);
    store(&BEACON.heap, (&raw const STORE.heap).addr());
    store(&BEACON.span, pages.base().addr().get());
    store(&BEACON.span_bytes, pages.span_bytes());
    store(&BEACON.tables, pages.control_part().0.addr().get());
    store(&BEACON.bell, core::ptr::from_ref(ready.bell()).addr());
    store(&BEACON.control, (&raw const CONTROL).addr());
    store(&BEACON.gauges, (&raw const GAUGES).addr());
    let state = if slots::fast() { 1 } else { 2 };
    BEACON.state.store(state, Ordering::Release);
}
