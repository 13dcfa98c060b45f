//! Typed object caches.
//!
//! ```text
//!   Cache<T> ── alloc(value) ──► Object<T>   its own memory, dropped and given back at the end
//!            ── prefill(n)   ──► Prefilled   n places that cannot fail any more
//!   Constructed<T> ── alloc() ─► Object<T>   constructed once; comes back as it was left
//! ```

use core::mem::{ManuallyDrop, needs_drop};
use core::ops::{Deref, DerefMut};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, Ordering};
use core::{fmt, marker::PhantomData};
use flagstone_process::blocks;
use flagstone_process::objects::{CacheRequest, Constructor, Objects};

/// The cache of the heap behind a typed one, made at the first use.
struct Lazy {
    name: &'static str,
    limit: usize,
    objects: AtomicPtr<Objects>,
}

impl Lazy {
    const fn new(name: &'static str, limit: usize) -> Self {
        Self {
            name,
            limit,
            objects: AtomicPtr::new(null_mut()),
        }
    }

    #[inline]
    fn get<T>(&self, constructor: Option<Constructor>) -> Option<&Objects> {
        // SAFETY: what is stored there is a cache that lives as long as `self`.
        match unsafe { self.objects.load(Ordering::Acquire).as_ref() } {
            Some(objects) => Some(objects),
            None => self.make::<T>(constructor),
        }
    }

    #[cold]
    fn make<T>(&self, constructor: Option<Constructor>) -> Option<&Objects> {
        let mut request = CacheRequest::new(self.name, size_of::<T>().max(1));
        request.align = align_of::<T>();
        request.ctor = constructor;
        let objects = Objects::new(&request, self.limit).ok()?;
        let place = blocks::alloc(size_of::<Objects>())?.cast::<Objects>();
        // SAFETY: a block of that size is ours; blocks are aligned to sixteen bytes.
        unsafe { place.write(objects) };
        let first = self.objects.compare_exchange(
            null_mut(),
            place.as_ptr(),
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        match first {
            // SAFETY: ours, which lives as long as `self`.
            Ok(_) => Some(unsafe { place.as_ref() }),
            Err(other) => {
                drop_objects(place);
                // SAFETY: another thread's, which lives as long as `self`.
                unsafe { other.as_ref() }
            }
        }
    }
}

fn drop_objects(place: NonNull<Objects>) {
    // SAFETY: the caller owns the cache; nobody else knows it any more.
    unsafe {
        // Objects that were leaked keep their cache.
        let _ = place.as_ref().destroy();
        blocks::free(place.as_ptr().cast());
    }
}

impl Drop for Lazy {
    fn drop(&mut self) {
        if let Some(place) = NonNull::new(*self.objects.get_mut()) {
            drop_objects(place);
        }
    }
}

/// A cache of values of type `T`: a place in memory of exactly that size and alignment, reused
/// quickly, and a line of its own in every report. Any thread allocates, any thread frees.
///
/// ```
/// use flagstone::Cache;
///
/// struct Session { id: u64, peer: [u8; 40] }
/// static SESSIONS: Cache<Session> = Cache::new("session");
///
/// let session = SESSIONS.alloc(Session { id: 7, peer: [0; 40] }).ok().unwrap();
/// assert_eq!(session.id + u64::from(session.peer[0]), 7);
/// ```
pub struct Cache<T> {
    lazy: Lazy,
    holds: PhantomData<fn(T) -> T>,
}

impl<T> Cache<T> {
    /// A cache, made at its first use. The name is what reports show, up to 32 bytes of it.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self::with_limit(name, 0)
    }

    /// A cache that hands out at most `limit` objects at once; zero for no limit. Threads share a
    /// counter then.
    #[must_use]
    pub const fn with_limit(name: &'static str, limit: usize) -> Self {
        Self {
            lazy: Lazy::new(name, limit),
            holds: PhantomData,
        }
    }

    /// Moves `value` into an object of this cache.
    ///
    /// # Errors
    /// The value comes back at the limit, or when memory is exhausted.
    #[inline]
    pub fn alloc(&self, value: T) -> Result<Object<'_, T>, T> {
        match self.lazy.get::<T>(None).and_then(place) {
            Some((place, cache)) => Ok(Object::fresh(place, cache, value)),
            None => Err(value),
        }
    }

    /// Objects for all values of `values`, or the values back.
    ///
    /// # Errors
    /// As for [`Cache::alloc`]; then no object is made.
    pub fn alloc_bulk<const N: usize>(&self, values: [T; N]) -> Result<[Object<'_, T>; N], [T; N]> {
        let mut places = [None; N];
        let cache = self.lazy.get::<T>(None);
        let Some(cache) = cache.filter(|cache| cache.alloc_all(&mut places)) else {
            return Err(values);
        };
        let mut places = places.into_iter().flatten();
        Ok(values.map(|value| match places.next() {
            Some(place) => Object::fresh(place.cast(), cache, value),
            // `alloc_all` filled every place.
            None => unreachable!(),
        }))
    }

    /// Sets `N` objects aside: the allocations from what this returns cannot fail.
    #[must_use]
    pub fn prefill<const N: usize>(&self) -> Option<Prefilled<'_, T, N>> {
        let mut places = [None; N];
        let cache = self.lazy.get::<T>(None)?;
        cache.alloc_all(&mut places).then_some(Prefilled {
            cache,
            places,
            holds: PhantomData,
        })
    }

    /// Changes the limit of a cache that was made with one; whether it was.
    pub fn set_limit(&self, limit: usize) -> bool {
        let cache = self.lazy.get::<T>(None);
        cache.is_some_and(|cache| cache.set_limit(limit))
    }

    /// Gives back what the cache holds beyond the objects in use.
    pub fn shrink(&self) {
        if let Some(cache) = self.lazy.get::<T>(None) {
            cache.shrink();
        }
    }
}

fn place<T>(cache: &Objects) -> Option<(NonNull<T>, &Objects)> {
    Some((cache.alloc()?.cast(), cache))
}

/// A cache whose objects are constructed once, by `T::default`, and keep their state from one use
/// to the next: a new owner gets an object as the last one left it.
///
/// Objects are never dropped, so `T` must not need it.
pub struct Constructed<T> {
    lazy: Lazy,
    holds: PhantomData<fn(T) -> T>,
}

impl<T: Default + Send> Constructed<T> {
    const NEVER_DROPPED: () = assert!(
        !needs_drop::<T>(),
        "objects of such a cache are never dropped"
    );

    /// A cache, made at its first use.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        const { Self::NEVER_DROPPED };
        Self {
            lazy: Lazy::new(name, 0),
            holds: PhantomData,
        }
    }

    /// An object as its last owner left it, or as `T::default` made it; `None` when memory is
    /// exhausted.
    #[must_use]
    pub fn alloc(&self) -> Option<Object<'_, T>> {
        unsafe extern "C" fn construct<T: Default>(object: *mut u8) {
            // SAFETY: the heap calls this on fresh memory of the size and alignment of a `T`.
            unsafe { object.cast::<T>().write(T::default()) };
        }
        let cache = self.lazy.get::<T>(Some(construct::<T>))?;
        let (place, cache) = place(cache)?;
        Some(Object {
            place,
            cache,
            holds: PhantomData,
        })
    }
}

/// An object of a cache. Its value is dropped and its memory given back at the end, on whatever
/// thread.
pub struct Object<'c, T> {
    place: NonNull<T>,
    cache: &'c Objects,
    holds: PhantomData<T>,
}

// SAFETY: an object owns its value, and caches take objects back from any thread.
unsafe impl<T: Send> Send for Object<'_, T> {}
// SAFETY: sharing an object shares its value.
unsafe impl<T: Sync> Sync for Object<'_, T> {}

impl<'c, T> Object<'c, T> {
    #[inline]
    fn fresh(place: NonNull<T>, cache: &'c Objects, value: T) -> Self {
        // SAFETY: an object of the cache, as large and aligned as `T`, and ours.
        unsafe { place.write(value) };
        Self {
            place,
            cache,
            holds: PhantomData,
        }
    }

    /// The value, out of its object.
    #[must_use]
    pub fn into_inner(this: Self) -> T {
        let this = ManuallyDrop::new(this);
        // SAFETY: the object holds a value, which is read once and not dropped.
        let value = unsafe { this.place.read() };
        // SAFETY: ours, and not used again.
        unsafe { this.cache.free(this.place.cast()) };
        value
    }
}

impl<T> Deref for Object<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the object holds a value.
        unsafe { self.place.as_ref() }
    }
}

impl<T> DerefMut for Object<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the object holds a value.
        unsafe { self.place.as_mut() }
    }
}

impl<T> Drop for Object<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the object holds a value and is ours; neither is used again. What a constructed
        // cache holds has no destructor.
        unsafe {
            self.place.drop_in_place();
            self.cache.free(self.place.cast());
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Object<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Objects set aside. Those not used go back at the end.
pub struct Prefilled<'c, T, const N: usize> {
    cache: &'c Objects,
    places: [Option<NonNull<u8>>; N],
    holds: PhantomData<T>,
}

impl<'c, T, const N: usize> Prefilled<'c, T, N> {
    /// Objects left.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.iter().flatten().count()
    }

    /// Whether none is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Moves `value` into an object.
    ///
    /// # Errors
    /// The value comes back when all `N` are used.
    pub fn alloc(&mut self, value: T) -> Result<Object<'c, T>, T> {
        match self.places.iter_mut().find_map(Option::take) {
            Some(place) => Ok(Object::fresh(place.cast(), self.cache, value)),
            None => Err(value),
        }
    }
}

impl<T, const N: usize> Drop for Prefilled<'_, T, N> {
    fn drop(&mut self) {
        for place in self.places.iter_mut().filter_map(Option::take) {
            // SAFETY: ours, and used by nobody.
            unsafe { self.cache.free(place) };
        }
    }
}
