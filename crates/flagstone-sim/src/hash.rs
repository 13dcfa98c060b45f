//! A quick hash for tables keyed by addresses. Nothing iterates over such a table, so the hash
//! decides nothing but speed.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A table keyed by an address or a line number.
pub(crate) type ByAddress<T> = HashMap<usize, T, BuildHasherDefault<Multiply>>;

/// Multiplies by an odd constant; the high bits, which the table uses, then depend on all bits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Multiply(u64);

impl Hasher for Multiply {
    fn finish(&self) -> u64 {
        self.0.rotate_left(26)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_usize(usize::from(*byte));
        }
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        self.write_usize(value as usize);
    }

    #[inline]
    fn write_usize(&mut self, value: usize) {
        self.0 = (self.0 ^ value as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_lines_find_their_own_entries() {
        let mut table = ByAddress::default();
        for line in 0..10_000usize {
            table.insert(0x7f00_0000_0000 + line * 64, line);
        }
        let found = (0..10_000usize).all(|line| table[&(0x7f00_0000_0000 + line * 64)] == line);
        assert!(found && table.len() == 10_000);
    }
}
