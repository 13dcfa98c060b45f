//! Names of kmalloc's caches. The event tells sizes and flags, not the cache.
//!
//! /proc/slabinfo calls them `kmalloc-96`, `kmalloc-1k`, and by the flags `dma-kmalloc-`, `kmalloc-rcl-`
//! (reclaimable), `kmalloc-cg-` (accounted to a control group). A kernel without control groups has no
//! accounted ones: where the list of its caches is known, the name is looked up there.

/// Flags of a request, as the kernel's binary events have them.
const DMA: u64 = 0x1;
const RECLAIMABLE: u64 = 0x10;
const ACCOUNT: u64 = 0x40_0000;

/// The largest object of a cache; larger requests are whole pages.
pub const LARGEST: u64 = 8 << 10;

/// Those three flags as bits.
pub fn flags(dma: bool, reclaimable: bool, accounted: bool) -> u64 {
    u64::from(dma) * DMA + u64::from(reclaimable) * RECLAIMABLE + u64::from(accounted) * ACCOUNT
}

/// Sizes that have caches, and the ends of their names.
const SIZES: [(u64, [&str; 4]); 13] = [
    (
        8,
        [
            "kmalloc-8",
            "dma-kmalloc-8",
            "kmalloc-rcl-8",
            "kmalloc-cg-8",
        ],
    ),
    (
        16,
        [
            "kmalloc-16",
            "dma-kmalloc-16",
            "kmalloc-rcl-16",
            "kmalloc-cg-16",
        ],
    ),
    (
        32,
        [
            "kmalloc-32",
            "dma-kmalloc-32",
            "kmalloc-rcl-32",
            "kmalloc-cg-32",
        ],
    ),
    (
        64,
        [
            "kmalloc-64",
            "dma-kmalloc-64",
            "kmalloc-rcl-64",
            "kmalloc-cg-64",
        ],
    ),
    (
        96,
        [
            "kmalloc-96",
            "dma-kmalloc-96",
            "kmalloc-rcl-96",
            "kmalloc-cg-96",
        ],
    ),
    (
        128,
        [
            "kmalloc-128",
            "dma-kmalloc-128",
            "kmalloc-rcl-128",
            "kmalloc-cg-128",
        ],
    ),
    (
        192,
        [
            "kmalloc-192",
            "dma-kmalloc-192",
            "kmalloc-rcl-192",
            "kmalloc-cg-192",
        ],
    ),
    (
        256,
        [
            "kmalloc-256",
            "dma-kmalloc-256",
            "kmalloc-rcl-256",
            "kmalloc-cg-256",
        ],
    ),
    (
        512,
        [
            "kmalloc-512",
            "dma-kmalloc-512",
            "kmalloc-rcl-512",
            "kmalloc-cg-512",
        ],
    ),
    (
        1024,
        [
            "kmalloc-1k",
            "dma-kmalloc-1k",
            "kmalloc-rcl-1k",
            "kmalloc-cg-1k",
        ],
    ),
    (
        2048,
        [
            "kmalloc-2k",
            "dma-kmalloc-2k",
            "kmalloc-rcl-2k",
            "kmalloc-cg-2k",
        ],
    ),
    (
        4096,
        [
            "kmalloc-4k",
            "dma-kmalloc-4k",
            "kmalloc-rcl-4k",
            "kmalloc-cg-4k",
        ],
    ),
    (
        LARGEST,
        [
            "kmalloc-8k",
            "dma-kmalloc-8k",
            "kmalloc-rcl-8k",
            "kmalloc-cg-8k",
        ],
    ),
];

/// The cache that serves a request of `given` bytes with these flags; `None` for a size of whole pages.
pub fn name(given: u64, flags: u64) -> Option<&'static str> {
    let (_, names) = SIZES.iter().find(|(size, _)| *size == given)?;
    Some(match flags {
        flags if flags & DMA != 0 => names[1],
        flags if flags & RECLAIMABLE != 0 => names[2],
        flags if flags & ACCOUNT != 0 => names[3],
        _ => names[0],
    })
}

/// The same cache without accounting, for kernels that have no accounted ones.
pub fn plain(name: &str) -> Option<String> {
    Some(format!("kmalloc-{}", name.strip_prefix("kmalloc-cg-")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_choose_the_cache() {
        assert_eq!(name(96, 0), Some("kmalloc-96"));
        assert_eq!(name(1024, ACCOUNT), Some("kmalloc-cg-1k"));
        assert_eq!(name(96, ACCOUNT | RECLAIMABLE), Some("kmalloc-rcl-96"));
        assert_eq!(name(64, DMA), Some("dma-kmalloc-64"));
        assert_eq!(name(16384, 0), None);
        assert_eq!(plain("kmalloc-cg-1k").as_deref(), Some("kmalloc-1k"));
        assert_eq!(plain("dentry"), None);
    }
}
