//! The ledger: resident bytes by purpose.
//!
//! Invariants
//! - `ledger.closes`: the sum of all lines is the resident size of the process; what is not
//!   resident is in no line.

use core::fmt;

/// Lines of a ledger.
pub const LINES: usize = 18;

/// One purpose that resident memory serves.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Line {
    /// Bytes asked for in objects of caches that the program holds.
    Live = 0,
    /// Bytes of those objects beyond what was asked for.
    Rounding,
    /// Ends of slabs too short for an object.
    SlabTail,
    /// Free objects in the sheaves of CPUs.
    Sheaves,
    /// Free objects in barns.
    Barns,
    /// Free objects in slabs that also hold objects in use.
    PartialSlabs,
    /// Slabs without any object in use.
    EmptySlabs,
    /// Bytes asked for in runs of pages.
    Runs,
    /// Bytes of those runs beyond what was asked for.
    RunRounding,
    /// Bytes asked for in huge blocks.
    Huge,
    /// Bytes of those blocks beyond what was asked for.
    HugeRounding,
    /// Free pages in per-CPU pagesets.
    Pagesets,
    /// Free pages in the zones.
    FreePages,
    /// Page descriptors, the page map and the resident bits.
    Memmap,
    /// Memory of the sheaves themselves.
    SheafMemory,
    /// Zones, cache table, per-CPU slots, table of huge blocks.
    Own,
    /// Pages of the heap that changed hands during the walk.
    Unplaced,
    /// Resident memory of the process that is not the heap's.
    NonHeap,
}

impl Line {
    /// All lines, in the order they are printed.
    pub const ALL: [Self; LINES] = [
        Self::Live,
        Self::Rounding,
        Self::SlabTail,
        Self::Sheaves,
        Self::Barns,
        Self::PartialSlabs,
        Self::EmptySlabs,
        Self::Runs,
        Self::RunRounding,
        Self::Huge,
        Self::HugeRounding,
        Self::Pagesets,
        Self::FreePages,
        Self::Memmap,
        Self::SheafMemory,
        Self::Own,
        Self::Unplaced,
        Self::NonHeap,
    ];

    /// The line's name in documents; never changes.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Rounding => "rounding",
            Self::SlabTail => "slab_tail",
            Self::Sheaves => "free_in_sheaves",
            Self::Barns => "free_in_barns",
            Self::PartialSlabs => "free_in_partial_slabs",
            Self::EmptySlabs => "empty_slabs",
            Self::Runs => "large_runs",
            Self::RunRounding => "large_run_rounding",
            Self::Huge => "huge_blocks",
            Self::HugeRounding => "huge_block_rounding",
            Self::Pagesets => "pagesets",
            Self::FreePages => "free_pages",
            Self::Memmap => "descriptors",
            Self::SheafMemory => "sheaf_memory",
            Self::Own => "allocator_own",
            Self::Unplaced => "unplaced",
            Self::NonHeap => "non_heap",
        }
    }

    /// The line's name for readers.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Live => "live objects",
            Self::Rounding => "rounding of objects",
            Self::SlabTail => "slab tails",
            Self::Sheaves => "free in sheaves",
            Self::Barns => "free in barns",
            Self::PartialSlabs => "free in partial slabs",
            Self::EmptySlabs => "empty slabs",
            Self::Runs => "large blocks",
            Self::RunRounding => "rounding of large blocks",
            Self::Huge => "huge blocks",
            Self::HugeRounding => "rounding of huge blocks",
            Self::Pagesets => "pagesets",
            Self::FreePages => "free pages",
            Self::Memmap => "page descriptors",
            Self::SheafMemory => "memory of sheaves",
            Self::Own => "allocator's own data",
            Self::Unplaced => "changed hands meanwhile",
            Self::NonHeap => "outside the heap",
        }
    }

    /// One plain sentence that says what the line holds.
    #[must_use]
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Live => "Bytes the program asked for and still holds.",
            Self::Rounding => "What its objects are larger than asked for.",
            Self::SlabTail => "Ends of slabs too short for one more object.",
            Self::Sheaves => "Free objects at hand on each CPU.",
            Self::Barns => "Free objects that the CPUs of a node share.",
            Self::PartialSlabs => "Free objects between objects in use.",
            Self::EmptySlabs => "Slabs kept although nothing in them is used.",
            Self::Runs => "Blocks above 32 KiB that the program holds.",
            Self::RunRounding => "What fills their last page.",
            Self::Huge => "Blocks above 4 MiB that the program holds.",
            Self::HugeRounding => "What fills their last page.",
            Self::Pagesets => "Free pages at hand on each CPU.",
            Self::FreePages => "Free pages kept for the next request.",
            Self::Memmap => "What the allocator knows about each page.",
            Self::SheafMemory => "The arrays that name free objects.",
            Self::Own => "Zones, cache table, per-CPU slots.",
            Self::Unplaced => "Pages that moved while they were counted.",
            Self::NonHeap => "Code, stacks, mapped files, other mappings.",
        }
    }

    /// Whether the figure rests on sampled request sizes.
    #[must_use]
    pub const fn sampled(self) -> bool {
        matches!(self, Self::Live | Self::Rounding)
    }
}

/// Resident bytes by line; beside them, what the heap holds that is not resident.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Ledger {
    bytes: [u64; LINES],
    /// Bytes of free blocks that were given back, or never used: address space only.
    pub released: u64,
    /// Bytes of blocks in use that the program has not touched or that were given back.
    pub untouched: u64,
}

impl Ledger {
    /// Nothing anywhere.
    pub const EMPTY: Self = Self {
        bytes: [0; LINES],
        released: 0,
        untouched: 0,
    };

    /// Bytes on a line.
    #[must_use]
    pub const fn get(&self, line: Line) -> u64 {
        self.bytes[line as usize]
    }

    /// Puts more bytes on a line.
    pub fn add(&mut self, line: Line, bytes: u64) {
        self.bytes[line as usize] += bytes;
    }

    /// Every line with its bytes, in printing order.
    pub fn lines(&self) -> impl Iterator<Item = (Line, u64)> {
        Line::ALL.into_iter().map(|line| (line, self.get(line)))
    }

    /// The sum of all lines: what should be the resident size.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.bytes.iter().sum()
    }

    /// The sum of the heap's lines.
    #[must_use]
    pub fn heap(&self) -> u64 {
        self.total() - self.get(Line::NonHeap)
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(
                self.lines()
                    .filter(|&(_, bytes)| bytes != 0)
                    .map(|(line, bytes)| (line.name(), bytes)),
            )
            .finish()
    }
}
