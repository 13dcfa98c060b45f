//! Taking what the process may use now into account: when it is learnt, and when it changes.
//!
//! ```text
//!   means ─► zones     pages that may be used, watermarks, free memory that may stay
//!        └─► pagesets  marks, the CPU's part of the cache
//! ```

use super::allocator::PageAllocator;
use super::build::{marks_of, size_of_zone};
use super::config::Retention;
use crate::base::{CpuId, Means};
use crate::platform::Platform;
use crate::policy::Policy;

impl<P: Platform> PageAllocator<P> {
    /// Keeps free memory within `means` from now on. `false` if a signal handler on top of a
    /// lock's holder could not tell every part; then it is to be tried again.
    pub fn apply(&self, means: &Means) -> bool {
        let config = self.config();
        let policy = Policy {
            limits: config.policy.limits.within(means),
            ..config.policy
        };
        let zones = self.zones().count() as u32;
        let pages = self.span_bytes() >> self.page_size().shift();
        let limit = config.managed_bytes.unwrap_or(means.memory_bytes);
        let size = size_of_zone(pages, zones, limit, self.page_size(), config);
        let most = match config.retention {
            Retention::KEEP_ALL => usize::MAX,
            _ => means.store_bytes(),
        };
        self.budget().set_most(most);
        let mut all = true;
        for zone in self.zones() {
            zone.size().set(&size);
            let marks = marks_of::<P>(zone.node(), &size, &policy);
            for cpu in 0..P::cpu_count() {
                all &= zone.set_marks(self.memmap(), CpuId(cpu), marks);
            }
            zone.release_excess(self.memmap());
        }
        all
    }
}
