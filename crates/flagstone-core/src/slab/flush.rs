//! Giving objects of a sheaf back to their slabs.
//!
//! Objects of one slab are gathered into a chain so that each slab costs one compare-and-swap.
//! The gathering looks at the next few objects only (docs: linux-policies 5.4 looks past three
//! mismatches); a sheaf is usually filled from few slabs, so neighbours belong together.

use super::cache::Cache;
use super::engine::Engines;
use super::geometry::LinkPlace;
use super::sheaf::OwnSheaf;
use super::slab::{Chain, Slab};
use super::slabs::Slabs;
use crate::platform::Work;
use crate::sync::Ordering::Relaxed;
use core::ptr::NonNull;

/// Objects looked at for one chain. Doubling gathers longer chains and costs that many compares
/// per chain; a slab of a page holds 16 objects of 256 B.
const LOOK_AHEAD: u32 = 16;

impl<P: Engines> Slabs<P> {
    /// Gives all objects of `sheaf` back to their slabs. The sheaf stays, empty.
    pub fn flush(&self, cache: &Cache, sheaf: &mut OwnSheaf) {
        let count = sheaf.len();
        cache.count_back(count);
        if cache.can_be_swept() {
            let bytes = count as usize * cache.geometry().size();
            let moved = &self.pages().budget().moved;
            moved.flushed.fetch_add(bytes, Relaxed);
        }
        let mut warm = count;
        while !sheaf.is_empty() {
            if sheaf.len() <= warm {
                let until = sheaf.len().saturating_sub(LOOK_AHEAD);
                self.warm(cache, sheaf, until);
                warm = until;
            }
            let Some(object) = sheaf.take() else { return };
            // SAFETY: objects in a sheaf of this cache were freed into it, so the page map named
            // the cache, and a slab with objects handed out stays live.
            let (slab, first) = unsafe { Slab::holding(self, cache, object) };
            slab.links.free(first, super::state::NO_OBJECT);
            let mut chain = Chain {
                first,
                last: first,
                count: 1,
            };
            let mut at = sheaf.len();
            let end = at.saturating_sub(LOOK_AHEAD);
            while at > end {
                at -= 1;
                let Some(other) = sheaf.get(at) else { break };
                if slab.contains(other) {
                    let _ = sheaf.swap_remove(at);
                    let index = slab.index(other);
                    slab.links.free(index, chain.first);
                    chain.first = index;
                    chain.count += 1;
                }
            }
            P::work(Work::Objects(chain.count));
            slab.put_chain(chain);
        }
    }

    /// Fetches the links of the objects from `until` on, and reads their descriptors, without one load waiting for the other.
    fn warm(&self, cache: &Cache, sheaf: &OwnSheaf, until: u32) {
        let geometry = cache.geometry();
        let inside = geometry.link_place() == LinkPlace::Inside;
        let read = |at: u32| {
            let object = sheaf.get(at)?.as_ptr();
            if inside {
                P::fetch_ahead(object.wrapping_add(geometry.link_offset()));
            }
            let pfn = self.pages().pfn_of(object)?;
            Some(self.pages().descriptor(pfn).state.load(Relaxed))
        };
        let all = (until..sheaf.len()).filter_map(read);
        core::hint::black_box(all.fold(0, |sum, state| sum ^ state));
    }

    /// Gives one object straight back to its slab.
    ///
    /// # Safety
    /// 1. As for [`Slab::holding`]; the caller gives `object` up.
    pub unsafe fn put_one(&self, cache: &Cache, object: NonNull<u8>) {
        cache.count_back(1);
        // SAFETY: obligation 1.
        let (slab, index) = unsafe { Slab::holding(self, cache, object) };
        slab.links.free(index, super::state::NO_OBJECT);
        slab.put_chain(Chain {
            first: index,
            last: index,
            count: 1,
        });
    }
}
