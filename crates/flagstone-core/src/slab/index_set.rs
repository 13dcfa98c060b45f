//! A small set of object indexes, to hand objects out in address order.
//!
//! Free chains are in the order of frees. Programs that build structures fast walk them in the
//! order of allocation later (a collector, a traversal), so neighbours in time should be
//! neighbours in memory: in the same few lines, though not in the same one.

/// Objects a set can tell apart; slabs with more hand their objects out in chain order.
pub const SORTED_MAX: u32 = 512;

const WORDS: usize = SORTED_MAX as usize / 64;

/// A set of indexes below [`SORTED_MAX`].
pub struct IndexSet {
    words: [u64; WORDS],
}

impl IndexSet {
    /// The empty set.
    #[inline]
    pub const fn new() -> Self {
        Self { words: [0; WORDS] }
    }

    /// Adds an index.
    #[inline]
    pub fn insert(&mut self, index: u32) {
        self.words[index as usize / 64 % WORDS] |= 1 << (index % 64);
    }

    /// Visits the indexes in as many rounds as objects share a line (1, 2 or 4), each from the largest to the smallest:
    /// those that lie last in their lines first.
    #[inline]
    pub fn for_each_descending(&self, per_line: u32, mut visit: impl FnMut(u32)) {
        let firsts = u64::MAX / ((1 << per_line) - 1);
        for place in (0..per_line).rev() {
            for at in (0..WORDS).rev() {
                let mut word = self.words[at] & firsts << place;
                while word != 0 {
                    let bit = 63 - word.leading_zeros();
                    visit(at as u32 * 64 + bit);
                    word &= !(1 << bit);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn indexes_come_back_largest_first_and_apart_where_they_share_a_line() {
        let mut set = IndexSet::new();
        for index in [5, 511, 64, 0, 63, 128] {
            set.insert(index);
        }
        let mut seen = Vec::new();
        set.for_each_descending(1, |index| seen.push(index));
        assert_eq!(seen, [511, 128, 64, 63, 5, 0]);
        seen.clear();
        set.for_each_descending(4, |index| seen.push(index));
        assert_eq!(seen, [511, 63, 5, 128, 64, 0]);
    }
}
