//! Page events of a kernel as files hold them.
//!
//! ```text
//!   NAME.csv[.zst]     ts,cpu,pid,ctx,event,pfn,order,mt,arg     beside it NAME.zoneinfo0
//!   a bundle           trace NAME / lines of zoneinfo / events / lines as above, and again
//! ```

use flagstone_trace::header::Zone;
use flagstone_trace::zoneinfo;
use std::io::Read;
use std::path::Path;

/// The recorded traces that come with the program.
const BUILT_IN: &[u8] = include_bytes!("../../data/pagesets-6.18.zst");

/// Most bytes of a file's text: page numbers of an hour fit many times.
const TEXT_MAX: u64 = 512 << 20;

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A block was handed out; told after it left its list.
    Alloc,
    /// A block left the zone for a pageset.
    Refill,
    /// A block left the zone by itself.
    Zone,
    /// A block is given back; told before it is on a list.
    Free,
    /// A page whose free was told before is put on its list here.
    Batched,
    /// A block left a pageset for the zone.
    Drain,
    /// As many pages follow without an event of their own.
    Bulk,
    /// The once-a-second worker begins.
    Decay,
    /// Another task runs from here on.
    Switch,
    /// The state of the beginning was read before this.
    Begun,
    /// The state of the end is read after this.
    Ended,
    /// Nothing that a pageset sees.
    Other,
}

/// One line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub(super) kind: Kind,
    pub(super) cpu: u16,
    /// Inside an interrupt.
    pub(super) interrupt: bool,
    pub(super) order: u8,
    pub(super) migratetype: u8,
    pub(super) pid: u32,
    pub(super) pfn: u64,
    /// Of `Bulk`: pages; of `Switch`: the next task.
    pub(super) number: u64,
}

/// A recording.
#[derive(Clone, Debug)]
pub struct Trace {
    /// Its name.
    pub name: String,
    /// Zones with memory, lowest first.
    pub(super) zones: Vec<Zone>,
    pub(super) events: Vec<Event>,
}

/// The traces that come with the program.
///
/// # Panics
/// If they do not read: our own mistake.
#[must_use]
pub fn built_in() -> Vec<Trace> {
    let text = unpacked(BUILT_IN).expect("our own data unpacks");
    bundle("built in", &text).expect("our own data reads")
}

/// The traces in a file: a table with its zoneinfo beside it, or a bundle; `.zst` is unpacked.
///
/// # Errors
/// One line with file and line.
pub fn read(file: &Path) -> Result<Vec<Trace>, String> {
    let shown = file.display().to_string();
    let told = |why: &dyn core::fmt::Display| format!("{shown}: {why}");
    let bytes = std::fs::read(file).map_err(|error| told(&error))?;
    let text = match file.extension().is_some_and(|ending| ending == "zst") {
        true => unpacked(&bytes).map_err(|why| told(&why))?,
        false => String::from_utf8(bytes).map_err(|_| told(&"not text"))?,
    };
    if text.starts_with("trace ") {
        return bundle(&shown, &text);
    }
    let stem = shown.trim_end_matches(".zst").trim_end_matches(".csv");
    let beside = format!("{stem}.zoneinfo0");
    let zoneinfo = std::fs::read_to_string(&beside).map_err(|error| {
        format!("{beside}: {error}; the state of the beginning is read from it")
    })?;
    let zones = zones(zoneinfo.lines()).map_err(|why| format!("{beside}: {why}"))?;
    let name = Path::new(stem).file_name().unwrap_or_default();
    let mut trace = Trace {
        name: name.to_string_lossy().into_owned(),
        zones,
        events: Vec::new(),
    };
    for (at, line) in text.lines().enumerate().skip(1) {
        let event =
            event(line).ok_or_else(|| format!("{shown}, line {}: no event: {line}", at + 1))?;
        trace.events.push(event);
    }
    trace
        .checked()
        .map_err(|why| told(&why))
        .map(|trace| vec![trace])
}

fn unpacked(bytes: &[u8]) -> Result<String, String> {
    let mut text = String::new();
    let reader = zstd::stream::Decoder::new(bytes).map_err(|error| error.to_string())?;
    let read = reader.take(TEXT_MAX).read_to_string(&mut text);
    read.map_err(|error| error.to_string())?;
    Ok(text)
}

/// The traces of a bundle's text; errors name `shown`.
pub(crate) fn bundle(shown: &str, text: &str) -> Result<Vec<Trace>, String> {
    let mut traces: Vec<Trace> = Vec::new();
    let mut head: Vec<&str> = Vec::new();
    let mut in_events = false;
    for (at, line) in text.lines().enumerate() {
        let told = |why: &str| format!("{shown}, line {}: {why}", at + 1);
        if let Some(name) = line.strip_prefix("trace ") {
            in_events = false;
            head.clear();
            traces.push(Trace {
                name: name.to_owned(),
                zones: Vec::new(),
                events: Vec::new(),
            });
            continue;
        }
        let trace = traces
            .last_mut()
            .ok_or_else(|| told("no trace begins here"))?;
        if line == "events" {
            trace.zones = zones(head.iter().copied()).map_err(|why| told(&why))?;
            in_events = true;
        } else if in_events {
            let event = event(line).ok_or_else(|| told(&format!("no event: {line}")))?;
            trace.events.push(event);
        } else {
            head.push(line);
        }
    }
    let checked = traces.into_iter().map(Trace::checked);
    checked
        .collect::<Result<_, _>>()
        .map_err(|why| format!("{shown}: {why}"))
}

impl Trace {
    /// Refuses CPUs that no zone knows.
    fn checked(self) -> Result<Self, String> {
        let cpus = self
            .zones
            .iter()
            .map(|zone| zone.before.len())
            .min()
            .unwrap_or(0);
        match self
            .events
            .iter()
            .find(|event| usize::from(event.cpu) >= cpus)
        {
            Some(event) => Err(format!(
                "an event on CPU {}, of which zoneinfo tells nothing",
                event.cpu
            )),
            None => Ok(self),
        }
    }
}

/// Zones with memory.
fn zones<'a>(lines: impl Iterator<Item = &'a str>) -> Result<Vec<Zone>, String> {
    let zones = zoneinfo::read(lines);
    match zones.is_empty() || zones.iter().any(|zone| zone.before.is_empty()) {
        true => {
            Err("no zone with pagesets in it; is it a /proc/zoneinfo of Linux 6.7 or later?".into())
        }
        false => Ok(zones),
    }
}

/// One line; the time is not looked at, the order is.
fn event(line: &str) -> Option<Event> {
    let mut words = line.split(',').skip(1);
    let cpu = words.next()?.parse().ok()?;
    let pid = words.next()?.parse().ok()?;
    let context = words.next()?;
    let name = words.next()?;
    let number = |word: &str| match word {
        "" => Some(0),
        word => word.parse::<u64>().ok(),
    };
    let pfn = number(words.next()?)?;
    let order = u8::try_from(number(words.next()?)?)
        .ok()
        .filter(|order| *order < 64)?;
    let migratetype = u8::try_from(number(words.next()?)?).ok()?;
    let arg = words.next()?;
    let kind = match (name, arg) {
        ("alloc", _) => Kind::Alloc,
        ("locked", "1") => Kind::Refill,
        ("locked", _) => Kind::Zone,
        ("free", _) => Kind::Free,
        ("batched", _) => Kind::Batched,
        ("drain", _) => Kind::Drain,
        ("vmap", _) => Kind::Bulk,
        ("vmstat_begin", _) => Kind::Decay,
        ("sched_switch", _) => Kind::Switch,
        ("mark", "Z1") => Kind::Begun,
        _ => Kind::Other,
    };
    let number = match kind {
        // A guard page has no page behind it.
        Kind::Bulk => (arg.parse::<u64>().ok()? >> 12)
            .saturating_sub(1)
            .min(1 << 20),
        Kind::Switch => arg.parse().ok()?,
        _ => 0,
    };
    Some(Event {
        kind,
        cpu,
        interrupt: matches!(context.as_bytes().get(2), Some(b'h' | b's' | b'H' | b'Z')),
        order,
        migratetype,
        pid,
        pfn,
        number,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_no_event_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.csv");
        std::fs::write(
            &file,
            "ts\n0,0,1,.....,alloc,5,0,1,\n0,x,1,.....,alloc,5,0,1,\n",
        )
        .unwrap();
        assert!(read(&file).unwrap_err().contains("a.zoneinfo0"));
        let zone =
            "Node 0, zone Normal\n managed 100\n cpu: 0\n count: 0\n batch: 63\n start_pfn: 0\n";
        std::fs::write(folder.path().join("a.zoneinfo0"), zone).unwrap();
        assert!(read(&file).unwrap_err().contains("line 3"));
        std::fs::write(&file, "ts\n0,7,1,.....,alloc,5,0,1,\n").unwrap();
        assert!(read(&file).unwrap_err().contains("CPU 7"));
        std::fs::write(&file, "ts\n0,0,1,.....,alloc,5,0,1,\n").unwrap();
        assert_eq!(read(&file).unwrap()[0].events.len(), 1);
    }
}
