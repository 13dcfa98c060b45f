//! Deferred frees in sheaves: `kfree_rcu` of objects of this CPU's node.
//!
//! ```text
//!   kfree_rcu ─► the CPU's rcu sheaf ─ full ─► grace period ─► barn, if it has fewer than ten
//!                                                          └─► slabs; the sheaf stays, empty
//! ```
//!
//! Source: docs: linux-policies 5.5. Whoever calls waits for the grace period: the kernels' RCU is not
//! here.

use super::spare_of;
use crate::host::{Host, Kernels};
use core::ptr::NonNull;
use flagstone_core::platform::{Access, Line, Work};
use flagstone_core::slab::{Cache, Engines, OwnSheaf, Slabs};

/// What became of a deferred free.
#[derive(Debug)]
pub enum Deferral {
    /// The object is in the CPU's sheaf, which has room left.
    Kept,
    /// So is this one, and the sheaf is full: the caller's until a grace period has passed, then for
    /// [`after_grace`] on a CPU of the same node.
    Full(OwnSheaf),
    /// The cache has no sheaves, the object is of another node, or no sheaf is to be had: still the
    /// caller's, to be freed by itself.
    Refused,
}

/// Puts an object aside whose readers may still look at it.
///
/// # Safety
/// 1. `object` is of this cache, and its owner gave it up but for readers of before.
pub unsafe fn free_rcu<P: Engines<Engine = Kernels>>(
    slabs: &Slabs<P>,
    cache: &Cache,
    object: NonNull<u8>,
) -> Deferral {
    if !cache.is_guests::<P>() || cache.sheaf_capacity() == 0 {
        return Deferral::Refused;
    }
    // SAFETY: obligation 1.
    unsafe { Host(slabs).keep_for_rcu(cache, object) }
}

/// Takes a full sheaf back whose grace period is over.
pub fn after_grace<P: Engines<Engine = Kernels>>(slabs: &Slabs<P>, cache: &Cache, sheaf: OwnSheaf) {
    P::work(Work::Slow);
    P::touch(Line::Sheaf, sheaf.address(), Access::Write);
    let host = Host(slabs);
    let barn = &host.node_here(cache).barn;
    if let Err(full) = barn.leave_full::<P>(sheaf, host.barn_limits()) {
        host.store(cache, full);
    }
}

impl<P: Engines> Host<'_, P> {
    /// # Safety
    /// 1. As for [`free_rcu`].
    unsafe fn keep_for_rcu(&self, cache: &Cache, object: NonNull<u8>) -> Deferral {
        P::work(Work::FastFree);
        // SAFETY: obligation 1.
        if !unsafe { self.may_be_kept(cache, object) } {
            return Deferral::Refused;
        }
        let cpu = self.cpu_slab_here(cache);
        let kept = match cpu.enter_fast::<P>() {
            Ok(_section) => cpu.take_rcu(),
            Err(_) => return Deferral::Refused,
        };
        let Some(mut sheaf) = kept.or_else(|| self.sheaf_for_rcu(cache)) else {
            return Deferral::Refused;
        };
        P::touch(Line::Sheaf, sheaf.address(), Access::Write);
        sheaf.put(object);
        if sheaf.room() == 0 {
            return Deferral::Full(sheaf);
        }
        let cpu = self.cpu_slab_here(cache);
        match cpu.enter_fast::<P>() {
            Ok(_section) if !cpu.has_rcu() => {
                cpu.set_rcu(sheaf);
                Deferral::Kept
            }
            // Another thread on this CPU began one meanwhile: this one goes as it is.
            _ => Deferral::Full(sheaf),
        }
    }

    /// An empty spare sheaf, one of the barn, or a new one.
    fn sheaf_for_rcu(&self, cache: &Cache) -> Option<OwnSheaf> {
        let spare = self.take_slot(cache, spare_of(cache));
        match spare {
            Some(empty) if empty.is_empty() => return Some(empty),
            Some(other) => self.install_spare(cache, other),
            None => {}
        }
        self.empty_sheaf(cache)
    }
}
