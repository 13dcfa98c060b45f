//! The document `flagstone.report/1`.

use super::json::Json;
use super::room::Room;
use crate::Linux;
use crate::beacon::GAUGES;
use flagstone_core::base::{CpuId, NodeId};
use flagstone_core::heap::Ready;
use flagstone_core::page::{PagesetSnapshot, ZoneSnapshot};
use flagstone_core::platform::Platform;
use flagstone_core::stats::{CacheFigures, Ledger};
use flagstone_linux::beacon::Gauge;
use flagstone_linux::outside::Outside;
use flagstone_linux::text::decimal;
use flagstone_linux::{clock, process, sys};

/// When a sample was taken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// While the program runs.
    Running,
    /// At its end.
    Exit,
}

/// One sample beside what lies in the room.
pub struct Sample<'a> {
    /// The heap.
    pub ready: &'a Ready<Linux>,
    /// Resident bytes of the process, if the kernel says.
    pub resident: Option<u64>,
    /// Whether the kernel tells which pages are resident.
    pub tells_pages: bool,
    /// When.
    pub moment: Moment,
    /// Whose.
    pub process: i32,
}

/// Writes the document to `<directory>/<process>.json`, replacing an earlier one whole.
pub fn write(room: &mut Room, sample: &Sample<'_>) {
    let mut digits = [0; 20];
    let number = decimal(u64::from(sample.process.unsigned_abs()), &mut digits);
    let (mut new, mut last) = ([0; NAME_BYTES], [0; NAME_BYTES]);
    let named = name(&mut new, &[room.directory(), b"/", number, b".new\0"])
        && name(&mut last, &[room.directory(), b"/", number, b".json\0"]);
    if !named {
        return;
    }
    let Some(fd) = open(&new, libc::O_TRUNC) else {
        return;
    };
    let Room {
        text,
        survey,
        outside,
        samples,
        peak,
        peak_outside,
        peak_bytes,
        ..
    } = room;
    let whole = Json::new(fd, text).document(|json| {
        head(json, sample, *samples);
        json.array("caches", |json| {
            for cache in survey.caches(sample.ready.slabs()) {
                json.item(|json| cache_fields(json, &cache));
            }
        });
        ledger(json, &survey.ledger);
        kinds(json, outside);
        json.object("peak", |json| {
            json.number("rss_bytes", *peak_bytes);
            ledger(json, peak);
            kinds(json, peak_outside);
        });
        json.object("pages", |json| pages(json, sample.ready));
        json.object("bounds", bounds);
    });
    sys::close(fd);
    if whole {
        rename(&new, &last);
    }
}

/// Appends what a timeline needs of the sample to `<directory>/<process>.timeline`: a line of JSON.
pub fn append(room: &mut Room, sample: &Sample<'_>) {
    let mut digits = [0; 20];
    let number = decimal(u64::from(sample.process.unsigned_abs()), &mut digits);
    let mut path = [0; NAME_BYTES];
    if !name(&mut path, &[room.directory(), b"/", number, b".timeline\0"]) {
        return;
    }
    let Some(fd) = open(&path, libc::O_APPEND) else {
        return;
    };
    let Room { text, survey, .. } = room;
    Json::new(fd, text).document(|json| {
        json.number("at_ns", clock::now());
        json.maybe("rss_bytes", sample.resident);
        json.array("ledger", |json| {
            for (_, bytes) in survey.ledger.lines() {
                json.entry(bytes);
            }
        });
    });
    sys::close(fd);
}

/// What bounds the heap from outside.
fn bounds(json: &mut Json<'_>) {
    for (name, gauge) in [
        ("limit_bytes", Gauge::Limit),
        ("limit_reached", Gauge::LimitReached),
        ("limit_refused", Gauge::LimitRefused),
        ("limit_asked", Gauge::LimitAsked),
        ("pressure", Gauge::Pressure),
        ("pressure_looks", Gauge::PressureLooks),
        ("relieved", Gauge::Relieved),
        ("relieved_bytes", Gauge::RelievedBytes),
    ] {
        json.number(name, GAUGES.get(gauge));
    }
}

fn head(json: &mut Json<'_>, sample: &Sample<'_>, samples: u64) {
    json.text("schema", b"flagstone.report/1");
    json.number("pid", sample.process as u64);
    json.number("ppid", process::parent() as u64);
    json.text("program", process::name(&mut [0; 16]));
    json.truth("final", sample.moment == Moment::Exit);
    json.number("samples", samples);
    json.number("page_bytes", Linux::page_size().bytes() as u64);
    json.number("cpus", u64::from(Linux::cpu_count()));
    json.truth("restartable_sequences", Linux::fast_slots());
    json.truth("resident_pages_told", sample.tells_pages);
    json.maybe("rss_bytes", sample.resident);
    json.maybe("peak_rss_bytes", process::resident_peak());
}

fn cache_fields(json: &mut Json<'_>, cache: &CacheFigures<'_>) {
    json.text("name", cache.name.as_bytes());
    json.truth("internal", cache.internal);
    json.number("object_size", cache.object_size as u64);
    json.number("size", cache.size as u64);
    json.number("order", u64::from(cache.order));
    json.number("pages", cache.pages as u64);
    json.number("objects_per_slab", u64::from(cache.objects_per_slab));
    json.number("slabs", cache.counts.slabs);
    json.number("objects", cache.objects);
    json.number("active", cache.active);
    json.number("in_sheaves", cache.counts.in_sheaves);
    json.number("in_barns", cache.counts.in_barns);
    json.number("free_in_slabs", cache.free_in_slabs);
    json.number("empty_slabs", cache.counts.empty_slabs);
    json.number("pinned_slabs", cache.counts.pinned_slabs);
    json.number("pinned_bytes", cache.counts.pinned_bytes);
    json.number("sheaf_capacity", u64::from(cache.sheaf_capacity));
    json.number("tail_bytes", cache.tail_bytes as u64);
    json.maybe("mean_requested", cache.mean_requested);
    json.number("resident_bytes", cache.resident_bytes);
    json.number("waste_bytes", cache.waste_bytes);
}

fn ledger(json: &mut Json<'_>, ledger: &Ledger) {
    json.array("ledger", |json| {
        for (line, bytes) in ledger.lines() {
            json.item(|json| {
                json.text("line", line.name().as_bytes());
                json.number("bytes", bytes);
            });
        }
    });
    json.number("released_bytes", ledger.released);
    json.number("untouched_bytes", ledger.untouched);
}

fn kinds(json: &mut Json<'_>, outside: &Outside) {
    json.array("outside", |json| {
        for (kind, bytes) in outside.kinds() {
            json.item(|json| {
                json.text("kind", kind.as_bytes());
                json.number("bytes", bytes);
            });
        }
    });
}

fn pages(json: &mut Json<'_>, ready: &Ready<Linux>) {
    let layer = ready.slabs().pages();
    let found = layer.snapshot();
    json.number("page_bytes", found.page_bytes as u64);
    json.number("descriptor_bytes", found.memmap_bytes as u64);
    json.number("own_bytes", (found.own_bytes + found.control_bytes) as u64);
    json.number("hole_bytes_total", found.hole_bytes_total);
    let nodes = || (0..Linux::node_count()).map(NodeId);
    json.array("zones", |json| {
        for node in nodes() {
            if let Some(zone) = layer.zone_snapshot(node) {
                json.item(|json| zone_fields(json, node, &zone));
            }
        }
    });
    json.array("pagesets", |json| {
        for node in nodes() {
            for cpu in (0..Linux::cpu_count()).map(CpuId) {
                let set = layer.pageset_snapshot(node, cpu);
                if let Some(set) = set.filter(|set| set.counters.allocs + set.counters.frees > 0) {
                    json.item(|json| pageset_fields(json, node, cpu, &set));
                }
            }
        }
    });
}

fn zone_fields(json: &mut Json<'_>, node: NodeId, zone: &ZoneSnapshot) {
    json.number("node", u64::from(node.0));
    for (key, value) in [
        ("span_pages", zone.span_pages),
        ("frontier_pages", zone.frontier_pages),
        ("committed_pages", zone.committed_pages),
        ("managed_pages", zone.managed_pages),
        ("in_use_pages", zone.in_use_pages),
        ("free_pages", zone.free_pages),
        ("free_resident_pages", zone.free_resident_pages),
        ("keep_pages", zone.keep_pages),
        ("pageset_pages", zone.cached_pages),
        ("pageset_resident_pages", zone.cached_resident_pages),
    ] {
        json.number(key, value as u64);
    }
    json.numbers("resident_blocks", &zone.resident_blocks);
    json.numbers("released_blocks", &zone.released_blocks);
    json.object("watermarks", |json| {
        json.number("min", zone.marks.min);
        json.number("low", zone.marks.low);
        json.number("high", zone.marks.high);
    });
    let counters = &zone.counters;
    for (key, value) in [
        ("lock_takes", counters.lock_takes),
        ("lock_waits", counters.lock_waits),
        ("alloc_pages", counters.alloc_pages),
        ("freed_pages", counters.free_pages),
        ("fresh_pages", counters.fresh_pages),
        ("released_pages", counters.released_pages),
        ("release_calls", counters.release_calls),
        ("commit_calls", counters.commit_calls),
        ("pageset_bypassed", zone.bypassed),
    ] {
        json.number(key, value);
    }
}

fn pageset_fields(json: &mut Json<'_>, node: NodeId, cpu: CpuId, set: &PagesetSnapshot) {
    json.number("node", u64::from(node.0));
    json.number("cpu", u64::from(cpu.0));
    for (key, value) in [
        ("count", set.count),
        ("resident", set.resident),
        ("high", set.high),
        ("high_min", set.high_min),
        ("high_max", set.high_max),
        ("batch", set.batch),
    ] {
        json.number(key, u64::from(value));
    }
    let counters = &set.counters;
    for (key, value) in [
        ("allocs", counters.allocs),
        ("frees", counters.frees),
        ("refills", counters.refills),
        ("drains", counters.drains),
        ("free_high", counters.free_high),
    ] {
        json.number(key, value);
    }
}

/// Longest name of a file, its zero byte included.
const NAME_BYTES: usize = 1100;

fn name(buffer: &mut [u8; NAME_BYTES], parts: &[&[u8]]) -> bool {
    let mut len = 0;
    for part in parts {
        let Some(room) = buffer.get_mut(len..len + part.len()) else {
            return false;
        };
        room.copy_from_slice(part);
        len += part.len();
    }
    true
}

const HERE: usize = libc::AT_FDCWD as isize as usize;

fn open(path: &[u8; NAME_BYTES], more: i32) -> Option<i32> {
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_CLOEXEC | more;
    // SAFETY: `path` is a zero-terminated string that lives during the call.
    let fd = unsafe {
        sys::call(
            libc::SYS_openat,
            [
                HERE,
                path.as_ptr().expose_provenance(),
                flags as usize,
                0o600,
                0,
                0,
            ],
        )
    };
    i32::try_from(fd).ok().filter(|&fd| fd >= 0)
}

fn rename(from: &[u8; NAME_BYTES], to: &[u8; NAME_BYTES]) {
    // SAFETY: both are zero-terminated strings that live during the call.
    unsafe {
        sys::call(
            libc::SYS_renameat2,
            [
                HERE,
                from.as_ptr().expose_provenance(),
                HERE,
                to.as_ptr().expose_provenance(),
                0,
                0,
            ],
        )
    };
}
