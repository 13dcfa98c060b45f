//! An address and a small number in one word: large machines keep millions of them, and as many more
//! stay in the host's caches.

/// An address of a program with sixteen bits of its owner's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tagged(u64);

impl Tagged {
    /// Addresses of programs are shorter; the tag is in the bits above.
    const ADDRESS_BITS: u32 = 48;

    /// `address` with `tag`.
    #[inline]
    pub(crate) fn new(tag: u16, address: usize) -> Self {
        debug_assert!(address as u64 >> Self::ADDRESS_BITS == 0);
        Self(u64::from(tag) << Self::ADDRESS_BITS | address as u64)
    }

    #[inline]
    pub(crate) fn tag(self) -> u16 {
        (self.0 >> Self::ADDRESS_BITS) as u16
    }

    #[inline]
    pub(crate) fn address(self) -> usize {
        (self.0 & ((1 << Self::ADDRESS_BITS) - 1)) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_come_out_as_they_went_in() {
        for (tag, address) in [(0, 0), (u16::MAX, (1 << 48) - 1), (7, 0x7fff_1234_5678)] {
            let both = Tagged::new(tag, address);
            assert_eq!((both.tag(), both.address()), (tag, address));
        }
    }
}
