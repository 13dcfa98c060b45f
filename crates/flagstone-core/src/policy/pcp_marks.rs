//! Pageset marks: how many pages a CPU moves at once and may keep (docs: linux-policies 6.2).
#![forbid(unsafe_code)]

use crate::base::PageSize;

/// What a zone's pageset marks follow from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PcpZone {
    /// Managed pages of the zone.
    pub managed: u64,
    /// The zone's low watermark in pages.
    pub low: u64,
    /// CPUs of the zone's node; 0 is taken as 1.
    pub cpus: u32,
    /// `percpu_pagelist_high_fraction`: 0, or 8 and more to fix the marks and stop the tuning.
    pub high_fraction: u32,
    /// Page size.
    pub page_size: PageSize,
}

/// The marks of every pageset of one zone, in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PcpMarks {
    /// Pages moved per refill or drain, before scaling.
    pub batch: u32,
    /// Where `high` starts and where it returns to.
    pub high_min: u32,
    /// How far the tuning may raise `high`; equal to `high_min` where there is no tuning.
    pub high_max: u32,
}

/// Pages moved at once for a zone of `managed` pages: a 4096th of it, at most `most_bytes` (256 KiB
/// since 4.20), rounded to one less than a power of two.
#[must_use]
pub fn batch_within(managed: u64, page_size: PageSize, most_bytes: usize) -> u32 {
    let most = (4 * most_bytes / page_size.bytes()) as u64;
    let quarter = ((managed / 1024).min(most) / 4).max(1);
    let rounded = 1u64 << crate::base::ilog2(quarter + quarter / 2);
    ((rounded - 1) as u32).max(1)
}

impl PcpMarks {
    /// Marks with room between them for tuning, as since 6.7.
    #[must_use]
    pub fn tuned(zone: &PcpZone) -> Self {
        let batch = batch_within(zone.managed, zone.page_size, 256 << 10);
        let share = |pages: u64| {
            let per_cpu = pages / u64::from(zone.cpus.max(1));
            u32::try_from(per_cpu).unwrap_or(u32::MAX).max(4 * batch)
        };
        let by_fraction = |fraction: u32| share(zone.managed / u64::from(fraction));
        let (high_min, high_max) = match zone.high_fraction {
            0 => (share(zone.low), by_fraction(8)),
            fraction => (by_fraction(fraction), by_fraction(fraction)),
        };
        Self {
            batch,
            high_min,
            high_max,
        }
    }

    /// The same marks with no more than `bytes` kept per CPU.
    #[must_use]
    pub fn capped(self, bytes: u64, page_size: PageSize) -> Self {
        let pages = u32::try_from(bytes / page_size.bytes() as u64)
            .unwrap_or(u32::MAX)
            .max(1);
        Self {
            batch: self.batch,
            high_min: self.high_min.min(pages),
            high_max: self.high_max.min(pages),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch_of(managed: u64, page_size: PageSize) -> u32 {
        batch_within(managed, page_size, 256 << 10)
    }

    #[test]
    fn batches_of_real_zones() {
        let k4 = [3840, 115_056, 495_673, 32_480_766].map(|pages| batch_of(pages, PageSize::K4));
        assert_eq!(k4, [1, 31, 63, 63]);
        assert_eq!(batch_of(62_024, PageSize::K16), 15);
        assert_eq!(batch_of(64_468, PageSize::K64), 3);
    }

    #[test]
    fn marks_of_a_live_6_18_zone() {
        let zone = PcpZone {
            managed: 4_227_072,
            low: 18_500,
            cpus: 2,
            high_fraction: 0,
            page_size: PageSize::K4,
        };
        let marks = PcpMarks::tuned(&zone);
        assert_eq!(
            marks,
            PcpMarks {
                batch: 63,
                high_min: 9250,
                high_max: 264_192
            }
        );
        let fixed = PcpMarks::tuned(&PcpZone {
            high_fraction: 8,
            ..zone
        });
        assert_eq!((fixed.high_min, fixed.high_max), (264_192, 264_192));
    }

    #[test]
    fn a_byte_limit_lowers_both_marks() {
        let marks = PcpMarks {
            batch: 63,
            high_min: 9250,
            high_max: 264_192,
        };
        let capped = marks.capped(8 << 20, PageSize::K4);
        assert_eq!((capped.high_min, capped.high_max), (2048, 2048));
    }
}
