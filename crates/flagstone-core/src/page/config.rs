//! What the page layer is told when it is built.
#![forbid(unsafe_code)]

use crate::policy::Policy;

/// How much free memory stays resident, ready to be used again.
///
/// ```text
///   bound = max(min_bytes, in_use × share / 1024)     free pages, barns, kept huge blocks
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retention {
    /// Free memory that may always stay resident, in bytes. Why 10 MiB: a program that frees all it has
    /// then ends within 12 MiB of its start, with pagesets and sheaves. Doubling halves the faults of
    /// programs that swing by ten to twenty megabytes, and doubles what idle ones keep.
    pub min_bytes: usize,
    /// Further free memory that may stay, in 1024ths of the memory in use.
    pub share: usize,
}

impl Retention {
    /// The default: see the fields.
    pub const DEFAULT: Self = Self {
        min_bytes: 10 << 20,
        share: 64,
    };

    /// What a policy's limits say; its unset limits are the default's.
    #[must_use]
    pub const fn of(policy: &Policy) -> Self {
        let limits = &policy.limits;
        if limits.retain_bytes_min == 0 {
            return Self::DEFAULT;
        }
        Self {
            min_bytes: limits.retain_bytes_min,
            share: match limits.retain_share {
                0 => 0,
                divisor => 1024 / divisor as usize,
            },
        }
    }

    /// Nothing is ever given back unless asked for by `trim`.
    pub const KEEP_ALL: Self = Self {
        min_bytes: usize::MAX,
        share: 0,
    };
}

impl Default for Retention {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// How to build a [`super::PageAllocator`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageConfig {
    /// Bytes of data wished for; halved until the system grants the reservation.
    pub span_bytes: usize,
    /// Smallest span worth having, in bytes.
    pub span_bytes_min: usize,
    /// What stays resident.
    pub retention: Retention,
    /// The pagesets' rule and marks, and how descriptors lie.
    pub policy: Policy,
    /// Bytes the zones count as theirs, for watermarks and pageset marks; `None` asks the
    /// platform, again and again.
    pub managed_bytes: Option<usize>,
    /// `min_free_kbytes` of the watermarks in KiB; `None` is the kernel's rule (spec section 7).
    pub min_free_kib: Option<u64>,
    /// `watermark_scale_factor`, in ten-thousandths.
    pub watermark_scale: u64,
}

impl PageConfig {
    /// The configuration of a heap under `policy`.
    #[must_use]
    pub fn of(policy: &Policy) -> Self {
        Self {
            span_bytes: 1 << 40,
            span_bytes_min: 8 << 20,
            retention: Retention::of(policy),
            policy: *policy,
            managed_bytes: None,
            min_free_kib: None,
            watermark_scale: 10,
        }
    }
}

impl Default for PageConfig {
    fn default() -> Self {
        Self::of(&Policy::default())
    }
}
