//! Stress by phases: in each phase threads build and drop trees of mixed sizes, a part of which other
//! threads drop; then they end, and fresh ones begin with half of what was left.
//!
//! Real programs: compilers, map-reduce jobs and test runners, where workers build structures of their
//! own, hand results on, and the next stage starts workers anew.
//!
//! ```text
//!   node: | word | left | right | size | ... all written ... |
//! ```
//!
//! A tree belongs to whoever holds its root: a forest's slot, or the shelf on the way to another thread.

use super::clock::fixed_work;
use super::heap::{Dice, compare, give, granted, take};
use super::team::team;
use super::{Damage, Job, Sample};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Trees of a thread's forest.
const FOREST: usize = 60;
/// Nodes of a tree at most.
const NODES: usize = 600;
/// Places of the shelf over which trees go to other threads.
const SHELF: usize = 64;
/// Of so many dropped trees one goes over the shelf.
const EACH: usize = 4;

/// A node as it lies in its block; what follows is written and never read.
#[repr(C)]
struct Node {
    word: u64,
    children: [*mut Node; 2],
    size: usize,
}

/// A whole tree, by its root.
struct Tree(*mut Node);

// SAFETY: a tree is reached by its holder alone.
unsafe impl Send for Tree {}

impl Tree {
    /// Builds a balanced tree of `nodes` nodes, root first.
    fn grown(nodes: usize, dice: &mut Dice) -> Result<Tree, Damage> {
        let mut children = [std::ptr::null_mut(); 2];
        let size = node_size(dice);
        // SAFETY: `size` is at least that of a node; all bytes are written before any is read.
        let root = unsafe {
            let root: *mut Node = granted(take(size), size)?.cast();
            root.cast::<u8>().write_bytes(0x5a, size);
            root
        };
        let below = nodes - 1;
        for (child, nodes) in children.iter_mut().zip([below / 2, below - below / 2]) {
            if nodes > 0 {
                *child = Tree::grown(nodes, dice)?.0;
            }
        }
        let word = word_of(root, size);
        // SAFETY: as above; a block of malloc is aligned for a node.
        unsafe {
            root.write(Node {
                word,
                children,
                size,
            });
        }
        Ok(Tree(root))
    }

    /// Looks at every node, then frees it, children first.
    fn dropped(self) -> Result<(), Damage> {
        // SAFETY: the root of a tree is a live node, and so are its children; `self` is consumed.
        unsafe {
            let Node {
                word,
                children,
                size,
            } = self.0.read();
            compare(word_of(self.0, size), word)?;
            for child in children.into_iter().filter(|child| !child.is_null()) {
                Tree(child).dropped()?;
            }
            let last = self.0.cast::<u8>().add(size - 1);
            if size > size_of::<Node>() {
                compare(0x5a, u64::from(last.read()))?;
            }
            // A block handed out twice would be dropped twice: the second holder finds no word.
            (*self.0).word = 0;
            give(self.0.cast());
        }
        Ok(())
    }
}

/// What a node of this place and size bears: no other has the same while it lives.
fn word_of(node: *mut Node, size: usize) -> u64 {
    (node.addr() as u64).rotate_left(20) ^ (size as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Seven of ten nodes of 32..128 B, a quarter to a KiB, a twentieth to 16 KiB, one of 250 to 128 KiB.
fn node_size(dice: &mut Dice) -> usize {
    let within = |dice: &mut Dice, low: usize, high: usize| low + dice.below(high - low);
    match dice.below(1000) {
        0..700 => within(dice, 32, 128),
        700..950 => within(dice, 128, 1 << 10),
        950..996 => within(dice, 1 << 10, 16 << 10),
        _ => within(dice, 16 << 10, 128 << 10),
    }
}

/// A forest: the trees one thread holds.
type Forest = Vec<Option<Tree>>;

/// Builds `steps` trees per thread and phase.
pub fn phases(job: Job) -> Result<Sample, Damage> {
    let phases = job.scale.pick(10, 4, 2);
    let steps = (job.scale.pick(800, 200, 24) / job.threads).max(8);
    let shelf: Vec<Mutex<Option<Tree>>> = (0..SHELF).map(|_| Mutex::default()).collect();
    let forests: Vec<Mutex<Forest>> = (0..job.threads).map(|_| Mutex::default()).collect();
    let nodes = AtomicUsize::new(0);
    let mut sample = fixed_work(job, 1, || {
        for phase in 0..phases {
            team(job.threads, |index| {
                let mut forest = forests[index].lock().expect("no thread panics");
                let seed = (phase * 1000 + index) as u64;
                let grown = work(&mut forest, &shelf, steps, Dice::new(seed))?;
                nodes.fetch_add(grown, Ordering::Relaxed);
                Ok(())
            })?;
        }
        let rest = forests.iter().flat_map(|forest| {
            let mut forest = forest.lock().expect("no thread panics");
            std::mem::take(&mut *forest)
        });
        let on_shelf = shelf
            .iter()
            .map(|place| place.lock().expect("no thread panics").take());
        rest.chain(on_shelf).flatten().try_for_each(Tree::dropped)
    })?;
    sample.ns_per_op = sample.ns_per_op.map(|ns| ns / nodes.into_inner() as f64);
    Ok(sample)
}

/// One thread of one phase; the nodes it made. It drops all but half of its forest before it ends.
fn work(
    forest: &mut Forest,
    shelf: &[Mutex<Option<Tree>>],
    steps: usize,
    mut dice: Dice,
) -> Result<usize, Damage> {
    let mut grown = 0;
    forest.resize_with(FOREST, || None);
    for _ in 0..steps {
        let nodes = 1 + dice.below(NODES);
        grown += nodes;
        let tree = Tree::grown(nodes, &mut dice)?;
        let Some(old) = forest[dice.below(FOREST)].replace(tree) else {
            continue;
        };
        let to_drop = if dice.below(EACH) == 0 {
            let place = &shelf[dice.below(SHELF)];
            place.lock().expect("no thread panics").replace(old)
        } else {
            Some(old)
        };
        to_drop.map_or(Ok(()), Tree::dropped)?;
    }
    for tree in forest.iter_mut().step_by(2).filter_map(Option::take) {
        tree.dropped()?;
    }
    Ok(grown)
}

#[cfg(test)]
mod tests {
    use super::super::Scale;
    use super::*;

    #[test]
    fn trees_are_dropped_whole_by_whoever_holds_them() {
        for threads in [1, 2, 6] {
            let scale = Scale::Smoke;
            assert!(phases(Job { threads, scale }).unwrap().value > 0.0);
        }
    }

    #[test]
    fn a_node_that_changed_is_reported() {
        let tree = Tree::grown(5, &mut Dice::new(1)).unwrap();
        // SAFETY: the root of a live tree.
        unsafe { (*tree.0).word ^= 1 };
        assert!(tree.dropped().is_err());
    }
}
