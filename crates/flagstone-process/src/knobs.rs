//! Figures and knobs of this process's heap by name (`flagstone_linux::knobs`), read and set.

use crate::Linux;
use crate::blocks;
use crate::init::static_heap;
use crate::{limit, pressure, profile};
use flagstone_core::heap::Ready;
use flagstone_core::platform::Platform;
use flagstone_core::slab::Cache;
use flagstone_linux::knobs::{self, MIN_PARTIAL_MAX, SHEAF_MAX};
use flagstone_linux::slots;

/// Why a knob is not read or set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// There is no such knob, or no such cache.
    Unknown,
    /// It can only be read, or only be set.
    ReadOnly,
    /// The value is out of its range.
    Value,
    /// There is no memory for what it takes.
    NoMemory,
}

fn cache_knob<'a>(ready: &'a Ready<Linux>, name: &'a [u8]) -> Option<(&'a Cache, &'a [u8])> {
    let (cache, knob) = knobs::cache_and_knob(name)?;
    let mut caches = ready.slabs().live_caches();
    let cache = caches.find(|other| other.name().as_bytes() == cache)?;
    Some((cache, knob))
}

/// The value of a knob.
///
/// # Errors
/// See [`Refusal`].
pub fn get(name: &[u8]) -> Result<u64, Refusal> {
    let ready = static_heap().ready_if_built().ok_or(Refusal::Unknown)?;
    let knob = knobs::known(name).ok_or(Refusal::Unknown)?;
    if let Some((cache, last)) = cache_knob(ready, name) {
        let refusal = match knob.is_read {
            true => Refusal::Unknown,
            false => Refusal::ReadOnly,
        };
        return knobs::of_cache(cache, last).ok_or(refusal);
    }
    Ok(match name {
        b"cpus" => u64::from(Linux::cpu_count()),
        b"caches" => ready.slabs().live_caches().count() as u64,
        b"page_size" => Linux::page_size().bytes() as u64,
        b"rseq" => u64::from(slots::fast()),
        b"profile" => profile::current(),
        b"limit" => limit::get(),
        b"pressure" => u64::from(pressure::is_on()),
        b"trim" => return Err(Refusal::ReadOnly),
        _ => return knobs::of_budget(ready.slabs().pages().budget(), name).ok_or(Refusal::Unknown),
    })
}

/// Sets a knob; it holds from the next slow path on.
///
/// # Errors
/// See [`Refusal`].
pub fn set(name: &[u8], value: u64) -> Result<(), Refusal> {
    let ready = static_heap().ready_if_built().ok_or(Refusal::Unknown)?;
    let knob = knobs::known(name).ok_or(Refusal::Unknown)?;
    if let Some((cache, last)) = cache_knob(ready, name) {
        match last {
            b"min_partial" if value <= MIN_PARTIAL_MAX => cache.set_min_partial(value as u32),
            b"sheaf_capacity" if cache.sheaf_capacity() > 0 && (1..=SHEAF_MAX).contains(&value) => {
                cache.set_sheaf_capacity(value as u32);
                // Those that are there give way.
                ready.slabs().shrink_cache(cache);
            }
            b"shrink" if value == 1 => ready.slabs().shrink_cache(cache),
            _ if knob.set_to.is_some() => return Err(Refusal::Value),
            _ => return Err(Refusal::ReadOnly),
        }
        return Ok(());
    }
    match name {
        b"trim" => {
            blocks::trim(usize::try_from(value).unwrap_or(usize::MAX));
        }
        b"profile" if value == 0 || (profile::MEAN_MIN..=profile::MEAN_MAX).contains(&value) => {
            profile::ask(value, 0).map_err(|profile::NoTables| Refusal::NoMemory)?;
        }
        b"limit" if limit::set(value) => {}
        _ if knobs::set_budget(ready.slabs().pages().budget(), name, value) => {}
        b"pressure" if value == 0 => pressure::end(),
        b"pressure" if value == 1 && pressure::begin() => {}
        _ if !name.starts_with(b"cache.") && knob.set_to.is_some() => return Err(Refusal::Value),
        _ => return get(name).and(Err(Refusal::ReadOnly)),
    }
    Ok(())
}
