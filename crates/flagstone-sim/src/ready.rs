//! Which virtual CPU runs next: the earliest by (time, sequence, CPU).
//!
//! ```text
//!   soon    a ring of short spans of time, one bit for each that holds somebody
//!           .....1..1......1.1....  ──► the next bit from here on; its list by (time, sequence)
//!   others  a tournament tree with one leaf for each CPU
//! ```
//!
//! Nearly everybody's next turn is a microsecond away at most, and then putting in and taking out
//! are a few steps without a branch that is hard to guess. Sleepers, and whoever is earlier than
//! the last turn (woken by an observer), are in the tree. The earliest time is always at hand, so
//! that the running CPU can ask "is anybody earlier than I am?" by one comparison.

use crate::costs::Ps;
use crate::machine::MAX_CPUS;

/// Not runnable.
const NEVER: Ps = Ps::MAX;

/// Most CPUs. Fixed sizes: indexes need no check.
const CPUS: usize = MAX_CPUS as usize;
/// Places of the tree of the largest machine.
const PLACES: usize = 2 * CPUS;

/// A span of the ring is 2^9 ps: so short that hundreds of CPUs seldom meet in one.
const SPAN_SHIFT: u32 = 9;
/// Spans of the ring: 16.8 µs. Only those in use take room in the host's caches.
const SPANS: usize = 32_768;
const WORDS: usize = SPANS / 64;
const GROUPS: usize = WORDS / 64;
const NOBODY: u16 = u16::MAX;

/// The runnable virtual CPUs, earliest first.
#[derive(Debug)]
pub struct Ready {
    /// When each CPU's turn is, and when it became runnable, as a running number: ties go in order
    /// of arrival.
    turn: Box<[(Ps, u64); CPUS]>,
    ring: Ring,
    tree: Tree,
    sequence: u64,
    waiting: u32,
    /// The earliest turn of all, and whether it is in the ring.
    first: (Ps, u32, bool),
    /// Who probably comes after it: a hint.
    second: u32,
}

#[derive(Debug)]
struct Ring {
    /// Spans that hold somebody, a bit each; and words of them that are not zero.
    filled: Box<[u64; WORDS]>,
    groups: [u64; GROUPS],
    /// The first of each span's list.
    head: Box<[u16; SPANS]>,
    /// The next of each CPU in its list.
    next: Box<[u16; CPUS]>,
    /// The earliest span that may hold somebody, counted from the beginning of time.
    from: u64,
    count: u32,
    /// Where turns are not taken in the order of time the ring stays empty.
    in_use: bool,
}

#[derive(Debug)]
struct Tree {
    /// The earliest time below each place, and whose it is.
    times: Box<[Ps; PLACES]>,
    whose: Box<[u32; PLACES]>,
    leaves: usize,
}

impl Ready {
    /// Nobody is runnable, of `cpus`, whose turns are taken in the order of time.
    ///
    /// # Panics
    /// Beyond [`MAX_CPUS`].
    #[must_use]
    pub fn new(cpus: u32) -> Self {
        let leaves = (cpus as usize).next_power_of_two().max(2);
        assert!(leaves <= CPUS.max(2), "no machine has so many CPUs");
        Self {
            turn: Box::new([(0, 0); CPUS]),
            ring: Ring {
                filled: Box::new([0; WORDS]),
                groups: [0; GROUPS],
                head: Box::new([NOBODY; SPANS]),
                next: Box::new([NOBODY; CPUS]),
                from: 0,
                count: 0,
                in_use: true,
            },
            tree: Tree {
                times: Box::new([NEVER; PLACES]),
                whose: Box::new([0; PLACES]),
                leaves,
            },
            sequence: 0,
            waiting: 0,
            first: (NEVER, 0, false),
            second: 0,
        }
    }

    /// For turns that are taken in any order ([`Ready::take_nth`]).
    #[must_use]
    pub fn in_any_order(mut self) -> Self {
        self.ring.in_use = false;
        self
    }

    /// Makes `cpu` runnable at `time`.
    #[inline]
    pub fn insert(&mut self, cpu: u32, time: Ps) {
        self.sequence += 1;
        self.waiting += 1;
        self.turn[cpu as usize % CPUS] = (time, self.sequence);
        let in_ring = self.ring.reaches(time);
        if in_ring {
            self.ring.insert(cpu, time, &self.turn);
        } else {
            self.tree.insert(cpu, time);
        }
        // Whoever came before wins a tie.
        if time < self.first.0 {
            self.first = (time, cpu, in_ring);
        }
    }

    /// Takes the earliest CPU: its number and its time.
    #[inline]
    pub fn take(&mut self) -> Option<(u32, Ps)> {
        let (time, cpu, in_ring) = self.first;
        if time == NEVER {
            return None;
        }
        self.waiting -= 1;
        if in_ring {
            self.ring.take(time);
        } else {
            self.tree.clear(cpu as usize, &self.turn);
        }
        self.first = self.find();
        Some((cpu, time))
    }

    /// Who is first now.
    #[inline]
    fn find(&mut self) -> (Ps, u32, bool) {
        let (time, cpu) = (self.tree.times[1], self.tree.whose[1]);
        let far = (time, cpu, false);
        let Some((soon, second)) = self.ring.first() else {
            return far;
        };
        self.second = second;
        let (at, arrived) = self.turn[soon as usize % CPUS];
        if time < at || time == at && self.turn[cpu as usize % CPUS].1 < arrived {
            return far;
        }
        (at, soon, true)
    }

    /// The earliest, left where it is.
    #[inline]
    #[must_use]
    pub fn first(&self) -> Option<(u32, Ps)> {
        let (time, cpu, _) = self.first;
        (time != NEVER).then_some((cpu, time))
    }

    /// Who probably comes after the first: good enough to fetch something for it.
    #[inline]
    #[must_use]
    pub fn second(&self) -> u32 {
        self.second
    }

    /// The time of the earliest; `Ps::MAX` when there is none.
    #[inline]
    #[must_use]
    pub fn earliest(&self) -> Ps {
        self.first.0
    }

    /// How many CPUs are runnable.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.waiting
    }

    /// Takes the runnable CPU with this index among them, in CPU order.
    pub fn take_nth(&mut self, index: u32) -> Option<(u32, Ps)> {
        debug_assert!(!self.ring.in_use, "the ring knows no order of CPUs");
        let (leaves, times) = (self.tree.leaves, &self.tree.times);
        let runnable = |cpu: &usize| times[leaves + cpu] != NEVER;
        let cpu = (0..leaves).filter(runnable).nth(index as usize)?;
        let time = times[leaves + cpu];
        self.waiting -= 1;
        self.tree.clear(cpu, &self.turn);
        self.first = self.find();
        Some((cpu as u32, time))
    }
}

impl Ring {
    #[inline]
    fn reaches(&self, time: Ps) -> bool {
        (time >> SPAN_SHIFT).wrapping_sub(self.from) < SPANS as u64 && self.in_use
    }

    #[inline]
    fn insert(&mut self, cpu: u32, time: Ps, turn: &[(Ps, u64); CPUS]) {
        let span = (time >> SPAN_SHIFT) as usize % SPANS;
        self.count += 1;
        self.filled[span / 64] |= 1 << (span % 64);
        self.groups[span / 64 / 64] |= 1 << (span / 64 % 64);
        let mut before = NOBODY;
        let mut after = self.head[span];
        // Others of the span who are not later came before: they stay ahead.
        while after != NOBODY && turn[after as usize % CPUS].0 <= time {
            before = after;
            after = self.next[after as usize % CPUS];
        }
        self.next[cpu as usize % CPUS] = after;
        if before == NOBODY {
            self.head[span] = cpu as u16;
        } else {
            self.next[before as usize % CPUS] = cpu as u16;
        }
    }

    /// Takes the first of all, whose time is this.
    #[inline]
    fn take(&mut self, time: Ps) {
        // Everybody else is in this span or in a later one.
        self.from = time >> SPAN_SHIFT;
        let span = self.from as usize % SPANS;
        let next = self.next[self.head[span] as usize % CPUS];
        self.head[span] = next;
        let word = span / 64;
        self.filled[word] &= !(u64::from(next == NOBODY) << (span % 64));
        self.groups[word / 64] &= !(u64::from(self.filled[word] == 0) << (word % 64));
        self.count -= 1;
    }

    /// The first of all, and who comes after it as far as that is seen at once.
    #[inline]
    fn first(&self) -> Option<(u32, u32)> {
        if self.count == 0 {
            return None;
        }
        let start = self.from as usize % SPANS;
        let mut word = start / 64;
        let mut bits = self.filled[word] & (u64::MAX << (start % 64));
        if bits == 0 {
            // Somebody is there: the walk ends, at the latest where it began, below the start.
            let mut group = (word + 1) / 64 % GROUPS;
            let mut words = self.groups[group] & (u64::MAX << ((word + 1) % 64));
            while words == 0 {
                group = (group + 1) % GROUPS;
                words = self.groups[group];
            }
            word = group * 64 + words.trailing_zeros() as usize;
            bits = self.filled[word];
        }
        let span = word * 64 + bits.trailing_zeros() as usize;
        let first = self.head[span % SPANS];
        // The next span of the word; beyond it, the same one once more.
        let others = bits & (bits - 1);
        let beside = if others == 0 { bits } else { others };
        let span = word * 64 + beside.trailing_zeros() as usize;
        let second = match self.next[first as usize % CPUS] {
            NOBODY => self.head[span % SPANS],
            next => next,
        };
        Some((u32::from(first), u32::from(second)))
    }
}

impl Tree {
    fn insert(&mut self, cpu: u32, time: Ps) {
        let mut at = self.leaves + cpu as usize;
        debug_assert_eq!(self.times[at % PLACES], NEVER, "once only");
        self.times[at % PLACES] = time;
        self.whose[at % PLACES] = cpu;
        // Whoever came before wins a tie: the walk ends where somebody is not later.
        while at > 1 {
            at /= 2;
            if self.times[at % PLACES] <= time {
                return;
            }
            self.times[at % PLACES] = time;
            self.whose[at % PLACES] = cpu;
        }
    }

    /// A leaf is empty now; its path learns who leads without it.
    fn clear(&mut self, leaf: usize, turn: &[(Ps, u64); CPUS]) {
        let arrived = |cpu: u32| turn[cpu as usize % CPUS].1;
        let mut at = self.leaves + leaf;
        let (mut time, mut leader) = (NEVER, 0);
        self.times[at % PLACES] = NEVER;
        while at > 1 {
            let beside = (at ^ 1) % PLACES;
            let (other, who) = (self.times[beside], self.whose[beside]);
            if other < time || other == time && arrived(who) < arrived(leader) {
                (time, leader) = (other, who);
            }
            at /= 2;
            self.times[at % PLACES] = time;
            self.whose[at % PLACES] = leader;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::Chance;

    #[test]
    fn the_earliest_comes_first_and_ties_go_in_order_of_arrival() {
        let mut ready = Ready::new(5);
        for (cpu, time) in [(4, 30), (0, 20), (3, 10), (1, 20), (2, 20)] {
            ready.insert(cpu, time);
        }
        assert_eq!(ready.earliest(), 10);
        assert_eq!(ready.first(), Some((3, 10)));
        let order: Vec<_> = core::iter::from_fn(|| ready.take()).collect();
        assert_eq!(order, [(3, 10), (0, 20), (1, 20), (2, 20), (4, 30)]);
        assert_eq!((ready.earliest(), ready.len()), (Ps::MAX, 0));
    }

    /// Turns whose distance from the last one is drawn by `ahead`, against a sorted list.
    fn agrees_with_a_sorted_list(seed: u64, ahead: impl Fn(&Chance, Ps) -> Ps) {
        let chance = Chance::new(seed);
        let (mut ready, mut model) = (Ready::new(37), Vec::new());
        let mut last = 0;
        for step in 0..20_000u64 {
            let idle: Vec<u32> = (0..37)
                .filter(|c| !model.iter().any(|m: &(Ps, u64, u32)| m.2 == *c))
                .collect();
            if !idle.is_empty() && (model.is_empty() || chance.happens(1, 2)) {
                let cpu = idle[chance.below(idle.len() as u32) as usize];
                let time = ahead(&chance, last);
                ready.insert(cpu, time);
                model.push((time, step, cpu));
            } else {
                let (time, _, cpu) = model.remove(0);
                last = time;
                assert_eq!(ready.take(), Some((cpu, time)));
            }
            model.sort_unstable();
            let first = model.first().map(|turn| (turn.2, turn.0));
            assert_eq!((ready.first(), ready.len()), (first, model.len() as u32));
        }
    }

    #[test]
    fn turns_close_together_with_many_ties_agree_with_a_sorted_list() {
        agrees_with_a_sorted_list(3, |chance, last| last + u64::from(chance.below(50)));
    }

    #[test]
    fn turns_near_and_far_agree_with_a_sorted_list() {
        let reach = (SPANS as u32) << SPAN_SHIFT;
        agrees_with_a_sorted_list(4, |chance, last| {
            let most = [64, 4096, reach, 3 * reach][chance.below(4) as usize];
            last + u64::from(chance.below(most))
        });
        // At the very end of the ring's reach, where it begins again.
        agrees_with_a_sorted_list(5, |chance, last| {
            last + u64::from(reach - 1024 + chance.below(2048))
        });
    }

    #[test]
    fn turns_before_the_last_one_agree_with_a_sorted_list() {
        agrees_with_a_sorted_list(6, |chance, last| {
            (last + u64::from(chance.below(9000))).saturating_sub(4000)
        });
    }

    #[test]
    fn any_turn_can_be_taken_by_its_place_among_the_cpus() {
        let mut ready = Ready::new(9).in_any_order();
        for (cpu, time) in [(8, 5), (2, 30), (4, 10)] {
            ready.insert(cpu, time);
        }
        assert_eq!(ready.take_nth(1), Some((4, 10)));
        assert_eq!(ready.first(), Some((8, 5)));
        assert_eq!(ready.take_nth(1), Some((8, 5)));
        assert_eq!(ready.take_nth(0), Some((2, 30)));
        assert_eq!(ready.take_nth(0), None);
    }
}
