//! The seam for an object engine besides the sheaf engine, and what a cache keeps for it.
//!
//! ```text
//!   Slabs<P> ── P::Engine ──┬─ SheavesOnly   the product: no other engine, no branch to one
//!                           └─ a guest's     flagstone-kernels: cpu-slab, its form of 2007, SLAB
//! ```
//!
//! The world names the engine ([`Engines`]), so a build holds the code of one engine besides the
//! sheaf engine or of none. An engine sees slabs as the sheaf engine does ([`Slab`], [`Node`],
//! lists of partial slabs) and keeps what it needs for a cache in one piece of memory, the cache's
//! *room* (ADR 0028).
//!
//! [`Node`]: super::Node

use super::cache::Cache;
use super::geometry::Geometry;
use super::slab::{Chain, Slab};
use super::slabs::Slabs;
use crate::base::{CpuId, NodeId, PageSize, Pfn};
use crate::page::Pagesets;
use crate::platform::{RawLock, SheavesOnly};
use crate::policy::{Cpus, Engine, OwnPages, PageRule, Policy};
use core::ptr::NonNull;

/// A world and the object engine that its slabs are served by besides the sheaf engine.
pub trait Engines: Pagesets {
    /// That engine.
    type Engine: ObjectEngine;
}

#[cfg(any(test, feature = "testing"))]
impl<E: ObjectEngine> Engines for crate::platform::testing::TestingWith<E> {
    type Engine = E;
}

#[cfg(any(test, feature = "testing"))]
impl<E: ObjectEngine> Pagesets for crate::platform::testing::TestingWith<E> {
    type Rule = E::Pages;
}

/// An engine for caches without sheaves.
///
/// The core calls it for caches of `Cache::is_guests` only.
pub trait ObjectEngine: Sized + 'static {
    /// Whether there is such an engine; otherwise every cache is the sheaf engine's.
    const SERVES: bool;

    /// The rules of pagesets that come with it.
    type Pages: PageRule;

    /// A slab of `objects` objects with its links where this engine needs them; `None` if it
    /// cannot use such a slab.
    fn lay_out(engine: Engine, slab: Geometry, objects: u32) -> Option<Geometry>;

    /// Bytes of the room of a cache.
    fn room_bytes(cache: &Served<'_>) -> usize;

    /// Makes the room of a cache.
    ///
    /// # Safety
    /// 1. `room` is the address of memory of the cache alone, aligned to a page, at least
    ///    `room_bytes` long.
    unsafe fn furnish(room: usize, cache: &Served<'_>);

    /// Takes an object.
    fn alloc<P: Engines<Engine = Self>>(slabs: &Slabs<P>, cache: &Cache) -> Option<NonNull<u8>>;

    /// Gives an object back.
    ///
    /// # Safety
    /// 1. `object` is of this cache and given up by its owner.
    unsafe fn free<P: Engines<Engine = Self>>(slabs: &Slabs<P>, cache: &Cache, object: NonNull<u8>);

    /// Gives a chain of objects back to their slab.
    fn put_chain<P: Engines<Engine = Self>>(slab: &Slab<'_, P>, chain: Chain);

    /// Takes everything off the CPUs.
    fn flush<P: Engines<Engine = Self>>(slabs: &Slabs<P>, cache: &Cache);

    /// Whether nobody is about to unlink this empty slab of any cache; under its list's lock.
    fn is_idle<P: Engines<Engine = Self>>(slab: &Slab<'_, P>) -> bool;

    /// What CPUs keep; exact when no other thread is at work.
    fn held<P: Engines<Engine = Self>>(slabs: &Slabs<P>, cache: &Cache) -> CpuHeld;

    /// Visits the locks of CPUs' sections: for fork handling, before barns and lists.
    fn each_lock<P: Engines<Engine = Self>>(
        slabs: &Slabs<P>,
        cache: &Cache,
        visit: &mut dyn FnMut(&RawLock),
    );

    /// First object of the private chain of the CPU whose slab `pfn` is, if it is one's.
    fn private_chain<P: Engines<Engine = Self>>(slabs: &Slabs<P>, cache: &Cache, pfn: Pfn) -> u32;

    /// First of a node's empty slabs, where they have a list of their own.
    fn empty_head<P: Engines<Engine = Self>>(slabs: &Slabs<P>, cache: &Cache, node: NodeId) -> Pfn;

    /// Sheaves in which a CPU keeps objects put aside.
    fn sheaves<P: Engines<Engine = Self>>(slabs: &Slabs<P>, cache: &Cache, cpu: CpuId) -> u64;

    /// Checks what the engine keeps against what the slabs of a cache say.
    ///
    /// # Errors
    /// The first rule that does not hold.
    fn check<P: Engines<Engine = Self>>(
        slabs: &Slabs<P>,
        cache: &Cache,
        seen: &Seen,
    ) -> Result<(), Broken>;

    /// Checks what the engine keeps of one node, whose slabs have `free` free objects.
    ///
    /// # Errors
    /// As for `check`.
    fn check_node<P: Engines<Engine = Self>>(
        slabs: &Slabs<P>,
        cache: &Cache,
        node: NodeId,
        free: u64,
    ) -> Result<(), Broken>;
}

/// What an engine is told about a cache before it is made.
#[derive(Clone, Copy, Debug)]
pub struct Served<'a> {
    /// Which of its engines.
    pub engine: Engine,
    /// The heap's policy.
    pub policy: &'a Policy,
    /// The cache's slabs.
    pub geometry: &'a Geometry,
    /// The world's page size.
    pub page_size: PageSize,
    /// The world's CPUs.
    pub cpus: Cpus,
    /// Memory nodes.
    pub nodes: u8,
}

/// Slabs of a cache that are on no node's list and not full, by who should have them.
#[derive(Clone, Copy, Default, Debug)]
pub struct Seen {
    /// Those a CPU owns.
    pub frozen: u64,
    /// The others, without those that wait for a holder of their list.
    pub isolated: u64,
}

/// A rule of an engine that does not hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Broken {
    /// The rule's name.
    pub rule: &'static str,
    /// The slab concerned; `Pfn::NONE` where it is no single one.
    pub slab: Pfn,
    /// What was found.
    pub found: u64,
    /// What was expected; 1 where the rule is a yes or no.
    pub expected: u64,
}

/// Free objects and slabs that CPUs keep for themselves (not sheaves): for the ledger.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CpuHeld {
    /// CPU slabs and slabs on CPUs' partial lists.
    pub slabs: u64,
    /// Free objects on private chains and in arrays: the slabs count them as in use.
    pub private_objects: u64,
    /// Free objects that slabs on CPUs' partial lists, and CPU slabs, count as free.
    pub slab_objects: u64,
    /// Freed objects put aside, not yet given back to their slabs.
    pub deferred_objects: u64,
}

impl CpuHeld {
    /// Of a cache; exact when no other thread is at work.
    #[must_use]
    pub fn of<P: Engines>(slabs: &Slabs<P>, cache: &Cache) -> Self {
        match cache.is_guests::<P>() {
            true => P::Engine::held(slabs, cache),
            false => Self::default(),
        }
    }
}

impl Cache {
    /// Whether it is not the sheaf engine's. Known when the core is built where there is no other.
    #[inline]
    #[must_use]
    pub fn is_guests<P: Engines>(&self) -> bool {
        P::Engine::SERVES && self.engine() != Engine::Sheaf
    }

    /// Visits the locks of CPUs' sections: for fork handling, before barns and lists.
    pub(crate) fn each_local_lock<P: Engines>(
        &self,
        slabs: &Slabs<P>,
        visit: &mut dyn FnMut(&RawLock),
    ) {
        if self.is_guests::<P>() {
            P::Engine::each_lock(slabs, self, visit);
        }
    }
}

impl ObjectEngine for SheavesOnly {
    const SERVES: bool = false;
    type Pages = OwnPages;

    fn lay_out(_: Engine, slab: Geometry, _: u32) -> Option<Geometry> {
        Some(slab)
    }

    fn room_bytes(_: &Served<'_>) -> usize {
        0
    }

    unsafe fn furnish(_: usize, _: &Served<'_>) {}

    fn alloc<P: Engines<Engine = Self>>(_: &Slabs<P>, _: &Cache) -> Option<NonNull<u8>> {
        None
    }

    unsafe fn free<P: Engines<Engine = Self>>(_: &Slabs<P>, _: &Cache, _: NonNull<u8>) {}

    fn put_chain<P: Engines<Engine = Self>>(_: &Slab<'_, P>, _: Chain) {}

    fn flush<P: Engines<Engine = Self>>(_: &Slabs<P>, _: &Cache) {}

    fn is_idle<P: Engines<Engine = Self>>(_: &Slab<'_, P>) -> bool {
        true
    }

    fn held<P: Engines<Engine = Self>>(_: &Slabs<P>, _: &Cache) -> CpuHeld {
        CpuHeld::default()
    }

    fn each_lock<P: Engines<Engine = Self>>(_: &Slabs<P>, _: &Cache, _: &mut dyn FnMut(&RawLock)) {}

    fn private_chain<P: Engines<Engine = Self>>(_: &Slabs<P>, _: &Cache, _: Pfn) -> u32 {
        super::state::NO_OBJECT
    }

    fn empty_head<P: Engines<Engine = Self>>(_: &Slabs<P>, _: &Cache, _: NodeId) -> Pfn {
        Pfn::NONE
    }

    fn sheaves<P: Engines<Engine = Self>>(_: &Slabs<P>, _: &Cache, _: CpuId) -> u64 {
        0
    }

    fn check<P: Engines<Engine = Self>>(_: &Slabs<P>, _: &Cache, _: &Seen) -> Result<(), Broken> {
        Ok(())
    }

    fn check_node<P: Engines<Engine = Self>>(
        _: &Slabs<P>,
        _: &Cache,
        _: NodeId,
        _: u64,
    ) -> Result<(), Broken> {
        Ok(())
    }
}
