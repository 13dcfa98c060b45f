//! How the span is shared out among memory nodes.
#![forbid(unsafe_code)]

use crate::base::Order;

/// How the span is shared out among nodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shares {
    pub zones: u32,
    /// Binary logarithm of the pages of a share; 31 for a zone that has everything.
    pub shift: u32,
    pub pages_each: u32,
}

impl Shares {
    pub fn of(pages: usize, nodes: u32) -> Self {
        let share = if nodes > 1 { pages / nodes as usize } else { 0 };
        if share < Order::MAX.pages().0 {
            return Self {
                zones: 1,
                shift: 31,
                pages_each: pages as u32,
            };
        }
        let shift = crate::base::ilog2(share as u64);
        Self {
            zones: nodes,
            shift,
            pages_each: 1 << shift,
        }
    }
}
