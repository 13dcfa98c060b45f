//! The calls by which a program says the size of a block when it frees it: C++'s `operator new` and
//! `operator delete(void*, size_t)`, which nearly every allocator has and most such programs use, else
//! C23's `free_sized`, else plain `malloc` and `free`.
//!
//! They are taken only from the file that provides `malloc`: a C library's `free_sized` must not get
//! a block of a preloaded allocator.

use super::heap;
use super::probe;
use std::ffi::{CStr, c_void};
use std::hint::black_box;

type Take = unsafe extern "C" fn(usize) -> *mut c_void;
type Give = unsafe extern "C" fn(*mut c_void, usize);

/// How blocks are taken and given.
#[derive(Clone, Copy)]
pub enum Calls {
    /// `malloc` and `free`.
    Plain,
    /// A pair of which the second is told the size.
    Sized(Take, Give),
}

impl Calls {
    /// `malloc` and `free`.
    pub fn plain() -> Calls {
        Calls::Plain
    }

    /// The pair that is told sizes, where the allocator has one.
    pub fn sized() -> Calls {
        pair(c"_Znwm", c"_ZdlPvm")
            .or_else(|| pair(c"malloc", c"free_sized"))
            .unwrap_or(Calls::Plain)
    }

    /// Whether frees are told the size.
    pub fn are_told(self) -> bool {
        matches!(self, Calls::Sized(..))
    }

    /// Allocates.
    ///
    /// # Safety
    /// 1. As of [`heap::take`]; the block is freed by the same calls.
    #[inline(always)]
    pub unsafe fn take(self, size: usize) -> *mut u8 {
        // SAFETY: obligation 1 covers both.
        unsafe {
            match self {
                Calls::Plain => heap::take(size),
                Calls::Sized(take, _) => black_box(take(black_box(size))).cast(),
            }
        }
    }

    /// Frees.
    ///
    /// # Safety
    /// 1. As of [`heap::give`]; the block is of [`Calls::take`] with this very `size`.
    #[inline(always)]
    pub unsafe fn give(self, object: *mut u8, size: usize) {
        // SAFETY: obligation 1 covers both.
        unsafe {
            match self {
                Calls::Plain => heap::give(object),
                Calls::Sized(_, give) => give(black_box(object).cast(), size),
            }
        }
    }
}

/// Both functions, if they are of the file that provides `malloc`.
fn pair(take: &CStr, give: &CStr) -> Option<Calls> {
    let own = probe::provider(c"malloc")?;
    if [take, give].map(probe::provider) != [Some(own.clone()), Some(own)] {
        return None;
    }
    let (take, give) = (probe::symbol(take)?, probe::symbol(give)?);
    // SAFETY: the C standard and the C++ ABI declare these names with these signatures.
    unsafe {
        Some(Calls::Sized(
            std::mem::transmute::<*mut c_void, Take>(take),
            std::mem::transmute::<*mut c_void, Give>(give),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sized_calls_are_a_pair_of_one_file_or_the_plain_ones() {
        for calls in [Calls::plain(), Calls::sized()] {
            // SAFETY: eight bytes, written, freed once with their size.
            unsafe {
                let object = calls.take(24);
                heap::mark(object, 5);
                assert_eq!(heap::check(object), 5);
                calls.give(object, 24);
            }
        }
        assert!(!Calls::plain().are_told());
        assert!(pair(c"malloc", c"no_such_function").is_none());
    }
}
