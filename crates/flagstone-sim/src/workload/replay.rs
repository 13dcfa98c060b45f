//! Recorded kernel traces, played again on the simulated allocator.
//!
//! ```text
//!   data/NAME.trace.zst    "caches NAME=SIZE .."   then one event a line: "dt_ns,cpu,op,slot"
//!                          op: a cache number (allocate into slot), f (free), u (freed unseen)
//! ```
//!
//! Recorded on a 2-CPU machine with Linux 6.18 (kmem tracepoints, no events lost): the slab
//! events of the first 27,000 to 110,000 whose object was allocated inside the trace. A slot is an object's
//! place in a table; `u` marks objects whose free had no event (bulk and RCU frees) when their
//! address was seen again. Page events are left out: the allocator under test makes its own.
//!
//! A CPU waits the recorded gap between its own events (at most `--think`, by default 20 µs, so
//! that idle time does not count), and for the other CPU only where an object crosses over: it spins
//! on a line of its own until the other's event is done. The
//! machine is filled by giving every pair of CPUs its own copy of both streams. After the last
//! event all objects left are freed and the trace starts again. An operation is one event.

use super::Env;
use crate::costs::NS;
use crate::schedule::Program;
use crate::vm::Vm;
use core::cell::{Cell, RefCell};
use core::ptr::NonNull;
use flagstone_core::base::CacheId;
use std::rc::Rc;
use std::sync::OnceLock;

/// Longest pause between two events of a CPU that is played, in nanoseconds.
const GAP_NS: f64 = 20_000.0;

/// The recorded traces: name and compressed text.
pub const TRACES: [(&str, &[u8]); 4] = [
    ("mmap1", include_bytes!("../../data/mmap1.trace.zst")),
    (
        "hackbench-socket",
        include_bytes!("../../data/hackbench-socket.trace.zst"),
    ),
    (
        "hackbench-pipe",
        include_bytes!("../../data/hackbench-pipe.trace.zst"),
    ),
    ("fio-net", include_bytes!("../../data/fio-net.trace.zst")),
];

/// What an event does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// Allocates from the cache with this number.
    Alloc(u16),
    /// Frees.
    Free,
}

/// One event of one CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// Nanoseconds since this CPU's event before.
    pub gap_ns: u32,
    /// The object's place.
    pub slot: u32,
    /// How many events of this slot come before.
    pub turn: u32,
    /// What happens.
    pub act: Act,
}

/// A trace, ready to be played.
#[derive(Debug)]
pub struct Trace {
    /// Names and object sizes of its caches.
    pub caches: Vec<(String, usize)>,
    /// The events of each CPU.
    pub streams: [Vec<Event>; 2],
    /// How many slots it uses.
    pub slots: usize,
}

impl Trace {
    /// Reads a trace from compressed text.
    ///
    /// # Errors
    /// One line with the number of the line that does not read.
    pub fn read(compressed: &[u8]) -> Result<Self, String> {
        let text = zstd::decode_all(compressed).map_err(|error| format!("trace: {error}"))?;
        let text = String::from_utf8(text).map_err(|_| String::from("trace: not text"))?;
        let mut lines = text.lines();
        let head = lines.next().and_then(|line| line.strip_prefix("caches "));
        let caches = head
            .ok_or("trace line 1: no caches")?
            .split(' ')
            .map(|word| {
                let (name, size) = word.split_once('=')?;
                Some((name.to_owned(), size.parse().ok()?))
            });
        let caches: Option<Vec<(String, usize)>> = caches.collect();
        let mut trace = Self {
            caches: caches.ok_or("trace line 1: a cache is not NAME=SIZE")?,
            streams: [Vec::new(), Vec::new()],
            slots: 0,
        };
        let (mut now, mut last, mut turns) = (0u64, [0u64; 2], Vec::new());
        for (index, line) in lines.enumerate() {
            let event = trace.event(line, &mut now, &mut last, &mut turns);
            event.ok_or_else(|| format!("trace line {}: `{line}`", index + 2))?;
        }
        trace.slots = turns.len();
        Ok(trace)
    }

    fn event(
        &mut self,
        line: &str,
        now: &mut u64,
        last: &mut [u64; 2],
        turns: &mut Vec<u32>,
    ) -> Option<()> {
        let mut words = line.split(',');
        *now += words.next()?.parse::<u64>().ok()?;
        let cpu: usize = words.next()?.parse().ok().filter(|cpu| *cpu < 2)?;
        let act = match words.next()? {
            "f" | "u" => Act::Free,
            number => Act::Alloc(
                number
                    .parse()
                    .ok()
                    .filter(|n| usize::from(*n) < self.caches.len())?,
            ),
        };
        let slot: u32 = words.next()?.parse().ok()?;
        if slot as usize >= turns.len() {
            turns.resize(slot as usize + 1, 0);
        }
        let turn = &mut turns[slot as usize];
        // Slots alternate between allocation and free.
        (turn.is_multiple_of(2) == (act != Act::Free)).then_some(())?;
        self.streams[cpu].push(Event {
            gap_ns: (*now - last[cpu]).min(u64::from(u32::MAX)) as u32,
            slot,
            turn: *turn,
            act,
        });
        *turn += 1;
        last[cpu] = *now;
        Some(())
    }

    /// The trace called `name`, read once.
    ///
    /// # Panics
    /// If there is no such trace, or it does not read: both are our own mistakes.
    #[must_use]
    pub fn named(name: &str) -> &'static Self {
        static READ: [OnceLock<Trace>; 4] = [const { OnceLock::new() }; 4];
        let index = TRACES
            .iter()
            .position(|(known, _)| *known == name)
            .expect("a known trace");
        READ[index].get_or_init(|| Self::read(TRACES[index].1).expect("our own trace reads"))
    }
}

#[derive(Default)]
struct Slot {
    turn: Cell<u32>,
    object: Cell<Option<(CacheId, NonNull<u8>)>>,
}

/// A pair of CPUs playing one copy of a trace.
struct Copy {
    slots: Vec<Slot>,
    /// CPUs that have reached the end of this round, and the rounds ended.
    ended: Cell<u32>,
    rounds: Cell<u32>,
    sleeper: RefCell<Option<u32>>,
    /// A CPU that waits for an event of this slot by the other.
    waits: Cell<Option<(u32, u32)>>,
}

fn play<'a>(env: &'a Env<'a>, name: &str) -> Vec<(u32, Program<'a>)> {
    let trace = Trace::named(name);
    let caches = trace
        .caches
        .iter()
        .map(|(name, size)| match name.strip_prefix("kmalloc-") {
            Some(_) => env.subject.kmalloc(name, *size),
            None => env.subject.cache(name, *size),
        });
    let caches: Rc<Vec<CacheId>> = Rc::new(caches.collect());
    let longest = env.think(GAP_NS);
    let mut programs: Vec<(u32, Program<'a>)> = Vec::new();
    for (a, b) in super::pairs::pairs(env) {
        let copy = Rc::new(Copy {
            slots: (0..trace.slots).map(|_| Slot::default()).collect(),
            ended: Cell::new(0),
            rounds: Cell::new(0),
            sleeper: RefCell::default(),
            waits: Cell::new(None),
        });
        for (index, cpu) in [a, b].into_iter().enumerate() {
            let (copy, caches) = (Rc::clone(&copy), Rc::clone(&caches));
            let program: Program<'a> = Box::new(move |vm: &Vm| {
                vm.spend(u64::from(vm.chance.below(20_000)) * NS);
                while !vm.stopping() {
                    let stream = &trace.streams[index];
                    for (at, event) in stream.iter().enumerate() {
                        expect(vm, &copy, &stream[at + 1..]);
                        vm.spend((u64::from(event.gap_ns) * NS).min(longest));
                        if !step(vm, env, &copy, &caches, event) {
                            return;
                        }
                    }
                    end_of_round(vm, env, &copy);
                }
            });
            programs.push((cpu, program));
        }
    }
    programs
}

/// What the next events will look at, each of them in a turn of its own as a rule.
#[inline]
fn expect(vm: &Vm, copy: &Copy, coming: &[Event]) {
    let slot = |event: &Event| &copy.slots[event.slot as usize];
    if let Some(later) = coming.get(2) {
        vm.expect_read(slot(later));
    }
    if let Some(next) = coming.first()
        && let Some((_, object)) = slot(next).object.get()
    {
        vm.expect_next(object.as_ptr());
    }
}

/// Plays one event; `false` when the run is over.
fn step(vm: &Vm, env: &Env<'_>, copy: &Copy, caches: &[CacheId], event: &Event) -> bool {
    let slot = &copy.slots[event.slot as usize];
    while slot.turn.get() != event.turn {
        if vm.stopping() {
            return false;
        }
        copy.waits.set(Some((vm.current(), event.slot)));
        vm.park();
    }
    match event.act {
        Act::Alloc(cache) => {
            let cache = caches[usize::from(cache)];
            let object = env.subject.alloc(vm, cache);
            vm.use_object(object.as_ptr(), 64);
            slot.object.set(Some((cache, object)));
        }
        Act::Free => free_slot(vm, env, slot),
    }
    slot.turn.set(event.turn + 1);
    if let Some((other, place)) = copy.waits.get()
        && place == event.slot
    {
        copy.waits.set(None);
        vm.release_spinner(other);
    }
    vm.count_op();
    !vm.stopping()
}

fn free_slot(vm: &Vm, env: &Env<'_>, slot: &Slot) {
    if let Some((cache, object)) = slot.object.take() {
        // SAFETY: the slot owned the object, which came from this cache.
        unsafe { env.subject.free(vm, cache, object) };
    }
}

/// The first of a pair waits; the second frees what is left and starts the next round.
fn end_of_round(vm: &Vm, env: &Env<'_>, copy: &Copy) {
    vm.sync();
    let round = copy.rounds.get();
    copy.ended.set(copy.ended.get() + 1);
    if copy.ended.get() < 2 {
        *copy.sleeper.borrow_mut() = Some(vm.current());
        while copy.rounds.get() == round && !vm.stopping() {
            vm.park();
        }
        return;
    }
    for slot in &copy.slots {
        free_slot(vm, env, slot);
        slot.turn.set(0);
    }
    copy.ended.set(0);
    copy.rounds.set(round + 1);
    let sleeper = copy.sleeper.borrow_mut().take();
    if let Some(other) = sleeper {
        vm.unpark(other);
    }
}

pub(super) fn mmap1<'a>(env: &'a Env<'a>) -> Vec<(u32, Program<'a>)> {
    play(env, "mmap1")
}

pub(super) fn hackbench_socket<'a>(env: &'a Env<'a>) -> Vec<(u32, Program<'a>)> {
    play(env, "hackbench-socket")
}

pub(super) fn hackbench_pipe<'a>(env: &'a Env<'a>) -> Vec<(u32, Program<'a>)> {
    play(env, "hackbench-pipe")
}

pub(super) fn fio_net<'a>(env: &'a Env<'a>) -> Vec<(u32, Program<'a>)> {
    play(env, "fio-net")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_trace_reads_and_both_cpus_have_events() {
        for (name, _) in TRACES {
            let trace = Trace::named(name);
            assert!(
                trace.streams.iter().all(|stream| stream.len() > 100),
                "{name}"
            );
            assert!(trace.slots > 0 && !trace.caches.is_empty(), "{name}");
        }
    }

    #[test]
    fn a_line_that_is_no_event_is_named() {
        let text = zstd::encode_all(&b"caches a=8\n0,0,0,0\n5,7,f,0\n"[..], 1).unwrap();
        assert_eq!(Trace::read(&text).unwrap_err(), "trace line 3: `5,7,f,0`");
    }
}
