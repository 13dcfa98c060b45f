//! What a running process is told from outside, by `flagstone set` and `flagstone trim`.
//!
//! ```text
//!   command ──► words of CONTROL ──► the bell: the count of slow paths, so that the next one does upkeep
//!                                             │
//!                        upkeep ─► listen ─► asked? ─► done here, by the program's own thread ─► answer
//! ```
//!
//! No thread of ours and no signal: a process that takes no slow path hears nothing (ADR 0032). A request
//! that is not whole is refused, and so is one that finds another in the middle.

use crate::knobs::{self, Refusal};
use crate::{Linux, blocks, pressure, profile};
use core::sync::atomic::{AtomicBool, Ordering};
use flagstone_core::platform::{LockKind, Platform};
use flagstone_linux::beacon::{Control, Done, Request, Verb};
use flagstone_linux::{filter, process};

/// The words of this process.
pub(crate) static CONTROL: Control = Control::new();

/// Whether a request is being done.
static BUSY: AtomicBool = AtomicBool::new(false);

/// Begins to listen. Called once, when the heap is built.
pub(crate) fn begin() {
    // SAFETY: the heap is built once.
    unsafe { flagstone_linux::observe::LISTENER.set(listen) };
}

/// In the child of a fork: the parent was asked.
pub(crate) fn forget() {
    CONTROL.forget();
    BUSY.store(false, Ordering::Relaxed);
}

/// Upkeep's call, with no lock of this thread held but in signal handlers, which leave it to others.
fn listen() {
    pressure::upkeep();
    match CONTROL.asked() {
        Some(generation) if !Linux::holds_from(LockKind::Heap) => serve(generation),
        _ => {}
    }
}

#[cold]
#[inline(never)]
fn serve(generation: u64) {
    if BUSY.swap(true, Ordering::Acquire) {
        return;
    }
    // Another thread may have done it since.
    if CONTROL.asked() == Some(generation) {
        let (done, figures) = match CONTROL.request() {
            Some(request) => act(&request),
            None => (Done::Torn, [0; 3]),
        };
        CONTROL.answer(generation, done, figures);
    }
    BUSY.store(false, Ordering::Release);
}

fn act(request: &Request) -> (Done, [u64; 3]) {
    if request.verb == Verb::Trim as u64 {
        let keep = usize::try_from(request.value).unwrap_or(usize::MAX);
        let before = resident();
        let counted = blocks::trim(keep) as u64;
        let fell = before
            .zip(resident())
            .map(|(before, after)| before.saturating_sub(after));
        return (Done::Well, [fell.unwrap_or(counted), counted, 0]);
    }
    if request.verb == Verb::Profile as u64 {
        return match profile::ask(request.value, request.until()) {
            Ok(asked) => (Done::Well, [asked.mean, asked.area, asked.before]),
            Err(profile::NoTables) => (Done::NoMemory, [0; 3]),
        };
    }
    if request.verb != Verb::Set as u64 {
        return (Done::Unknown, [0; 3]);
    }
    let done = match knobs::set(request.name(), request.value) {
        Ok(()) => Done::Well,
        Err(Refusal::Unknown) => Done::Unknown,
        Err(Refusal::ReadOnly) => Done::ReadOnly,
        Err(Refusal::Value) => Done::Value,
        Err(Refusal::NoMemory) => Done::NoMemory,
    };
    (done, [knobs::get(request.name()).unwrap_or(0), 0, 0])
}

/// Resident bytes of this process; `None` beside a filter.
fn resident() -> Option<u64> {
    filter::permit().and_then(|_permit| process::resident_quick())
}
