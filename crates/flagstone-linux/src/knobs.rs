//! The knobs of a heap by name: the one table that C, Rust, a running process and the command share.
//!
//! ```text
//!   cache.<name>.object_size  size  align  order  objs_per_slab                     read
//!   cache.<name>.min_partial  sheaf_capacity                                        read, set
//!   cache.<name>.shrink                                                             set
//!   cpus  caches  page_size  rseq                                                   read
//!   profile  limit  pressure  retain_bytes_min  retain_share  allowance             read, set
//!   trim                                                                            set
//! ```
//!
//! The last part of a cache's knobs has the kernel's name (`/sys/kernel/slab/<cache>/`). A cache's name may
//! hold dots. Of caches that share a name the first is meant.

use core::sync::atomic::Ordering::Relaxed;
use flagstone_core::page::Budget;
use flagstone_core::slab::Cache;

/// A knob, or a figure that is only read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Knob {
    /// Its name; of a cache's knob the last part.
    pub name: &'static str,
    /// Whether it can be read.
    pub is_read: bool,
    /// What it may be set to, in words; `None` for what is only read.
    pub set_to: Option<&'static str>,
}

const fn read(name: &'static str) -> Knob {
    Knob {
        name,
        is_read: true,
        set_to: None,
    }
}

const fn both(name: &'static str, to: &'static str) -> Knob {
    Knob {
        name,
        is_read: true,
        set_to: Some(to),
    }
}

const fn set(name: &'static str, to: &'static str) -> Knob {
    Knob {
        name,
        is_read: false,
        set_to: Some(to),
    }
}

/// Those of the heap.
pub const OF_HEAP: [Knob; 11] = [
    read("cpus"),
    read("caches"),
    read("page_size"),
    read("rseq"),
    both("profile", "off, or 4K to 1T bytes between samples"),
    both(
        "limit",
        "off, or 1M and more bytes, which the heap may hold",
    ),
    both("pressure", "off or on: give back where memory is short"),
    both("retain_bytes_min", "0 to 1T bytes that may always be free"),
    both(
        "retain_share",
        "0 to 1024: one part in so many of the bytes in use may be free; 0: none",
    ),
    both(
        "allowance",
        "1 to 100 per cent of time that giving back may cost",
    ),
    set("trim", "bytes of free pages that stay"),
];

/// Those of each cache.
pub const OF_CACHE: [Knob; 8] = [
    read("object_size"),
    read("size"),
    read("align"),
    read("order"),
    read("objs_per_slab"),
    both(
        "sheaf_capacity",
        "1 to 253 objects, for a cache that has sheaves",
    ),
    both("min_partial", "0 to 65536"),
    set("shrink", "1"),
];

/// Most empty slabs a node may be told to keep of a cache, as in the kernel's own file.
pub const MIN_PARTIAL_MAX: u64 = 1 << 16;

/// Most objects in a sheaf that a cache may be told to make: what fits into the largest memory of one.
pub const SHEAF_MAX: u64 = 253;

/// Finest part of the bytes in use that may be told to stay free, and what the share is counted in.
pub const SHARE_PARTS: u64 = 1024;

/// A heap's value of a knob over its free memory.
#[must_use]
pub fn of_budget(budget: &Budget, knob: &[u8]) -> Option<u64> {
    Some(match knob {
        b"retain_bytes_min" => budget.min.load(Relaxed) as u64,
        b"retain_share" => {
            let share = budget.share.load(Relaxed) as u64;
            SHARE_PARTS.checked_div(share).unwrap_or(0)
        }
        b"allowance" => budget.pages.percent.load(Relaxed),
        _ => return None,
    })
}

/// Sets one of them; `false` for no such knob, or a value out of its range.
#[must_use]
pub fn set_budget(budget: &Budget, knob: &[u8], value: u64) -> bool {
    match knob {
        b"retain_bytes_min" if value <= RETAIN_MAX => budget.min.store(value as usize, Relaxed),
        b"retain_share" if value <= SHARE_PARTS => {
            let share = SHARE_PARTS.checked_div(value).unwrap_or(0);
            budget.share.store(share as usize, Relaxed);
        }
        b"allowance" if (1..=100).contains(&value) => {
            for allowance in [&budget.pages, &budget.all, &budget.sweeps] {
                allowance.percent.store(value, Relaxed);
            }
        }
        _ => return false,
    }
    true
}

/// Most bytes that a heap may be told to keep free.
pub const RETAIN_MAX: u64 = 1 << 40;

/// The cache and its knob in `cache.<name>.<knob>`.
#[must_use]
pub fn cache_and_knob(name: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = name.strip_prefix(b"cache.")?;
    let dot = rest.iter().rposition(|&byte| byte == b'.')?;
    Some((&rest[..dot], &rest[dot + 1..]))
}

/// The knob of that name, among the heap's or a cache's.
#[must_use]
pub fn known(name: &[u8]) -> Option<&'static Knob> {
    let (all, last): (&'static [Knob], _) = match cache_and_knob(name) {
        Some((_, knob)) => (&OF_CACHE, knob),
        None => (&OF_HEAP, name),
    };
    all.iter().find(|knob| knob.name.as_bytes() == last)
}

/// A cache's value of a knob that can be read.
#[must_use]
pub fn of_cache(cache: &Cache, knob: &[u8]) -> Option<u64> {
    let geometry = cache.geometry();
    Some(match knob {
        b"object_size" => cache.object_size() as u64,
        b"size" => geometry.size() as u64,
        b"align" => cache.align() as u64,
        b"order" => u64::from(geometry.order()?.get()),
        b"objs_per_slab" => u64::from(geometry.objects()),
        b"sheaf_capacity" => u64::from(cache.sheaf_capacity()),
        b"min_partial" => u64::from(cache.min_partial()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caches_name_may_hold_dots_and_a_knob_is_known_by_its_last_part() {
        let name = b"cache.http.request.min_partial";
        assert_eq!(
            cache_and_knob(name),
            Some((&b"http.request"[..], &b"min_partial"[..]))
        );
        assert_eq!(known(name).and_then(|knob| knob.set_to), Some("0 to 65536"));
        assert!(known(b"cpus").is_some_and(|knob| knob.set_to.is_none()));
        for unknown in [&b"cache.x.cpus"[..], b"min_partial", b"cache.x", b""] {
            assert!(known(unknown).is_none());
        }
    }
}
