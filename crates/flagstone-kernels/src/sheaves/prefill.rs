//! Sheaves with objects for a caller that must not fail later: the maple tree's preallocation.
//!
//! ```text
//!   prefill(n)   spare ─► barn's full ─► barn's empty ─► new; filled if it has fewer than n
//!   give back    spare, if there is none ─► filled, into the barn ─► slabs
//! ```
//!
//! More objects than a sheaf holds come in one of their own size, which nobody keeps (docs:
//! linux-policies 5.5).

use super::spare_of;
use crate::host::{Host, Kernels};
use core::ptr::NonNull;
use flagstone_core::platform::{Access, Line, Work};
use flagstone_core::slab::{Cache, Engines, OwnSheaf, SHEAF_BYTES_MAX, Slabs, bytes_for};

/// A sheaf in a caller's hands, with at least the objects it asked for.
#[derive(Debug)]
pub struct Prefilled(OwnSheaf);

impl Prefilled {
    /// Takes an object; `None` when more were taken than asked for.
    #[must_use]
    pub fn take<P: Engines<Engine = Kernels>>(&mut self) -> Option<NonNull<u8>> {
        P::work(Work::Fast);
        P::touch(Line::Sheaf, self.0.address(), Access::Write);
        self.0.take()
    }

    /// Objects left.
    #[must_use]
    pub fn objects(&self) -> u32 {
        self.0.len()
    }
}

/// A sheaf with at least `count` objects of a cache; `None` if memory ran out, the cache has no
/// sheaves, or no sheaf is so large.
#[must_use]
pub fn prefill<P: Engines<Engine = Kernels>>(
    slabs: &Slabs<P>,
    cache: &Cache,
    count: u32,
) -> Option<Prefilled> {
    if !cache.is_guests::<P>() || cache.sheaf_capacity() == 0 {
        return None;
    }
    P::work(Work::Slow);
    let host = Host(slabs);
    let mut sheaf = host.sheaf_for_prefill(cache, count)?;
    P::touch(Line::Sheaf, sheaf.address(), Access::Write);
    if sheaf.len() < count && !host.fill(cache, &mut sheaf) {
        host.flush_sheaf(cache, &mut sheaf, u32::MAX);
        host.drop_memory(sheaf);
        return None;
    }
    Some(Prefilled(sheaf))
}

/// Takes a prefilled sheaf back with what is left in it.
pub fn give_back<P: Engines<Engine = Kernels>>(
    slabs: &Slabs<P>,
    cache: &Cache,
    prefilled: Prefilled,
) {
    P::work(Work::Slow);
    let host = Host(slabs);
    let mut sheaf = prefilled.0;
    if sheaf.capacity() == cache.sheaf_capacity() {
        match host.take_slot(cache, spare_of(cache)) {
            None => return host.install_spare(cache, sheaf),
            Some(spare) => host.install_spare(cache, spare),
        }
        let barn = &host.node_here(cache).barn;
        if barn.full() < host.barn_limits().full && host.fill(cache, &mut sheaf) {
            match barn.leave_full::<P>(sheaf, host.barn_limits()) {
                Ok(()) => return,
                Err(full) => sheaf = full,
            }
        }
    }
    host.flush_sheaf(cache, &mut sheaf, u32::MAX);
    host.drop_memory(sheaf);
}

impl<P: Engines> Host<'_, P> {
    fn sheaf_for_prefill(&self, cache: &Cache, count: u32) -> Option<OwnSheaf> {
        if count > cache.sheaf_capacity() {
            let fits = bytes_for(count) <= SHEAF_BYTES_MAX;
            return fits.then(|| self.new_sheaf_of(count)).flatten();
        }
        let spare = self.take_slot(cache, spare_of(cache));
        spare
            .or_else(|| self.node_here(cache).barn.take_full::<P>())
            .or_else(|| self.empty_sheaf(cache))
    }
}
