//! The sheaf engine: what happens when a CPU's main sheaf is empty or full.
//!
//! ```text
//!   alloc   main → spare → barn's full sheaves → slabs            (docs: linux-policies 5.3)
//!   free    main → spare → barn's empty sheaves → new → slabs     (5.4)
//! ```
//!
//! The fast path is one slot step of the platform (`pop`, `push`). Here every step moves whole
//! sheaves by value: an `exchange` hands us what was in the slot, we own it, and we give it to a
//! slot, a barn, or back to memory; only a turn (ADR 0050) copies objects. A thread may change its
//! CPU between any two lines; then the sheaf lands on the other CPU, which is as good.
//!
//! Locking: the barn's lock inside `barn.rs`, list locks inside `refill` and `flush`.

use super::cache::Cache;
use super::engine::{Engines, ObjectEngine};
use super::refill::Part;
use super::sheaf::{OwnSheaf, bytes_for};
use super::sizing::Served;
use super::slabs::Slabs;
use crate::base::NodeId;
use crate::platform::{Access, Fault, Line, SheafWord, Slot, Work};
use core::ptr::NonNull;

impl<P: Engines> Slabs<P> {
    /// Takes an object of `cache`: the fast step, then the slow path.
    #[inline]
    pub fn alloc(&self, cache: &Cache) -> Option<NonNull<u8>> {
        if cache.is_guests::<P>() {
            return P::Engine::alloc(self, cache);
        }
        P::work(Work::Fast);
        // SAFETY: the area is ours and the id of a cache is below MAX_CACHES.
        match unsafe { P::pop(self.area(), Slot::main(cache.id().index())) } {
            Some(object) => Some(object),
            None => self.alloc_slow(cache),
        }
    }

    /// Gives an object of `cache` back: the fast step, then the slow path.
    ///
    /// # Safety
    /// 1. `object` came from `alloc` of this cache and is not used again.
    #[inline]
    pub unsafe fn free(&self, cache: &Cache, object: NonNull<u8>) {
        if cache.is_guests::<P>() {
            // SAFETY: obligation 1.
            return unsafe { P::Engine::free(self, cache, object) };
        }
        P::work(Work::FastFree);
        // SAFETY: as in `alloc`; obligation 1.
        if !unsafe { P::push(self.area(), Slot::main(cache.id().index()), object) } {
            // SAFETY: obligation 1.
            unsafe { self.free_slow(cache, object) };
        }
    }

    pub(crate) fn exchange(&self, slot: Slot, new: Option<OwnSheaf>) -> Option<OwnSheaf> {
        let area = self.area();
        let word = new.map_or(SheafWord::ABSENT, |sheaf| area.word_of(sheaf.into_entry()));
        // SAFETY: the area is ours; the sheaf was owned by the caller and is given up.
        let old = unsafe { P::exchange(area, slot, word) };
        // SAFETY: what was in the slot is ours now (`Platform::exchange`).
        unsafe { self.sheaf_of_word(old) }
    }

    /// The sheaf that a slot's word named, its length written down; `None` for none.
    ///
    /// # Safety
    /// 1. The sheaf is the caller's, out of its slot.
    pub(crate) unsafe fn sheaf_of_word(&self, word: SheafWord) -> Option<OwnSheaf> {
        if word.is_absent() {
            return None;
        }
        let entry = self.area().entry(word);
        let cache = self.pages().pfn_of(entry.as_ptr().cast());
        let cache = cache.and_then(|pfn| self.cache_of_page(pfn))?;
        // SAFETY: obligation 1; the entry, which may be the ceiling, lies in the sheaf's memory,
        // an object of that cache.
        Some(unsafe { OwnSheaf::from_entry(entry, cache.geometry().size()) })
    }

    /// A cache's part on the node of this CPU.
    fn part_here<'a>(&'a self, cache: &'a Cache) -> Part<'a, P> {
        Part::of(self, cache, P::node_of(P::current_cpu()))
    }

    /// An allocation that found the main sheaf empty. `None` means out of memory.
    #[cold]
    #[inline(never)]
    pub fn alloc_slow(&self, cache: &Cache) -> Option<NonNull<u8>> {
        if cache.is_guests::<P>() {
            return P::Engine::alloc(self, cache);
        }
        P::work(Work::Slow);
        let part = self.part_here(cache);
        if cache.sheaf_capacity() == 0 {
            return part.take_one();
        }
        let id = cache.id().index();
        let mut hand = self.exchange(Slot::spare(id), None);
        if let Some(spare) = hand.take() {
            P::touch(Line::Sheaf, spare.address(), Access::Write);
            let mut spare = match spare.room() {
                0 => self.turn_to_allocate(cache, spare),
                _ => spare,
            };
            if let Some(object) = spare.take() {
                spare.note_was_spare();
                self.install_main(cache, spare);
                return Some(object);
            }
            hand = Some(spare);
        }
        let node = part.node;
        match node.barn.trade_for_full::<P>(hand, self.limits(cache)) {
            Ok((mut full, leftover)) => {
                self.note_visit(cache, node, Served::ByBarn);
                self.count_out_of_barns(cache, &full);
                if let Some(empty) = leftover {
                    self.drop_sheaf(cache, empty);
                }
                P::touch(Line::Sheaf, full.address(), Access::Write);
                full.note_new_here();
                let object = full.take();
                self.install_main(cache, full);
                object.or_else(|| part.take_one())
            }
            Err(hand) => {
                self.note_visit(cache, node, Served::Otherwise);
                part.alloc_from_slabs(hand)
            }
        }
    }

    /// A free that found the main sheaf full (or absent, or `object` on top of it).
    ///
    /// # Safety
    /// 1. `object` is of this cache and given up by its owner.
    #[cold]
    #[inline(never)]
    pub unsafe fn free_slow(&self, cache: &Cache, object: NonNull<u8>) {
        if cache.is_guests::<P>() {
            // SAFETY: obligation 1.
            return unsafe { P::Engine::free(self, cache, object) };
        }
        P::work(Work::Slow);
        if cache.sheaf_capacity() == 0 {
            // SAFETY: obligation 1.
            return unsafe { self.put_one(cache, object) };
        }
        let part = self.part_here(cache);
        let id = cache.id().index();
        let spare = self.exchange(Slot::spare(id), None);
        let roomy = match spare {
            Some(empty) if empty.is_empty() => part
                .empty_sheaf(Some(empty))
                .map(|empty| self.turn_to_free(&part, empty, object)),
            Some(mut sheaf) if sheaf.room() > 0 => {
                sheaf.note_was_spare();
                Some(sheaf)
            }
            Some(full) => {
                self.note_visit(cache, part.node, Served::Otherwise);
                part.empty_sheaf(part.store_full(full))
            }
            None => {
                self.note_first(cache);
                part.empty_sheaf(None)
            }
        };
        let Some(mut sheaf) = roomy else {
            // SAFETY: obligation 1.
            return unsafe { self.put_one(cache, object) };
        };
        P::touch(Line::Sheaf, sheaf.address(), Access::Write);
        if sheaf.holds_recent(object) {
            P::fatal(Fault::DoubleFree, object.as_ptr());
        }
        sheaf.put(object);
        let ours = sheaf.address();
        if let Some(old) = self.exchange(Slot::main(id), Some(sheaf)) {
            if old.address() == ours {
                // The step could not be done now (`Platform::exchange`).
                return self.drop_sheaf(cache, old);
            }
            if old.holds_recent(object) {
                P::fatal(Fault::DoubleFree, object.as_ptr());
            }
            self.install_spare(cache, old);
        }
    }

    /// A full spare, and a main sheaf that allocations emptied. If that was the spare before, objects go to and fro: both
    /// become half full, so that the next turn does not come back here. Answers the sheaf to allocate from.
    fn turn_to_allocate(&self, cache: &Cache, mut full: OwnSheaf) -> OwnSheaf {
        match self.exchange(Slot::main(cache.id().index()), None) {
            Some(mut main) if main.is_empty() && main.was_spare() => {
                self.note_turn(cache);
                P::touch(Line::Sheaf, main.address(), Access::Write);
                let half = full.len() / 2;
                full.move_into(&mut main, half);
                if main.is_empty() {
                    core::mem::swap(&mut main, &mut full);
                }
                self.install_spare(cache, full);
                main
            }
            Some(main) => {
                self.install_spare(cache, main);
                full
            }
            None => full,
        }
    }

    /// The same for an empty spare, and a main sheaf that frees filled; one of another size than wanted gives up all, and is
    /// replaced. Answers the sheaf to free to.
    fn turn_to_free(
        &self,
        part: &Part<'_, P>,
        mut empty: OwnSheaf,
        object: NonNull<u8>,
    ) -> OwnSheaf {
        let cache = part.cache;
        empty.note_was_spare();
        let Some(mut main) = self.exchange(Slot::main(cache.id().index()), None) else {
            return empty;
        };
        if main.holds_recent(object) {
            P::fatal(Fault::DoubleFree, object.as_ptr());
        }
        if main.was_spare() {
            self.note_turn(cache);
            P::touch(Line::Sheaf, main.address(), Access::Write);
            let fits = cache.is_of_size(&main, cache.sheaf_capacity());
            let most = if fits { main.len() / 2 } else { main.len() };
            main.move_into(&mut empty, most);
        }
        let spare = match main.is_empty() {
            true => part.empty_sheaf(Some(main)),
            false => Some(main),
        };
        if let Some(spare) = spare {
            self.install_spare(cache, spare);
        }
        empty
    }

    /// The node most of a sheaf's objects came from, judged by three of them. A sheaf that goes
    /// there costs one visit; its objects, one by one, a line of another node each.
    fn home_of(&self, sheaf: &OwnSheaf) -> Option<NodeId> {
        if self.node_count() == 1 {
            return None;
        }
        let last = sheaf.len().checked_sub(1)?;
        let [a, b, c] = [0, last / 2, last].map(|at| {
            let page = self.pages().pfn_of(sheaf.get(at)?.as_ptr())?;
            Some(self.pages().node_of(page))
        });
        if a == b || a == c { a } else { b }
    }

    /// Makes `sheaf` the main one here; what was main becomes spare.
    fn install_main(&self, cache: &Cache, sheaf: OwnSheaf) {
        if let Some(old) = self.exchange(Slot::main(cache.id().index()), Some(sheaf)) {
            self.install_spare(cache, old);
        }
    }

    fn install_spare(&self, cache: &Cache, sheaf: OwnSheaf) {
        if let Some(old) = self.exchange(Slot::spare(cache.id().index()), Some(sheaf)) {
            self.drop_sheaf(cache, old);
        }
    }

    /// Finds a place for a sheaf that no slot of this CPU has room for.
    pub(crate) fn drop_sheaf(&self, cache: &Cache, sheaf: OwnSheaf) {
        let part = self.part_here(cache);
        let rest = if sheaf.is_empty() {
            Some(sheaf)
        } else {
            part.store_full(sheaf)
        };
        let Some(empty) = rest else { return };
        let limits = self.limits(cache);
        let wanted = cache.is_of_size(&empty, cache.sheaf_capacity());
        let rest = match wanted {
            true => part.node.barn.leave_empty::<P>(empty, limits).err(),
            false => Some(empty),
        };
        if let Some(sheaf) = rest {
            self.drop_memory(sheaf);
        }
    }

    /// Gives an empty sheaf's memory back.
    pub fn drop_memory(&self, sheaf: OwnSheaf) {
        debug_assert!(sheaf.is_empty(), "an object would be lost");
        let cache = self.sheaf_cache(sheaf.capacity());
        // SAFETY: the sheaf was made of an object of that cache, and we hold it alone.
        unsafe { self.put_one(cache, sheaf.into_raw().cast()) };
    }
}

impl<P: Engines> Part<'_, P> {
    fn alloc_from_slabs(&self, hand: Option<OwnSheaf>) -> Option<NonNull<u8>> {
        let Self { slabs, cache, .. } = *self;
        slabs.note_refill(cache, self.node);
        let Some(mut sheaf) = self.empty_sheaf(hand) else {
            return self.take_one();
        };
        self.refill(&mut sheaf);
        let object = sheaf.take();
        if object.is_none() {
            slabs.drop_sheaf(cache, sheaf);
            return None;
        }
        slabs.install_main(cache, sheaf);
        object
    }

    /// Stores a sheaf with objects in the barn of the node they came from, or flushes it. Returns
    /// an empty sheaf if there is one to be had from that.
    fn store_full(&self, full: OwnSheaf) -> Option<OwnSheaf> {
        let Self { slabs, cache, .. } = *self;
        let home = slabs.home_of(&full).map(|id| Self::of(slabs, cache, id));
        let home = home.as_ref().unwrap_or(self);
        slabs.count_into_barns(cache, &full);
        match home
            .node
            .barn
            .trade_for_empty::<P>(full, slabs.limits(cache))
        {
            Ok(empty) => empty,
            Err(mut full) => {
                slabs.note_flush(cache, home.node, &full);
                slabs.flush(cache, &mut full);
                if slabs.barns_overflow() {
                    home.flush_one();
                }
                Some(full)
            }
        }
    }

    /// An empty sheaf of the size wanted now: the one in hand, one of the barn, or a new one.
    fn empty_sheaf(&self, hand: Option<OwnSheaf>) -> Option<OwnSheaf> {
        let Self { slabs, cache, .. } = *self;
        let hand = hand.or_else(|| self.node.barn.take_empty::<P>());
        let target = cache.sheaf_capacity();
        let mut sheaf = match hand {
            Some(sheaf) if cache.is_of_size(&sheaf, target) => sheaf,
            Some(other) => match self.new_sheaf(target) {
                Some(sheaf) => {
                    slabs.drop_memory(other);
                    sheaf
                }
                None => other,
            },
            None => self.new_sheaf(target)?,
        };
        sheaf.note_new_here();
        Some(sheaf)
    }

    fn new_sheaf(&self, target: u32) -> Option<OwnSheaf> {
        let Self { slabs, cache, .. } = *self;
        let memory = Part::of(slabs, slabs.sheaf_cache(target), self.id).take_one()?;
        // From the base, so that where the world put the heap does not matter.
        let nth = (memory.addr().get() - slabs.pages().base().addr().get()) / bytes_for(target);
        let capacity = match cache.is_crowded(P::current_cpu()) {
            true => cache.nth_capacity(target, nth),
            false => target,
        };
        // SAFETY: objects of that cache are large enough and aligned to their size.
        Some(unsafe { OwnSheaf::create(memory, capacity) })
    }
}
