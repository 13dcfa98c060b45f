//! Checks of the heap's own structures: the table of huge blocks and the blocks it keeps.

use crate::heap::{HugeBlock, HugeTable, Ready};
use crate::slab::Engines;

/// A broken rule of the heap layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BrokenHeap {
    /// The rule's name, as the layer's files have it.
    pub rule: &'static str,
    /// Where the block in question starts; zero for none.
    pub address: usize,
}

/// Checks the table of huge blocks, under its lock; nothing on top of its holder.
///
/// # Errors
/// The first rule found broken.
pub fn check_heap<P: Engines>(ready: &Ready<P>) -> Result<(), BrokenHeap> {
    match ready.huge_table() {
        Ok(table) => check_table(&table),
        Err(_) => Ok(()),
    }
}

fn check_table(table: &HugeTable) -> Result<(), BrokenHeap> {
    let (used, capacity) = table.filled();
    holds(2 * used <= capacity, "huge.half-empty", 0)?;
    for block in table.blocks() {
        let found = table.get(block.address) == Some(*block);
        holds(found, "huge.no-gaps", block.address)?;
    }
    let bytes: usize = table.kept().blocks().map(|block| block.bytes).sum();
    holds(bytes == table.kept().bytes(), "kept.bytes", 0)?;
    holds(bytes <= table.kept().room(), "kept.bound", 0)?;
    for (at, block) in table.kept().blocks().enumerate() {
        let others = table.kept().blocks().skip(at + 1).chain(table.blocks());
        let apart = others.into_iter().all(|other| are_apart(block, other));
        holds(apart, "kept.apart", block.address)?;
    }
    Ok(())
}

fn are_apart(one: &HugeBlock, other: &HugeBlock) -> bool {
    one.address + one.bytes <= other.address || other.address + other.bytes <= one.address
}

fn holds(good: bool, rule: &'static str, address: usize) -> Result<(), BrokenHeap> {
    good.then_some(()).ok_or(BrokenHeap { rule, address })
}
