//! Flagstone as the global allocator of a Rust program.
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: flagstone::Flagstone = flagstone::Flagstone;
//!
//! fn main() {
//!     let words: Vec<String> = "a heap of one's own".split(' ').map(String::from).collect();
//!     assert_eq!(words.len(), 5);
//! }
//! ```
//!
//! # Beside C
//!
//! C libraries in the same program keep their own `malloc`: this crate exports no C symbol. Both
//! heaps work side by side, and a block goes back to the one it came from, as Rust's rules have it
//! anyway. With the feature `alloc-override` the program exports `malloc`, `free` and their kin, and
//! C libraries share this heap.
//!
//! # What it runs on
//!
//! 64-bit Linux with glibc or musl, also in static programs. The fast path uses the restartable
//! sequences that glibc (2.35 and newer) registers. musl registers none: every call then takes one
//! uncontended lock of its CPU.
//!
//! Options come from the environment (`FLAGSTONE_POLICY`, `FLAGSTONE_CONF`, ...), as for the preloaded
//! library.
#![no_std]

mod cache;
mod statistics;

pub use cache::{Cache, Constructed, Object, Prefilled};
pub use statistics::{Statistics, statistics, trim};

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::{NonNull, null_mut};
#[cfg(feature = "alloc-override")]
use flagstone_abi as _;
use flagstone_core::heap::MIN_ALIGN;
use flagstone_process::{blocks, start};

/// The heap of this process, as a global allocator. See the crate's documentation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flagstone;

fn or_null(block: Option<NonNull<u8>>) -> *mut u8 {
    block.map_or(null_mut(), NonNull::as_ptr)
}

// SAFETY: blocks are live until freed, never overlap, and are as large and as aligned as asked for
// (`flagstone_core::heap`); nothing unwinds.
unsafe impl GlobalAlloc for Flagstone {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        or_null(if layout.align() <= MIN_ALIGN {
            blocks::alloc(layout.size())
        } else {
            blocks::alloc_aligned(layout.align(), layout.size())
        })
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _layout: Layout) {
        // SAFETY: the caller gives up a block of this allocator.
        unsafe { blocks::free(block) };
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= MIN_ALIGN {
            return or_null(blocks::alloc_zeroed(layout.size()));
        }
        // SAFETY: the caller's obligations are the same.
        let block = unsafe { self.alloc(layout) };
        if !block.is_null() {
            // SAFETY: the block has that many bytes.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let here = NonNull::new(block).filter(|_| layout.align() <= MIN_ALIGN);
        if let Some(block) = here {
            // SAFETY: the caller gives up a block of this allocator if it gets another.
            return or_null(unsafe { blocks::realloc(block, size) });
        }
        // SAFETY: the caller vouches for the size; the alignment is a layout's.
        let new = unsafe { self.alloc(Layout::from_size_align_unchecked(size, layout.align())) };
        if !new.is_null() {
            // SAFETY: both blocks have that many bytes and do not overlap; the old one is given up.
            unsafe {
                block.copy_to_nonoverlapping(new, layout.size().min(size));
                self.dealloc(block, layout);
            }
        }
        new
    }
}

/// Before `main`: handlers around `fork`, and a report if `flagstone run` asks for one.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = start::begin_in_program;
