//! How much of the heap its program holds: one figure, without asking the world about pages.

use super::{loose, walk};
use crate::heap::Ready;
use crate::page::{PageKind, flag};
use crate::platform::MAX_CACHES;
use crate::slab::{Engines, SHEAF_CACHES};
use crate::sync::Ordering::Relaxed;

/// Bytes the program holds: its objects, rounded up to their class, what was asked for of runs,
/// and huge blocks. Free objects in sheaves and barns are not in it.
///
/// A walk over the descriptors; exact when no other thread is at work.
#[must_use]
pub fn bytes_in_use<P: Engines>(heap: &Ready<P>) -> u64 {
    let slabs = heap.slabs();
    let mut objects = [0_u64; MAX_CACHES];
    let mut bytes = heap.huge_bytes() as u64;
    walk::heads(slabs, |pfn, head, length| match head.kind() {
        PageKind::Run if !head.has(flag::OWN) => {
            let whole = length.bytes(P::page_size());
            bytes += (head.spare.load(Relaxed) as usize).min(whole) as u64;
        }
        PageKind::Slab => {
            if let Some(slab) = walk::slab_at(slabs, pfn, head, length) {
                objects[slab.cache.id().index()] += u64::from(slab.state().inuse());
            }
        }
        _ => {}
    });
    for cache in slabs
        .live_caches()
        .filter(|cache| cache.id().index() > SHEAF_CACHES)
    {
        let free = loose::count_out_and_free(slabs, cache);
        let held = objects[cache.id().index()].saturating_sub(free);
        bytes += held * cache.geometry().size() as u64;
    }
    bytes
}
