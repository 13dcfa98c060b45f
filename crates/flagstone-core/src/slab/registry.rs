//! Making and ending caches.
//!
//! Locking: the registry's lock while an entry of the table is chosen and filled.

use super::cache::{CacheMaking, CacheRequest, CacheState, EngineRoom};
use super::engine::{Engines, ObjectEngine, Served};
use super::geometry::Geometry;
use super::refill::Part;
use super::sheaf::capacity_for;
use super::slabs::{CacheError, SHEAF_CACHES, Slabs};
use super::tallies::BARN_BYTES_FIRST;
use crate::base::CacheId;
use crate::platform::MAX_CACHES;
use crate::policy::{Cpus, Engine, ObjectSpec, SheafRule};
use crate::sync::Ordering::Relaxed;

impl<P: Engines> Slabs<P> {
    /// Makes a cache.
    ///
    /// # Errors
    /// See [`CacheError`].
    pub fn create_cache(&self, request: &CacheRequest<'_>) -> Result<CacheId, CacheError> {
        if request.align != 0
            && (!request.align.is_power_of_two() || request.align > P::page_size().bytes())
        {
            return Err(CacheError::Align);
        }
        let making = self.plan_cache(request)?;
        let mut last = self
            .registry
            .lock::<P>()
            .map_err(|_| CacheError::Exhausted)?;
        // Entries beyond the last were never touched; looking at one would fault its page in twice.
        let first = SHEAF_CACHES as u16 + 1;
        let free = (first..=*last).find(|&id| self.live_cache(CacheId(id)).is_none());
        let id = free.unwrap_or(first.max(*last + 1));
        if usize::from(id) >= MAX_CACHES {
            return Err(CacheError::Exhausted);
        }
        let id = CacheId(id);
        *last = id.0.max(*last);
        let room = self.furnish(id, &making)?;
        self.install(id, request, CacheMaking { id, room, ..making });
        Ok(id)
    }

    fn plan_cache(&self, request: &CacheRequest<'_>) -> Result<CacheMaking, CacheError> {
        let (page_size, policy) = (P::page_size(), self.policy());
        if request.object_size == 0 || request.object_size > page_size.bytes() << 10 {
            return Err(CacheError::Size);
        }
        let mut spec = ObjectSpec::new(request.object_size);
        spec.align = request.align;
        spec.hwcache_align = request.hwcache_align;
        spec.ctor = request.ctor.is_some();
        spec.kmalloc = request.kmalloc;
        let layout = policy.layout(&spec);
        let cpus = Cpus::new(P::cpu_count());
        let shape = policy
            .slab_shape(layout.size, page_size, cpus)
            .ok_or(CacheError::Size)?;
        let max = policy
            .sheaf_capacity_requested(layout.size, page_size, request.sheaf_capacity)
            .unwrap_or(0);
        let engine = match P::Engine::SERVES {
            true => policy.engine,
            false => Engine::Sheaf,
        };
        let link_offset = match request.kept_word {
            Some(kept) if kept == layout.free_pointer => 0,
            _ => layout.free_pointer,
        };
        let geometry = Geometry::new(
            layout.size,
            link_offset,
            shape.pages,
            page_size,
            self.pages().spacing(),
        )
        .and_then(|slab| match engine {
            Engine::Sheaf => Some(slab),
            _ => P::Engine::lay_out(engine, slab, shape.objects),
        })
        .ok_or(CacheError::Size)?;
        let growing = policy.sheaf_rule == SheafRule::Bytes && policy.sheaf_capacity_set.is_none();
        let (first, busy, spread, bytes, empty) = match growing {
            true => (
                first_capacity(layout.size).min(max),
                policy.busy_capacity(layout.size).max(max),
                policy.limits.sheaf_spread,
                BARN_BYTES_FIRST,
                empty_slabs(geometry.slab_bytes()),
            ),
            false => (max, max, 0, 0, u32::MAX),
        };
        let barn = policy.barn_limits(layout.size, max);
        Ok(CacheMaking {
            id: CacheId(0),
            geometry,
            align: layout.align,
            min_partial: policy.min_partial(layout.size).min(empty),
            sheaf_first: first,
            sheaf_max: max,
            sheaf_busy: busy,
            sheaf_spread: spread,
            barn_full: barn.full,
            barn_empty: barn.empty,
            barn_bytes: bytes,
            refill_whole: !growing,
            engine,
            room: EngineRoom::default(),
        })
    }

    /// Gives the engine of a cache about to be made its memory: that of the last cache with this
    /// id if it is large enough, else new.
    fn furnish(&self, id: CacheId, making: &CacheMaking) -> Result<EngineRoom, CacheError> {
        if !P::Engine::SERVES || making.engine == Engine::Sheaf {
            return Ok(EngineRoom::default());
        }
        let served = Served {
            engine: making.engine,
            policy: self.policy(),
            geometry: &making.geometry,
            page_size: P::page_size(),
            cpus: Cpus::new(P::cpu_count()),
            nodes: self.node_count(),
        };
        let bytes = P::Engine::room_bytes(&served);
        let new = || Some(EngineRoom::new(self.pages().alloc_own(bytes)?, bytes));
        let room = self.cache(id).room.again(bytes).or_else(new);
        let room = room.ok_or(CacheError::Exhausted)?;
        // SAFETY: own memory, aligned to a page, for this cache alone (its id is not live).
        unsafe { P::Engine::furnish(room.address(), &served) };
        Ok(room)
    }

    /// Ends a cache none of whose objects are handed out.
    ///
    /// # Errors
    /// `Busy` while objects live (the cache stays usable), `Absent` for no such cache.
    pub fn destroy_cache(&self, id: CacheId) -> Result<(), CacheError> {
        if id.index() <= SHEAF_CACHES {
            return Err(CacheError::Absent);
        }
        let cache = self.live_cache(id).ok_or(CacheError::Absent)?;
        self.shrink_cache(cache);
        if Part::all(self, cache).any(|part| part.node.slabs.load(Relaxed) != 0) {
            return Err(CacheError::Busy);
        }
        cache.state.store(CacheState::Gone as u8, Relaxed);
        Ok(())
    }
}

/// Objects in a cache's first sheaves: about 2 KiB of them, at least one, at most 30; what memory
/// a sheaf of these has is filled, up to 4 KiB of objects.
fn first_capacity(size: usize) -> u32 {
    let wanted = (2048 / size).clamp(1, 30) as u32;
    capacity_for(wanted).min((4096 / size) as u32).max(wanted)
}

/// Empty slabs a node keeps of a cache: 16 KiB of them, at least one. The kernels' rule keeps five
/// to ten of any length, which is megabytes over seventy caches; here pagesets and barns already
/// stand between a cache and the zone.
fn empty_slabs(slab_bytes: usize) -> u32 {
    ((16 << 10) / slab_bytes).max(1) as u32
}
