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
//! - The file is read twice: once for its caches and counts, once while it is played. Memory goes with the
//!   blocks that live, not with the file's length.
//! - A kernel's caches begin as full as /proc/slabinfo had them, where the trace has that.
//! - Frees of blocks older than the trace are counted and left out.

mod reader;

use crate::spec::Spec;
use flagstone_core::base::PageSize;
use flagstone_core::policy::Policy;
use flagstone_sim::workload::tape::{Act, QUEUED_MAX, Steps, Tape};
use flagstone_trace::header::Cache;
use flagstone_trace::{Error, Event, Trace};
use reader::{Reader, Recording, Rules};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;

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
    /// Only the events between two shares of the trace's time, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<(u8, u8)>,
}

/// What a trace is, before it is played.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct About {
    /// Streams with events.
    pub streams: u32,
    /// A kernel's capture.
    pub kernel: bool,
    /// The machine that was recorded: system and release; empty if the trace does not say.
    pub machine: String,
    /// Its events.
    pub events: u64,
    /// A kernel's caches, as they were before and after.
    pub caches: Vec<Cache>,
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
            machine: trace.header().machine.clone(),
            events: trace.events(),
            caches: trace.header().caches.clone(),
            left_out: Vec::new(),
        };
        let recorded = Self {
            digest: hasher.finalize().to_hex()[..32].to_owned(),
            copies,
            pages,
            file: file.display().to_string(),
            part: None,
        };
        Ok((recorded, about))
    }
}

/// The tape that `spec` plays, for its tasks and its policy's size classes, and what was left out.
///
/// # Errors
/// One line: a file that is damaged or not the one of the spec.
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
    let places = trace.streams().iter().enumerate();
    let rules = Rules {
        classes: policy.size_classes,
        page: PageSize::new(page).ok_or_else(|| format!("pages of {page} bytes"))?,
        kernel: about.kernel,
        pages: recorded.pages || !has_objects(&trace)?,
        places: places.map(|(at, stream)| (stream.id, at % tasks)).collect(),
        tasks,
        part: span(&trace, recorded.part),
    };
    let recording = Recording {
        trace: Arc::new(trace),
        rules: Arc::new(rules),
        file: recorded.file.clone(),
    };
    // Once through, for what must be known before the first step.
    let mut reader = Reader::new(&recording)?;
    let mut left: Vec<u64> = Vec::new();
    while let Some((_, step)) = reader.next()? {
        left.resize(reader.maker.kinds.len(), 0);
        match step.act {
            Act::Take(cache) => left[usize::from(cache)] += 1,
            Act::Give(cache) => left[usize::from(cache)] -= 1,
            Act::TakePages(_) | Act::GivePages(_) => {}
        }
    }
    let maker = reader.maker;
    left.resize(maker.kinds.len(), 0);
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
    let tape = Tape {
        caches: maker.kinds,
        streams: tasks,
        copies,
        left,
        queued_max: QUEUED_MAX,
        source: Arc::new(recording),
    };
    Ok((Arc::new(tape), about))
}

/// The times of a part of a trace.
fn span(trace: &Trace, part: Option<(u8, u8)>) -> core::ops::Range<u64> {
    let times = trace.streams().iter().map(|stream| stream.times);
    let first = times.clone().map(|times| times.0).min().unwrap_or(0);
    let last = times.map(|times| times.1).max().unwrap_or(0);
    let at = |percent: u8| first + ((last - first) as f64 * f64::from(percent) / 100.0) as u64;
    match part {
        Some((from, to)) if to < 100 => at(from)..at(to),
        Some((from, _)) => at(from)..u64::MAX,
        None => 0..u64::MAX,
    }
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
            zones: Vec::new(),
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
        assert_eq!((made.streams, about.kernel), (2, false));
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

    /// Its parts would fill our own memory.
    #[test]
    fn a_block_larger_than_any_machine_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("huge.fst");
        let header: Header = serde_json::from_value(serde_json::json!({
            "schema": SCHEMA, "recorder": "a test", "page_size": 4096, "tick_ns": 1.0
        }))
        .unwrap();
        let mut writer = Writer::new(std::fs::File::create(&file).unwrap(), &header).unwrap();
        let id = StreamId {
            process: 0,
            image: 0,
            stream: 1,
        };
        let request = Request {
            size: 1 << 63,
            ..Request::default()
        };
        let address = 4096;
        writer
            .event(id, 1, 0, &Event::Alloc { address, request })
            .unwrap();
        writer.finish().unwrap();
        let told = tape(&spec(&file, "flagstone", 1)).err().unwrap();
        assert!(told.contains("9223372036854775808 bytes"), "{told}");
    }

    #[test]
    fn a_stream_ahead_of_the_others_waits_and_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = recorded(folder.path(), "glibc", &[]);
        let spec = spec(&file, "flagstone", 2);
        let (made, _) = tape(&spec).unwrap();
        let played = |queued_max| {
            let tape = Tape {
                queued_max,
                ..Tape::clone(&made)
            };
            let mut params = spec.params().unwrap();
            params.tape = Some(Arc::new(tape));
            let scenario = flagstone_sim::scenario::Scenario {
                machine: &spec.machine,
                workload: spec.known_workload().unwrap(),
                policy: &spec.policy.named().unwrap(),
                tasks: spec.tasks,
                seed: spec.seed,
                params: &params,
                plan: spec.plan(),
            };
            scenario.run().unwrap().simulated
        };
        let whole = played(QUEUED_MAX);
        assert!(whole > 500, "{whole}");
        for queued_max in [2, 4, 7, 100] {
            assert_eq!(played(queued_max), whole, "{queued_max} steps queued");
        }
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
