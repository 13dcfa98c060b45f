//! The pagesets of a kernel's capture: its page events under a policy's rules, beside what /proc/zoneinfo said.
//!
//! A trace tells no task and no interrupt. So there are no blind windows here, and a free between the pages of a
//! refill counts as an interrupt's: nothing else can run there.

use super::read::{Event, Kind};
use super::{Report, Trace, play};
use flagstone_core::policy::Policy;
use flagstone_trace as file;
use flagstone_trace::Move;
use flagstone_trace::header::Pageset;
use std::path::Path;

/// Page events that are played at most: each takes some sixty bytes.
const EVENTS_MAX: usize = 1 << 24;

/// Most pages that a pageset's figures are believed to be: 256 GiB.
const PAGES_MAX: u32 = 1 << 26;

/// A capture's pagesets under a policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Held {
    /// Refills and drains.
    pub report: Report,
    /// Each CPU's pageset of each zone.
    pub sets: Vec<HeldSet>,
}

/// A pageset as recorded, and as replayed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeldSet {
    /// Its zone.
    pub zone: String,
    /// Its CPU.
    pub cpu: usize,
    /// As it was recorded before the events.
    pub before: Pageset,
    /// The same, after them.
    pub after: Pageset,
    /// Pages and high mark after the events as replayed.
    pub replayed: (u32, u32),
}

/// Plays a capture's page events through the pageset rules of each policy; nothing where the trace has no pagesets.
///
/// # Errors
/// One line: the file does not read, or has too many events.
pub fn held(path: &Path, policies: &[Policy]) -> Result<Vec<Held>, String> {
    let told = |why: &dyn core::fmt::Display| format!("{}: {why}", path.display());
    let trace = file::Trace::open(path).map_err(|error| told(&error))?;
    let zones = &trace.header().zones;
    let cpus = zones.iter().map(|zone| zone.before.len()).min();
    let Some(cpus) = cpus.filter(|cpus| *cpus > 0) else {
        return Ok(Vec::new());
    };
    let believed = |set: &Pageset| {
        let figures = [set.count, set.high, set.batch, set.high_min, set.high_max];
        figures.iter().all(|pages| *pages <= PAGES_MAX)
    };
    if !zones.iter().flat_map(|zone| &zone.before).all(believed) {
        return Err(told(&format!("a pageset of more than {PAGES_MAX} pages")));
    }
    let mut recording = Trace {
        name: path.display().to_string(),
        zones: zones
            .iter()
            .cloned()
            .map(|mut zone| {
                zone.before.truncate(cpus);
                zone
            })
            .collect(),
        events: Vec::new(),
    };
    let mut merged = trace.merged(|_| true);
    while let Some((_, stream, event)) = merged.next().map_err(|error| told(&error))? {
        let Some(event) = played(stream.stream.saturating_sub(1), &event) else {
            continue;
        };
        if usize::from(event.cpu) >= cpus {
            return Err(told(&format!(
                "an event on CPU {}, of which its zones tell nothing",
                event.cpu
            )));
        }
        recording.events.push(event);
        if recording.events.len() > EVENTS_MAX {
            return Err(told(&format!(
                "more than {EVENTS_MAX} page events; `flagstone trace cut` makes it shorter"
            )));
        }
    }
    let under = |policy| {
        let report = play(&recording, policy);
        let places = zones
            .iter()
            .flat_map(|zone| (0..cpus).map(move |cpu| (zone, cpu)));
        let sets = places
            .zip(&report.ended)
            .map(|((zone, cpu), ended)| HeldSet {
                zone: zone.name.clone(),
                cpu,
                before: zone.before[cpu],
                after: zone.after.get(cpu).copied().unwrap_or_default(),
                replayed: *ended,
            });
        Held {
            sets: sets.collect(),
            report,
        }
    };
    Ok(policies.iter().map(under).collect())
}

/// An event of a trace as the player has it; none of objects.
fn played(cpu: u32, event: &file::Event) -> Option<Event> {
    let (kind, pfn, order, migratetype) = match *event {
        file::Event::PageAlloc {
            pfn,
            order,
            migratetype,
        } => (Kind::Alloc, pfn, order, migratetype),
        file::Event::PageFree { pfn, order } => (Kind::Free, pfn, order, 0),
        file::Event::PageMove {
            what,
            pfn,
            order,
            migratetype,
        } => {
            let kind = match what {
                Move::Refill => Kind::Refill,
                Move::Zone => Kind::Zone,
                Move::Drain => Kind::Drain,
                Move::Batched => Kind::Batched,
                Move::Bulk => Kind::Bulk,
                Move::Decay => Kind::Decay,
                Move::Begun => Kind::Begun,
                Move::Ended => Kind::Ended,
            };
            (kind, pfn, order, migratetype)
        }
        _ => return None,
    };
    Some(Event {
        kind,
        cpu: u16::try_from(cpu).unwrap_or(u16::MAX),
        interrupt: true,
        order,
        migratetype,
        pid: 0,
        pfn,
        number: match kind {
            Kind::Bulk => pfn.min(1 << 20),
            _ => 0,
        },
    })
}
