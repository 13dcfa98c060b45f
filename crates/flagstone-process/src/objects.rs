//! Typed object caches, for all faces.
//!
//! ```text
//!   Objects ── id ──► cache of the heap: slabs, barns, sheaves of every CPU
//!      limit, live     counted only where a limit was given
//! ```
//!
//! Any thread allocates and any thread frees. Without a limit an allocation is one slot step; with
//! one, threads share a counter.

use crate::Linux;
use crate::init::heap;
use crate::limit;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use flagstone_core::base::CacheId;
use flagstone_core::heap::Ready;
pub use flagstone_core::slab::{CacheError, CacheRequest, Constructor, NAME_BYTES};

/// A cache of objects of one size.
#[derive(Debug)]
pub struct Objects {
    id: CacheId,
    counted: bool,
    limit: AtomicUsize,
    live: AtomicUsize,
}

impl Objects {
    /// A cache as `request` asks for; `limit` is the most objects that may be handed out at once,
    /// zero for no limit.
    ///
    /// # Errors
    /// See [`CacheError`]; `Exhausted` also where there is no heap.
    pub fn new(request: &CacheRequest<'_>, limit: usize) -> Result<Self, CacheError> {
        let ready = ready().ok_or(CacheError::Exhausted)?;
        let id = ready.slabs().create_cache(request)?;
        Ok(Self {
            id,
            counted: limit != 0,
            limit: AtomicUsize::new(limit),
            live: AtomicUsize::new(0),
        })
    }

    /// Changes the limit of a cache that was made with one; `false` for others, and for zero.
    /// Objects beyond a lowered limit stay, and nothing is handed out until they are back.
    pub fn set_limit(&self, limit: usize) -> bool {
        let may = self.counted && limit != 0;
        if may {
            self.limit.store(limit, Relaxed);
        }
        may
    }

    /// Objects handed out, where a limit was given.
    pub fn live(&self) -> Option<usize> {
        self.counted.then(|| self.live.load(Relaxed))
    }

    /// Bytes from one object to the next.
    pub fn stride(&self) -> usize {
        ready().map_or(0, |ready| ready.slabs().cache(self.id).geometry().size())
    }

    /// An object; `None` at the limit or without memory.
    #[inline]
    pub fn alloc(&self) -> Option<NonNull<u8>> {
        if self.counted && !self.count(1) {
            return None;
        }
        let object = ready().and_then(|ready| take(ready, self.id));
        if object.is_none() && self.counted {
            self.live.fetch_sub(1, Relaxed);
        }
        object
    }

    /// Takes all of `out.len()` objects, or none.
    pub fn alloc_all(&self, out: &mut [Option<NonNull<u8>>]) -> bool {
        let Some(ready) = ready() else { return false };
        if self.counted && !self.count(out.len()) {
            return false;
        }
        let mut taken = 0;
        while taken < out.len() {
            out[taken] = take(ready, self.id);
            if out[taken].is_none() {
                break;
            }
            taken += 1;
        }
        if taken == out.len() {
            return true;
        }
        for object in out[..taken].iter_mut().filter_map(Option::take) {
            // SAFETY: taken above, used by nobody.
            unsafe { give(ready, self.id, object) };
        }
        if self.counted {
            self.live.fetch_sub(out.len(), Relaxed);
        }
        false
    }

    /// Gives an object back.
    ///
    /// # Safety
    /// 1. It came from this cache and is not used again.
    #[inline]
    pub unsafe fn free(&self, object: NonNull<u8>) {
        if let Some(ready) = ready() {
            // SAFETY: obligation 1.
            unsafe { give(ready, self.id, object) };
            if self.counted {
                self.live.fetch_sub(1, Relaxed);
            }
        }
    }

    /// Gives back what the cache holds beyond the objects handed out.
    pub fn shrink(&self) {
        if let Some(ready) = ready() {
            ready.slabs().shrink_cache(ready.slabs().cache(self.id));
        }
    }

    /// Ends the cache.
    ///
    /// # Errors
    /// `Busy` while objects are handed out; the cache stays.
    pub fn destroy(&self) -> Result<(), CacheError> {
        let ready = ready().ok_or(CacheError::Absent)?;
        ready.slabs().destroy_cache(self.id)
    }

    /// Counts `more` objects, if the limit allows.
    fn count(&self, more: usize) -> bool {
        let limit = self.limit.load(Relaxed);
        let fits = |live: usize| live.checked_add(more).filter(|&sum| sum <= limit);
        self.live.fetch_update(Relaxed, Relaxed, fits).is_ok()
    }
}

#[inline]
fn ready() -> Option<&'static Ready<Linux>> {
    heap()?.ready_if_built()
}

/// Not generic: a face has no copy of it.
fn take(ready: &Ready<Linux>, id: CacheId) -> Option<NonNull<u8>> {
    let cache = ready.slabs().cache(id);
    match ready.alloc_object_of(cache) {
        None if limit::is_set() => limit::alloc_object(ready, cache),
        object => object,
    }
}

/// # Safety
/// 1. As for [`Objects::free`].
unsafe fn give(ready: &Ready<Linux>, id: CacheId, object: NonNull<u8>) {
    // SAFETY: obligation 1.
    unsafe { ready.free_object(ready.slabs().cache(id), object) };
}
