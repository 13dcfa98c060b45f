//! Figures and knobs of the heap by name: what C, Rust and a watching process share.
//!
//! ```text
//!   cache.<name>.object_size  size  align  order  objs_per_slab  sheaf_capacity     read
//!   cache.<name>.min_partial                                                        read, write
//!   cache.<name>.shrink                                                             write 1
//!   cpus  caches  page_size  rseq                                                   read
//!   trim                                                      write: bytes to keep
//! ```
//!
//! The last part of a cache's knobs has the kernel's name (`/sys/kernel/slab/<cache>/`). A cache's name may
//! hold dots. Of caches that share a name the first is meant.

use crate::Linux;
use crate::blocks;
use crate::init::static_heap;
use flagstone_core::heap::Ready;
use flagstone_core::platform::Platform;
use flagstone_core::slab::Cache;
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
}

/// Most empty slabs a node may be told to keep of a cache, as in the kernel's own file.
const MIN_PARTIAL_MAX: u64 = 1 << 16;

fn cache_knob<'a>(ready: &'a Ready<Linux>, name: &'a [u8]) -> Option<(&'a Cache, &'a [u8])> {
    let rest = name.strip_prefix(b"cache.")?;
    let dot = rest.iter().rposition(|&byte| byte == b'.')?;
    let (cache, knob) = (&rest[..dot], &rest[dot + 1..]);
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
    match name {
        b"cpus" => return Ok(u64::from(Linux::cpu_count())),
        b"caches" => return Ok(ready.slabs().live_caches().count() as u64),
        b"page_size" => return Ok(Linux::page_size().bytes() as u64),
        b"rseq" => return Ok(u64::from(slots::fast())),
        b"trim" => return Err(Refusal::ReadOnly),
        _ => {}
    }
    let (cache, knob) = cache_knob(ready, name).ok_or(Refusal::Unknown)?;
    let geometry = cache.geometry();
    match knob {
        b"object_size" => Ok(cache.object_size() as u64),
        b"size" => Ok(geometry.size() as u64),
        b"align" => Ok(cache.align() as u64),
        b"order" => geometry
            .order()
            .map(|order| u64::from(order.get()))
            .ok_or(Refusal::Unknown),
        b"objs_per_slab" => Ok(u64::from(geometry.objects())),
        b"sheaf_capacity" => Ok(u64::from(cache.sheaf_capacity())),
        b"min_partial" => Ok(u64::from(cache.min_partial())),
        b"shrink" => Err(Refusal::ReadOnly),
        _ => Err(Refusal::Unknown),
    }
}

/// Sets a knob; it holds from the next slow path on.
///
/// # Errors
/// See [`Refusal`].
pub fn set(name: &[u8], value: u64) -> Result<(), Refusal> {
    let ready = static_heap().ready_if_built().ok_or(Refusal::Unknown)?;
    if name == b"trim" {
        blocks::trim(usize::try_from(value).unwrap_or(usize::MAX));
        return Ok(());
    }
    if let Some((cache, knob)) = cache_knob(ready, name) {
        match knob {
            b"min_partial" if value <= MIN_PARTIAL_MAX => {
                cache.set_min_partial(value as u32);
                return Ok(());
            }
            b"shrink" if value == 1 => {
                ready.slabs().shrink_cache(cache);
                return Ok(());
            }
            b"min_partial" | b"shrink" => return Err(Refusal::Value),
            _ => {}
        }
    }
    get(name).and(Err(Refusal::ReadOnly))
}
