//! What the seam says about shared lines, private work and whose work it is.
//!
//! The vocabulary is that of the policy sheet (docs: linux-policies 4 and 6.6): which structure
//! a line belongs to, and what the CPU does to it. Real hardware ignores all of it.

use super::Platform;
use core::marker::PhantomData;

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
    /// What every fast path of a heap reads: its gate.
    Gate,
    /// A word of a heap, or of a cache on all nodes, that slow paths of every CPU write.
    Heap,
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
    /// One fast-path allocation: the instructions around the slot operation.
    Fast,
    /// One fast-path free: the same.
    FastFree,
    /// Entering a slow path: spilled registers, cold code.
    Slow,
    /// Handling this many objects one by one (copying pointers, following links).
    Objects(u32),
    /// Setting up one fresh slab and writing links through this many of its pages, apart from
    /// touching its lines. Where objects are handed out in order at first, nothing is written.
    NewSlab(u32),
    /// What the array-cache engine does besides: a management structure with an index for each
    /// object, the owner of each page, and interrupts on and off around all of it.
    ManagedSlab,
    /// Buddy steps: list operations while splitting, merging or moving this many blocks.
    Blocks(u32),
    /// Clearing or faulting in this many pages.
    Pages(u32),
}

/// A part of the cpu-slab engine that a kernel's profile shows under one name. Time is booked to
/// the innermost one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Function {
    /// Whatever has no name of its own here.
    Rest,
    /// An allocation whose private chain is empty.
    SlabAlloc,
    /// Taking slabs off one node's list.
    GetPartialNode,
    /// Looking at the other nodes' lists.
    GetAnyPartial,
    /// Setting a fresh slab up, its pages included.
    NewSlab,
    /// A free into a slab that is not this CPU's.
    SlabFree,
    /// Putting a slab on the CPU's partial list.
    PutCpuPartial,
    /// Giving the CPU's partial list to the nodes' lists.
    UnfreezePartials,
    /// Giving the CPU's slab up.
    DeactivateSlab,
}

impl Function {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 9] = [
        Self::Rest,
        Self::SlabAlloc,
        Self::GetPartialNode,
        Self::GetAnyPartial,
        Self::NewSlab,
        Self::SlabFree,
        Self::PutCpuPartial,
        Self::UnfreezePartials,
        Self::DeactivateSlab,
    ];

    /// As profiles of kernels 5.16 to 6.7 name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rest => "rest",
            Self::SlabAlloc => "___slab_alloc",
            Self::GetPartialNode => "get_partial_node",
            Self::GetAnyPartial => "get_any_partial",
            Self::NewSlab => "new_slab",
            Self::SlabFree => "__slab_free",
            Self::PutCpuPartial => "put_cpu_partial",
            Self::UnfreezePartials => "__unfreeze_partials",
            Self::DeactivateSlab => "deactivate_slab",
        }
    }
}

/// While it lives, the caller's time belongs to one function. Nothing on real hardware.
pub struct Within<P: Platform> {
    before: Function,
    world: PhantomData<P>,
}

impl<P: Platform> Within<P> {
    /// From here on.
    #[inline(always)]
    #[must_use]
    pub fn of(function: Function) -> Self {
        Self {
            before: P::enter_function(function),
            world: PhantomData,
        }
    }
}

impl<P: Platform> Drop for Within<P> {
    #[inline(always)]
    fn drop(&mut self) {
        P::leave_function(self.before);
    }
}
