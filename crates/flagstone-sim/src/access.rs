//! What an access costs: the core's to its lines, a program's to objects, pages and its own memory;
//! and what is asked for before it is accessed, which costs the simulated program nothing.

use crate::ahead::fetch;
use crate::predictor::Step;
use crate::tally::bump;
use crate::vm::Vm;
use core::ptr::NonNull;
use flagstone_core::platform::{Access, Line};

impl Vm {
    /// The core accesses a line.
    #[inline]
    pub(crate) fn touch(&self, line: Line, address: usize, access: Access) {
        if !self.timed.get() {
            return self.touch_untimed(line, address);
        }
        self.decided(|| Step::of_touch(line, access));
        match line {
            Line::Object | Line::Cpu | Line::Sheaf | Line::Pageset | Line::Page => {
                let cpu = self.cpu.get();
                let mut lines = self.lines.borrow_mut();
                let cost = match (line, access, &self.costs.link_transfer) {
                    (Line::Object, Access::Read, Some(ways)) => {
                        lines.link(address, cpu, ways, &self.topology, &self.costs)
                    }
                    _ => lines.object(address, cpu, &self.topology, &self.costs),
                };
                drop(lines);
                let atomic = match access {
                    Access::Atomic => self.costs.atomic,
                    Access::Read | Access::Write => 0,
                };
                self.pass(cost + atomic);
            }
            Line::Slab | Line::Node | Line::Barn | Line::Zone | Line::FreeArea | Line::Heap => {
                self.touch_shared(address, access, false);
            }
            Line::Gate => self.touch_gate(address, access),
        }
    }

    /// Every fast path reads the gate's line, which is hardly ever written: who has read it since the
    /// last write has it at hand, and that is part of what a fast path takes.
    #[inline]
    fn touch_gate(&self, address: usize, access: Access) {
        let seen = &self.gate_seen[self.cpu.get() as usize];
        if access == Access::Read && seen.get() == self.gate_writes.get() {
            return;
        }
        if access != Access::Read {
            self.gate_writes.set(self.gate_writes.get() + 1);
        }
        seen.set(self.gate_writes.get());
        self.touch_shared(address, access, false);
    }

    /// `is_measured`: a line of the program, which at hand is part of what the program takes.
    pub(crate) fn touch_shared(&self, address: usize, access: Access, is_measured: bool) {
        self.sync_for(address);
        let (cpu, now) = (self.cpu.get(), self.now.get());
        let mut lines = self.lines.borrow_mut();
        let home = lines.home(address);
        let mut end = if access == Access::Read {
            lines.read(home, cpu, now, &self.topology, &self.costs)
        } else {
            lines.write(home, cpu, now, &self.topology, &self.costs)
        };
        drop(lines);
        if end > now + self.costs.transfer[0] {
            bump(&self.tally().misses, 1);
        } else if is_measured {
            end = now;
        }
        if access == Access::Atomic && !is_measured {
            end += self.costs.atomic;
        }
        self.now.set(end);
        self.digest
            .add(end ^ u64::from(home) << 44 ^ u64::from(cpu) << 34);
    }

    #[cold]
    fn touch_untimed(&self, line: Line, address: usize) {
        if !self.in_task.get() {
            return;
        }
        let arena = self.arena.borrow();
        let inside = arena.contains(address);
        if inside && !arena.usable(address) {
            drop(arena);
            self.fail(format!(
                "memory.usable: {line:?} line touched in released memory"
            ));
        }
        drop(arena);
        // Addresses outside the arena are the host's and differ from run to run.
        let place = if inside {
            address as u64 & 0x3fff_ffff
        } else {
            0
        };
        self.digest.add(place ^ (line as u64) << 32);
        self.point();
    }

    /// An entry of the running CPU's sheaf is read: eight lie on a line, which comes with them from whoever
    /// filled the sheaf or emptied it. Only profiles that know what rows of lines cost have a price for it.
    #[inline]
    pub(crate) fn use_entry(&self, entry: NonNull<*mut u8>) {
        if self.costs.link_transfer.is_some() && self.timed.get() {
            self.use_entry_line(entry.as_ptr() as usize);
        }
    }

    #[cold]
    fn use_entry_line(&self, address: usize) {
        let cpu = self.cpu.get();
        let mut lines = self.lines.borrow_mut();
        let cost = lines.object(address, cpu, &self.topology, &self.costs);
        drop(lines);
        if cost > self.costs.transfer[0] {
            self.pass(cost);
        }
    }

    /// The program accesses a line of its own that other CPUs use too.
    pub(crate) fn use_line(&self, line: *const u8, access: Access) {
        if self.timed.get() && self.options.program_is_measured {
            self.touch_shared(line as usize, access, true);
        } else {
            self.touch(Line::Node, line as usize, access);
        }
    }

    /// The program reads or writes `bytes` of an object.
    #[inline]
    pub fn use_object(&self, address: *const u8, bytes: usize) {
        if !self.timed.get() {
            return self.point();
        }
        let (cpu, first) = (self.cpu.get(), address as usize);
        let mut lines = self.lines.borrow_mut();
        let (near, far) = lines.object_part(first, bytes, cpu, &self.topology, &self.costs);
        drop(lines);
        let near = if self.options.program_is_measured {
            0
        } else {
            near
        };
        self.pass(far + near);
    }

    /// An object will be accessed soon: the directory's entry for it may be on its way, and the object, whose mark
    /// is read where it is freed.
    #[inline]
    pub(crate) fn expect_object(&self, object: *const u8) {
        fetch(self.lines.borrow().shadow_at(object as usize));
        fetch(object as usize);
    }

    /// An object will be accessed, perhaps not before this thread's next turn.
    #[inline]
    pub(crate) fn expect_next(&self, object: *const u8) {
        let entry = self.lines.borrow().shadow_at(object as usize);
        self.expect_at(entry);
        fetch(object as usize);
    }

    /// Memory of the host's will be read, perhaps not before this thread's next turn.
    #[inline]
    pub(crate) fn expect_read<T>(&self, place: &T) {
        self.expect_at(core::ptr::from_ref(place) as usize);
    }

    #[inline]
    fn expect_at(&self, address: usize) {
        fetch(address);
        self.thread().wants.add_object(address);
    }

    /// The program uses `bytes` of data in the page at `page`, through the data cache.
    pub fn use_page(&self, page: *const u8, bytes: usize) {
        let cluster = self.topology.cluster_of(self.cpu.get());
        let mut data = self.data.borrow_mut();
        let cost = data.touch_page(cluster, page as usize, bytes, &self.costs);
        drop(data);
        self.pass(cost);
    }

    /// The program uses this many lines of its other data, of which `misses_1024` in 1024 miss;
    /// what they cost is part of its think time.
    pub fn use_own_data(&self, lines: u64, misses_1024: u64) {
        let misses = lines * misses_1024 / 1024;
        let cluster = self.topology.cluster_of(self.cpu.get());
        self.data.borrow_mut().other_uses(cluster, lines, misses);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::options::Options;
    use crate::schedule::Program;

    /// Picoseconds that CPU 1 waits for eight entries which CPU 0 wrote, and then for them again.
    fn entries_of_another(in_row: Option<[f64; 2]>) -> (u64, u64) {
        let mut machine = Machine::named("x86-16").unwrap();
        machine.latency_ns.in_row = in_row;
        let vm = Vm::new(machine, Options::default());
        let sheaf = vm.arena.borrow().base();
        let use_all = |vm: &Vm| {
            let before = vm.now();
            for entry in 0..8 {
                vm.use_entry(NonNull::new((sheaf + entry * 8) as *mut *mut u8).unwrap());
            }
            vm.now() - before
        };
        let found = core::cell::Cell::new((0, 0));
        let first: Program<'_> = Box::new(|vm: &Vm| {
            use_all(vm);
        });
        let second: Program<'_> = Box::new(|vm: &Vm| {
            vm.sleep_until(1_000_000);
            found.set((use_all(vm), use_all(vm)));
        });
        vm.run(vec![(0, first), (1, second)], u64::MAX, |_| None)
            .unwrap();
        found.get()
    }

    #[test]
    fn a_line_of_a_sheafs_entries_comes_once_for_all_of_them_where_rows_have_a_price() {
        let machine = Machine::named("x86-16").unwrap();
        let way = (machine.latency_ns.socket * 1000.0) as u64;
        assert_eq!(entries_of_another(Some([0.5, 0.5])), (way, 0));
        assert_eq!(entries_of_another(None), (0, 0));
    }
}
