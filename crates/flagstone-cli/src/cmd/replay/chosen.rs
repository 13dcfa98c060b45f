//! Which process of a trace is meant: that with most events, one by its number, or the one that does in another run of
//! the same command what it did in this.

use flagstone_trace::Trace;
use std::collections::HashMap;

/// A process and the program that it ran.
type Id = (u32, u32);

/// All of a trace, that with most events first.
fn ranked(trace: &Trace) -> Vec<Id> {
    let mut events: HashMap<Id, u64> = HashMap::new();
    for stream in trace.streams() {
        *events
            .entry((stream.id.process, stream.id.image))
            .or_default() += stream.events;
    }
    let mut all: Vec<_> = events.into_iter().collect();
    all.sort_unstable_by_key(|&(id, count)| std::cmp::Reverse((count, id)));
    all.into_iter().map(|(id, _)| id).collect()
}

/// The process `wanted`, or that with most events.
pub fn of(trace: &Trace, wanted: Option<u32>) -> Option<Id> {
    let mut all = ranked(trace).into_iter();
    all.find(|(process, _)| wanted.is_none_or(|wanted| wanted == *process))
}

/// The numbers of all processes.
pub fn processes(trace: &Trace) -> Vec<u32> {
    let mut all: Vec<u32> = ranked(trace).iter().map(|(process, _)| *process).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The process of `other`, another run of the same command, whose place by events is that of `id` in `trace`.
///
/// # Errors
/// The other run had fewer processes.
pub fn alike(trace: &Trace, id: Id, other: &Trace) -> Result<u32, String> {
    let (here, there) = (ranked(trace), ranked(other));
    let place = here.iter().position(|one| *one == id);
    let found = place.and_then(|place| there.get(place));
    found.map(|(process, _)| *process).ok_or_else(|| {
        format!(
            "the command had {} processes this time and {} when it was recorded",
            there.len(),
            here.len()
        )
    })
}
