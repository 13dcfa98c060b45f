//! Recorded traces as tapes: `flagstone-trace/1` for the simulator.
//!
//! ```text
//!   streams of a file, merged by time ─► blocks numbered ─► dealt to tasks ─► Tape
//! ```
//!
//! - A stream becomes a task. Where there are more streams than tasks, several share one, in the order of
//!   time. Copies of all play at the same time, each with blocks of its own.
//! - A program's blocks lie in the policy's size classes, larger ones in blocks of pages; what is larger than
//!   a block of the highest order is several. A kernel's objects lie in caches of their names.
//! - A kernel's page events contain those of its slabs. Where a capture has objects, page events are left
//!   out, unless they are asked for.
//! - Frees of blocks older than the trace are counted and left out.

use crate::spec::Spec;
use flagstone_core::base::PageSize;
use flagstone_core::policy::{Policy, SizeClasses};
use flagstone_sim::workload::tape::{Act, Kind, Step, Tape};
use flagstone_trace::{Error, Event, Trace};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// Most steps of a tape: each takes twelve bytes.
const STEPS_MAX: usize = 100_000_000;

/// The highest order of a block of pages.
const ORDER_MAX: u8 = 10;

/// A recorded trace in a spec. Its identity is its contents; the file says where they are.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recorded {
    /// Digest of the file's bytes.
    pub digest: String,
    /// How often it is played at the same time.
    pub copies: u32,
    /// A kernel's page events are played although it has objects.
    #[serde(default)]
    pub pages: bool,
    /// The file; no part of the identity.
    #[serde(default)]
    pub file: String,
}

/// What a trace is, before it is played.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct About {
    /// Streams with events.
    pub streams: u32,
    /// A kernel's capture.
    pub kernel: bool,
    /// Its events.
    pub events: u64,
    /// What was left out, in words; empty if nothing.
    pub left_out: Vec<String>,
}

impl Recorded {
    /// The trace in `file`.
    ///
    /// # Errors
    /// One line with the file.
    pub fn of(file: &Path, copies: u32, pages: bool) -> Result<(Self, About), String> {
        let told = |why: &dyn core::fmt::Display| format!("{}: {why}", file.display());
        let trace = Trace::open(file).map_err(|error| told(&error))?;
        let mut hasher = blake3::Hasher::new();
        let mut open = std::fs::File::open(file).map_err(|error| told(&error))?;
        std::io::copy(&mut open, &mut hasher).map_err(|error| told(&error))?;
        let about = About {
            streams: trace.streams().len() as u32,
            kernel: trace.header().allocator == "kernel",
            events: trace.events(),
            left_out: Vec::new(),
        };
        let recorded = Self {
            digest: hasher.finalize().to_hex()[..32].to_owned(),
            copies,
            pages,
            file: file.display().to_string(),
        };
        Ok((recorded, about))
    }
}

/// A block on the way: its number and how it is given back.
#[derive(Clone, Copy)]
struct Block {
    number: u32,
    give: Act,
}

/// The tape on the way.
struct Maker<'a> {
    classes: SizeClasses,
    page: PageSize,
    kernel: bool,
    pages: bool,
    sites: &'a [String],
    caches: HashMap<(u32, usize), u16>,
    tape: Tape,
    /// By process and address; of pages, by number.
    live: HashMap<(u32, u64), Vec<Block>>,
    page_blocks: HashMap<u64, Block>,
    last_ns: Vec<f64>,
    unknown: u64,
    page_events: u64,
    steps: usize,
}

/// The tape that `spec` plays, for its tasks and its policy's size classes, and what was left out.
///
/// # Errors
/// One line: a file that is damaged or not the one of the spec, or too long.
pub fn tape(spec: &Spec) -> Result<(Arc<Tape>, About), String> {
    let recorded = spec
        .workload
        .trace
        .as_ref()
        .ok_or("the spec has no trace to play")?;
    let file = Path::new(&recorded.file);
    let (found, mut about) = Recorded::of(file, recorded.copies, recorded.pages)?;
    if found.digest != recorded.digest {
        return Err(format!(
            "{}: not the trace of the spec: its contents are others",
            recorded.file
        ));
    }
    let copies = recorded.copies.max(1);
    let tasks = (spec.tasks / copies).max(1) as usize;
    let trace = Trace::open(file).map_err(|error| format!("{}: {error}", recorded.file))?;
    let policy: Policy = spec.policy.policy()?;
    let page = spec.machine.topology.page_size;
    let mut maker = Maker {
        classes: policy.size_classes,
        page: PageSize::new(page).ok_or_else(|| format!("pages of {page} bytes"))?,
        kernel: about.kernel,
        pages: recorded.pages || !has_objects(&trace)?,
        sites: &trace.header().sites,
        caches: HashMap::new(),
        tape: Tape {
            streams: vec![Vec::new(); tasks],
            copies,
            ..Tape::default()
        },
        live: HashMap::new(),
        page_blocks: HashMap::new(),
        last_ns: vec![f64::NAN; tasks],
        unknown: 0,
        page_events: 0,
        steps: 0,
    };
    let places: HashMap<_, _> = trace
        .streams()
        .iter()
        .enumerate()
        .map(|(at, stream)| (stream.id, at % tasks))
        .collect();
    let mut merged = trace.merged(|_| true);
    while let Some((time, stream, event)) = merged
        .next()
        .map_err(|error| format!("{}: {error}", recorded.file))?
    {
        let at = (trace.ns(time), places[&stream]);
        maker.event(at, stream.process, event)?;
    }
    if maker.unknown > 0 {
        about.left_out.push(format!(
            "{} frees of blocks older than the trace",
            maker.unknown
        ));
    }
    if maker.page_events > 0 {
        about.left_out.push(format!(
            "{} page events, which contain those of slabs (--pages plays them)",
            maker.page_events
        ));
    }
    Ok((Arc::new(maker.tape), about))
}

/// Whether a trace has objects at all.
fn has_objects(trace: &Trace) -> Result<bool, String> {
    for stream in trace.streams() {
        let mut found = false;
        let end = trace.each(stream, |_, event| match event {
            Event::Alloc { .. } => {
                found = true;
                Err(Error::Foreign)
            }
            _ => Ok(()),
        });
        match (found, end) {
            (true, _) => return Ok(true),
            (false, Err(error)) => return Err(error.to_string()),
            (false, Ok(())) => {}
        }
    }
    Ok(false)
}

impl Maker<'_> {
    fn event(&mut self, at: (f64, usize), process: u32, event: Event) -> Result<(), String> {
        match event {
            Event::Alloc { address, request } if address != 0 => {
                self.take(at, (process, address), request.size, request.site)?;
            }
            Event::Free { address } => self.give(at, (process, address))?,
            Event::Realloc { old, new, size } if new != 0 => {
                self.give(at, (process, old))?;
                self.take(at, (process, new), size, 0)?;
            }
            Event::PageAlloc { .. } | Event::PageFree { .. } if !self.pages => {
                self.page_events += 1
            }
            Event::PageAlloc { pfn, order, .. } => {
                let order = order.min(ORDER_MAX);
                if let Some(block) = self.page_blocks.remove(&pfn) {
                    // Freed without an event.
                    self.step(at, block.number, block.give)?;
                }
                let block = self.block(at, Act::TakePages(order), Act::GivePages(order))?;
                self.page_blocks.insert(pfn, block);
            }
            Event::PageFree { pfn, .. } => match self.page_blocks.remove(&pfn) {
                Some(block) => self.step(at, block.number, block.give)?,
                None => self.unknown += 1,
            },
            _ => {}
        }
        Ok(())
    }

    fn take(
        &mut self,
        at: (f64, usize),
        key: (u32, u64),
        size: u64,
        site: u32,
    ) -> Result<(), String> {
        if self.live.contains_key(&key) {
            self.give(at, key)?;
        }
        let size = usize::try_from(size).unwrap_or(usize::MAX).max(1);
        let name = site
            .checked_sub(1)
            .and_then(|site| self.sites.get(site as usize));
        let class = match (self.kernel, name) {
            (true, Some(name)) => Some(
                name.strip_prefix("kmalloc-")
                    .and_then(|size| size.parse().ok())
                    .unwrap_or(size),
            ),
            _ => self.classes.class_for(size, self.page),
        };
        let most = self.classes.max_bytes(self.page);
        let mut blocks = Vec::new();
        match class {
            Some(class) if class <= most || self.kernel => {
                let cache = self.cache(site, class)?;
                blocks.push(self.block(at, Act::Take(cache), Act::Give(cache))?);
            }
            _ => {
                let mut pages = size.div_ceil(self.page.bytes());
                while pages > 0 {
                    let order = (pages.next_power_of_two().trailing_zeros() as u8).min(ORDER_MAX);
                    blocks.push(self.block(at, Act::TakePages(order), Act::GivePages(order))?);
                    pages = pages.saturating_sub(1 << order);
                }
            }
        }
        self.live.insert(key, blocks);
        Ok(())
    }

    fn give(&mut self, at: (f64, usize), key: (u32, u64)) -> Result<(), String> {
        match self.live.remove(&key) {
            Some(blocks) => blocks
                .into_iter()
                .try_for_each(|block| self.step(at, block.number, block.give)),
            None => {
                self.unknown += u64::from(key.1 != 0);
                Ok(())
            }
        }
    }

    /// A kernel's cache by its name, with the size of its first object; a program's by its class.
    fn cache(&mut self, site: u32, class: usize) -> Result<u16, String> {
        let key = if self.kernel { (site, 0) } else { (0, class) };
        if let Some(&known) = self.caches.get(&key) {
            return Ok(known);
        }
        let number = u16::try_from(self.tape.caches.len())
            .ok()
            .filter(|number| *number < 200);
        let number =
            number.ok_or("more than 200 caches, which is what a simulated kernel has room for")?;
        let name = match self.kernel {
            true => site
                .checked_sub(1)
                .and_then(|site| self.sites.get(site as usize))
                .cloned(),
            false => None,
        };
        let name = name.unwrap_or_else(|| format!("kmalloc-{class}"));
        self.tape.left.push(0);
        self.tape.caches.push(Kind {
            kmalloc: name.starts_with("kmalloc-"),
            size: class,
            name,
        });
        self.caches.insert(key, number);
        Ok(number)
    }

    fn block(&mut self, at: (f64, usize), take: Act, give: Act) -> Result<Block, String> {
        let number = u32::try_from(self.tape.blocks).map_err(|_| "more than 2^32 blocks")?;
        self.tape.blocks += 1;
        self.step(at, number, take)?;
        Ok(Block { number, give })
    }

    fn step(&mut self, (ns, task): (f64, usize), block: u32, act: Act) -> Result<(), String> {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return Err(format!(
                "more than {STEPS_MAX} steps; `flagstone trace cut` makes a part of it"
            ));
        }
        match act {
            Act::Take(cache) => self.tape.left[usize::from(cache)] += 1,
            Act::Give(cache) => self.tape.left[usize::from(cache)] -= 1,
            Act::TakePages(_) | Act::GivePages(_) => {}
        }
        let last = core::mem::replace(&mut self.last_ns[task], ns);
        let gap = if last.is_nan() {
            0.0
        } else {
            (ns - last).max(0.0)
        };
        self.tape.streams[task].push(Step {
            gap_ns: gap.min(f64::from(u32::MAX)) as u32,
            block,
            act,
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Rules, Window, names};
    use flagstone_trace::header::{Header, SCHEMA};
    use flagstone_trace::index::StreamId;
    use flagstone_trace::write::Writer;
    use flagstone_trace::{Process, Request};

    /// Two streams: one takes blocks of all kinds, the other gives some of them back.
    fn recorded(folder: &Path, allocator: &str, sites: &[&str]) -> std::path::PathBuf {
        let file = folder.join(format!("{allocator}.fst"));
        let header = Header {
            schema: SCHEMA.into(),
            recorder: "a test".into(),
            command: Vec::new(),
            allocator: allocator.into(),
            machine: String::new(),
            cpus: 2,
            page_size: 4096,
            tick_ns: 1.0,
            began: 0,
            sample: 1,
            sites: sites.iter().map(|site| (*site).to_owned()).collect(),
            notes: Vec::new(),
            caches: Vec::new(),
        };
        let mut writer = Writer::new(std::fs::File::create(&file).unwrap(), &header).unwrap();
        writer.process(&Process::default()).unwrap();
        let id = |stream| StreamId {
            process: 0,
            image: 0,
            stream,
        };
        for round in 0..200u64 {
            let time = 1000 * round;
            let address = 0x10_0000 + 0x1_0000 * round;
            let request = Request {
                size: if round % 50 == 49 {
                    6 << 20
                } else {
                    40 + round
                },
                site: u32::from(!sites.is_empty()),
                ..Request::default()
            };
            writer
                .event(id(1), 1, time, &Event::Alloc { address, request })
                .unwrap();
            let page = Event::PageAlloc {
                pfn: round,
                order: 1,
                migratetype: 0,
            };
            writer.event(id(1), 1, time + 1, &page).unwrap();
            if round % 2 == 0 {
                writer
                    .event(id(2), 2, time + 10, &Event::Free { address })
                    .unwrap();
            }
            let old = Event::Free {
                address: 0xdead_0000 + round * 64,
            };
            writer.event(id(2), 2, time + 20, &old).unwrap();
        }
        writer.finish().unwrap();
        file
    }

    fn spec(file: &Path, policy: &str, copies: u32) -> Spec {
        let machine = names::machine("x86-16").unwrap();
        let (trace, about) = Recorded::of(file, copies, false).unwrap();
        let mut spec = Spec::played(machine, Rules::parse(policy, &[]).unwrap(), trace);
        spec.tasks = about.streams * copies;
        spec.window = Window::QUICK;
        spec
    }

    #[test]
    fn a_program_plays_in_size_classes_and_what_it_keeps_stays() {
        let folder = tempfile::tempdir().unwrap();
        let file = recorded(folder.path(), "glibc", &[]);
        let one = spec(&file, "flagstone", 1);
        let (made, about) = tape(&one).unwrap();
        assert_eq!((made.streams.len(), about.kernel), (2, false));
        assert!(
            about.left_out[0].starts_with("200 frees"),
            "{:?}",
            about.left_out
        );
        assert!(made.caches.iter().all(|kind| kind.kmalloc));
        let record = one.run().unwrap().record;
        assert_eq!(record, one.run().unwrap().record);
        let kept: f64 = record
            .more
            .iter()
            .filter(|(key, _)| key.starts_with("detail.slabs"))
            .map(|(_, slabs)| slabs)
            .sum();
        assert!(kept > 0.0, "{:?}", record.more);
        let four = spec(&file, "flagstone", 4).run().unwrap().record;
        assert_eq!(four.tasks, 8);
        assert!(
            four.peak_bytes > 3 * record.peak_bytes,
            "{} {}",
            four.peak_bytes,
            record.peak_bytes
        );
    }

    #[test]
    fn a_kernels_objects_lie_in_caches_of_their_names() {
        let folder = tempfile::tempdir().unwrap();
        let file = recorded(folder.path(), "kernel", &["dentry"]);
        let spec = spec(&file, "linux-6.18", 1);
        let (_, about) = tape(&spec).unwrap();
        assert!(
            about
                .left_out
                .iter()
                .any(|line| line.contains("200 page events")),
            "{:?}",
            about.left_out
        );
        let record = spec.run().unwrap().record;
        assert!(
            record.more["detail.slabs dentry"] > 0.0,
            "{:?}",
            record.more
        );
    }

    #[test]
    fn another_file_under_the_same_name_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let file = recorded(folder.path(), "glibc", &[]);
        let spec = spec(&file, "flagstone", 1);
        let other = recorded(folder.path(), "kernel", &["dentry"]);
        std::fs::copy(other, &file).unwrap();
        assert!(spec.run().unwrap_err().contains("its contents are others"));
        let mut moved = spec.clone();
        moved.workload.trace.as_mut().unwrap().file = "elsewhere.fst".into();
        assert_eq!(
            moved.digest(),
            spec.digest(),
            "where the file is decides nothing"
        );
    }
}
