//! A profile's figures as integers of picoseconds, ready to be added to a clock.

use crate::machine::{Machine, Queueing};
use crate::topology::Distance;
use flagstone_core::platform::{LockKind, Work};

/// Picoseconds: the unit of virtual time. A u64 of them lasts 213 days.
pub type Ps = u64;

/// Picoseconds in a nanosecond.
pub const NS: Ps = 1_000;
/// Picoseconds in a microsecond.
pub const US: Ps = 1_000_000;
/// Picoseconds in a millisecond.
pub const MS: Ps = 1_000_000_000;

/// Hand-off and stretch factors are kept in units of 1/1024.
const UNIT: u64 = 1024;

/// The price list of a machine.
#[derive(Clone, Debug)]
pub struct Costs {
    /// A line transfer by [`Distance`] (index zero: it is here already).
    pub transfer: [Ps; 5],
    /// A line nobody has.
    pub dram: Ps,
    /// Part of a journey, in units of 1/1024, in which the last owner still has the line.
    pub linger: u64,
    /// A line that its owner wrote moves whole to its next reader.
    pub migrates: bool,
    /// An object line by [`Distance`], overlap included.
    pub object_transfer: [Ps; 5],
    /// The same of a line that says where the next object is, where it differs: after an object of one
    /// line beside it, after one of more, and after one elsewhere.
    pub link_transfer: Option<[[Ps; 5]; 3]>,
    /// A locked instruction beyond its access.
    pub atomic: Ps,
    /// One slot step.
    pub slot: Ps,
    local: Ps,
    pageset: Ps,
    /// Taking another CPU's slots.
    pub seize: Ps,
    /// Waking a sleeper.
    pub wake: Ps,
    /// A mispredicted branch.
    pub mispredict: Ps,
    /// A data line that missed the last-level cache.
    pub data_line: Ps,
    fast: Ps,
    fast_free: Ps,
    slow: Ps,
    object: Ps,
    slab: Ps,
    slab_page: Ps,
    managed_slab: Ps,
    block: Ps,
    page: Ps,
    handoff: u64,
    watched: u64,
    watched_each: Ps,
    queueing: Queueing,
    /// Stretch of private work with 0, 1, .. 8 running threads on the core.
    stretch: [u64; 9],
}

/// How much longer private work takes than alone on a core, in units of 1/1024.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stretch(u64);

impl Stretch {
    /// Alone.
    pub const NONE: Self = Self(UNIT);

    /// What work of `ps` takes.
    #[inline]
    #[must_use]
    pub fn of(self, ps: Ps) -> Ps {
        ps * self.0 / UNIT
    }
}

fn ps(ns: f64) -> Ps {
    (ns * NS as f64).round().max(0.0) as Ps
}

impl Costs {
    /// The price list of `machine`.
    #[must_use]
    pub fn new(machine: &Machine) -> Self {
        let (latency, work) = (&machine.latency_ns, &machine.work_ns);
        let mut stretch = [UNIT; 9];
        for (threads, factor) in stretch.iter_mut().enumerate().skip(2) {
            let more = (machine.smt.slowdown - 1.0) * (threads - 1) as f64;
            *factor = ((1.0 + more) * UNIT as f64).round() as u64;
        }
        let transfer = [
            ps(latency.l1),
            ps(latency.sibling),
            ps(latency.cluster.unwrap_or(latency.socket)),
            ps(latency.socket),
            ps(latency.remote),
        ];
        let waited = |part: f64| {
            let mut ways = transfer;
            for way in &mut ways[1..] {
                *way = (*way as f64 * part).round() as Ps;
            }
            ways
        };
        let object_transfer = waited(latency.overlap.unwrap_or(1.0));
        Self {
            transfer,
            object_transfer,
            link_transfer: latency
                .in_row
                .map(|[one, two]| [waited(one), waited(two), transfer]),
            dram: ps(latency.dram),
            linger: (latency.linger.unwrap_or(0.0) * UNIT as f64).round() as u64,
            migrates: latency.migrates.unwrap_or(false),
            atomic: ps(latency.atomic),
            slot: ps(work.slot),
            local: ps(work.local),
            pageset: ps(work.pageset.unwrap_or(work.local)),
            seize: ps(work.seize),
            wake: ps(work.wake),
            mispredict: ps(work.mispredict.unwrap_or(0.0)),
            data_line: ps(machine.cache.line_ns),
            fast: ps(work.fast),
            fast_free: ps(work.fast_free.unwrap_or(work.fast)),
            slow: ps(work.slow),
            object: ps(work.object),
            slab: ps(work.slab),
            slab_page: ps(work.slab_page),
            managed_slab: ps(work.managed_slab.unwrap_or(0.0)),
            block: ps(work.block),
            page: ps(work.page),
            handoff: (machine.locks.handoff * UNIT as f64).round() as u64,
            watched: (machine.locks.watched.unwrap_or(0.0) * UNIT as f64).round() as u64,
            watched_each: ps(machine.locks.watched_ns.unwrap_or(0.0)),
            queueing: machine.locks.default,
            stretch,
        }
    }

    /// The price of private work.
    #[inline]
    #[must_use]
    pub fn work(&self, work: Work) -> Ps {
        match work {
            Work::Fast => self.fast,
            Work::FastFree => self.fast_free,
            Work::Slow => self.slow,
            Work::Objects(n) => self.object * u64::from(n),
            Work::NewSlab(pages) => self.slab + self.slab_page * u64::from(pages),
            Work::ManagedSlab => self.managed_slab,
            Work::Blocks(n) => self.block * u64::from(n),
            Work::Pages(n) => self.page * u64::from(n),
        }
    }

    /// A lock of `kind` that only this CPU takes.
    #[inline]
    #[must_use]
    pub fn private(&self, kind: LockKind) -> Ps {
        if kind == LockKind::Pageset {
            self.pageset
        } else {
            self.local
        }
    }

    /// The price of bringing a line over `distance`.
    #[inline]
    #[must_use]
    pub fn line(&self, distance: Distance) -> Ps {
        self.transfer[distance as usize]
    }

    /// How long into a journey the last owner still has the line.
    #[inline]
    #[must_use]
    pub fn lingers(&self, journey: Ps) -> Ps {
        journey * self.linger / UNIT
    }

    /// Who gets a contended lock next.
    #[inline]
    #[must_use]
    pub fn queueing(&self) -> Queueing {
        self.queueing
    }

    /// From the holder's release to the winner's first instruction, over `distance`.
    #[inline]
    #[must_use]
    pub fn handoff(&self, distance: Distance) -> Ps {
        self.line(distance) * self.handoff / UNIT
    }

    /// A holder's store to its lock's line while `crowd` CPUs spin on it, the first of them at
    /// `distance`: never less than a line at hand.
    #[inline]
    #[must_use]
    pub fn watched(&self, distance: Distance, crowd: u64) -> Ps {
        let back = self.line(distance) * self.watched / UNIT + self.watched_each * crowd;
        back.max(self.transfer[0])
    }

    /// Whether it costs a holder anything that others spin on its lock's line.
    #[inline]
    #[must_use]
    pub fn watching_costs(&self) -> bool {
        self.watched != 0 || self.watched_each != 0
    }

    /// What stretches private work while `running` threads of the core run, the worker included.
    #[inline]
    #[must_use]
    pub fn stretch(&self, running: u8) -> Stretch {
        Stretch(self.stretch[usize::from(running.min(8))])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hand_off_is_priced_by_the_line_it_moves() {
        let spr = Costs::new(&Machine::named("spr-2s-224").unwrap());
        let near = spr.handoff(Distance::Socket);
        assert_eq!(near, 102_000, "68 ns times 1.5");
        assert!(spr.handoff(Distance::Remote) > near);
    }

    #[test]
    fn a_holder_pays_for_those_who_watch_its_lock_where_the_profile_says_so() {
        let spr = Costs::new(&Machine::named("spr-2s-224").unwrap());
        assert_eq!(spr.watched(Distance::Remote, 7), spr.transfer[0]);
        let old = Costs::new(&Machine::named("xeon-2007-8").unwrap());
        assert_eq!(old.watched(Distance::Remote, 2), 128_700 + 2 * 27_900);
    }

    #[test]
    fn a_running_sibling_stretches_private_work() {
        let mut machine = Machine::named("spr-2s-224").unwrap();
        machine.smt.slowdown = 1.75;
        let spr = Costs::new(&machine);
        assert_eq!(spr.stretch(0).of(1000), 1000);
        assert_eq!(spr.stretch(1).of(1000), 1000);
        assert_eq!(spr.stretch(2).of(1000), 1750);
    }
}
