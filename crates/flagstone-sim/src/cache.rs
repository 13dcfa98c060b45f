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
use std::collections::HashMap;

#[derive(Clone, Copy, Debug)]
struct Stamp {
    cluster: u32,
    fill: u64,
}

/// The last-level caches of a machine.
#[derive(Debug)]
pub struct DataCache {
    capacity: u64,
    fill: Vec<u64>,
    pages: HashMap<usize, Stamp>,
    /// Line uses in all, and those that missed.
    uses: u64,
    misses: u64,
}

impl DataCache {
    /// Empty caches of `capacity` bytes, one for each cluster.
    #[must_use]
    pub fn new(clusters: u32, capacity: usize) -> Self {
        Self {
            capacity: capacity as u64,
            fill: vec![0; clusters as usize],
            pages: HashMap::new(),
            uses: 0,
            misses: 0,
        }
    }

    /// A CPU of `cluster` uses `bytes` of the page at `page`; returns what the misses cost.
    pub fn touch_page(&mut self, cluster: usize, page: usize, bytes: usize, costs: &Costs) -> Ps {
        let lines = bytes.div_ceil(64) as u64;
        self.uses += lines;
        let fill = self.fill[cluster];
        let hit = self
            .pages
            .get(&page)
            .is_some_and(|s| s.cluster as usize == cluster && fill - s.fill < self.capacity);
        if !hit {
            self.fill[cluster] += bytes as u64;
            self.misses += lines;
        }
        let stamp = Stamp {
            cluster: cluster as u32,
            fill: self.fill[cluster],
        };
        self.pages.insert(page, stamp);
        if hit { 0 } else { lines * costs.data_line }
    }

    /// Uses that do not depend on the allocator: the rest of a program's data.
    pub fn other_uses(&mut self, lines: u64, misses: u64) {
        self.uses += lines;
        self.misses += misses;
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
        let mut cache = DataCache::new(2, 16 * 4096);
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
}
