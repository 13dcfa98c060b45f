//! The parts of a built heap.
#![forbid(unsafe_code)]

use super::falls::Falls;
use super::forking::Forking;
use super::huge_table::HugeTable;
use super::refusals::Refusals;
use super::strays::Strays;
use super::unlisted::Unlisted;
use crate::platform::Lock;
use crate::slab::{Engines, Slabs};
use crate::sync::AtomicBool;

/// Blocks of this many bytes are announced to an observer. Why 256 KiB: larger ones are few, and
/// smaller ones change a resident size of some megabytes by less than a sixteenth.
pub const OBSERVED_BYTES: usize = 256 << 10;

/// A heap's parts, once built.
#[derive(Debug)]
pub struct Ready<P: Engines> {
    pub(super) slabs: Slabs<P>,
    pub(super) huge: Lock<HugeTable>,
    /// Largest request a cache serves.
    pub(super) class_max: usize,
    pub(super) deep: Falls,
    pub(super) empty: Falls,
    /// Whether slow paths tell the platform's observer.
    pub(super) watched: AtomicBool,
    pub(super) forking: Forking,
    /// Huge blocks that signal handlers could not take off the table.
    pub(super) strays: Strays,
    /// Those that handlers could not put in the table.
    pub(super) unlisted: Unlisted,
    pub(super) refusals: Refusals,
    /// Whether some block may be far larger than what was asked for, so that sized frees cannot tell.
    pub(super) roomy: AtomicBool,
}
