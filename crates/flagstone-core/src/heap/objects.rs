//! Objects of caches that the program made: one slot step, else the slow path with its upkeep.
//!
//! They bear no mark: an object may be smaller than one, or constructed and to be left as it is. So
//! an object freed twice is noticed when it reaches its slab, not at once.

use super::ready::Ready;
use crate::platform::{Fault, Slot};
use crate::slab::{Cache, Engines, Slab};
use core::ptr::NonNull;

impl<P: Engines> Ready<P> {
    /// An object of `cache`; `None` when memory is exhausted.
    #[inline]
    pub fn alloc_object_of(&self, cache: &Cache) -> Option<NonNull<u8>> {
        // SAFETY: the area is ours and the id of a cache is below MAX_CACHES.
        match unsafe { P::pop(self.slabs.area(), Slot::main(cache.id().index())) } {
            Some(object) => Some(object),
            None => {
                self.upkeep(0);
                self.slabs.alloc_slow(cache)
            }
        }
    }

    /// Gives an object of `cache` back. Ends the program if it lies in no slab of that cache, and
    /// on the slow path also if no live object starts there.
    ///
    /// # Safety
    /// 1. The object, if it is one, is not used again.
    #[inline]
    pub unsafe fn free_object(&self, cache: &Cache, object: NonNull<u8>) {
        let page = self.slabs.pages().pfn_of(object.as_ptr());
        let home = page.and_then(|pfn| self.slabs.cache_of_page(pfn));
        if !home.is_some_and(|home| core::ptr::eq(home, cache)) {
            P::fatal(Fault::InvalidFree, object.as_ptr());
        }
        // SAFETY: as in `alloc_object_of`; obligation 1.
        if !unsafe { P::push(self.slabs.area(), Slot::main(cache.id().index()), object) } {
            self.upkeep(cache.sheaf_bytes());
            // SAFETY: the page map names the cache; obligation 1.
            unsafe {
                Slab::assert_live(&self.slabs, cache, object);
                self.slabs.free_slow(cache, object);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::base::CacheId;
    use crate::heap::Ready;
    use crate::heap::test_heap::heap;
    use crate::platform::testing::Testing;
    use crate::slab::{Cache, CacheError, CacheRequest};
    use core::ptr::NonNull;
    use std::vec::Vec;

    unsafe extern "C" fn fill(object: *mut u8) {
        // SAFETY: the cache's objects have eight bytes.
        unsafe { object.write_bytes(0xA5, 8) };
    }

    fn make(ready: &Ready<Testing>, size: usize, constructed: bool) -> CacheId {
        let mut request = CacheRequest::new("test", size);
        request.ctor = constructed.then_some(fill);
        ready.slabs().create_cache(&request).unwrap()
    }

    fn take(ready: &Ready<Testing>, cache: &Cache, count: usize) -> Vec<NonNull<u8>> {
        let objects = (0..count).map(|_| ready.alloc_object_of(cache).unwrap());
        objects.collect()
    }

    #[test]
    fn a_constructed_object_is_as_it_was_left_through_every_store() {
        let (_world, heap) = heap();
        let ready = heap.ready().unwrap();
        let cache = ready.slabs().cache(make(ready, 8, true));
        for _ in 0..3 {
            let objects = take(ready, cache, 5000);
            for object in objects {
                // SAFETY: eight bytes of a live object.
                assert_eq!(unsafe { object.cast::<[u8; 8]>().read() }, [0xA5; 8]);
                // SAFETY: live, and not used again.
                unsafe { ready.free_object(cache, object) };
            }
        }
    }

    #[test]
    fn a_plain_free_of_a_small_object_leaves_its_neighbours_alone() {
        let (_world, heap) = heap();
        let ready = heap.ready().unwrap();
        let cache = ready.slabs().cache(make(ready, 8, false));
        let objects = take(ready, cache, 64);
        for (at, object) in objects.iter().enumerate() {
            // SAFETY: eight bytes of a live object.
            unsafe { object.cast::<u64>().write(at as u64) };
        }
        for object in objects.iter().step_by(2) {
            // SAFETY: live, and not used again.
            unsafe { heap.free(object.as_ptr()) };
        }
        for (at, object) in objects.iter().enumerate().skip(1).step_by(2) {
            // SAFETY: eight bytes of a live object.
            assert_eq!(unsafe { object.cast::<u64>().read() }, at as u64);
        }
    }

    #[test]
    fn a_cache_with_live_objects_stays_and_an_empty_one_ends() {
        let (_world, heap) = heap();
        let ready = heap.ready().unwrap();
        let id = make(ready, 200, false);
        let cache = ready.slabs().cache(id);
        let objects = take(ready, cache, 100);
        assert_eq!(ready.slabs().destroy_cache(id), Err(CacheError::Busy));
        for object in objects {
            // SAFETY: live, and not used again.
            unsafe { ready.free_object(cache, object) };
        }
        assert_eq!(ready.slabs().destroy_cache(id), Ok(()));
        assert_eq!(ready.slabs().destroy_cache(id), Err(CacheError::Absent));
    }
}
