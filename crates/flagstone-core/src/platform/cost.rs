//! What the seam says about shared lines and private work.
//!
//! The vocabulary is that of the policy sheet (docs: linux-policies 4 and 6.6): which structure
//! a line belongs to, and what the CPU does to it. Real hardware ignores all of it.

/// The structure a shared cache line belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Line {
    /// A CPU's slots, or its cpu-slab structure, of one cache.
    Cpu,
    /// The descriptor of a slab (its freelist and counters): exactly one line.
    Slab,
    /// An object's own line, where its free link lies.
    Object,
    /// A cache's node structure: list lock, counters, list heads.
    Node,
    /// A barn: lock, counters, list heads.
    Barn,
    /// A sheaf's header and slots.
    Sheaf,
    /// A zone: lock and counters.
    Zone,
    /// The free-area list heads of one order.
    FreeArea,
    /// A per-CPU pageset: lock, marks, list heads.
    Pageset,
    /// The descriptor of a page on its way between pageset and zone.
    Page,
}

/// What the caller does to a shared line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Plain load.
    Read,
    /// Plain store, or load and store without an atomic instruction.
    Write,
    /// Atomic read-modify-write.
    Atomic,
}

/// Private work, in units a machine profile prices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// One fast-path allocation or free: the instructions around the slot operation.
    Fast,
    /// Entering a slow path: spilled registers, cold code.
    Slow,
    /// Handling this many objects one by one (copying pointers, following links).
    Objects(u32),
    /// Setting up one fresh slab of this many pages, apart from touching its lines.
    NewSlab(u32),
    /// Buddy steps: list operations while splitting, merging or moving this many blocks.
    Blocks(u32),
    /// Clearing or faulting in this many pages.
    Pages(u32),
}
