//! The limit on what the heap holds from the system: set, reached, and answered by the program.
//!
//! ```text
//!   FLAGSTONE_LIMIT · knob `limit` · flagstone_set_limit ─► flagstone_linux::cap ─► the core gets no more
//!   a request that the core refused ─► told anew what is held ─► again ─► the program's callback ─► again, or NULL
//! ```
//!
//! All of it is on the way of a request that failed. The callback runs in the thread that asked, with no lock of
//! the heap held; what it asks for itself at the limit gets NULL.

use crate::Linux;
use crate::beacon::GAUGES;
use crate::init::static_heap;
use crate::{blocks, env, heap, profile};
use core::ffi::{c_int, c_void};
use core::ptr::NonNull;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize};
use flagstone_core::base::NodeId;
use flagstone_core::heap::Ready;
use flagstone_core::platform::{LockKind, Platform};
use flagstone_core::slab::Cache;
use flagstone_linux::beacon::Gauge;
use flagstone_linux::{cap, limits};

/// The least limit: below, a heap has no room for its own tables and sheaves.
pub const LIMIT_MIN: u64 = 1 << 20;
/// Times a request is tried again because the callback says so.
const AGAIN_MAX: u32 = 100;
/// Threads that may be in the callback at once.
const CALLERS: usize = 32;

/// What a program is asked at the limit: how many bytes are wanted, how many are held, and its own argument. Not zero to
/// have the request tried again, zero to have it answered with NULL.
pub type Callback = unsafe extern "C" fn(usize, usize, *mut c_void) -> c_int;

/// A request that may be made again.
type Request<'a> = &'a mut dyn FnMut() -> Option<NonNull<u8>>;

/// The callback's address; zero for none.
static CALLBACK: AtomicUsize = AtomicUsize::new(0);
static ARGUMENT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
/// Tokens of the threads that are in it.
static CALLING: [AtomicU64; CALLERS] = [const { AtomicU64::new(0) }; CALLERS];

/// Sets the limit in bytes; zero ends it. What is held beyond it stays the program's; what the heap keeps is given back.
/// `false` for a limit that is too small, or without a heap.
pub fn set(bytes: u64) -> bool {
    set_of(crate::heap().and_then(|heap| heap.ready_if_built()), bytes)
}

fn set_of(ready: Option<&Ready<Linux>>, bytes: u64) -> bool {
    let Some(ready) = ready else { return false };
    if bytes != 0 && bytes < LIMIT_MIN {
        return false;
    }
    let found = ready.slabs().pages().snapshot();
    let page = found.page_bytes;
    let tables = found.memmap_bytes / found.total.committed_pages.max(1);
    cap::set(usize::try_from(bytes).unwrap_or(usize::MAX), page + tables);
    GAUGES.set(Gauge::Limit, bytes);
    if bytes != 0 {
        tell_held(ready);
        if cap::held() > cap::limit() {
            blocks::trim(0);
            tell_held(ready);
        }
    }
    true
}

/// Sets the limit that the environment asks for.
#[cold]
#[inline(never)]
pub(crate) fn begin(ready: &Ready<Linux>) {
    if let Some(bytes) = env::limit() {
        set_of(Some(ready), bytes);
    }
}

/// The limit in bytes that `given` means: a number, which may end in K, M, G or T, or a part of the memory that the process may
/// use, as in `80%`; `None` for anything else.
pub fn parse(given: &str) -> Option<u64> {
    if given == "off" {
        return Some(0);
    }
    let at = given
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(given.len());
    let number: u64 = given[..at].parse().ok()?;
    let shift = match &given[at..] {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        "t" | "T" => 40,
        "%" if (1..=100).contains(&number) => {
            let memory = limits::memory_limit() as u64;
            return Some((memory / 100).saturating_mul(number).max(LIMIT_MIN));
        }
        _ => return None,
    };
    let bytes = number.checked_mul(1 << shift)?;
    (bytes == 0 || bytes >= LIMIT_MIN).then_some(bytes)
}

/// From now on the program is asked at the limit; `None` ends that.
pub fn set_callback(callback: Option<Callback>, argument: *mut c_void) {
    CALLBACK.store(0, Relaxed);
    ARGUMENT.store(argument, Release);
    CALLBACK.store(callback.map_or(0, |callback| callback as usize), Release);
}

/// The callback with its own argument: who finds another one's finds another callback, or none, afterwards.
fn callback() -> Option<(Callback, *mut c_void)> {
    loop {
        let address = CALLBACK.load(Acquire);
        let argument = ARGUMENT.load(Acquire);
        if address == 0 {
            return None;
        }
        if CALLBACK.load(Relaxed) == address {
            // SAFETY: only `set_callback` stores there, the address of such a function.
            return Some((
                unsafe { core::mem::transmute::<usize, Callback>(address) },
                argument,
            ));
        }
    }
}

/// The limit in bytes; zero for none.
pub fn get() -> u64 {
    cap::limit() as u64
}

/// Tells the limit what each node holds now.
fn tell_held(ready: &Ready<Linux>) {
    let pages = ready.slabs().pages();
    // Pages inside live blocks that went back; of all nodes, said of the first ones.
    let mut holes = pages.in_use().0.saturating_sub(pages.live().0);
    for node in (0..Linux::node_count()).map(NodeId) {
        if let Some(zone) = pages.zone_snapshot(node) {
            let own = holes.min(zone.in_use_pages);
            holes -= own;
            let live = zone.in_use_pages - own;
            cap::note_held(node, live + zone.free_resident_pages + zone.parked_pages);
        }
    }
}

/// Whether there is a limit.
#[inline(always)]
pub fn is_set() -> bool {
    cap::limit() != 0
}

/// A block that was refused.
#[cold]
#[inline(never)]
pub fn alloc(size: usize) -> Option<NonNull<u8>> {
    after_refusal(size, &mut || heap()?.alloc_cold(size))
}

/// The same, zeroed.
#[cold]
#[inline(never)]
pub fn alloc_zeroed(size: usize) -> Option<NonNull<u8>> {
    after_refusal(size, &mut || heap()?.alloc_zeroed(size))
}

/// The same with an alignment.
#[cold]
#[inline(never)]
pub fn alloc_aligned(align: usize, size: usize) -> Option<NonNull<u8>> {
    after_refusal(size, &mut || heap()?.alloc_aligned(align, size))
}

/// A new size that was refused.
///
/// # Safety
/// 1. `address` is a live block's; after success the old address is not used.
#[cold]
#[inline(never)]
pub unsafe fn realloc(address: NonNull<u8>, size: usize) -> Option<NonNull<u8>> {
    after_refusal(size, &mut || match profile::is_asked() {
        // SAFETY: obligation 1: what was refused is as it was.
        true => unsafe { profile::realloc(address, size) },
        // SAFETY: as above.
        false => unsafe { heap()?.realloc(address, size) },
    })
}

/// An object of a typed cache that was refused.
#[cold]
#[inline(never)]
pub fn alloc_object(ready: &Ready<Linux>, cache: &Cache) -> Option<NonNull<u8>> {
    after_refusal(cache.object_size(), &mut || ready.alloc_object_of(cache))
}

/// A request of `size` bytes was refused: what comes of it at a limit. `None` without one, and for NULL.
#[cold]
#[inline(never)]
fn after_refusal(size: usize, request: Request<'_>) -> Option<NonNull<u8>> {
    if !is_set() || Linux::holds_from(LockKind::Heap) {
        return None;
    }
    let ready = static_heap().ready_if_built()?;
    tell_held(ready);
    if let Some(served) = request() {
        return Some(served);
    }
    // Refused by the system, not by the limit.
    if cap::held().saturating_add(size) <= cap::limit() {
        return None;
    }
    GAUGES.add(Gauge::LimitReached, 1);
    let served = ask(ready, size, request);
    if served.is_none() {
        GAUGES.add(Gauge::LimitRefused, 1);
    }
    served
}

/// Asks the program as long as it says that the request is to be tried again.
fn ask(ready: &Ready<Linux>, size: usize, request: Request<'_>) -> Option<NonNull<u8>> {
    for _ in 0..AGAIN_MAX {
        let (callback, argument) = callback()?;
        let place = enter()?;
        tell_held(ready);
        GAUGES.add(Gauge::LimitAsked, 1);
        // SAFETY: `set_callback` was told that it may be called so.
        let again = unsafe { callback(size, cap::held(), argument) };
        place.store(0, Relaxed);
        if again == 0 {
            return None;
        }
        // What it freed lies in sheaves and partial slabs.
        blocks::trim(0);
        tell_held(ready);
        if let Some(served) = request() {
            return Some(served);
        }
    }
    None
}

/// A place among those that are in the callback; `None` for a thread that is in it, or one too many.
fn enter() -> Option<&'static AtomicU64> {
    let own = Linux::token();
    if CALLING.iter().any(|token| token.load(Relaxed) == own) {
        return None;
    }
    let free = |token: &&AtomicU64| token.compare_exchange(0, own, Relaxed, Relaxed).is_ok();
    CALLING.iter().find(free)
}

/// In the child of a fork: other threads are in no callback.
pub(crate) fn forked() {
    let own = Linux::token();
    for token in &CALLING {
        if token.load(Relaxed) != own {
            token.store(0, Relaxed);
        }
    }
}
