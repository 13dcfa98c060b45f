//! Page events of a real kernel, played through the pageset rules of that kernel's policy.
//!
//! ```text
//!   events ─► lists of each CPU and zone, page by page ─► PcpState: refill now? of how many? drain now?
//!                                                          held against what the kernel did
//! ```
//!
//! The rules are the simulator's own ([`KernelPages`]); the lists here hold the recorded page numbers. The zone is not
//! simulated: a refill brings the pages that it brought.
//!
//! How events are read (the recording tells less than happens):
//!
//! - `pageset.first`: what was on a list before is known by what leaves it later without having come.
//! - `pageset.late`: an allocation is told after its page left, and others may leave between. A page that
//!   leaves from below others says that those have left, and will be told.
//! - `pageset.fate`: which list a freed page is on is told by the event that takes it off. If that is one of
//!   the zone, it never was on a list: the pageset was busy.
//! - `pageset.blind`: tasks that emit nothing are seen by a break in the chain of tasks. A pageset that
//!   contradicts its model after one is no longer scored.
//!
//! The doublings of the first refill are not recorded, and fitted (0 to 5).

mod capture;
mod lists;
mod read;

pub use capture::{Held, HeldSet, held};
pub(crate) use read::bundle;
pub use read::{Trace, built_in, read};

use flagstone_core::base::Order;
use flagstone_core::policy::{PageRule, PcpMarks, PcpState, Policy, ZoneFlags};
use flagstone_kernels::policy::KernelPages;
use lists::{Lists, Place, place};
use read::{Event, Kind};
use serde::Serialize;
use std::collections::{HashMap, HashSet};

/// Of so many, so many as the kernel did them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Score {
    /// Recorded, or predicted.
    pub all: u32,
    /// At the same event with the same pages: in number for refills, one by one for drains.
    pub matched: u32,
    /// Not after a blind window that shows.
    pub scored: u32,
    /// Of these, matched.
    pub matched_of_scored: u32,
}

impl Score {
    fn add(&mut self, good: bool, scored: bool) {
        self.all += 1;
        self.matched += u32::from(good);
        self.scored += u32::from(scored);
        self.matched_of_scored += u32::from(good && scored);
    }
}

/// What a trace gave.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Report {
    /// The trace.
    pub name: String,
    /// Its events.
    pub events: usize,
    /// Refills.
    pub refills: Score,
    /// Drains.
    pub drains: Score,
    /// Breaks in the chain of tasks.
    pub blind_windows: u32,
    /// The first that was not as predicted and is scored, in words.
    pub first_miss: Option<String>,
    /// Pages and high mark of each pageset at the end, zone by zone.
    #[serde(skip)]
    pub ended: Vec<(u32, u32)>,
}

/// Plays `trace` under the rules of `policy`.
#[must_use]
pub fn play(trace: &Trace, policy: &Policy) -> Report {
    let mut play = Play::new(trace, policy);
    play.run();
    play.report
}

/// A pageset under its rules.
struct Set {
    state: PcpState,
    count: u32,
    scored: bool,
    /// Its first refill has been: the doublings are known.
    known: bool,
}

/// One CPU on the way.
#[derive(Clone, Default)]
struct Cpu {
    task: Option<u32>,
    blind: bool,
    /// Places of events of a refill that has not ended.
    refill: Vec<usize>,
    /// Pages that still leave without an event.
    bulk: u64,
}

struct Play<'a> {
    trace: &'a Trace,
    /// The next event of the same page.
    next: Vec<usize>,
    /// Drained pages by the event that caused it.
    drained: HashMap<usize, Vec<u64>>,
    sets: Vec<Set>,
    cpus: Vec<Cpu>,
    lists: Lists,
    /// Left, and not told yet.
    late: HashSet<u64>,
    /// Taken from the zone one by one.
    by_itself: HashSet<u64>,
    /// Orders of pages whose free was told and whose push follows.
    announced: HashMap<u64, u8>,
    report: Report,
}

const NONE: usize = usize::MAX;

impl<'a> Play<'a> {
    fn new(trace: &'a Trace, policy: &Policy) -> Self {
        let cpus = trace
            .zones
            .iter()
            .map(|zone| zone.before.len())
            .max()
            .unwrap_or(0);
        let zones = trace.zones.len();
        let mut sets = Vec::new();
        for zone in &trace.zones {
            for start in &zone.before {
                let marks = PcpMarks {
                    batch: start.batch,
                    high_min: start.high_min,
                    high_max: start.high_max,
                };
                let mut state = policy.pcp_state::<KernelPages>(marks);
                state.high = start.high;
                state.set_cache_slice(u64::MAX, 12);
                sets.push(Set {
                    state,
                    count: start.count,
                    scored: true,
                    known: false,
                });
            }
        }
        let mut play = Self {
            trace,
            next: vec![NONE; trace.events.len()],
            drained: HashMap::new(),
            sets,
            cpus: vec![Cpu::default(); cpus],
            lists: Lists::new(cpus * zones),
            late: HashSet::new(),
            by_itself: HashSet::new(),
            announced: HashMap::new(),
            report: Report {
                name: trace.name.clone(),
                events: trace.events.len(),
                ..Report::default()
            },
        };
        play.look_ahead();
        play
    }

    /// The pageset of a page on a CPU.
    fn set_of(&self, cpu: u16, pfn: u64) -> usize {
        let zones = &self.trace.zones;
        let zone = zones
            .iter()
            .rposition(|zone| pfn >= zone.start)
            .unwrap_or(0);
        let before: usize = zones[..zone].iter().map(|zone| zone.before.len()).sum();
        before + usize::from(cpu)
    }

    /// What only later events tell: each page's next event, drains, and what was there before.
    fn look_ahead(&mut self) {
        let mut first: HashMap<u64, usize> = HashMap::new();
        for (at, event) in self.trace.events.iter().enumerate().rev() {
            let of_page = matches!(
                event.kind,
                Kind::Alloc | Kind::Refill | Kind::Zone | Kind::Free | Kind::Batched | Kind::Drain
            );
            if of_page {
                self.next[at] = first.insert(event.pfn, at).unwrap_or(NONE);
            }
        }
        let mut cause = vec![NONE; self.cpus.len()];
        for (at, event) in self.trace.events.iter().enumerate() {
            let cpu = usize::from(event.cpu);
            match event.kind {
                Kind::Drain => self.drained.entry(cause[cpu]).or_default().push(event.pfn),
                Kind::Free | Kind::Batched | Kind::Decay => cause[cpu] = at,
                _ => {}
            }
        }
        let mut before: Vec<usize> = first.into_values().collect();
        before.sort_unstable();
        // From the head those that are allocated first, from the tail those that are drained first.
        let trace = self.trace;
        let leaves = |kind| move |at: &&usize| trace.events[**at].kind == kind;
        let allocated: Vec<usize> = before.iter().filter(leaves(Kind::Alloc)).copied().collect();
        let drained: Vec<usize> = before
            .iter()
            .rev()
            .filter(leaves(Kind::Drain))
            .copied()
            .collect();
        for at in allocated.into_iter().chain(drained) {
            let event = self.trace.events[at];
            if let Some(list) = place(event.order, event.migratetype) {
                let set = self.set_of(event.cpu, event.pfn);
                self.lists.push_back(Place { set, list }, event.pfn);
            }
        }
    }

    fn run(&mut self) {
        let begun = self
            .trace
            .events
            .iter()
            .position(|event| event.kind == Kind::Begun);
        let ended = self
            .trace
            .events
            .iter()
            .rposition(|event| event.kind == Kind::Ended);
        for at in begun.unwrap_or(0)..ended.unwrap_or(self.trace.events.len()) {
            let event = self.trace.events[at];
            let cpu = usize::from(event.cpu);
            let state = &mut self.cpus[cpu];
            if state.task.is_some_and(|task| task != event.pid) {
                state.blind = true;
                self.report.blind_windows += 1;
            }
            state.task = Some(event.pid);
            if event.kind == Kind::Switch {
                state.task = Some(event.number as u32);
            }
            if event.kind == Kind::Refill {
                state.refill.push(at);
                continue;
            }
            if !state.refill.is_empty() {
                if self.meets_a_busy_pageset(at, &event) {
                    continue;
                }
                let refill = core::mem::take(&mut self.cpus[cpu].refill);
                self.refill(&refill);
            }
            match event.kind {
                Kind::Alloc => self.alloc(at, &event),
                Kind::Zone => {
                    self.by_itself.insert(event.pfn);
                    self.contradicts_if_listed(
                        at,
                        event.pfn,
                        "the zone hands out a page of a list",
                    );
                }
                Kind::Free | Kind::Batched => self.free(at, &event),
                Kind::Bulk => self.bulk(&event),
                Kind::Decay => self.decay(at, &event),
                _ => {}
            }
        }
        let sets = self.sets.iter();
        self.report.ended = sets.map(|set| (set.count, set.state.high)).collect();
    }

    /// A free inside a refill, by an interrupt: it goes to the zone (`pageset.fate`).
    fn meets_a_busy_pageset(&self, at: usize, event: &Event) -> bool {
        let frees = matches!(event.kind, Kind::Free | Kind::Batched);
        let comes_back = self
            .next_of(at)
            .is_some_and(|next| matches!(next.kind, Kind::Alloc | Kind::Drain | Kind::Batched));
        frees && event.interrupt && !comes_back
    }

    fn next_of(&self, at: usize) -> Option<&Event> {
        self.trace.events.get(self.next[at])
    }

    /// What happened is not what the model has.
    fn contradiction(&mut self, set: usize, at: usize, what: &str) {
        let cpu = usize::from(self.trace.events[at].cpu);
        if self.cpus[cpu].blind {
            self.sets[set].scored = false;
        } else if self.sets[set].scored
            && self.report.first_miss.is_none()
            && what.contains("predicted")
        {
            self.report.first_miss = Some(format!("event {at}: {what}"));
        }
    }

    fn contradicts_if_listed(&mut self, at: usize, pfn: u64, what: &str) {
        if let Some(place) = self.lists.place_of(pfn) {
            self.contradiction(place.set, at, what);
            self.take_out(pfn);
        }
    }

    /// Takes a page off its list, wherever it is there.
    fn take_out(&mut self, pfn: u64) {
        if let Some(place) = self.lists.remove(pfn) {
            self.gone(place);
        }
    }

    fn gone(&mut self, place: Place) {
        let set = &mut self.sets[place.set];
        set.count = set.count.saturating_sub(place.pages());
    }

    /// One page leaves the head of a list that is not empty, or one the model does not know.
    fn pop(&mut self, place: Place) -> Option<u64> {
        let set = &mut self.sets[place.set];
        let _ = KernelPages::on_alloc(
            &mut set.state,
            place.order(),
            set.count,
            false,
            ZoneFlags::NONE,
        );
        set.count = set.count.saturating_sub(place.pages());
        self.lists.pop_front(place)
    }

    fn alloc(&mut self, at: usize, event: &Event) {
        let Some(list) = place(event.order, event.migratetype) else {
            return;
        };
        if self.late.remove(&event.pfn) || self.by_itself.remove(&event.pfn) {
            return;
        }
        let set = self.set_of(event.cpu, event.pfn);
        let here = Place { set, list };
        match self.lists.place_of(event.pfn) {
            Some(there) if there == here => {
                // Those above it have left before, and are told later (`pageset.late`).
                while let Some(pfn) = self.pop(here) {
                    if pfn == event.pfn {
                        break;
                    }
                    self.late.insert(pfn);
                }
            }
            // The task was moved after it took the page.
            Some(there) if self.lists.front(there) == Some(event.pfn) => {
                self.pop(there);
            }
            Some(_) => {
                self.contradiction(set, at, "a page of another list");
                self.take_out(event.pfn);
            }
            None => {
                let set = &mut self.sets[here.set];
                let _ = KernelPages::on_alloc(
                    &mut set.state,
                    here.order(),
                    set.count,
                    false,
                    ZoneFlags::NONE,
                );
                set.count = set.count.saturating_sub(here.pages());
                self.contradiction(here.set, at, "a page that was on no list");
            }
        }
    }

    /// Pages come from the zone; the first of them leaves at once.
    fn refill(&mut self, refill: &[usize]) {
        let first = self.trace.events[refill[0]];
        let cpu = usize::from(first.cpu);
        let told = self
            .next_of(refill[0])
            .filter(|next| next.kind == Kind::Alloc);
        let bulk = told.is_none() && self.cpus[cpu].bulk > 0;
        // Without an event it is a kernel stack, or a task that emits none.
        let migratetype = told.map_or(if bulk { 0 } else { 1 }, |next| next.migratetype);
        let Some(list) = place(first.order, migratetype) else {
            return;
        };
        let here = Place {
            set: self.set_of(first.cpu, first.pfn),
            list,
        };
        let empty = self.lists.front(here).is_none();
        while let Some(pfn) = self.lists.pop_front(here) {
            let _ = pfn;
            self.gone(here);
        }
        let brought = refill.len() as u32;
        let set = &mut self.sets[here.set];
        let wanted = ask(set, here.order(), brought, bulk);
        let good = empty && wanted == brought;
        if !good {
            let what = match empty {
                true => format!("a refill of {brought} blocks, predicted were {wanted}"),
                false => format!("a refill of {brought} blocks, predicted was none"),
            };
            self.contradiction(here.set, refill[0], &what);
        }
        let set = &mut self.sets[here.set];
        self.report.refills.add(good, set.scored);
        set.count = set
            .count
            .saturating_add(brought.saturating_mul(here.pages()));
        for &at in refill {
            self.lists.push_back(here, self.trace.events[at].pfn);
        }
        self.lists.pop_front(here);
        self.gone(here);
        if bulk {
            self.cpus[cpu].bulk -= 1;
        } else {
            self.late.insert(first.pfn);
        }
    }

    fn free(&mut self, at: usize, event: &Event) {
        let next = self.next_of(at).copied();
        if event.kind == Kind::Free && next.is_some_and(|next| next.kind == Kind::Batched) {
            self.announced.insert(event.pfn, event.order);
            return;
        }
        let order = match event.kind {
            Kind::Batched => self.announced.remove(&event.pfn).unwrap_or(0),
            _ => event.order,
        };
        self.late.remove(&event.pfn);
        let migratetype = match next {
            Some(next) if matches!(next.kind, Kind::Refill | Kind::Zone) => return,
            Some(next) if matches!(next.kind, Kind::Alloc | Kind::Drain) => next.migratetype,
            Some(_) => 0,
            None => 1,
        };
        let Some(list) = place(order, migratetype) else {
            return;
        };
        self.contradicts_if_listed(at, event.pfn, "a page is freed that is free");
        let here = Place {
            set: self.set_of(event.cpu, event.pfn),
            list,
        };
        self.lists.push_front(here, event.pfn);
        let set = &mut self.sets[here.set];
        set.count = set.count.saturating_add(here.pages());
        let pages = KernelPages::on_free(&mut set.state, here.order(), set.count, ZoneFlags::NONE);
        let pages = pages.filter(|pages| *pages > 0);
        let drained = self.drained.remove(&at);
        if pages.is_some() || drained.is_some() {
            self.drain(at, here, pages.unwrap_or(0), &drained.unwrap_or_default());
        }
    }

    /// Pages go back to the zone, from the tails of the lists, one list after the other.
    fn drain(&mut self, at: usize, from: Place, pages: u32, drained: &[u64]) {
        let mut left = i64::from(pages.min(self.sets[from.set].count));
        let mut predicted = Vec::new();
        let mut here = from;
        let mut idle = 0;
        while left > 0 && idle <= lists::LISTS {
            match self.lists.pop_back(here) {
                Some(pfn) => {
                    predicted.push(pfn);
                    left -= i64::from(here.pages());
                    self.gone(here);
                    idle = 0;
                }
                None => {
                    here = here.next_list();
                    idle += 1;
                }
            }
        }
        let good = predicted == drained;
        if !good {
            let what = format!(
                "a drain of {} blocks, predicted were {}",
                drained.len(),
                predicted.len()
            );
            self.contradiction(from.set, at, &what);
            drained.iter().for_each(|pfn| self.take_out(*pfn));
        }
        let scored = self.sets[from.set].scored;
        self.report.drains.add(good, scored);
    }

    /// A kernel stack's pages leave without an event and without halving the count of frees.
    fn bulk(&mut self, event: &Event) {
        self.cpus[usize::from(event.cpu)].bulk = event.number;
        let set = self.sets.len() - self.cpus.len() + usize::from(event.cpu);
        let here = Place { set, list: 0 };
        while self.cpus[usize::from(event.cpu)].bulk > 0 && self.lists.pop_front(here).is_some() {
            self.gone(here);
            self.cpus[usize::from(event.cpu)].bulk -= 1;
        }
    }

    fn decay(&mut self, at: usize, event: &Event) {
        let mut drained = self.drained.remove(&at).unwrap_or_default();
        for zone in 0..self.trace.zones.len() {
            let start = self.trace.zones[zone].start;
            let end = self
                .trace
                .zones
                .get(zone + 1)
                .map_or(u64::MAX, |zone| zone.start);
            let set = self.set_of(event.cpu, start);
            let (mine, others) = drained.iter().partition(|pfn| (start..end).contains(*pfn));
            drained = others;
            let mine: Vec<u64> = mine;
            let one = &mut self.sets[set];
            let pages = KernelPages::decay(&mut one.state, one.count).unwrap_or(0);
            if pages > 0 || !mine.is_empty() {
                self.drain(at, Place { set, list: 0 }, pages, &mine);
            }
        }
    }
}

/// Blocks that the rules fetch for an empty list. At a pageset's first refill the doublings before it, which
/// are not recorded, are those that fit, if any do.
fn ask(set: &mut Set, order: Order, brought: u32, bulk: bool) -> u32 {
    let before = set.state;
    let with = |factor: Option<u8>| {
        let mut state = before;
        state.alloc_factor = factor.unwrap_or(state.alloc_factor);
        let wanted = KernelPages::on_alloc(&mut state, order, set.count, true, ZoneFlags::NONE);
        if bulk {
            state.free_count = before.free_count;
        }
        (wanted, state)
    };
    let mut found = with(None);
    let fits = !set.known && order == Order::ZERO && found.0 != brought;
    if let Some(fit) = (0..=5)
        .map(|factor| with(Some(factor)))
        .find(|(wanted, _)| fits && *wanted == brought)
    {
        found = fit;
    }
    set.known |= order == Order::ZERO;
    set.state = found.1;
    found.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagstone_kernels::Named;

    #[test]
    fn refills_and_drains_of_a_recorded_kernel_come_at_the_same_events_with_the_same_pages() {
        let policy = Policy::parse("linux-6.18").unwrap();
        let reports: Vec<Report> = built_in()
            .iter()
            .map(|trace| play(trace, &policy))
            .collect();
        let figures = |report: &Report| {
            let (r, d) = (report.refills, report.drains);
            (report.name.clone(), [r.matched, r.all, d.matched, d.all])
        };
        let found: Vec<_> = reports.iter().map(figures).collect();
        let noted = [
            ("thp", [133, 133, 49, 49]),
            ("gcc", [9, 9, 7, 7]),
            ("file", [8, 8, 0, 0]),
        ];
        assert_eq!(
            found,
            noted.map(|(name, figures)| (name.to_owned(), figures))
        );
        assert!(reports.iter().all(|report| report.first_miss.is_none()));
    }

    #[test]
    fn an_older_kernels_rules_do_not_fit() {
        let policy = Policy::parse("linux-6.1").unwrap();
        let report = play(&built_in()[0], &policy);
        assert!(
            report.drains.matched + report.refills.matched < report.drains.all + report.refills.all
        );
        assert!(report.first_miss.unwrap().contains("predicted"));
    }
}
