//! Checks of what these engines keep, called by `flagstone_core::verify`.
//!
//! ```text
//!   every CPU     cpu.slab-frozen · cpu.private-chained · cpu.partial-counted · array.len-bounded
//!   every node    array.free-counted
//! ```

use crate::array_cache::array_fill;
use crate::host::Host;
use crate::rules::{self, rules};
use flagstone_core::base::{NodeId, Pfn};
use flagstone_core::policy::Engine;
use flagstone_core::slab::{Broken, Cache, Engines, NO_OBJECT, Seen, SlabState, Slabs};
use flagstone_core::sync::Ordering::Relaxed;

type Checked = Result<(), Broken>;

/// Compares a figure with what it must be.
fn same(slab: Pfn, rule: &'static str, found: u64, expected: u64) -> Checked {
    if found == expected {
        return Ok(());
    }
    Err(Broken {
        rule,
        slab,
        found,
        expected,
    })
}

fn holds(slab: Pfn, rule: &'static str, is: bool) -> Checked {
    same(slab, rule, u64::from(is), 1)
}

fn state_of<P: Engines>(slabs: &Slabs<P>, pfn: Pfn) -> SlabState {
    SlabState(slabs.pages().descriptor(pfn).state.load(Relaxed))
}

/// First object of the private chain of the CPU whose slab `pfn` is, if it is one's.
pub(crate) fn private_chain(cache: &Cache, pfn: Pfn) -> u32 {
    if cache.engine() == Engine::Slab2007 {
        return NO_OBJECT;
    }
    rules(cache)
        .cpus()
        .map(|cpu| rules::cpu_slab(cache, cpu))
        .find(|held| held.slab() == pfn)
        .map_or(NO_OBJECT, |held| held.freelist())
}

/// Slabs of CPUs and on their partial lists, against those the walk over all slabs found.
pub(crate) fn cpu_slabs<P: Engines>(slabs: &Slabs<P>, cache: &Cache, seen: &Seen) -> Checked {
    let freezes = rules(cache).freezes_partial;
    let mut own = 0;
    let mut partial = 0;
    for cpu in rules(cache).cpus() {
        let held = rules::cpu_slab(cache, cpu);
        if held.slab().is_some() {
            own += 1;
            let state = state_of(slabs, held.slab());
            holds(held.slab(), "cpu.slab-frozen", state.frozen())?;
        } else {
            let none = held.freelist() == NO_OBJECT;
            holds(Pfn::NONE, "cpu.private-chained", none)?;
        }
        let mut pfn = held.partial();
        let (mut length, mut objects) = (0, 0);
        while pfn.is_some() {
            let state = state_of(slabs, pfn);
            objects += u64::from(slabs.pages().descriptor(pfn).prev.load(Relaxed));
            let fits = state.frozen() == freezes && state.freelist() != NO_OBJECT;
            holds(pfn, "cpu.partial-counted", fits)?;
            length += 1;
            pfn = Pfn(slabs.pages().descriptor(pfn).next.load(Relaxed));
        }
        let counted = u64::from(held.partial_slabs());
        same(Pfn::NONE, "cpu.partial-counted", counted, length)?;
        let counted = u64::from(held.partial_objects());
        same(Pfn::NONE, "cpu.partial-counted", counted, objects)?;
        partial += length;
    }
    let (frozen_due, isolated_due) = match freezes {
        true => (own + partial, 0),
        false => (own, partial),
    };
    same(Pfn::NONE, "cpu.slab-frozen", seen.frozen, frozen_due)?;
    same(Pfn::NONE, "slab.one-isolator", seen.isolated, isolated_due)
}

/// CPUs' arrays.
pub(crate) fn arrays(cache: &Cache, seen: &Seen) -> Checked {
    let limit = rules(cache).queues.limit;
    for cpu in rules(cache).cpus() {
        let avail = array_fill(cache, cpu);
        holds(Pfn::NONE, "array.len-bounded", avail <= limit)?;
    }
    same(Pfn::NONE, "slab.one-isolator", seen.isolated, 0)
}

/// Free objects of a node's slabs, against what the node counts.
pub(crate) fn node_of_arrays<P: Engines>(
    slabs: &Slabs<P>,
    cache: &Cache,
    node: NodeId,
    free: u64,
) -> Checked {
    let known = u64::from(Host(slabs).shared(cache, node).free_objects());
    same(Pfn::NONE, "array.free-counted", known, free)
}
