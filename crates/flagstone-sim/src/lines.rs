//! The directory of cache lines: who has a line, and until when it is on its way.
//!
//! ```text
//!   address ─► shadow (4 bytes per 64-byte line, populated where touched)
//!                0            never touched
//!                1 + cpu      an object line: only its last CPU is kept
//!                HOME | index a shared line ─► Entry { owner, busy-until } + sharer bitmap
//! ```
//!
//! Two precisions, because there are millions of object lines and few shared ones. A shared line
//! is moved by one CPU at a time: a miss starts when the line's last journey ended, so hot lines
//! queue; its last owner may go on using it until the request for it has arrived, where a profile
//! says so. An object line costs its distance from the CPU that touched it last.
//!
//! Not here: capacity. A line stays where it was last touched however long ago; the data-cache
//! model (cache.rs) covers the effects of capacity on the data behind objects.

mod shared;

use crate::costs::{Costs, Ps};
use crate::hash::ByAddress;
use crate::mapping::Mapping;
use crate::topology::Topology;
use shared::Entry;

/// The table of all lines. Large machines read it at random: large pages save a third of the time.
fn shadow(lines: usize) -> Option<Mapping> {
    /// Tables of machines with more memory than this are worth large pages.
    const LARGE: usize = 64 << 20;
    let bytes = lines * size_of::<u32>();
    let table = Mapping::new(bytes)?;
    Some(if bytes > LARGE { table.dense() } else { table })
}

const LINE_SHIFT: u32 = 6;
const HOME: u32 = 1 << 31;
const NOBODY: u16 = u16::MAX;

/// Places for shared lines outside the arena that are found without a hash table.
const RECENT: usize = 4096;

/// Where every line is.
#[derive(Debug)]
pub struct Directory {
    shadow: Mapping,
    base: usize,
    lines: usize,
    /// Lines of the host's memory (the core's tables, mailboxes), and those asked for last.
    outside: ByAddress<u32>,
    recent: Box<[(usize, u32); RECENT]>,
    entries: Vec<Entry>,
    sharers: Vec<u64>,
    words: usize,
    socket_masks: Vec<u64>,
    /// The line of a link that each CPU read last.
    links: Vec<usize>,
}

impl Directory {
    /// A directory for memory at `base`, `bytes` long; `None` if the system grants no address space
    /// for it.
    #[must_use]
    pub fn new(base: usize, bytes: usize, topology: &Topology) -> Option<Self> {
        let words = (topology.cpus() as usize).div_ceil(64);
        let lines = bytes >> LINE_SHIFT;
        let sockets = 1
            + (0..topology.cpus())
                .map(|c| topology.socket_of(c))
                .max()
                .unwrap_or(0);
        let mut socket_masks = vec![0u64; words * usize::from(sockets)];
        for cpu in 0..topology.cpus() {
            let socket = usize::from(topology.socket_of(cpu));
            socket_masks[socket * words + cpu as usize / 64] |= 1 << (cpu % 64);
        }
        Some(Self {
            shadow: shadow(lines)?,
            base,
            lines,
            outside: ByAddress::default(),
            recent: Box::new([(usize::MAX, 0); RECENT]),
            entries: Vec::new(),
            sharers: Vec::new(),
            words,
            socket_masks,
            links: vec![0; topology.cpus() as usize],
        })
    }

    /// For memory of which only few lines are looked at, far apart: the table takes small pages.
    #[must_use]
    pub fn sparse(mut self) -> Self {
        self.shadow = self.shadow.sparse();
        self
    }

    #[inline(always)]
    fn shadow_of(&mut self, address: usize) -> &mut u32 {
        let line = address.wrapping_sub(self.base) >> LINE_SHIFT;
        if line < self.lines {
            // SAFETY: `line < lines`, and the mapping holds one aligned u32 for each line, zeroed
            // or written by us; the borrow of `self` makes this the only reference.
            unsafe { self.shadow.start().cast::<u32>().add(line).as_mut() }
        } else {
            self.shadow_outside(address)
        }
    }

    #[cold]
    #[inline(never)]
    fn shadow_outside(&mut self, address: usize) -> &mut u32 {
        self.outside.entry(address >> LINE_SHIFT).or_insert(0)
    }

    /// Where what is known of an object's line is, to fetch it by; anything for other lines.
    #[inline(always)]
    pub(crate) fn shadow_at(&self, address: usize) -> usize {
        let line = address.wrapping_sub(self.base) >> LINE_SHIFT;
        (self.shadow.start().as_ptr() as usize).wrapping_add(line.wrapping_mul(size_of::<u32>()))
    }

    /// `cpu` accesses an object's line; returns what that costs.
    #[inline(always)]
    pub fn object(&mut self, address: usize, cpu: u32, topology: &Topology, costs: &Costs) -> Ps {
        self.object_by(address, cpu, &costs.object_transfer, topology, costs)
    }

    /// The same where a line comes from another CPU by `ways`.
    #[inline(always)]
    fn object_by(
        &mut self,
        address: usize,
        cpu: u32,
        ways: &[Ps; 5],
        topology: &Topology,
        costs: &Costs,
    ) -> Ps {
        let shadow = self.shadow_of(address);
        let last = *shadow;
        if last == cpu + 1 {
            return costs.transfer[0];
        }
        if last & HOME == 0 {
            *shadow = cpu + 1;
        }
        self.fetched(last, cpu, ways, topology, costs)
    }

    /// `cpu` reads where the next object is, from an object's line; returns what that costs, where the
    /// line is another CPU's by `ways`: after an object of one line beside it, of more, and elsewhere.
    #[cold]
    pub fn link(
        &mut self,
        address: usize,
        cpu: u32,
        ways: &[[Ps; 5]; 3],
        topology: &Topology,
        costs: &Costs,
    ) -> Ps {
        /// Lines from one to the next at most that prefetchers expect.
        const BESIDE: usize = 4;
        let line = address >> LINE_SHIFT;
        let before = core::mem::replace(&mut self.links[cpu as usize], line);
        let after = match line.abs_diff(before) {
            0..=1 => 0,
            2..=BESIDE => 1,
            _ => 2,
        };
        self.object_by(address, cpu, &ways[after], topology, costs)
    }

    /// `cpu` accesses all lines of `bytes` of an object; returns what those cost that were at hand
    /// and what the others do.
    pub fn object_part(
        &mut self,
        address: usize,
        bytes: usize,
        cpu: u32,
        topology: &Topology,
        costs: &Costs,
    ) -> (Ps, Ps) {
        let here = costs.transfer[0];
        let (mut near, mut far) = (0, 0);
        // Neighbouring lines come from the same place as a rule.
        let (mut last, mut journey) = (cpu + 1, here);
        for line in (address & !63..address + bytes.max(1)).step_by(64) {
            let shadow = self.shadow_of(line);
            let before = *shadow;
            if before & HOME == 0 {
                *shadow = cpu + 1;
                if before != last {
                    last = before;
                    journey = match before {
                        mine if mine == cpu + 1 => here,
                        _ => self.fetched(before, cpu, &costs.object_transfer, topology, costs),
                    };
                }
            } else {
                last = before;
                journey = self.fetched(before, cpu, &costs.object_transfer, topology, costs);
            }
            if journey == here {
                near += journey;
            } else {
                far += journey;
            }
        }
        (near, far)
    }

    /// A shared line will be asked for: where its entry is, to fetch it by; zero if it has none.
    #[inline]
    pub(crate) fn place_of(&self, address: usize) -> usize {
        let line = address.wrapping_sub(self.base) >> LINE_SHIFT;
        let home = if line < self.lines {
            // SAFETY: `line < lines`, and the mapping holds one aligned u32 for each line; nobody
            // writes while `self` is borrowed.
            let shadow = unsafe { *self.shadow.start().cast::<u32>().add(line).as_ref() };
            (shadow & HOME != 0).then_some(shadow & !HOME)
        } else {
            let line = address >> LINE_SHIFT;
            let (known, home) = self.recent[line % RECENT];
            (known == line).then_some(home)
        };
        home.map_or(0, |home| {
            self.entries.as_ptr() as usize + home as usize * size_of::<Entry>()
        })
    }

    /// What it costs `cpu` to fetch an object's line that was at `last`, from another CPU by `ways`.
    #[inline(never)]
    fn fetched(
        &mut self,
        last: u32,
        cpu: u32,
        ways: &[Ps; 5],
        topology: &Topology,
        costs: &Costs,
    ) -> Ps {
        if last & HOME != 0 {
            self.take_home(last & !HOME, cpu, topology, costs)
        } else if last == 0 {
            costs.dram
        } else {
            ways[topology.distance(cpu, last - 1) as usize]
        }
    }

    /// A line that is shared at times is used as a private one: the owner changes, nobody queues.
    #[cold]
    fn take_home(&mut self, home: u32, cpu: u32, topology: &Topology, costs: &Costs) -> Ps {
        let entry = &mut self.entries[home as usize];
        let cost = match entry.owner {
            NOBODY => costs.dram,
            owner => costs.line(topology.distance(cpu, u32::from(owner))),
        };
        let at = entry.busy_until;
        self.give(home, cpu, at);
        cost
    }

    /// Index of the entry of a shared line.
    #[inline]
    pub fn home(&mut self, address: usize) -> u32 {
        if address.wrapping_sub(self.base) >> LINE_SHIFT >= self.lines {
            return self.home_outside(address);
        }
        let shadow = *self.shadow_of(address);
        if shadow & HOME != 0 {
            return shadow & !HOME;
        }
        self.make_home(address, shadow)
    }

    #[inline]
    fn home_outside(&mut self, address: usize) -> u32 {
        let line = address >> LINE_SHIFT;
        let (known, home) = self.recent[line % RECENT];
        if known == line {
            return home;
        }
        self.find_outside(address)
    }

    #[cold]
    #[inline(never)]
    fn find_outside(&mut self, address: usize) -> u32 {
        let shadow = *self.shadow_outside(address);
        let home = if shadow & HOME != 0 {
            shadow & !HOME
        } else {
            self.make_home(address, shadow)
        };
        let line = address >> LINE_SHIFT;
        // A line once shared has its entry for good.
        self.recent[line % RECENT] = (line, home);
        home
    }

    /// Gives a line an entry of its own; so far only its last CPU was known.
    #[cold]
    #[inline(never)]
    fn make_home(&mut self, address: usize, shadow: u32) -> u32 {
        let index = self.entries.len() as u32;
        let owner = if shadow == 0 {
            NOBODY
        } else {
            (shadow - 1) as u16
        };
        self.entries.push(Entry::of(owner, 0));
        self.sharers.resize(self.sharers.len() + self.words, 0);
        *self.shadow_of(address) = HOME | index;
        index
    }
}

#[cfg(test)]
mod tests;
