//! Huge blocks that are not in their table yet: a signal handler got them on top of its holder, or of
//! one that may wait for what this thread holds.
//!
//! ```text
//!   first ─► note ─► note ─► ∅        pushed without the lock, listed by the table's next holder
//!
//!   block [ the program's pages … | note: link, HugeBlock ]
//! ```
//!
//! So a handler never waits for the table. Were it to wait, its thread's lock would not come free
//! meanwhile, and with signals closer together than such a wait never.
//!
//! The note lies in a page of its own behind what was asked for. Once the block is listed, that page
//! is the block's like any other.

use super::huge_block::HugeBlock;
use super::huge_table::HugeTable;
use super::strays::Strays;
use crate::platform::Platform;
use core::ptr::NonNull;

/// The blocks that wait to be listed.
#[derive(Debug)]
pub(super) struct Unlisted(Strays);

/// What lies in a block's last page until it is listed.
#[repr(C)]
struct Note {
    /// The stack's.
    link: *mut u8,
    block: HugeBlock,
}

impl Unlisted {
    pub(super) const fn new() -> Self {
        Self(Strays::new())
    }

    /// Whether every block is in the table, for a caller with the table's lock.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Leaves a block for the table's next holder.
    ///
    /// # Safety
    /// 1. `block` is a whole committed reservation in nobody's hands, and its last page is beyond
    ///    what is asked for.
    pub(super) unsafe fn push<P: Platform>(&self, block: HugeBlock) {
        let note = block.address + block.bytes - P::page_size().bytes();
        let Some(note) = NonNull::new(note as *mut Note) else {
            return;
        };
        // SAFETY: obligation 1: a page that may be written.
        unsafe {
            (&raw mut (*note.as_ptr()).block).write(block);
            self.0.push(note.cast());
        }
    }

    /// Lists every block; what the table has no memory for goes on waiting.
    #[inline]
    pub(super) fn list_in<P: Platform>(&self, table: &mut HugeTable) {
        let mut next = self.0.take();
        while let Some(note) = next {
            // SAFETY: pushed by `push` and taken by us alone; a block that is not listed stays where
            // it is, because nobody can give it back.
            unsafe {
                next = Strays::behind(note);
                let block = (&raw const (*note.cast::<Note>().as_ptr()).block).read();
                if table.insert::<P>(block).is_err() {
                    self.0.push(note);
                }
            }
        }
    }
}
