//! A slab's state: one word, changed by compare-and-swap.
//!
//! ```text
//!   bit 63    50        49       48 47     32 31      16 15        0
//!      [ 0 | contended | frozen ] [ objects ] [  inuse ] [ freelist ]
//! ```
//!
//! `freelist` is the index of the first free object that was freed before, or [`NO_OBJECT`].
//! Objects never handed out are free too; they start at the descriptor's `fresh` index and need
//! no link. So `objects - inuse` = length of the chain + (objects - fresh).
//!
//! | state    | inuse        | on node list | who may change it                          |
//! |----------|--------------|--------------|--------------------------------------------|
//! | full     | == objects   | no           | the free that makes it partial puts it on the list |
//! | partial  | 0 < · < objects | yes       | frees push by compare-and-swap; takers unlink first |
//! | isolated | < objects    | no           | whoever unlinked it; frees still push       |
//! | frozen   | any          | no           | the CPU whose slab it is; frees still push. A CPU's own slab counts what lies on its private chain as `inuse` |
//! | empty    | 0            | yes, at most `min_partial` of them | as partial            |
//!
//! Invariants
//! - `slab.inuse-bounded`: `inuse <= objects`.
//! - `slab.full-off-list`: a full slab is on no list.
//! - `slab.one-isolator`: a slab off the list that is not full has exactly one owner.

use core::fmt;

/// Ends a chain of free objects.
pub const NO_OBJECT: u32 = 0xFFFF;

/// The state word of a slab.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct SlabState(pub u64);

impl SlabState {
    /// A slab none of whose `objects` objects was ever handed out.
    #[inline]
    #[must_use]
    pub const fn untouched(objects: u32) -> Self {
        Self((objects as u64) << 32 | NO_OBJECT as u64)
    }

    /// First free object of the chain, or [`NO_OBJECT`].
    #[inline]
    #[must_use]
    pub const fn freelist(self) -> u32 {
        self.0 as u16 as u32
    }

    /// Objects handed out.
    #[inline]
    #[must_use]
    pub const fn inuse(self) -> u32 {
        (self.0 >> 16) as u16 as u32
    }

    /// Objects in the slab.
    #[inline]
    #[must_use]
    pub const fn objects(self) -> u32 {
        (self.0 >> 32) as u16 as u32
    }

    /// Whether a CPU owns the slab (cpu-slab engine).
    #[inline]
    #[must_use]
    pub const fn frozen(self) -> bool {
        self.0 >> 48 & 1 != 0
    }

    /// Whether nothing is free.
    #[inline]
    #[must_use]
    pub const fn is_full(self) -> bool {
        self.inuse() == self.objects()
    }

    /// Whether nothing is handed out.
    #[inline]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.inuse() == 0
    }

    /// Objects free, chained or never handed out.
    #[inline]
    #[must_use]
    pub const fn free(self) -> u32 {
        self.objects() - self.inuse()
    }

    /// The same slab with another chain head and count of objects handed out.
    #[inline]
    #[must_use]
    pub const fn with(self, freelist: u32, inuse: u32) -> Self {
        debug_assert!(inuse <= self.objects());
        Self(self.0 & !0xFFFF_FFFF | (inuse as u64) << 16 | freelist as u64)
    }

    /// The same slab, frozen or not.
    #[inline]
    #[must_use]
    pub const fn with_frozen(self, frozen: bool) -> Self {
        Self(self.0 & !(1 << 48) | (frozen as u64) << 48)
    }
}

impl fmt::Debug for SlabState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slab {}/{}", self.inuse(), self.objects())?;
        if self.freelist() != NO_OBJECT {
            write!(f, " first free {}", self.freelist())?;
        }
        if self.frozen() {
            f.write_str(" frozen")
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_a_state_do_not_touch_each_other() {
        let s = SlabState::untouched(32767);
        assert_eq!(
            (s.inuse(), s.objects(), s.freelist(), s.frozen()),
            (0, 32767, NO_OBJECT, false)
        );
        let t = s.with(17, 32767).with_frozen(true);
        assert_eq!(
            (t.inuse(), t.objects(), t.freelist(), t.frozen()),
            (32767, 32767, 17, true)
        );
        assert!(t.is_full() && s.is_empty());
        assert_eq!(t.with_frozen(false).with(NO_OBJECT, 0), s);
    }
}
