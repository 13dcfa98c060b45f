//! A block that is written when it is made and looked at before it is freed, so that a workload made
//! of blocks needs no `unsafe` of its own.
//!
//! ```text
//!   | word (8 B) | ... the workload's own words ... | last byte = low byte of word |
//! ```
//!
//! Nothing is freed by being forgotten: a block that is dropped without [`Block::end`] stays.

use super::Damage;
use super::heap::{check, compare, give, granted, mark, take};
use std::num::NonZeroUsize;

/// Bytes of a word.
pub const WORD: usize = size_of::<u64>();

/// A live block of the allocator under test.
pub struct Block {
    /// An address rather than a pointer: blocks go from thread to thread.
    at: NonZeroUsize,
    size: usize,
    word: u64,
}

impl Block {
    /// `size` bytes, at least eight, of which the first word and the last byte are written.
    #[inline]
    pub fn new(size: usize, word: u64) -> Result<Block, Damage> {
        assert!(size >= WORD, "a block holds its word");
        // SAFETY: at least eight bytes, freed once, by `end`.
        let at = unsafe {
            let at = granted(take(size), size)?;
            mark(at, word);
            if size > WORD {
                at.add(size - 1).write(word as u8);
            }
            at
        };
        let at = NonZeroUsize::new(at.expose_provenance()).expect("granted");
        Ok(Block { at, size, word })
    }

    /// The same with every byte written.
    #[inline]
    pub fn full(size: usize, word: u64) -> Result<Block, Damage> {
        assert!(size >= WORD, "a block holds its word");
        // SAFETY: as in `new`; all `size` bytes are this block's.
        let at = unsafe {
            let at = granted(take(size), size)?;
            std::ptr::write_bytes(at, word as u8, size);
            mark(at, word);
            at
        };
        let at = NonZeroUsize::new(at.expose_provenance()).expect("granted");
        Ok(Block { at, size, word })
    }

    /// Room for `count` words besides the block's own, all written: see [`Block::words`].
    #[inline]
    pub fn of_words(count: usize, word: u64) -> Result<Block, Damage> {
        Block::full((count + 1) * WORD, word)
    }

    #[inline]
    fn pointer(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.at.get())
    }

    /// The words of a block of [`Block::of_words`]. Their last byte is the workload's own.
    #[inline]
    pub fn words(&mut self) -> &mut [u64] {
        let count = self.size / WORD - 1;
        // SAFETY: `count` words behind the first are this block's, written when it was made, and lent
        // for as long as the block is.
        unsafe { std::slice::from_raw_parts_mut(self.pointer().cast::<u64>().add(1), count) }
    }

    /// Adds one to the first word so many times, in memory each time.
    #[inline(never)]
    pub fn hammer(&mut self, times: u64) {
        let at = self.pointer().cast::<u64>();
        for _ in 0..times {
            // SAFETY: the first word of a live block.
            unsafe { at.write_volatile(at.read_volatile().wrapping_add(1)) };
        }
        self.word = self.word.wrapping_add(times);
    }

    /// Whether the first word is still the one that was written.
    #[inline]
    pub fn intact(&self) -> Result<(), Damage> {
        // SAFETY: a live block was marked.
        compare(self.word, unsafe { check(self.pointer()) })
    }

    /// Looks at the first word, then frees.
    #[inline]
    pub fn end(self) -> Result<(), Damage> {
        self.intact()?;
        // SAFETY: the block is consumed: nobody frees it again.
        unsafe { give(self.pointer()) };
        Ok(())
    }

    /// Looks at the first word and the last byte of a block of [`Block::new`] or [`Block::full`]
    /// whose words were not touched, then frees.
    #[inline]
    pub fn end_whole(self) -> Result<(), Damage> {
        if self.size > WORD {
            // SAFETY: the last byte of a live block, written when it was made.
            let last = unsafe { *self.pointer().add(self.size - 1) };
            compare(u64::from(self.word as u8), u64::from(last))?;
        }
        self.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_keeps_its_words_and_says_when_one_changed() {
        let mut block = Block::of_words(3, 7).unwrap();
        block.words().copy_from_slice(&[1, 2, 3]);
        assert_eq!(block.words(), &[1, 2, 3]);
        block.hammer(5);
        block.intact().unwrap();
        block.word ^= 1;
        assert!(block.intact().unwrap_err().0.contains("handed out twice"));
        block.word ^= 1;
        block.end().unwrap();
    }

    #[test]
    fn the_last_byte_is_looked_at_too() {
        for size in [8, 9, 16, 5000] {
            Block::new(size, 0xabcd).unwrap().end_whole().unwrap();
        }
        let changed = Block::full(64, 9).unwrap();
        // SAFETY: inside the block.
        unsafe { *changed.pointer().add(63) = 8 };
        assert!(changed.end_whole().is_err());
    }
}
