//! Checks of the slab layer.
//!
//! ```text
//!   every slab      slab.inuse-bounded · chain.linked · slab.full-off-list
//!   every node      node.list-counted · node.flag-tells · node.slabs-counted
//!   every cache     slab.one-isolator · barn.counted · slot.len-bounded · sheaf.filled-below-len ·
//!                   what its engine checks of its own (`slab::ObjectEngine::check`)
//!   all together    slot.one-home
//! ```
//!
//! The layer must be at rest: no other thread is inside it while a check walks. Checks allocate
//! nothing.

use crate::base::{CacheId, CpuId, NodeId, Pfn};
use crate::page::{PageKind, flag};
use crate::platform::{SheafWord, Slot};
use crate::slab::{
    Broken, Cache, CpuHeld, Engines, NO_OBJECT, ObjectEngine, SHEAF_CACHES, Seen, SlabState,
    SlabView, Slabs,
};
use crate::sync::Ordering::Relaxed;
use core::fmt;

/// An invariant of the slab layer that does not hold, and where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BrokenSlab {
    /// The invariant's name.
    pub rule: &'static str,
    /// The cache concerned.
    pub cache: CacheId,
    /// The slab concerned; `Pfn::NONE` where it is no single one.
    pub slab: Pfn,
    /// What was found.
    pub found: u64,
    /// What was expected; 1 where the rule is a yes or no.
    pub expected: u64,
}

impl fmt::Display for BrokenSlab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is broken in {:?}", self.rule, self.cache)?;
        if self.slab.is_some() {
            write!(f, ", slab at page {}", self.slab.0)?;
        }
        write!(f, ": found {}, expected {}", self.found, self.expected)
    }
}

impl core::error::Error for BrokenSlab {}

type Checked = Result<(), BrokenSlab>;

/// Compares a figure with what it must be.
fn same(cache: &Cache, slab: Pfn, rule: &'static str, found: u64, expected: u64) -> Checked {
    if found == expected {
        return Ok(());
    }
    Err(BrokenSlab {
        rule,
        cache: cache.id(),
        slab,
        found,
        expected,
    })
}

fn holds(cache: &Cache, slab: Pfn, rule: &'static str, is: bool) -> Checked {
    same(cache, slab, rule, u64::from(is), 1)
}

/// A rule of the engine that serves `cache`.
fn named(cache: &Cache, found: Result<(), Broken>) -> Checked {
    found.map_err(|broken| BrokenSlab {
        rule: broken.rule,
        cache: cache.id(),
        slab: broken.slab,
        found: broken.found,
        expected: broken.expected,
    })
}

/// What a walk over all slabs of a cache on one node found.
#[derive(Default)]
struct Census {
    slabs: u64,
    listed: u64,
    frozen: u64,
    /// Not full, not frozen, on no list.
    isolated: u64,
    in_use: u64,
    free: u64,
}

/// Checks every cache of `slabs`.
///
/// # Errors
/// The first invariant that does not hold.
pub fn check_slabs<P: Engines>(slabs: &Slabs<P>) -> Checked {
    let mut sheaves = 0;
    let mut sheaf_objects = 0;
    for cache in slabs.live_caches() {
        check_cache(slabs, cache)?;
        sheaves += sheaves_of(slabs, cache)?.sheaves;
        if cache.id().index() <= SHEAF_CACHES {
            sheaf_objects += in_use(slabs, cache);
        }
    }
    let some = slabs.cache(CacheId(1));
    same(some, Pfn::NONE, "slot.one-home", sheaves, sheaf_objects)
}

/// Objects of `cache` in the program's hands: what slabs count as in use, but what the
/// allocator keeps in sheaves, arrays and private chains.
///
/// # Errors
/// A broken invariant of the structures that have to be walked for it.
pub fn live_objects<P: Engines>(slabs: &Slabs<P>, cache: &Cache) -> Result<u64, BrokenSlab> {
    let held = CpuHeld::of(slabs, cache);
    let kept = sheaves_of(slabs, cache)?.objects + held.private_objects + held.deferred_objects;
    let in_use = in_use(slabs, cache);
    holds(cache, Pfn::NONE, "slot.one-home", kept <= in_use)?;
    Ok(in_use - kept)
}

fn in_use<P: Engines>(slabs: &Slabs<P>, cache: &Cache) -> u64 {
    SlabView::heads(slabs, cache)
        .map(|pfn| u64::from(state_of(slabs, pfn).inuse()))
        .sum()
}

fn state_of<P: Engines>(slabs: &Slabs<P>, pfn: Pfn) -> SlabState {
    SlabState(slabs.pages().descriptor(pfn).state.load(Relaxed))
}

/// Checks one cache.
///
/// # Errors
/// The first invariant that does not hold.
pub fn check_cache<P: Engines>(slabs: &Slabs<P>, cache: &Cache) -> Checked {
    let mut isolated = 0;
    let mut frozen = 0;
    for node in (0..slabs.node_count()).map(NodeId) {
        let census = check_node(slabs, cache, node)?;
        let orphans = slabs.node(cache.id(), node).orphans(slabs.pages());
        let known = orphans <= census.isolated;
        holds(cache, Pfn::NONE, "slab.one-isolator", known)?;
        isolated += census.isolated - orphans;
        frozen += census.frozen;
    }
    if cache.is_guests::<P>() {
        let seen = Seen { frozen, isolated };
        named(cache, P::Engine::check(slabs, cache, &seen))?;
    } else {
        same(cache, Pfn::NONE, "slab.one-isolator", isolated, 0)?;
    }
    sheaves_of(slabs, cache).map(|_| ())
}

fn check_node<P: Engines>(
    slabs: &Slabs<P>,
    cache: &Cache,
    number: NodeId,
) -> Result<Census, BrokenSlab> {
    let node = slabs.node(cache.id(), number);
    let mut census = Census::default();
    for pfn in SlabView::heads(slabs, cache) {
        if slabs.pages().descriptor(pfn).node() == number {
            check_slab(slabs, cache, pfn, &mut census)?;
        }
    }
    let partial = check_list(slabs, cache, node.first_partial::<P>())?;
    let guests = cache.is_guests::<P>();
    let empty_head = match guests {
        true => P::Engine::empty_head(slabs, cache, number),
        false => Pfn::NONE,
    };
    let empty = check_list(slabs, cache, empty_head)?;
    let counted = u64::from(node.nr_partial());
    same(cache, Pfn::NONE, "node.list-counted", counted, partial)?;
    let listed = partial + empty;
    same(cache, Pfn::NONE, "node.flag-tells", census.listed, listed)?;
    let known = u64::from(node.slabs.load(Relaxed));
    same(cache, Pfn::NONE, "node.slabs-counted", known, census.slabs)?;
    if guests {
        let found = P::Engine::check_node(slabs, cache, number, census.free);
        named(cache, found)?;
    }
    Ok(census)
}

fn check_slab<P: Engines>(
    slabs: &Slabs<P>,
    cache: &Cache,
    pfn: Pfn,
    census: &mut Census,
) -> Checked {
    let descriptor = slabs.pages().descriptor(pfn);
    let state = state_of(slabs, pfn);
    let objects = u64::from(cache.geometry().objects());
    let fresh = u64::from(descriptor.fresh.load(Relaxed));
    let bounded = state.inuse() <= state.objects() && u64::from(state.objects()) == objects;
    holds(cache, pfn, "slab.inuse-bounded", bounded)?;

    let view = SlabView::of(slabs, cache, pfn);
    let chained = chain_length(cache, &view, state.freelist())?;
    let free = chained + objects - fresh;
    same(cache, pfn, "chain.linked", free, u64::from(state.free()))?;
    let private = match cache.is_guests::<P>() {
        true => P::Engine::private_chain(slabs, cache, pfn),
        false => NO_OBJECT,
    };
    let private = chain_length(cache, &view, private)?;
    let linked = (0..fresh as u32)
        .filter(|&i| view.link(i).is_some())
        .count();
    same(cache, pfn, "chain.linked", linked as u64, chained + private)?;

    let listed = descriptor.has(flag::ON_LIST);
    holds(
        cache,
        pfn,
        "slab.full-off-list",
        !(listed && (state.is_full() || state.frozen())),
    )?;
    census.slabs += 1;
    census.in_use += u64::from(state.inuse());
    census.free += free;
    census.listed += u64::from(listed);
    census.frozen += u64::from(state.frozen());
    census.isolated += u64::from(!listed && !state.frozen() && !state.is_full());
    Ok(())
}

/// Objects on a chain; no longer than the slab, each with a link.
fn chain_length<P: Engines>(
    cache: &Cache,
    view: &SlabView<'_, P>,
    first: u32,
) -> Result<u64, BrokenSlab> {
    let bound = u64::from(cache.geometry().objects());
    let mut next = first;
    let mut length = 0;
    while next != NO_OBJECT {
        length += 1;
        holds(cache, view.pfn(), "chain.linked", length <= bound)?;
        let link = view.link(next);
        holds(cache, view.pfn(), "chain.linked", link.is_some())?;
        next = link.unwrap_or(NO_OBJECT);
    }
    Ok(length)
}

/// Length of a doubly linked list of slabs that starts at `head`.
fn check_list<P: Engines>(slabs: &Slabs<P>, cache: &Cache, head: Pfn) -> Result<u64, BrokenSlab> {
    let mut before = Pfn::NONE;
    let mut pfn = head;
    let mut length = 0;
    while pfn.is_some() {
        let descriptor = slabs.pages().descriptor(pfn);
        let on_list = descriptor.has(flag::ON_LIST) && descriptor.kind() == PageKind::Slab;
        holds(cache, pfn, "node.flag-tells", on_list)?;
        let back = u64::from(descriptor.prev.load(Relaxed));
        same(cache, pfn, "node.list-counted", back, u64::from(before.0))?;
        before = pfn;
        pfn = Pfn(descriptor.next.load(Relaxed));
        length += 1;
    }
    Ok(length)
}

/// Sheaves of a cache wherever they are, and the objects in them.
#[derive(Default)]
struct Sheaves {
    sheaves: u64,
    objects: u64,
}

fn sheaves_of<P: Engines>(slabs: &Slabs<P>, cache: &Cache) -> Result<Sheaves, BrokenSlab> {
    let mut found = Sheaves::default();
    for cpu in (0..P::cpu_count()).map(CpuId) {
        for slot in [
            Slot::main(cache.id().index()),
            Slot::spare(cache.id().index()),
        ] {
            // SAFETY: the CPU is below the platform's count.
            let word = SheafWord(unsafe { slabs.area().word(cpu, slot) }.load(Relaxed));
            if word.is_absent() {
                continue;
            }
            // SAFETY: nothing is under way (module documentation), so the slot's sheaf is live and
            // nobody else looks; `count_sheaf` gives it up again.
            let sheaf = unsafe { slabs.sheaf_of_word(word) };
            holds(cache, Pfn::NONE, "slot.one-home", sheaf.is_some())?;
            let Some(sheaf) = sheaf.map(crate::slab::OwnSheaf::into_raw) else {
                continue;
            };
            // SAFETY: as above.
            let objects = unsafe { count_sheaf(slabs, cache, sheaf)? };
            found.sheaves += 1;
            found.objects += objects;
        }
        if cache.is_guests::<P>() {
            found.sheaves += P::Engine::sheaves(slabs, cache, cpu);
        }
    }
    for node in (0..slabs.node_count()).map(NodeId) {
        let barn = &slabs.node(cache.id(), node).barn;
        let mut broken = None;
        let (mut full, mut empty, mut stored) = (0, 0, 0);
        barn.each::<P>(&mut |sheaf, is_full| {
            if is_full {
                full += 1;
            } else {
                empty += 1;
            }
            // SAFETY: the barn holds the sheaf, under its lock.
            match unsafe { count_sheaf(slabs, cache, sheaf) } {
                Ok(objects) => {
                    found.objects += objects;
                    stored += if is_full { objects } else { 0 };
                }
                Err(what) => broken = Some(what),
            }
        });
        if let Some(what) = broken {
            return Err(what);
        }
        same(
            cache,
            Pfn::NONE,
            "barn.counted",
            u64::from(barn.full()),
            full,
        )?;
        same(
            cache,
            Pfn::NONE,
            "barn.counted",
            u64::from(barn.empty()),
            empty,
        )?;
        same(
            cache,
            Pfn::NONE,
            "barn.counted",
            u64::from(barn.stored()),
            stored,
        )?;
        found.sheaves += full + empty;
    }
    Ok(found)
}

/// Objects in a sheaf, each of them of this cache.
///
/// # Safety
/// 1. The sheaf is live and stays as it is.
unsafe fn count_sheaf<P: Engines>(
    slabs: &Slabs<P>,
    cache: &Cache,
    sheaf: core::ptr::NonNull<crate::platform::SheafHeader>,
) -> Result<u64, BrokenSlab> {
    // SAFETY: obligation 1; looked at only, and given up again below.
    let sheaf = unsafe { crate::slab::OwnSheaf::from_raw(sheaf) };
    let bounded = sheaf.len() <= sheaf.capacity();
    holds(cache, Pfn::NONE, "slot.len-bounded", bounded)?;
    holds(cache, Pfn::NONE, "slot.fenced", sheaf.is_fenced())?;
    for index in 0..sheaf.len() {
        let object = sheaf.get(index);
        let page = object.and_then(|object| slabs.pages().pfn_of(object.as_ptr()));
        let home = page.and_then(|page| slabs.cache_of_page(page));
        let ours = home.is_some_and(|home| home.id() == cache.id());
        let page = page.unwrap_or(Pfn::NONE);
        holds(cache, page, "sheaf.filled-below-len", ours)?;
    }
    let objects = u64::from(sheaf.len());
    let _given_up = sheaf.into_raw();
    Ok(objects)
}
