//! A data-cache model: does the data behind a page still lie in the cache that wants it?
//!
//! ```text
//!   each last-level cache counts the bytes brought into it       fill
//!   each page remembers cache and fill at its last use           (cache, stamp)
//!   a use hits when the page is at home here and  fill - stamp < capacity
//! ```
//!
//! That is a least-recently-used cache seen through reuse distance, with two simplifications: a
//! page is one unit (its bytes come and go together), and bytes used twice in between count once
//! only if they hit. It is enough to show the effect that matters here: an allocator that hands
//! out cold pages in turn instead of the warm one just freed makes its users miss.

use crate::costs::{Costs, Ps};
use crate::mapping::Mapping;

/// A page's last use in one word: the cache plus one above, how full it was below; zero: never.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
struct Stamp(u64);

impl Stamp {
    /// Enough for 256 TiB through one cache.
    const FILL_BITS: u32 = 48;

    #[inline]
    fn new(cluster: usize, fill: u64) -> Self {
        Self((cluster as u64 + 1) << Self::FILL_BITS | fill)
    }

    /// The fill at the last use, if that was in `cluster`.
    #[inline]
    fn in_cluster(self, cluster: usize) -> Option<u64> {
        let fill = self.0 & ((1 << Self::FILL_BITS) - 1);
        (self.0 >> Self::FILL_BITS == cluster as u64 + 1).then_some(fill)
    }
}

/// The last-level caches of a machine.
#[derive(Debug)]
pub struct DataCache {
    capacity: u64,
    fill: Vec<u64>,
    /// A stamp for each page of the memory, populated where used.
    stamps: Mapping,
    base: usize,
    pages: usize,
    page_shift: u32,
    /// Line uses in all, and those that missed.
    uses: u64,
    misses: u64,
}

impl DataCache {
    /// Empty caches of `capacity` bytes, one for each cluster, for `memory`: where it starts, its
    /// bytes, and those of a page. `None` if the system grants no address space for the table.
    #[must_use]
    pub fn new(clusters: u32, capacity: usize, memory: (usize, usize, usize)) -> Option<Self> {
        let (base, bytes, page_size) = memory;
        let pages = bytes.div_ceil(page_size);
        let stamps = Mapping::new((pages * size_of::<u64>()).max(1))?;
        Some(Self {
            capacity: capacity as u64,
            fill: vec![0; clusters as usize],
            stamps,
            base,
            pages,
            page_shift: page_size.trailing_zeros(),
            uses: 0,
            misses: 0,
        })
    }

    #[inline]
    fn stamp_of(&mut self, page: usize) -> &mut Stamp {
        let index = page.wrapping_sub(self.base) >> self.page_shift;
        assert!(index < self.pages, "a page of the memory");
        // SAFETY: `index < pages`, and the mapping holds one aligned u64 for each page, zeroed or
        // written by us; the borrow of `self` makes this the only reference.
        unsafe { self.stamps.start().cast::<Stamp>().add(index).as_mut() }
    }

    /// A CPU of `cluster` uses `bytes` of the page at `page`; returns what the misses cost.
    pub fn touch_page(&mut self, cluster: usize, page: usize, bytes: usize, costs: &Costs) -> Ps {
        let lines = bytes.div_ceil(64) as u64;
        self.uses += lines;
        let (mut fill, capacity) = (self.fill[cluster], self.capacity);
        let stamp = self.stamp_of(page);
        let before = stamp.in_cluster(cluster);
        let hit = before.is_some_and(|before| fill - before < capacity);
        if !hit {
            fill += bytes as u64;
        }
        *stamp = Stamp::new(cluster, fill);
        if !hit {
            self.fill[cluster] = fill;
            self.misses += lines;
        }
        if hit { 0 } else { lines * costs.data_line }
    }

    /// Uses that do not depend on the allocator: the rest of a program's data. What misses is brought
    /// in, and takes room from everything else.
    pub fn other_uses(&mut self, cluster: usize, lines: u64, misses: u64) {
        self.uses += lines;
        self.misses += misses;
        self.fill[cluster] += misses * 64;
    }

    /// Line uses and misses so far.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        (self.uses, self.misses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    #[test]
    fn a_warm_page_hits_and_cycling_through_more_than_the_cache_misses() {
        let costs = Costs::new(&Machine::named("intel-2s-128").unwrap());
        let mut cache = DataCache::new(2, 16 * 4096, (0, 1 << 20, 4096)).unwrap();
        let mut run = |pages: usize| {
            let before = cache.counts().1;
            for round in 0..10 * pages {
                cache.touch_page(0, (round % pages) * 4096, 4096, &costs);
            }
            cache.counts().1 - before
        };
        assert_eq!(run(8), 8 * 64, "cold misses only");
        assert_eq!(
            run(32),
            312 * 64,
            "every use misses, but for the eight that were warm"
        );
        assert!(
            cache.touch_page(1, 0, 4096, &costs) > 0,
            "another cluster's cache is cold"
        );
    }

    #[test]
    fn other_data_that_misses_pushes_pages_out_of_its_own_cache_only() {
        let costs = Costs::new(&Machine::named("intel-2s-128").unwrap());
        let mut cache = DataCache::new(2, 16 * 4096, (0, 1 << 20, 4096)).unwrap();
        let mut costs_after = |lines: u64, cluster: usize| {
            cache.touch_page(0, 0, 4096, &costs);
            cache.other_uses(cluster, lines, lines);
            cache.touch_page(0, 0, 4096, &costs)
        };
        assert_eq!(costs_after(15 * 64, 0), 0, "15 of 16 pages' worth");
        assert!(costs_after(16 * 64, 0) > 0);
        assert_eq!(costs_after(16 * 64, 1), 0, "the other cache's");
    }
}
