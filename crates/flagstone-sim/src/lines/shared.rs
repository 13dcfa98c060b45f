//! Shared lines: who has each one, who has copies, and until when it is on its way.
//!
//! ```text
//!   read    the owner's, kept or a copy: at hand     else it comes: a copy, or whole where lines migrate
//!   write   the owner's alone, or kept: at hand      else it comes, and all copies go
//! ```
//!
//! A line is moved by one CPU at a time: a journey starts when the one before has ended.

use super::{Directory, NOBODY};
use crate::costs::{Costs, Ps};
use crate::topology::Topology;

#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) busy_until: Ps,
    /// Until when `keeper` still has it as its own.
    keeps_until: Ps,
    pub(super) owner: u16,
    keeper: u16,
    /// Who spins on the line for a lock in it, and how many do.
    watcher: u16,
    crowd: u16,
    /// More than the owner may read it.
    shared: bool,
    /// The owner wrote it.
    dirty: bool,
}

impl Entry {
    /// Written by `owner`, who has it since `at`; nobody else's.
    pub(super) fn of(owner: u16, at: Ps) -> Self {
        Self {
            busy_until: at,
            keeps_until: 0,
            owner,
            keeper: NOBODY,
            watcher: NOBODY,
            crowd: 0,
            shared: false,
            dirty: true,
        }
    }

    /// Whether `cpu` still has the line, on which somebody else waits.
    #[inline]
    fn is_kept_by(&self, cpu: u32, now: Ps) -> bool {
        u32::from(self.keeper) == cpu && now < self.keeps_until
    }
}

impl Directory {
    /// `cpu` reads a shared line at `now`; returns when it has it.
    #[inline]
    pub fn read(&mut self, home: u32, cpu: u32, now: Ps, topology: &Topology, costs: &Costs) -> Ps {
        let entry = &mut self.entries[home as usize];
        let here = costs.transfer[0];
        if u32::from(entry.owner) == cpu || entry.is_kept_by(cpu, now) {
            return now + here;
        }
        let word = home as usize * self.words + cpu as usize / 64;
        let bit = 1 << (cpu % 64);
        if entry.shared && self.sharers[word] & bit != 0 {
            return now + here;
        }
        let start = now.max(entry.busy_until);
        let journey = match entry.owner {
            NOBODY => costs.dram,
            owner => costs.line(topology.distance(cpu, u32::from(owner))),
        };
        entry.busy_until = start + journey;
        if !entry.shared {
            entry.keeper = entry.owner;
            entry.keeps_until = start + costs.lingers(journey);
        }
        if entry.owner == NOBODY || (costs.migrates && entry.dirty && !entry.shared) {
            entry.owner = cpu as u16;
            entry.dirty = false;
        } else {
            entry.shared = true;
            self.sharers[word] |= bit;
        }
        start + journey
    }

    /// `cpu` takes a shared line for itself at `now`; returns when it has it.
    #[inline]
    pub fn write(
        &mut self,
        home: u32,
        cpu: u32,
        now: Ps,
        topology: &Topology,
        costs: &Costs,
    ) -> Ps {
        let entry = self.entries[home as usize];
        if u32::from(entry.owner) == cpu && !entry.shared || entry.is_kept_by(cpu, now) {
            if entry.watcher != NOBODY {
                let watcher = topology.distance(cpu, u32::from(entry.watcher));
                return now + costs.watched(watcher, u64::from(entry.crowd));
            }
            self.entries[home as usize].dirty |= u32::from(entry.owner) == cpu;
            return now + costs.transfer[0];
        }
        let mut journey = match entry.owner {
            NOBODY => costs.dram,
            owner => costs.line(topology.distance(cpu, u32::from(owner))),
        };
        if entry.shared {
            // All copies go: the farthest one decides.
            let at = home as usize * self.words;
            let socket = usize::from(topology.socket_of(cpu)) * self.words;
            let near = &self.socket_masks[socket..socket + self.words];
            let copies = &mut self.sharers[at..at + self.words];
            let far = copies
                .iter()
                .zip(near)
                .any(|(copy, near)| copy & !near != 0);
            journey = journey.max(costs.transfer[if far { 4 } else { 2 }]);
            copies.fill(0);
        }
        let start = now.max(entry.busy_until);
        self.entries[home as usize] = Entry {
            keeper: if entry.shared { NOBODY } else { entry.owner },
            keeps_until: start + costs.lingers(journey),
            watcher: entry.watcher,
            crowd: entry.crowd,
            ..Entry::of(cpu as u16, start + journey)
        };
        start + journey
    }

    /// A lock hand-off brought the line to `cpu`, where it is from `at` on.
    #[inline]
    pub fn give(&mut self, home: u32, cpu: u32, at: Ps) {
        let from = home as usize * self.words;
        self.sharers[from..from + self.words].fill(0);
        let entry = &mut self.entries[home as usize];
        *entry = Entry {
            watcher: entry.watcher,
            crowd: entry.crowd,
            ..Entry::of(cpu as u16, at)
        };
    }

    /// From now on `crowd` CPUs spin on the line for a lock in it, `watcher` first; nobody when
    /// the crowd is empty. Each store of the lock's holder has to take the line back from them.
    #[inline]
    pub fn watch(&mut self, home: u32, watcher: u32, crowd: usize) {
        let entry = &mut self.entries[home as usize];
        entry.watcher = if crowd == 0 { NOBODY } else { watcher as u16 };
        entry.crowd = crowd as u16;
    }
}
