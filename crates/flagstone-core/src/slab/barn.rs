//! A barn: full and empty sheaves of one cache that the CPUs of a node share.
//!
//! ```text
//!   CPUs ──full──►  [ full sheaves  ]  ──full──►  CPUs      both lists last in, first out,
//!   CPUs ──empty─►  [ empty sheaves ]  ──empty─►  CPUs      under one short lock
//! ```
//!
//! Limits are the policy's: a number of full and of empty sheaves (10 and 10 in Linux 7.0, docs:
//! linux-policies 5.1), for the default policy also bytes. The caller decides what to do with
//! what does not fit.
//!
//! Invariants
//! - `barn.counted`: the two counts are the lengths of the two lists, and `objects` what the full
//!   sheaves hold.
//!
//! Locking: the barn's own lock (`LockKind::Barn`); counts may be read without it.

use super::sheaf::OwnSheaf;
use crate::platform::{Access, Line, Lock, LockKind, Platform, Reentered, SheafHeader};
use crate::sync::{AtomicBool, AtomicU32, Ordering::Relaxed};
use core::ptr::NonNull;

/// A list of sheaves through their links.
#[derive(Debug, Default)]
struct Stack {
    head: Option<NonNull<SheafHeader>>,
}

impl Stack {
    fn push(&mut self, sheaf: OwnSheaf) {
        let next = self.head.map_or(0, |n| n.as_ptr() as usize);
        sheaf.header().link.store(next, Relaxed);
        self.head = Some(sheaf.into_raw());
    }

    fn pop(&mut self) -> Option<OwnSheaf> {
        let head = self.head?;
        // SAFETY: sheaves on the list are held by the barn alone (`slot.one-home`).
        let sheaf = unsafe { OwnSheaf::from_raw(head) };
        self.head = NonNull::new(sheaf.header().link.swap(0, Relaxed) as *mut SheafHeader);
        Some(sheaf)
    }
}

#[derive(Debug, Default)]
struct Lists {
    full: Stack,
    empty: Stack,
}

// SAFETY: the lists own their sheaves; the lock around them gives exclusive use.
unsafe impl Send for Lists {}

/// What a barn may keep.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Full sheaves.
    pub full: u32,
    /// Objects in them.
    pub objects: u32,
    /// Empty sheaves.
    pub empty: u32,
}

/// The full and empty sheaves of one cache on one node.
#[derive(Debug)]
#[repr(align(64))]
pub struct Barn {
    lists: Lock<Lists>,
    full: AtomicU32,
    /// Objects in full sheaves.
    objects: AtomicU32,
    empty: AtomicU32,
    /// Whether a sheaf was traded since [`Barn::was_used`] asked.
    used: AtomicBool,
    /// Visits that found the lock held, since [`Barn::take_waits`] asked. Racy on purpose.
    waits: AtomicU32,
}

impl Barn {
    /// An empty barn.
    #[must_use]
    pub fn new() -> Self {
        Self {
            lists: Lock::new(LockKind::Barn, Lists::default()),
            full: AtomicU32::new(0),
            objects: AtomicU32::new(0),
            empty: AtomicU32::new(0),
            used: AtomicBool::new(false),
            waits: AtomicU32::new(0),
        }
    }

    /// Visits that had to wait since the last call.
    pub(crate) fn take_waits(&self) -> u32 {
        self.waits.swap(0, Relaxed)
    }

    /// Whether a full sheaf was taken since the last call.
    pub(crate) fn was_used(&self) -> bool {
        self.used.swap(false, Relaxed)
    }

    /// Full sheaves kept (may be stale at once).
    #[must_use]
    pub fn full(&self) -> u32 {
        self.full.load(Relaxed)
    }

    /// Empty sheaves kept (may be stale at once).
    #[must_use]
    pub fn empty(&self) -> u32 {
        self.empty.load(Relaxed)
    }

    /// The lock, for fork handling and reports.
    #[must_use]
    pub fn raw_lock(&self) -> &crate::platform::RawLock {
        self.lists.raw()
    }

    /// Objects in full sheaves (may be stale at once).
    #[must_use]
    pub fn stored(&self) -> u32 {
        self.objects.load(Relaxed)
    }

    fn has_room(&self, len: u32, limits: Limits) -> bool {
        self.full() < limits.full && self.stored().saturating_add(len) <= limits.objects
    }

    /// Under the lock.
    fn count_full(&self, full: u32, objects: u32) {
        self.full.store(full, Relaxed);
        self.objects.store(objects, Relaxed);
    }

    fn address(&self) -> *const u8 {
        core::ptr::from_ref(self).cast()
    }

    fn enter<P: Platform, T>(&self, body: impl FnOnce(&mut Lists) -> T) -> Result<T, Reentered> {
        let mut lists = match self.lists.try_lock::<P>() {
            Some(lists) => lists,
            None => {
                self.waits.store(self.waits.load(Relaxed) + 1, Relaxed);
                self.lists.lock::<P>()?
            }
        };
        P::touch(Line::Barn, self.address(), Access::Write);
        Ok(body(&mut lists))
    }

    /// Trades an empty sheaf, if the caller has one, for a full one. `Err` hands the empty
    /// sheaf back: there is no full one.
    ///
    /// # Errors
    /// The caller's own sheaf.
    pub fn trade_for_full<P: Platform>(
        &self,
        empty: Option<OwnSheaf>,
        limits: Limits,
    ) -> Result<(OwnSheaf, Option<OwnSheaf>), Option<OwnSheaf>> {
        if self.full() == 0 {
            return Err(empty);
        }
        let mut empty = empty;
        let traded = self.enter::<P, _>(|lists| {
            let full = lists.full.pop()?;
            self.used.store(true, Relaxed);
            self.count_full(self.full() - 1, self.stored().wrapping_sub(full.len()));
            self.push_empty(lists, limits, &mut empty);
            Some(full)
        });
        match traded {
            Ok(Some(full)) => Ok((full, empty)),
            Ok(None) | Err(Reentered) => Err(empty),
        }
    }

    /// Leaves a full sheaf, if there is room, and takes an empty one, if there is any.
    ///
    /// # Errors
    /// The caller's sheaf: the barn has no room for it.
    pub fn trade_for_empty<P: Platform>(
        &self,
        full: OwnSheaf,
        limits: Limits,
    ) -> Result<Option<OwnSheaf>, OwnSheaf> {
        self.leave::<P, _>(full, limits, |lists| self.pop_empty(lists))
    }

    /// Leaves a full sheaf, if there is room.
    ///
    /// # Errors
    /// As for [`Barn::trade_for_empty`].
    pub fn leave_full<P: Platform>(&self, full: OwnSheaf, limits: Limits) -> Result<(), OwnSheaf> {
        self.leave::<P, _>(full, limits, |_| ())
    }

    /// Leaves a full sheaf, and does `then` under the same lock.
    fn leave<P: Platform, T: Default>(
        &self,
        full: OwnSheaf,
        limits: Limits,
        then: impl FnOnce(&mut Lists) -> T,
    ) -> Result<T, OwnSheaf> {
        let len = full.len();
        if !self.has_room(len, limits) {
            return Err(full);
        }
        let mut hand = Some(full);
        let left = self.enter::<P, _>(|lists| {
            let full = hand.take_if(|_| self.has_room(len, limits))?;
            lists.full.push(full);
            self.count_full(self.full() + 1, self.stored().wrapping_add(len));
            Some(then(lists))
        });
        let got = left.ok().flatten().unwrap_or_default();
        hand.map_or(Ok(got), Err)
    }

    /// Takes an empty sheaf, if there is any.
    pub fn take_empty<P: Platform>(&self) -> Option<OwnSheaf> {
        if self.empty() == 0 {
            return None;
        }
        let popped = self.enter::<P, _>(|lists| self.pop_empty(lists));
        popped.ok().flatten()
    }

    fn pop_empty(&self, lists: &mut Lists) -> Option<OwnSheaf> {
        let sheaf = lists.empty.pop()?;
        self.empty.store(self.empty() - 1, Relaxed);
        Some(sheaf)
    }

    /// Takes a full sheaf, if there is any: for shrinking.
    pub fn take_full<P: Platform>(&self) -> Option<OwnSheaf> {
        let no_empty = Limits {
            full: 0,
            objects: 0,
            empty: 0,
        };
        self.trade_for_full::<P>(None, no_empty)
            .ok()
            .map(|(full, _)| full)
    }

    /// Leaves an empty sheaf.
    ///
    /// # Errors
    /// The caller's sheaf: the barn has no room for it.
    pub fn leave_empty<P: Platform>(
        &self,
        sheaf: OwnSheaf,
        limits: Limits,
    ) -> Result<(), OwnSheaf> {
        if self.empty() >= limits.empty {
            return Err(sheaf);
        }
        let mut sheaf = Some(sheaf);
        let _entered = self.enter::<P, _>(|lists| self.push_empty(lists, limits, &mut sheaf));
        sheaf.map_or(Ok(()), Err)
    }

    /// Takes the empty sheaf, if one more may stay.
    fn push_empty(&self, lists: &mut Lists, limits: Limits, sheaf: &mut Option<OwnSheaf>) {
        if let Some(sheaf) = sheaf.take_if(|_| self.empty() < limits.empty) {
            lists.empty.push(sheaf);
            self.empty.store(self.empty() + 1, Relaxed);
        }
    }

    /// Visits every sheaf under the lock, saying whether it is on the list of full ones.
    pub(crate) fn each<P: Platform>(&self, visit: &mut dyn FnMut(NonNull<SheafHeader>, bool)) {
        let _entered = self.enter::<P, _>(|lists| {
            for (stack, is_full) in [(&lists.full, true), (&lists.empty, false)] {
                let mut next = stack.head;
                while let Some(sheaf) = next {
                    visit(sheaf, is_full);
                    // SAFETY: sheaves on the list are live and the lock keeps them there.
                    let link = unsafe { sheaf.as_ref() }.link.load(Relaxed);
                    next = NonNull::new(link as *mut SheafHeader);
                }
            }
        });
    }

    /// Visits every object in full sheaves, under the lock: for the ledger. Nothing is visited on
    /// top of the lock's holder. The count ends the walk over a copy that was torn.
    pub fn each_object<P: Platform>(&self, visit: &mut dyn FnMut(NonNull<u8>)) {
        let _entered = self.enter::<P, _>(|lists| {
            let mut next = lists.full.head;
            for _ in 0..self.full() {
                let Some(raw) = next else { break };
                // SAFETY: sheaves on the list are live, and the lock keeps them there.
                let sheaf = unsafe { OwnSheaf::from_raw(raw) };
                (0..sheaf.len())
                    .filter_map(|i| sheaf.get(i))
                    .for_each(&mut *visit);
                next = NonNull::new(sheaf.header().link.load(Relaxed) as *mut SheafHeader);
            }
        });
    }

    /// Objects in all full sheaves: a walk under the lock.
    pub fn objects<P: Platform>(&self) -> u64 {
        let mut objects = 0;
        self.each_object::<P>(&mut |_| objects += 1);
        objects
    }
}

impl Default for Barn {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(loom)]
impl Barn {
    /// Has loom follow the lock and the counts.
    pub fn follow(&self, lock: crate::sync::followed::Mistake) {
        self.raw_lock().follow(lock);
        let counts = [&self.full, &self.objects, &self.empty];
        counts.into_iter().for_each(AtomicU32::follow);
    }
}

#[cfg(all(test, loom))]
#[path = "barn_loom.rs"]
mod tests;
