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

use crate::costs::{Costs, Ps};
use crate::hash::ByAddress;
use crate::mapping::Mapping;
use crate::topology::Topology;

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

#[derive(Clone, Copy, Debug)]
struct Entry {
    busy_until: Ps,
    /// Until when `keeper` still has it as its own.
    keeps_until: Ps,
    owner: u16,
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
    fn of(owner: u16, at: Ps) -> Self {
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
        let shadow = self.shadow_of(address);
        let last = *shadow;
        if last == cpu + 1 {
            return costs.transfer[0];
        }
        if last & HOME == 0 {
            *shadow = cpu + 1;
        }
        self.fetched(last, cpu, topology, costs)
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
                        _ => self.fetched(before, cpu, topology, costs),
                    };
                }
            } else {
                last = before;
                journey = self.fetched(before, cpu, topology, costs);
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

    /// What it costs `cpu` to fetch an object's line that was at `last`.
    #[inline(never)]
    fn fetched(&mut self, last: u32, cpu: u32, topology: &Topology, costs: &Costs) -> Ps {
        if last & HOME != 0 {
            self.take_home(last & !HOME, cpu, topology, costs)
        } else if last == 0 {
            costs.dram
        } else {
            costs.object_transfer[topology.distance(cpu, last - 1) as usize]
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::NS;
    use crate::machine::Machine;

    fn world() -> (Directory, Topology, Costs) {
        let machine = Machine::named("spr-2s-224").unwrap();
        let topology = Topology::new(&machine);
        (
            Directory::new(1 << 40, 1 << 20, &topology).unwrap(),
            topology,
            Costs::new(&machine),
        )
    }

    #[test]
    fn a_line_costs_its_distance_and_hot_lines_queue() {
        let (mut lines, t, c) = world();
        let home = lines.home((1 << 40) + 64);
        assert_eq!(lines.write(home, 0, 0, &t, &c), 110 * NS, "from memory");
        assert_eq!(
            lines.write(home, 0, 200 * NS, &t, &c),
            200 * NS + 1500,
            "in L1"
        );
        assert_eq!(
            lines.write(home, 56, 300 * NS, &t, &c),
            470 * NS,
            "across sockets"
        );
        assert_eq!(
            lines.write(home, 57, 300 * NS, &t, &c),
            524 * NS,
            "waits for the journey before"
        );
    }

    #[test]
    fn the_last_owner_keeps_a_line_until_the_request_has_arrived() {
        let (mut lines, t, mut c) = world();
        c.linger = 512;
        let home = lines.home(1 << 40);
        lines.write(home, 0, 0, &t, &c);
        assert_eq!(lines.write(home, 1, 200 * NS, &t, &c), 254 * NS);
        assert_eq!(
            lines.write(home, 0, 226 * NS, &t, &c),
            226 * NS + 1500,
            "half of the way not over"
        );
        assert_eq!(
            lines.write(home, 0, 240 * NS, &t, &c),
            308 * NS,
            "gone: waits for its arrival and fetches it back"
        );
    }

    #[test]
    fn where_written_lines_migrate_a_reader_may_write_and_a_second_reader_has_a_copy() {
        let (mut lines, t, mut c) = world();
        c.migrates = true;
        let home = lines.home(1 << 40);
        lines.write(home, 0, 0, &t, &c);
        assert_eq!(lines.read(home, 1, 200 * NS, &t, &c), 254 * NS);
        // CPU 1 has not written it yet: the next reader leaves it a copy.
        let mut copies = lines;
        assert_eq!(copies.read(home, 2, 300 * NS, &t, &c), 354 * NS);
        assert_eq!(copies.read(home, 1, 400 * NS, &t, &c), 401_500);
        assert_eq!(copies.write(home, 1, 500 * NS, &t, &c), 554 * NS);
        assert_eq!(copies.write(home, 1, 600 * NS, &t, &c), 601_500);
        assert_eq!(copies.read(home, 0, 700 * NS, &t, &c), 754 * NS);
        assert_eq!(
            copies.write(home, 0, 800 * NS, &t, &c),
            801_500,
            "it moved whole"
        );
    }

    #[test]
    fn readers_share_and_a_writer_pays_for_the_farthest_copy() {
        let (mut lines, t, c) = world();
        let home = lines.home(1 << 40);
        lines.write(home, 0, 0, &t, &c);
        for cpu in [1, 2, 56] {
            let at = 1000 * NS * u64::from(cpu);
            assert!(lines.read(home, cpu, at, &t, &c) > at + 2 * NS);
            let again = lines.read(home, cpu, at + 500 * NS, &t, &c);
            assert_eq!(again, at + 500 * NS + 1500, "a copy stays");
        }
        let end = lines.write(home, 0, 1_000_000 * NS, &t, &c);
        assert_eq!(
            end,
            (1_000_000 + 170) * NS,
            "the owner too waits for the far copy to go"
        );
        assert!(
            lines.read(home, 1, 2_000_000 * NS, &t, &c) > 2_000_002 * NS,
            "copies are gone"
        );
    }

    #[test]
    fn a_watched_line_comes_back_for_each_store_of_its_owner() {
        let machine = Machine::named("xeon-2007-8").unwrap();
        let (t, c) = (Topology::new(&machine), Costs::new(&machine));
        let mut lines = Directory::new(1 << 40, 1 << 20, &t).unwrap();
        let home = lines.home(1 << 40);
        let begin = lines.write(home, 0, 0, &t, &c);
        let store = |lines: &mut Directory| lines.write(home, 0, begin, &t, &c) - begin;
        let alone = store(&mut lines);
        lines.watch(home, 4, 3);
        assert_eq!(store(&mut lines), 128_700 + 3 * 27_900);
        lines.watch(home, 0, 0);
        assert_eq!(store(&mut lines), alone);
    }

    #[test]
    fn object_lines_remember_their_last_cpu_only() {
        let (mut lines, t, c) = world();
        let at = (1 << 40) + 4096;
        let steps = [
            (0, 110_000),
            (0, 1500),
            (112, 4000),
            (1, 54_000),
            (60, 170_000),
        ];
        for (cpu, cost) in steps {
            assert_eq!(lines.object(at, cpu, &t, &c), cost);
        }
    }

    #[test]
    fn an_objects_lines_cost_the_same_together_as_one_by_one() {
        let ((mut together, t, c), (mut single, ..)) = (world(), world());
        let chance = crate::chance::Chance::new(5);
        let mut costs_seen = std::collections::BTreeSet::new();
        for _ in 0..3000 {
            let address = (1 << 40) + chance.below(8192) as usize;
            let (bytes, cpu) = (chance.below(700) as usize, chance.below(224));
            if chance.happens(1, 20) {
                for lines in [&mut together, &mut single] {
                    let home = lines.home(address);
                    lines.write(home, cpu, 0, &t, &c);
                }
            }
            let sum = together.object_part(address, bytes, cpu, &t, &c);
            let each = (address & !63..address + bytes.max(1)).step_by(64);
            let costs = each.map(|line| single.object(line, cpu, &t, &c));
            let (near, far): (Vec<Ps>, Vec<Ps>) = costs.partition(|cost| *cost == c.transfer[0]);
            costs_seen.extend(far.iter().copied());
            assert_eq!(sum, (near.iter().sum(), far.iter().sum()));
        }
        assert!(costs_seen.len() > 3, "from memory, and over every distance");
    }

    #[test]
    fn a_line_outside_the_arena_works_the_same() {
        let (mut lines, t, c) = world();
        let home = lines.home(64);
        assert_eq!(home, lines.home(100));
        assert_eq!(lines.write(home, 0, 0, &t, &c), 110 * NS);
    }
}
