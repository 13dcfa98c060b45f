//! Putting chains of objects back into a slab.
//!
//! One compare-and-swap; the list's lock only where the slab was full or becomes empty.

use super::engine::{Engines, ObjectEngine};
use super::node::End;
use super::slab::{Chain, Slab};
use super::state::SlabState;
use crate::page::flag;
use crate::platform::{Access, Fault, Line};

impl<P: Engines> Slab<'_, P> {
    /// Gives a chain of objects back, by the rules of the cache's engine. For the sheaf engine:
    /// takes the list lock if the slab was full or becomes empty (docs: linux-policies 5.4, slow
    /// free).
    pub fn put_chain(&self, chain: Chain) {
        if self.cache.is_guests::<P>() {
            return P::Engine::put_chain(self, chain);
        }
        loop {
            self.touch(Access::Atomic);
            let state = self.state();
            let Some(inuse) = state.inuse().checked_sub(chain.count) else {
                P::fatal(Fault::DoubleFree, self.links.object(chain.first).as_ptr())
            };
            self.links.relink(chain.last, state.freelist());
            let after = state.with(chain.first, inuse);
            if state.is_full() || inuse == 0 {
                if self.put_with_list(state, after) {
                    return;
                }
            } else if self.swap_state(state, after) {
                return;
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn put_with_list(&self, before: SlabState, after: SlabState) -> bool {
        let node = self.node();
        let Ok(mut list) = node.hold(self.slabs.pages()) else {
            // A signal handler interrupted the holder of this list. A slab on the list stays there,
            // empty; one that was full waits for the next holder.
            let done = self.swap_state(before, after);
            if done && before.is_full() {
                node.orphan(self.slabs.pages(), self.pfn);
            }
            return done;
        };
        P::touch(Line::Node, node.address(), Access::Write);
        if !self.swap_state(before, after) {
            return false;
        }
        let on_list = self.descriptor.has(flag::ON_LIST);
        let surplus = after.is_empty() && node.nr_partial() >= self.cache.min_partial();
        if before.is_full() {
            if surplus {
                drop(list);
                self.give_back();
                return true;
            }
            list.add(self.pfn, End::Tail);
        } else if on_list && surplus {
            list.remove(self.pfn);
            drop(list);
            self.give_back();
        }
        true
    }
}
