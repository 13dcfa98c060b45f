//! Streams merged by time, and what no event tells.
//!
//! Kernels free objects without an event: in bulk, and after a grace period. An allocation at an address
//! that is in use shows that, and so does a page that is given back. Slabs that stood when the recording began are
//! made at its beginning, as far as their objects have events. slabs.rs infers; all of it is counted.

use crate::gather::Gathered;
use crate::slabs::{Finished, Shape, Slabs};
use crate::{Error, Options, kmalloc};
use flagstone_trace::header::{Cache, Level, SCHEMA};
use flagstone_trace::index::StreamId;
use flagstone_trace::write::Writer;
use flagstone_trace::zoneinfo;
use flagstone_trace::{Event, Header, Process, Request, Trace};
use std::collections::HashMap;
use std::fs::File;
use std::io::BufWriter;

/// What /proc/slabinfo said before and after, by the names of caches.
struct Told {
    before: HashMap<String, Slab>,
    after: HashMap<String, Slab>,
}

impl Told {
    fn of(options: &Options) -> Self {
        let empty = (String::new(), String::new());
        let (before, after) = options.slabs.as_ref().unwrap_or(&empty);
        Self {
            before: slabinfo(before),
            after: slabinfo(after),
        }
    }

    /// A cache's name as this kernel has it.
    fn name(&self, name: &str) -> String {
        let name = match kmalloc::plain(name) {
            Some(plain) if !self.before.contains_key(name) && self.before.contains_key(&plain) => {
                plain
            }
            _ => name.to_owned(),
        };
        clean(&name, 128)
    }

    fn slab(&self, name: &str) -> Option<&Slab> {
        self.after.get(name).or_else(|| self.before.get(name))
    }
}

/// Writes the trace; the sentences about it, and its file.
pub fn write(
    gathered: &Gathered,
    options: &Options,
    out: File,
) -> Result<(Vec<String>, BufWriter<File>), Error> {
    let streams = Trace::open(gathered.file.path())?;
    let told = Told::of(options);
    let (found, first) = match gathered.format.is_kernel() {
        true => look(gathered, &streams, &told)?,
        false => (Slabs::new(None).finish(&[]), 0),
    };
    let mut notes = summary(gathered, &found);
    notes.extend(gathered.about.notes.iter().cloned());
    let header = header(gathered, options, &told, &found, notes.clone());
    let mut writer = Writer::new(BufWriter::new(out), &header).map_err(Error::Output)?;
    writer
        .process(&Process {
            name: name(gathered),
            ..Process::default()
        })
        .map_err(Error::Output)?;
    let put = |writer: &mut Writer<_>, stream: StreamId, ns, event: &Event| {
        let cpu = stream.stream - 1;
        writer.event(stream, cpu, ns, event).map_err(Error::Output)
    };
    let size = |site: u32| gathered.caches[site as usize - 1].1;
    for slab in &found.start {
        let request = Request {
            size: size(slab.cache),
            site: slab.cache,
            ..Request::default()
        };
        for &address in &slab.objects {
            let event = Event::Alloc { address, request };
            put(&mut writer, slab.stream, first.saturating_sub(2), &event)?;
        }
    }
    for slab in &found.start {
        for &address in &slab.free {
            let event = Event::Free { address };
            put(&mut writer, slab.stream, first.saturating_sub(1), &event)?;
        }
    }
    let mut inserts = found.inserts.iter().peekable();
    let mut merged = streams.merged(|_| true);
    while let Some((ns, stream, event)) = merged.next()? {
        while let Some(insert) = inserts.next_if(|insert| insert.ns <= ns) {
            let mut event = insert.event;
            if let Event::Alloc { request, .. } = &mut event {
                request.size = size(request.site);
            }
            put(&mut writer, insert.stream, insert.ns, &event)?;
        }
        if !matches!(event, Event::Touched { .. }) {
            put(&mut writer, stream, ns, &event)?;
        }
    }
    let file = writer.finish().map_err(Error::Output)?;
    Ok((notes, file))
}

/// Reads all of it once: what has no event, and what was there before; the time of the first event.
fn look(gathered: &Gathered, streams: &Trace, told: &Told) -> Result<(Finished, u64), Error> {
    let mut slabs = Slabs::new(gathered.offset);
    let mut named: HashMap<StreamId, u32> = HashMap::new();
    let mut merged = streams.merged(|_| true);
    let mut first = None;
    while let Some((ns, stream, event)) = merged.next()? {
        first.get_or_insert(ns);
        match event {
            Event::Touched { bytes } => {
                named.insert(stream, bytes as u32);
            }
            Event::Alloc { address, request } => slabs.alloc(ns, stream, address, request.site),
            Event::Free { address } => {
                let site = named.remove(&stream).unwrap_or(0);
                slabs.free(ns, stream, address, site);
            }
            Event::PageAlloc { pfn, order, .. } => slabs.pages(ns, stream, pfn, order, false),
            Event::PageFree { pfn, order } => slabs.pages(ns, stream, pfn, order, true),
            _ => {}
        }
        slabs.checked()?;
    }
    let shape = |(name, _): &(String, u64)| {
        let name = told.name(name);
        let level = |at: &HashMap<String, Slab>| at.get(&name).map(|slab| slab.level);
        told.slab(&name).map_or_else(Shape::default, |slab| Shape {
            object_size: slab.object_size,
            objects: slab.objects_per_slab,
            pages: slab.pages_per_slab,
            levels: level(&told.before).zip(level(&told.after)),
        })
    };
    let shapes: Vec<Shape> = gathered.caches.iter().map(shape).collect();
    Ok((slabs.finish(&shapes), first.unwrap_or(0)))
}

/// What was read and what was inferred, a sentence each; what did not happen is left out.
fn summary(gathered: &Gathered, found: &Finished) -> Vec<String> {
    let about = &gathered.about;
    let counts = found.counts;
    let kernel = gathered.format.is_kernel();
    let mut notes = vec![match kernel {
        true => format!(
            "{} kernel events of {} caches on {} CPUs.",
            gathered.events,
            gathered.caches.len(),
            gathered.cpus
        ),
        false => format!("{} events.", gathered.events),
    }];
    let mut tell = |count: u64, what: &str| {
        if count > 0 {
            notes.push(format!("{what}: {count}."));
        }
    };
    tell(
        counts.reused,
        "Frees without an event, inferred where their address was allocated again",
    );
    tell(
        counts.emptied,
        "Frees without an event, inferred where their slab's pages were given back",
    );
    tell(
        counts.excess,
        "Frees without an event, inferred where slabinfo had fewer objects in use at the end",
    );
    tell(
        counts.bulk,
        "Allocations without an event, inferred by their frees",
    );
    tell(counts.older, "Objects older than the trace");
    tell(found.start.len() as u64, "Slabs of those");
    tell(counts.unknown, "Frees of objects whose cache nothing tells");
    tell(
        gathered.internal,
        "Moves of pages between pagesets and zones",
    );
    let others = match kernel {
        true => "Events of other kinds",
        false => "Lines that tell of no block",
    };
    tell(about.others, others);
    tell(
        gathered.lost,
        "Events lost by the recorder, fewer with larger buffers (perf record -m 64M, trace-cmd record -b 65536)",
    );
    tell(
        about.backwards,
        "Times that went backwards, taken as standing still",
    );
    notes
}

fn name(gathered: &Gathered) -> String {
    match gathered.format.is_kernel() {
        true => "kernel".into(),
        false => gathered
            .about
            .command
            .first()
            .map_or_else(String::new, |word| clean(word, 200)),
    }
}

/// A stranger's text as far as a terminal may show it.
fn clean(text: &str, most: usize) -> String {
    text.chars()
        .filter(|letter| !letter.is_control())
        .take(most)
        .collect()
}

fn header(
    gathered: &Gathered,
    options: &Options,
    told: &Told,
    found: &Finished,
    notes: Vec<String>,
) -> Header {
    let about = &gathered.about;
    let kernel = gathered.format.is_kernel();
    let mut older: HashMap<u32, (u64, u64)> = HashMap::new();
    for slab in &found.start {
        let (objects, free) = older.entry(slab.cache).or_default();
        *objects += slab.objects.len() as u64;
        *free += slab.free.len() as u64;
    }
    let caches = gathered.caches.iter().enumerate();
    let caches = caches.map(|(index, (name, size))| {
        let name = told.name(name);
        let slab = told.slab(&name);
        let (older, older_free) = older.get(&(index as u32 + 1)).copied().unwrap_or((0, 0));
        Cache {
            object_size: slab.map_or(*size, |slab| slab.object_size),
            objects_per_slab: slab.map_or(0, |slab| slab.objects_per_slab),
            pages_per_slab: slab.map_or(0, |slab| slab.pages_per_slab),
            older,
            older_free,
            before: told.before.get(&name).map(|slab| slab.level),
            after: told.after.get(&name).map(|slab| slab.level),
            name,
        }
    });
    let caches: Vec<Cache> = caches.collect();
    Header {
        schema: SCHEMA.into(),
        recorder: format!(
            "flagstone trace import {} of {}",
            env!("CARGO_PKG_VERSION"),
            gathered.format.name()
        ),
        command: about
            .command
            .iter()
            .take(100)
            .map(|word| clean(word, 1000))
            .collect(),
        allocator: if kernel { "kernel" } else { "" }.into(),
        machine: match about.machine.is_empty() {
            true => options.machine.clone(),
            false => clean(&about.machine, 200),
        },
        cpus: gathered.cpus,
        page_size: match about.page_size {
            page if page.is_power_of_two() && (4096..=1 << 20).contains(&page) => page,
            _ => 4096,
        },
        tick_ns: 1.0,
        began: about.began,
        sample: 1,
        sites: caches.iter().map(|cache| cache.name.clone()).collect(),
        notes,
        caches,
        zones: options
            .zones
            .as_ref()
            .map_or_else(Vec::new, |(before, after)| zoneinfo::zones(before, after)),
    }
}

/// A line of /proc/slabinfo.
struct Slab {
    object_size: u64,
    objects_per_slab: u32,
    pages_per_slab: u32,
    level: Level,
}

fn slabinfo(text: &str) -> HashMap<String, Slab> {
    let line = |line: &str| {
        let (name, rest) = line.split_once(' ')?;
        let (figures, slabs) = rest.split_once("slabdata")?;
        let mut figures = figures
            .split_ascii_whitespace()
            .map_while(|word| word.parse::<u64>().ok());
        let (active, objects, object_size) = (figures.next()?, figures.next()?, figures.next()?);
        let (each, pages) = (figures.next()? as u32, figures.next()? as u32);
        let slabs = slabs.split_ascii_whitespace().nth(1)?.parse().ok()?;
        let slab = Slab {
            object_size,
            objects_per_slab: each,
            pages_per_slab: pages,
            level: Level {
                active,
                objects,
                slabs,
            },
        };
        Some((name.to_owned(), slab))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slabinfo_is_read_by_columns() {
        let text = "slabinfo - version: 2.1\n# name  <active_objs> ...\n\
            dentry            140  168  192   21    1 : tunables    0    0    0 : slabdata      8      8      0\n";
        let read = slabinfo(text);
        let dentry = &read["dentry"];
        assert_eq!(
            (
                dentry.object_size,
                dentry.objects_per_slab,
                dentry.pages_per_slab
            ),
            (192, 21, 1)
        );
        let level = Level {
            active: 140,
            objects: 168,
            slabs: 8,
        };
        assert_eq!((dentry.level, read.len()), (level, 1));
    }
}
