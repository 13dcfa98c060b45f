//! Looking at the page layer's pagesets from outside, between two turns.
//!
//! A pageset that somebody holds at that moment is not waited for: its last known figures stand,
//! which are at most one look old.

use crate::subject::Subject;
use crate::tally::Totals;
use crate::vm::Vm;
use flagstone_core::base::{CpuId, NodeId};
use flagstone_core::page::PagesetCounters;

/// The last known figures of every pageset.
#[derive(Debug)]
pub struct Watch {
    known: Vec<PagesetCounters>,
    nodes: u8,
}

impl Watch {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(vm: &Vm, subject: &Subject) -> Self {
        let nodes = subject.nodes();
        let count = usize::from(nodes) * vm.topology.cpus() as usize;
        Self {
            known: vec![PagesetCounters::default(); count],
            nodes,
        }
    }

    /// Looks at every pageset; adds what happened in them to `totals`; answers the bytes of pages
    /// that are in use or parked in pagesets.
    pub fn look(&mut self, vm: &Vm, subject: &Subject, totals: &mut Totals) -> usize {
        let pages = subject.slabs().pages();
        for (index, known) in self.known.iter_mut().enumerate() {
            let node = NodeId((index % usize::from(self.nodes)) as u8);
            let cpu = CpuId((index / usize::from(self.nodes)) as u32);
            if let Some((_, now)) = vm.boot_look(|| pages.pageset_counts(node, cpu)) {
                *known = now;
            }
            totals.free_high += known.free_high;
            totals.zone_pages += known.refill_pages;
        }
        subject.in_use_bytes()
    }
}
