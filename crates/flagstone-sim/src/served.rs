//! The allocator that serves a program, in any world.
//!
//! ```text
//!   the product's policies   Heap: gate, size classes, upkeep, budget      an object is asked for by its size
//!   kernels' policies        Slabs: the caches that the kernel would use   an object is asked for by its cache
//! ```
//!
//! Blocks of pages come from the page layer under both: who asks for an order is a kernel.

use core::mem::MaybeUninit;
use core::ptr::NonNull;
use flagstone_core::base::CacheId;
use flagstone_core::heap::{Heap, HeapConfig};
use flagstone_core::page::{PageConfig, Retention};
use flagstone_core::policy::{Engine, Policy};
use flagstone_core::slab::{Cache, CacheError, CacheRequest, Engines, Slabs};

/// How the names of the caches of a heap's size classes begin.
const CLASS: &str = "malloc-";

/// The core, built for one policy. Its memory is given back when its world ends.
pub(crate) enum Served<P: Engines> {
    /// All of it.
    Whole(Box<Heap<P>>),
    /// From the caches down.
    Caches(Box<MaybeUninit<Slabs<P>>>),
}

impl<P: Engines> Served<P> {
    /// Builds it over `span` bytes of address space, of which `least` must be granted. `None` where the
    /// world has no memory for it.
    pub(crate) fn build(policy: &Policy, span: usize, least: usize) -> Option<Self> {
        if policy.engine == Engine::Sheaf && policy.limits.retain_bytes_min != 0 {
            let heap = Box::new(Heap::new());
            let config = HeapConfig {
                policy: *policy,
                span_bytes: span,
            };
            return heap.init(&config).ok().map(|()| Self::Whole(heap));
        }
        let mut config = PageConfig::of(policy);
        config.span_bytes = span;
        config.span_bytes_min = least;
        if policy.limits.retain_bytes_min == 0 {
            // A kernel has nobody to give memory back to.
            config.retention = Retention::KEEP_ALL;
        }
        let mut slabs: Box<MaybeUninit<Slabs<P>>> = Box::new(MaybeUninit::uninit());
        // SAFETY: the box is writable, aligned, ours alone, and its contents never move.
        unsafe { Slabs::init(slabs.as_mut_ptr(), &config, policy) }.ok()?;
        Some(Self::Caches(slabs))
    }

    /// The slab layer.
    #[inline]
    pub(crate) fn slabs(&self) -> &Slabs<P> {
        match self {
            Self::Whole(heap) => match heap.ready_if_built() {
                Some(ready) => ready.slabs(),
                None => unreachable!("`build` has built it"),
            },
            // SAFETY: `build` initialised it, and it lives as long as the box.
            Self::Caches(slabs) => unsafe { slabs.assume_init_ref() },
        }
    }

    /// The cache that serves `request`: a heap's size class, where one is large enough.
    pub(crate) fn cache(&self, request: &CacheRequest<'_>) -> Result<CacheId, CacheError> {
        let slabs = self.slabs();
        if let Self::Whole(_) = self {
            let classes = slabs.live_caches().filter(|c| c.name().starts_with(CLASS));
            let fits = classes.filter(|c| c.geometry().size() >= request.object_size);
            if let Some(class) = fits.min_by_key(|cache| cache.geometry().size()) {
                return Ok(class.id());
            }
        }
        slabs.create_cache(request)
    }

    /// An object of `cache`, or of its size.
    #[inline]
    pub(crate) fn alloc(&self, cache: &Cache) -> Option<NonNull<u8>> {
        match self {
            Self::Whole(heap) => heap.alloc(cache.geometry().size()),
            Self::Caches(_) => self.slabs().alloc(cache),
        }
    }

    /// Gives it back.
    ///
    /// # Safety
    /// 1. `object` came from [`Served::alloc`] with this cache and is not used again.
    #[inline]
    pub(crate) unsafe fn free(&self, cache: &Cache, object: NonNull<u8>) {
        match self {
            // SAFETY: obligation 1.
            Self::Whole(heap) => unsafe { heap.free(object.as_ptr()) },
            // SAFETY: obligation 1.
            Self::Caches(_) => unsafe { self.slabs().free(cache, object) },
        }
    }
}

#[cfg(test)]
#[path = "served_tests.rs"]
mod tests;
