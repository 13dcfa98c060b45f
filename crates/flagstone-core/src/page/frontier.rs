//! The frontier of a zone: where pages that were never used begin.
//!
//! ```text
//!   start                         frontier        committed                         end
//!     │ in use and free blocks       │ usable, not   │ reserved                      │
//!     │ (buddy)                      │ yet free      │                               │
//! ```
//!
//! It moves by whole blocks of the largest order when the free areas cannot serve a request;
//! memory behind it is committed in steps of an eighth of what is there.
//!
//! Locking: the zone's.

use super::buddy::largest_block;
use super::memmap::Memmap;
use super::zone::{Zone, ZoneCore};
use crate::base::{Order, PageCount, Pfn};
use crate::platform::{NotMapped, Platform};
use crate::sync::Ordering::Release;

/// Most bytes of data one call commits. Why 64 MiB: the call is rare then, and a refusal near a
/// limit still leaves smaller steps to try.
const COMMIT_BYTES_MAX: usize = 64 << 20;

impl<P: Platform> Zone<P> {
    /// Moves the frontier by one block; `false` at the end, or when the system refuses.
    pub(super) fn advance(&self, core: &mut ZoneCore, map: &Memmap) -> bool {
        let frontier = core.areas.frontier();
        if frontier == core.committed && !self.commit_more(core, map) {
            return false;
        }
        let order = largest_block(frontier, (core.committed.0 - frontier.0) as usize);
        if order == Order::MAX && map.whole().gone.has(frontier) {
            core.areas.grow_gone(map);
        } else {
            core.areas.grow::<P>(map, order);
        }
        self.shared.frontier.store(core.areas.frontier().0, Release);
        true
    }

    #[cold]
    fn commit_more(&self, core: &mut ZoneCore, map: &Memmap) -> bool {
        let from = core.committed;
        let left = (self.end().0 - from.0) as usize;
        let block = Order::MAX.pages().0;
        let most = (COMMIT_BYTES_MAX >> map.page_size().shift()).max(block);
        let grown = (from.0 - self.start().0) as usize / 8;
        let mut step = grown.next_multiple_of(block).clamp(block, most).min(left);
        while step > 0 {
            let to = from.plus(PageCount(step));
            core.counters.commit_calls += 1;
            match Self::commit(core, map, to) {
                Ok(()) => {
                    core.committed = to;
                    return true;
                }
                // Somebody else's memory lies in a block that was claimed only: it is passed over.
                Err(NotMapped::Taken) if step == block && core.described >= to => {
                    map.whole().gone.set(from);
                    core.committed = to;
                    return true;
                }
                Err(_) => {}
            }
            step = if step <= block {
                0
            } else {
                (step / 2).next_multiple_of(block)
            };
        }
        false
    }

    /// Commits all up to `to`: what is known about pages, then the pages.
    fn commit(core: &mut ZoneCore, map: &Memmap, to: Pfn) -> Result<(), NotMapped> {
        if core.described < to {
            map.commit_descriptors::<P>(core.described, to, core.ground)?;
            core.described = to;
        }
        map.extend::<P>(to)?;
        map.commit_data::<P>(core.committed, to, core.ground)
    }
}
