//! The sheaves of Linux 7.0 and later: how many objects they hold.

use flagstone_core::base::PageSize;
use flagstone_core::policy::{Returns, SheafRule, SizeSteps};

/// Bytes of a sheaf before its slots, on a 64-bit kernel (docs: linux-policies 5.1).
const HEADER_BYTES: u32 = 32;
const SLOT_BYTES: u32 = 8;

/// Nearly every cache (docs: linux-policies 5.2): 4, 12, 26 or 60 objects by size, grown to fill the kmalloc block
/// that the sheaf lands in. 26 slots and a header of 32 bytes take 256, and hold 28.
pub const fn all(returns: Returns) -> SheafRule {
    let steps = SizeSteps {
        page: filling(4),
        kib: filling(12),
        quarter: filling(26),
        small: filling(60),
    };
    SheafRule::BySize(steps, returns)
}

const fn filling(slots: u32) -> u32 {
    let bytes = (HEADER_BYTES + SLOT_BYTES * slots) as usize;
    let block = match super::presets::KMALLOC.class_for(bytes, PageSize::K4) {
        Some(class) => class,
        None => bytes.next_power_of_two(),
    };
    (block as u32 - HEADER_BYTES) / SLOT_BYTES
}

#[cfg(test)]
mod tests {
    use crate::policy::Named;
    use flagstone_core::base::PageSize;
    use flagstone_core::policy::Policy;

    #[test]
    fn capacities_fill_the_block_they_land_in() {
        let policy = Policy::parse("linux-7.0").unwrap();
        let capacity = |size, page, asked| policy.sheaf_capacity_requested(size, page, asked);
        let got =
            [8, 255, 256, 1023, 1024, 4095, 4096, 8192].map(|size| capacity(size, PageSize::K4, 0));
        assert_eq!(got, [60, 60, 28, 28, 12, 12, 4, 4].map(Some));
        assert_eq!(capacity(8192, PageSize::K64, 0), Some(12));
        assert_eq!(capacity(256, PageSize::K4, 32), Some(32));
    }
}
