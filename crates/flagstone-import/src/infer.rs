//! Streams merged by time, and what no event tells.
//!
//! Kernels free objects without an event: in bulk, and after a grace period. An allocation at an address
//! that is in use shows that; the missing free goes before it. Objects older than the recording are told
//! by their frees: where such an event names its cache, or another object of the same page has one, the
//! object is allocated at the trace's beginning. All of it is counted.

use crate::gather::Gathered;
use crate::{Error, Format, LIVE_MAX, Options, kmalloc};
use flagstone_trace::header::{Cache, Level, SCHEMA};
use flagstone_trace::index::StreamId;
use flagstone_trace::write::Writer;
use flagstone_trace::{Event, Header, Process, Request, Trace};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::BufWriter;

/// Bits of an address within a page, as far as slabs go: no slab is smaller.
const PAGE_SHIFT: u32 = 12;

/// Whose the objects older than the trace are.
const FIRST: StreamId = StreamId {
    process: 0,
    image: 0,
    stream: 1,
};

#[derive(Default)]
struct Found {
    live: HashSet<u64>,
    inferred: u64,
    unknown: u64,
    /// Objects older than the trace whose cache is known, in the order of their frees.
    older: Vec<(u64, u32)>,
    first: u64,
}

/// Writes the trace; the sentence about it, and its file.
pub fn write(
    gathered: &Gathered,
    options: &Options,
    out: File,
) -> Result<(String, BufWriter<File>), Error> {
    let streams = Trace::open(gathered.file.path())?;
    let mut found = Found::default();
    if gathered.format.is_kernel() {
        found.look(&streams)?;
    }
    let line = found.summary(gathered);
    let header = header(gathered, options, &found, &line);
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
    for (address, site) in &found.older {
        let size = gathered.caches[*site as usize - 1].1;
        let request = Request {
            size,
            site: *site,
            ..Request::default()
        };
        let address = *address;
        put(
            &mut writer,
            FIRST,
            found.first,
            &Event::Alloc { address, request },
        )?;
    }
    let mut live: HashSet<u64> = found.older.iter().map(|(address, _)| *address).collect();
    let mut merged = streams.merged(|_| true);
    while let Some((ns, stream, event)) = merged.next()? {
        match event {
            Event::Touched { .. } => continue,
            Event::Alloc { address, .. } => {
                if !live.insert(address) && gathered.format.is_kernel() {
                    put(&mut writer, stream, ns, &Event::Free { address })?;
                }
            }
            Event::Free { address } => {
                live.remove(&address);
            }
            _ => {}
        }
        put(&mut writer, stream, ns, &event)?;
    }
    let file = writer.finish().map_err(Error::Output)?;
    Ok((line, file))
}

impl Found {
    /// Reads all of it once: which frees are missing, and which objects are older.
    fn look(&mut self, streams: &Trace) -> Result<(), Error> {
        let mut caches: HashMap<u64, u32> = HashMap::new();
        let mut named: HashMap<StreamId, u32> = HashMap::new();
        let mut strangers: Vec<(u64, u32)> = Vec::new();
        let mut seen: HashSet<u64> = HashSet::new();
        let mut merged = streams.merged(|_| true);
        let mut first = None;
        while let Some((ns, stream, event)) = merged.next()? {
            first.get_or_insert(ns);
            match event {
                Event::Touched { bytes } => {
                    named.insert(stream, bytes as u32);
                }
                Event::Alloc { address, request } => {
                    self.inferred += u64::from(!self.live.insert(address));
                    if request.site > 0 {
                        caches.insert(address >> PAGE_SHIFT, request.site);
                    }
                }
                Event::Free { address } => {
                    let site = named.remove(&stream).unwrap_or(0);
                    if site > 0 {
                        caches.insert(address >> PAGE_SHIFT, site);
                    }
                    // An address that was freed before is no older object: its allocation is missing.
                    let freed = !seen.insert(address);
                    if !self.live.remove(&address) {
                        match freed {
                            true => self.unknown += 1,
                            false => strangers.push((address, site)),
                        }
                    }
                }
                _ => {}
            }
            if self.live.len().max(seen.len()).max(caches.len()) > LIVE_MAX {
                return Err(Error::Foreign(format!(
                    "more than {LIVE_MAX} objects; record for a shorter time"
                )));
            }
        }
        self.first = first.unwrap_or(0);
        for (address, site) in strangers {
            let site = match site {
                0 => caches.get(&(address >> PAGE_SHIFT)).copied().unwrap_or(0),
                site => site,
            };
            match site {
                0 => self.unknown += 1,
                site => self.older.push((address, site)),
            }
        }
        self.live = HashSet::new();
        Ok(())
    }

    fn summary(&self, gathered: &Gathered) -> String {
        let about = &gathered.about;
        if gathered.format == Format::Heaptrack {
            return format!(
                "{} events; {} lines that tell of no block; {} times that went backwards",
                gathered.events, about.others, about.backwards
            );
        }
        format!(
            "{} kernel events of {} caches on {} CPUs; {} frees without an event, inferred where their \
             address was allocated again; {} objects older than the trace, known by their frees; {} frees \
             of objects older than the trace whose cache nothing tells; {} events of the allocator's own \
             moves, {} others; {} lost by the recorder; {} times that went backwards",
            gathered.events,
            gathered.caches.len(),
            gathered.cpus,
            self.inferred,
            self.older.len(),
            self.unknown,
            gathered.internal,
            about.others,
            gathered.lost,
            about.backwards
        )
    }
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

fn header(gathered: &Gathered, options: &Options, found: &Found, line: &str) -> Header {
    let about = &gathered.about;
    let mut notes = vec![format!("{line}.")];
    notes.extend(about.notes.iter().cloned());
    let kernel = gathered.format.is_kernel();
    let empty = (String::new(), String::new());
    let (before, after) = options.slabs.as_ref().unwrap_or(&empty);
    let (before, after) = (slabinfo(before), slabinfo(after));
    let called = |name: &str| match kmalloc::plain(name) {
        Some(plain) if !before.contains_key(name) && before.contains_key(&plain) => plain,
        _ => name.to_owned(),
    };
    let mut older: HashMap<u32, u64> = HashMap::new();
    for (_, site) in &found.older {
        *older.entry(*site).or_default() += 1;
    }
    let caches = gathered
        .caches
        .iter()
        .enumerate()
        .map(|(index, (name, size))| {
            let name = clean(&called(name), 128);
            let slab = after.get(&name).or_else(|| before.get(&name));
            Cache {
                object_size: slab.map_or(*size, |slab| slab.object_size),
                objects_per_slab: slab.map_or(0, |slab| slab.objects_per_slab),
                pages_per_slab: slab.map_or(0, |slab| slab.pages_per_slab),
                older: older.get(&(index as u32 + 1)).copied().unwrap_or(0),
                before: before.get(&name).map(|slab| slab.level),
                after: after.get(&name).map(|slab| slab.level),
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
        machine: clean(&about.machine, 200),
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
