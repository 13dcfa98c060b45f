//! Zone watermarks: how many free pages wake reclaim, and how many stop it
//! (docs: linux-policies 7).
#![forbid(unsafe_code)]

use crate::base::PageSize;

/// The sizes a zone's watermarks follow from, in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WatermarkInput {
    /// Managed pages of this zone.
    pub managed: u64,
    /// Managed pages of all zones that serve ordinary requests.
    pub lowmem: u64,
    /// `min_free_kbytes`, in KiB.
    pub min_free_kib: u64,
    /// `watermark_scale_factor`: the gap in ten-thousandths of the zone; 10 by default.
    pub scale_factor: u64,
    /// Page size.
    pub page_size: PageSize,
    /// Zones for movable pages only keep a small fixed `min`.
    pub movable_only: bool,
}

/// A zone's marks, in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Watermarks {
    /// Below this requests reclaim for themselves.
    pub min: u64,
    /// Below this background reclaim starts.
    pub low: u64,
    /// Above this background reclaim stops.
    pub high: u64,
    /// Above this promotion between tiers stops.
    pub promo: u64,
}

impl Watermarks {
    /// The marks of one zone.
    #[must_use]
    pub const fn of(input: &WatermarkInput) -> Self {
        let pages_min = input.min_free_kib * 1024 / input.page_size.bytes() as u64;
        let lowmem = if input.lowmem == 0 { 1 } else { input.lowmem };
        let share = (pages_min as u128 * input.managed as u128 / lowmem as u128) as u64;
        let scaled = (input.managed as u128 * input.scale_factor as u128 / 10_000) as u64;
        let gap = if share / 4 > scaled {
            share / 4
        } else {
            scaled
        };
        let min = if input.movable_only {
            clamp(input.managed / 1024, 32, 128)
        } else {
            share
        };
        Self {
            min,
            low: min + gap,
            high: min + 2 * gap,
            promo: min + 3 * gap,
        }
    }
}

const fn clamp(value: u64, low: u64, high: u64) -> u64 {
    if value < low {
        low
    } else if value > high {
        high
    } else {
        value
    }
}

/// `min_free_kbytes` a kernel chooses for `lowmem_kib` KiB of ordinary memory without huge pages.
#[must_use]
pub const fn min_free_kib(lowmem_kib: u64) -> u64 {
    clamp((lowmem_kib * 16).isqrt(), 128, 262_144)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gap_is_a_quarter_of_min_or_the_scaled_share() {
        // A 6.12 machine with 2 GiB whose scale factor was raised to 200.
        let marks = Watermarks::of(&WatermarkInput {
            managed: 501_420,
            lowmem: 501_420 + 3840,
            min_free_kib: 45_056,
            scale_factor: 200,
            page_size: PageSize::K4,
            movable_only: false,
        });
        assert_eq!(
            marks,
            Watermarks {
                min: 11_178,
                low: 21_206,
                high: 31_234,
                promo: 41_262
            }
        );
    }

    #[test]
    fn a_movable_zone_keeps_a_small_fixed_min() {
        let marks = Watermarks::of(&WatermarkInput {
            managed: 0,
            lowmem: 1000,
            min_free_kib: 67_584,
            scale_factor: 10,
            page_size: PageSize::K4,
            movable_only: true,
        });
        assert_eq!(
            marks,
            Watermarks {
                min: 32,
                low: 32,
                high: 32,
                promo: 32
            }
        );
    }

    #[test]
    fn reserves_grow_with_the_square_root_of_memory() {
        assert_eq!(min_free_kib(1 << 20), 4096);
        assert_eq!((min_free_kib(1), min_free_kib(1 << 40)), (128, 262_144));
    }
}
