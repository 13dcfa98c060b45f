//! `flagstone record --kernel`: the running kernel's own allocation events, through tracefs.
//!
//! ```text
//!   an instance of tracefs's own ─ events on ─► per-CPU rings ─ trace_pipe ─► text ─► trace import
//! ```
//!
//! The instance is made for this recording and removed after it, so other users of tracing are not
//! disturbed. What the rings lost is counted by the kernel and told.

use crate::cmd::trace::import;
use crate::exit::Failure;
use flagstone_import::{BEGUN, ENDED, Options};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where tracefs may be mounted.
const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Events that are switched on, those that a kernel has.
const EVENTS: [&str; 13] = [
    "kmem/kmem_cache_alloc",
    "kmem/kmem_cache_alloc_node",
    "kmem/kmem_cache_free",
    "kmem/kmalloc",
    "kmem/kmalloc_node",
    "kmem/kfree",
    "kmem/mm_page_alloc",
    "kmem/mm_page_free",
    "kmem/mm_page_free_batched",
    "kmem/mm_page_alloc_zone_locked",
    "kmem/mm_page_pcpu_drain",
    "vmalloc/alloc_vmap_area",
    WORK,
];

/// The start of work on a queue: only that by which pagesets decay is asked for.
const WORK: &str = "workqueue/workqueue_execute_start";
const DECAYS: &str = "function.function == vmstat_update";

/// KiB of each CPU's ring. Why 16 MiB: a busy CPU makes some 100 MB of text a second, and the reader
/// comes round many times a second.
const RING_KIB: u32 = 16 << 10;

/// How long a look at an empty pipe waits.
const PAUSE: Duration = Duration::from_millis(20);

/// A recording under way; dropping it removes the instance.
struct Instance {
    folder: PathBuf,
}

impl Drop for Instance {
    fn drop(&mut self) {
        // What cannot be switched off or removed now is so small that nothing is lost by it.
        let _ = fs::write(self.folder.join("tracing_on"), "0");
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Records for so long, into a trace file.
///
/// # Errors
/// A usage failure where tracefs is not there or not allowed.
pub fn record(span: Duration, output: &Path) -> Result<(), Failure> {
    let told = |what: &str, error: io::Error| {
        Failure::Usage(format!(
            "record: --kernel: {what}: {error}; it needs root and tracefs (mount -t tracefs nodev /sys/kernel/tracing)"
        ))
    };
    let instance = Instance::new().map_err(|error| told("tracefs", error))?;
    let mut text =
        tempfile::NamedTempFile::new().map_err(|error| told("a temporary file", error))?;
    let (slabs, zones) = instance
        .copy(span, text.as_file_mut())
        .map_err(|error| told("reading events", error))?;
    let lost = instance.lost();
    drop(instance);
    let options = Options {
        machine: super::system(),
        slabs,
        zones,
    };
    import::import(text.path(), output, &options, "record --kernel")?;
    if lost > 0 {
        eprintln!(
            "flagstone: record: the kernel's rings lost {lost} events; record for less time, or fewer at once"
        );
    }
    Ok(())
}

impl Instance {
    fn new() -> io::Result<Self> {
        let has_instances = |place: &&&str| Path::new(place).join("instances").is_dir();
        let Some(place) = PLACES.iter().find(has_instances) else {
            return Err(io::Error::from(io::ErrorKind::NotFound));
        };
        let name = format!("instances/flagstone-{}", std::process::id());
        let folder = Path::new(place).join(name);
        fs::create_dir(&folder)?;
        let instance = Self { folder };
        // What the making of the instance allocates is no part of the recording.
        instance.set("tracing_on", "0")?;
        instance.set("buffer_size_kb", &RING_KIB.to_string())?;
        // Plain pointers where the kernel can; hashed ones serve as well.
        let _ = instance.set("options/hash-ptr", "0");
        let mut any = false;
        for event in EVENTS {
            // All work would be too much, where a kernel does not know this filter.
            if event == WORK
                && instance
                    .set(&format!("events/{event}/filter"), DECAYS)
                    .is_err()
            {
                continue;
            }
            any |= instance.set(&format!("events/{event}/enable"), "1").is_ok();
        }
        if !any {
            return Err(io::Error::other("this kernel has no kmem events"));
        }
        Ok(instance)
    }

    fn set(&self, file: &str, value: &str) -> io::Result<()> {
        fs::write(self.folder.join(file), value)
    }

    /// Copies what the kernel prints for so long; caches and zones at the beginning and at the end.
    fn copy(&self, span: Duration, out: &mut File) -> io::Result<(Both, Both)> {
        use std::os::unix::fs::OpenOptionsExt;
        let mut pipe = fs::OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(self.folder.join("trace_pipe"))?;
        let before = proc("slabinfo");
        let mut after = (None, None);
        self.set("tracing_on", "1")?;
        let zones = proc("zoneinfo");
        // Without marks pagesets are not compared; the rest is as good.
        let _ = self.set("trace_marker", BEGUN);
        let began = Instant::now();
        let mut buffer = vec![0; 1 << 20];
        let mut on = true;
        loop {
            if on && began.elapsed() >= span {
                let _ = self.set("trace_marker", ENDED);
                let zones = proc("zoneinfo");
                self.set("tracing_on", "0")?;
                after = (proc("slabinfo"), zones);
                on = false;
            }
            match pipe.read(&mut buffer) {
                Ok(0) if !on => return Ok((before.zip(after.0), zones.zip(after.1))),
                Ok(bytes) => out.write_all(&buffer[..bytes])?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !on {
                        return Ok((before.zip(after.0), zones.zip(after.1)));
                    }
                    std::thread::sleep(PAUSE.min(span.saturating_sub(began.elapsed())));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Events that the rings had no room for.
    fn lost(&self) -> u64 {
        let Ok(cpus) = fs::read_dir(self.folder.join("per_cpu")) else {
            return 0;
        };
        let stats = cpus.filter_map(|cpu| fs::read_to_string(cpu.ok()?.path().join("stats")).ok());
        stats.map(|text| lost_in(&text)).sum()
    }
}

/// A text of the kernel's before and after.
type Both = Option<(String, String)>;

/// What a file of /proc says now, where root may read it.
fn proc(name: &str) -> Option<String> {
    fs::read_to_string(Path::new("/proc").join(name)).ok()
}

/// What a CPU's `stats` says was lost.
fn lost_in(stats: &str) -> u64 {
    let of = |name: &str| {
        let line = stats.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse::<u64>().ok()
    };
    of("overrun:").unwrap_or(0) + of("dropped events:").unwrap_or(0)
}

/// A span of time: `5s`, `500ms`, `2m`, or plain seconds.
pub fn span(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let wrong = || format!("{text} is no time: 5s, 500ms and 2m are");
    let number: f64 = digits.parse().map_err(|_| wrong())?;
    let unit = match &text[digits.len()..] {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "m" | "min" => 60.0,
        _ => return Err(wrong()),
    };
    let seconds = number * unit;
    if !(0.001..=3600.0).contains(&seconds) {
        return Err(format!("{text}: from 1ms to 60m can be recorded"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_units() {
        assert_eq!(span("5s"), Ok(Duration::from_secs(5)));
        assert_eq!(span("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(span("2m"), Ok(Duration::from_secs(120)));
        for wrong in ["", "s", "5h", "-1s", "0", "nan", "inf"] {
            assert!(span(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_the_rings_lost_is_read_from_their_statistics() {
        let stats = "entries: 0\noverrun: 17\ncommit overrun: 0\nbytes: 0\ndropped events: 3\n";
        assert_eq!(lost_in(stats), 20);
        assert_eq!(lost_in(""), 0);
    }
}
