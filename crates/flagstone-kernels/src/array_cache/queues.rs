//! Queue lengths of the SLAB allocator of 2.6.24.
//!
//! Every CPU has an array of `limit` free objects, refilled and drained `batch` at a time from a
//! shared array and from lists of full, partial and free slabs behind one lock per node.
//!
//! Source: as for the slab shape (`policy/slab2007.rs` of the core).

use flagstone_core::base::PageSize;
use flagstone_core::policy::Cpus;

/// Queue lengths of one cache, in objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Queues {
    /// Free objects one CPU may keep.
    pub limit: u32,
    /// Objects moved per refill or drain.
    pub batch: u32,
    /// Batches the array shared by a node's CPUs may keep.
    pub shared: u32,
    /// Free objects a node keeps before it gives slabs back.
    pub free_limit: u32,
}

/// Queue lengths for objects of stride `size`, `objects` to a slab, `cpus` on the node.
#[must_use]
pub const fn queues(size: usize, objects: u32, page_size: PageSize, cpus: Cpus) -> Queues {
    let limit = if size > 131_072 {
        1
    } else if size > page_size.bytes() {
        8
    } else if size > 1024 {
        24
    } else if size > 256 {
        54
    } else {
        120
    };
    let batch = u32::div_ceil(limit, 2);
    let shared = if size <= page_size.bytes() && cpus.possible > 1 {
        8
    } else {
        0
    };
    Queues {
        limit,
        batch,
        shared,
        free_limit: (1 + cpus.online) * batch + objects,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_lengths_shrink_as_objects_grow() {
        let limits = [64, 512, 2048, 8192, 262_144]
            .map(|size| queues(size, 1, PageSize::K4, Cpus::new(8)).limit);
        assert_eq!(limits, [120, 54, 24, 8, 1]);
    }
}
