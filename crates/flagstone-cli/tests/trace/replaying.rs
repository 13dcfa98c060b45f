//! Recorded programs on real threads again: `flagstone replay`.

use super::{PLAN, compiled, flagstone, lossless, record, text};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// The document that a command printed.
fn document(output: &std::process::Output) -> Value {
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("a document")
}

#[test]
fn a_trace_of_threads_replays_whole_on_every_allocator() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("threads.fst");
    let trace = threads(&file);
    let output = flagstone(&["replay", lossless(&file), "--runs", "1", "--json=-"]);
    let document = document(&output);
    assert_eq!(document["schema"], "flagstone.replay/1");
    // Every event, and a start for each thread but the first.
    assert_eq!(
        document["operations"].as_u64(),
        Some(trace.events + trace.threads - 1)
    );
    assert_eq!(document["threads"].as_u64(), Some(trace.threads));
    assert_eq!(document["peak_live_bytes"].as_u64(), Some(trace.peak));
    let rows = document["rows"].as_array().unwrap();
    let names: Vec<_> = rows
        .iter()
        .map(|row| row["allocator"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["flagstone", "glibc"]);
    for row in rows {
        assert_eq!(row["refused"], 0);
        let peak = row["peak_rss_bytes"]["median"].as_f64().unwrap();
        let live = trace.peak as f64;
        assert!(
            peak > 0.9 * live && peak < 2.0 * live + 1e6,
            "{peak} for {live}: {row}"
        );
    }
}

#[test]
fn a_block_that_three_threads_use_is_used_in_their_order() {
    use flagstone_trace::{Event, Request};
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("order.fst");
    let mut writer = writer(&file);
    let mut time = 0;
    let mut event = |stream: u32, event: Event| {
        time += 10;
        writer.event(id(stream), 1, time, &event).unwrap();
    };
    let request = Request {
        size: 64,
        ..Request::default()
    };
    let alloc = |address: u64| Event::Alloc { address, request };
    let free = |address: u64| Event::Free { address };
    // The third thread has nothing to do before it frees; the second, which resizes, very much.
    event(1, alloc(0x1000));
    event(3, alloc(0x2000));
    for _ in 0..200_000 {
        event(2, alloc(0x3000));
        event(2, free(0x3000));
    }
    let (old, new) = (0x1000, 0x4000);
    event(
        2,
        Event::Realloc {
            old,
            new,
            size: 128,
        },
    );
    event(3, free(0x4000));
    event(3, free(0x2000));
    writer.finish().unwrap();
    let output = flagstone(&["replay", lossless(&file), "--runs", "1", "--json=-"]);
    let document = document(&output);
    assert_eq!(document["unknown_frees"], 0);
    assert_eq!(document["rows"][0]["refused"], 0);
}

#[test]
fn threads_that_begin_after_others_have_ended_are_replayed_at_every_pace() {
    use flagstone_trace::{Event, Request};
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ends.fst");
    let mut writer = writer(&file);
    let mut time = 0;
    // The first thread ends too; each begins just after the one before it has ended.
    for stream in 1..=20 {
        let address = 0x1000 * u64::from(stream);
        let request = Request {
            size: 100_000,
            ..Request::default()
        };
        let touched = Event::Extent {
            address,
            bytes: 8192,
        };
        for event in [
            Event::Alloc { address, request },
            touched,
            Event::Free { address },
            Event::Exit,
        ] {
            time += 1000;
            writer.event(id(stream), 1, time, &event).unwrap();
        }
    }
    writer.finish().unwrap();
    for pace in ["fast", "together", "real"] {
        let output = Command::new("timeout")
            .args(["60", PLAN[0], "replay", lossless(&file), "--runs", "1"])
            .args(["--pace", pace, "--json=-"])
            .output()
            .expect("timeout");
        assert!(output.status.success(), "{pace}: {}", text(&output.stderr));
        let document: Value = serde_json::from_slice(&output.stdout).expect("a document");
        assert_eq!(document["pace"], pace);
        assert_eq!(document["threads"], 20);
    }
}

/// A thread that makes and frees a small block so many times.
fn pairs(file: &Path, count: u64) {
    let mut writer = writer(file);
    let request = flagstone_trace::Request {
        size: 64,
        ..flagstone_trace::Request::default()
    };
    for at in 0..count {
        let address = 0x1000;
        let alloc = flagstone_trace::Event::Alloc { address, request };
        let free = flagstone_trace::Event::Free { address };
        writer.event(id(1), 1, at * 20, &alloc).unwrap();
        writer.event(id(1), 1, at * 20 + 10, &free).unwrap();
    }
    writer.finish().unwrap();
}

/// The most KiB that a process had, as far as it tells while it lives.
fn peak_kib(process: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let word = line.and_then(|line| line.split_whitespace().next());
    word.and_then(|word| word.parse().ok()).unwrap_or(0)
}

#[test]
fn memory_of_a_replay_does_not_grow_with_the_trace() {
    let folder = tempfile::tempdir().unwrap();
    let peak = |count: u64| {
        let file = folder.path().join("pairs.fst");
        pairs(&file, count);
        let mut command = Command::new(PLAN[0])
            .args(["replay", lossless(&file), "--runs", "1", "--json=/dev/null"])
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("started");
        let own = command.id();
        let children = format!("/proc/{own}/task/{own}/children");
        let mut most = 0;
        let ended = loop {
            let players = std::fs::read_to_string(&children).unwrap_or_default();
            let each = players.split_whitespace().map(peak_kib);
            most = most.max(each.chain([peak_kib(&own.to_string())]).max().unwrap_or(0));
            if let Some(ended) = command.try_wait().unwrap() {
                break ended;
            }
            std::thread::yield_now();
        };
        assert!(ended.success());
        most
    };
    // The longer one's operations take 64 MiB.
    let (short, long) = (peak(100_000), peak(2_000_000));
    assert!(short > 0 && long < short + (16 << 10), "{short} {long}");
}

#[test]
fn a_trace_longer_than_its_file_is_replayed_in_windows() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("threads.fst");
    let trace = threads(&file);
    for pace in ["fast", "together"] {
        let words = ["--runs", "1", "--json=-", "--spool", "16K", "--pace", pace];
        let output = flagstone(&[&["replay", lossless(&file)], &words[..]].concat());
        let document: Value = serde_json::from_slice(&output.stdout).expect("a document");
        let figure = |name: &str| document[name].as_u64().unwrap();
        assert_eq!(figure("operations"), trace.events + trace.threads - 1);
        assert_eq!(figure("peak_live_bytes"), trace.peak);
    }
}

#[test]
fn pages_of_a_block_are_known_although_they_were_found_windows_later() {
    use flagstone_trace::{Event, Request};
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("large.fst");
    let mut writer = writer(&file);
    let mut time = 0;
    let mut event = |event: &Event| {
        time += 10;
        writer.event(id(1), 1, time, event).unwrap();
    };
    let mut request = Request {
        size: 64 << 20,
        ..Request::default()
    };
    let address = 1 << 30;
    event(&Event::Alloc { address, request });
    request.size = 64;
    for address in [0x1000; 10_000] {
        event(&Event::Alloc { address, request });
        event(&Event::Free { address });
    }
    event(&Event::Touched { bytes: 4096 });
    event(&Event::Free { address });
    writer.finish().unwrap();
    let mut args = vec!["replay", lossless(&file)];
    args.extend("--runs 1 --json=- --spool 64K".split(' '));
    let document = document(&flagstone(&args));
    for row in document["rows"].as_array().unwrap() {
        let peak = row["peak_rss_bytes"]["median"].as_f64().unwrap();
        assert!(peak < f64::from(32 << 20), "{row}");
    }
}

/// Replays a trace of so many pairs with its temporary file on a disk of so many KiB; none if that needs rights.
fn on_disk(kib: u32, count: u64) -> Option<std::process::Output> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pairs.fst");
    pairs(&file, count);
    let mount = format!(
        "mount -t tmpfs -o size={kib}k none {}",
        folder.path().display()
    );
    let within = |line: &str| {
        Command::new("unshare")
            .args(["-m", "sh", "-c", line, PLAN[0], lossless(&file)])
            .env("TMPDIR", folder.path())
            .output()
    };
    if !within(&mount).is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: a small disk: unshare and mount need root");
        return None;
    }
    let line = format!("exec 3<\"$1\"; {mount}; exec \"$0\" replay /dev/fd/3 --runs 1 --json=-");
    Some(within(&line).unwrap())
}

#[test]
fn a_trace_larger_than_the_disk_is_replayed() {
    // Its operations take 12 MiB.
    let Some(output) = on_disk(4096, 400_000) else {
        return;
    };
    let document = document(&output);
    assert_eq!(document["operations"].as_u64(), Some(800_000));
}

#[test]
fn a_full_disk_ends_a_replay_with_one_line() {
    let Some(output) = on_disk(64, 10_000) else {
        return;
    };
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(told.contains("No space"), "{told}");
    assert!(told.contains("TMPDIR"), "{told}");
}

#[test]
fn a_replay_has_the_memory_of_the_program_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("perl.fst");
    // It works on at its peak for longer than thirty looks take, and the first free after that brings a look: not
    // one of the clock's, so a busy machine does not make it miss the peak.
    let program = "my @a = map { 'x' x ($_ % 900) } 1..40000; my $untouched = pack('x10000000'); \
        my $sum = 0; $sum += $_ for 1..20000000; @a = ();";
    let command = ["perl", "-e", program];
    let output = record(&file, &["--under", "glibc"], &command);
    if output.status.code() == Some(127) {
        return eprintln!("skipped: no perl");
    }
    let mut words = vec![
        "replay",
        lossless(&file),
        "--runs",
        "1",
        "--json=-",
        "--beside",
        "--",
    ];
    words.extend(command);
    let output = flagstone(&words);
    let document = document(&output);
    assert_eq!(document["schema"], "flagstone.beside/1");
    let rows = document["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    for row in rows {
        let peak = row["program_peak_bytes"]["median"].as_f64().unwrap();
        assert!(peak > 15e6, "{row}");
        // So short a program is looked at a few times only: at its peak, but not often enough for its mean.
        let apart = row["peak_percent"].as_f64().unwrap();
        assert!(apart.abs() < 5.0, "peak_percent: {apart}");
    }
}

/// Threads one after the other, of which each gets the stack of the one before and writes to a part of it: they are
/// neither the program's blocks nor the replay's.
#[test]
fn stacks_of_threads_that_ended_are_not_the_allocators() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("short");
    let source = "#include <pthread.h>
#include <stdlib.h>
#include <string.h>
static char *kept[4000];
static void *work(void *at) {
    volatile char room[200000];
    memset((char *)room, 1, sizeof room);
    for (long k = 0; k < 20; k++)
        memset(kept[(long)at * 20 + k] = malloc(1000), 1, 1000);
    return NULL;
}
int main(void) {
    for (long at = 0; at < 200; at++) {
        pthread_t one;
        pthread_create(&one, NULL, work, (void *)at);
        pthread_join(one, NULL);
    }
    for (long round = 0; round < 200000; round++)
        free(malloc(round % 999));
    return 0;
}
";
    let Some(()) = compiled(&program, source, &["-pthread"]) else {
        return;
    };
    let file = folder.path().join("short.fst");
    record(&file, &["--under", "glibc"], &[lossless(&program)]);
    let document = beside(&file, &program, &[]);
    let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    let always = setting.is_ok_and(|setting| setting.contains("[always]"));
    // Four million bytes live, and a heap's edges: a page of 2 MiB where the system gives those to everybody.
    let most = if always { 6.7e6 } else { 4.6e6 };
    for of in ["program_peak_bytes", "replay_peak_bytes"] {
        let peak = document["rows"][0][of]["median"].as_f64().unwrap();
        assert!((4.0e6..most).contains(&peak), "{of}: {peak}");
    }
}

/// The document of a comparison of a recording with `program`, both under glibc.
fn beside(file: &Path, program: &Path, more: &[&str]) -> serde_json::Value {
    let mut words = vec!["replay", lossless(file), "--runs", "1", "--json=-"];
    words.extend(more);
    words.extend(["--against", "glibc", "--beside", "--", lossless(program)]);
    document(&flagstone(&words))
}

/// What was read and never written is no memory of anybody's, whether the program's or the recorder's; and of a pool's
/// half-empty blocks only the pages that it wrote count.
#[test]
fn memory_that_nobody_wrote_is_counted_on_neither_side() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("pools");
    let source = "#include <stdlib.h>
#include <string.h>
int main(void) {
    char *large = malloc(100000000), sum = 0;
    for (long at = 0; at < 100000000; at += 4096) sum += large[at];
    for (long round = 0; round < 400; round++) {
        memset(malloc(8192), 1, 500);
        memset(malloc(40), 1, 40);
    }
    for (long round = 0; round < 4000000; round++) free(malloc(round % 999));
    return sum;
}
";
    let Some(()) = compiled(&program, source, &["-O0"]) else {
        return;
    };
    let file = folder.path().join("pools.fst");
    record(&file, &["--under", "glibc"], &[lossless(&program)]);
    let document = beside(&file, &program, &[]);
    let row = &document["rows"][1];
    let peak = |of: &str| row[of]["median"].as_f64().unwrap();
    // 400 pages of pools with the small blocks between them, and as many that the pools' ends share.
    let (program, replay) = (peak("program_peak_bytes"), peak("replay_peak_bytes"));
    assert!((1.5e6..3.0e6).contains(&program), "{row}");
    assert!(
        (program - replay).abs() < 0.05 * program,
        "{program} {replay}"
    );
}

/// With `--process` the program's memory is that of the process that does the same.
#[test]
fn the_process_beside_a_replay_is_the_one_that_was_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("parent");
    let source = "#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static void work(long blocks, long pairs) {
    for (long at = 0; at < blocks; at++) memset(malloc(1000), 1, 1000);
    for (long at = 0; at < pairs; at++) free(malloc(at % 999));
}
int main(void) {
    work(2000, 1000000);
    if (fork() == 0) {
        work(8000, 3000000);
        _exit(0);
    }
    wait(NULL);
    return 0;
}
";
    let Some(()) = compiled(&program, source, &["-O0"]) else {
        return;
    };
    let file = folder.path().join("whole.fst");
    record(&file, &["--under", "glibc"], &[lossless(&program)]);
    let trace = flagstone_trace::Trace::open(&file).unwrap();
    let parent = trace.processes().iter().find(|one| !one.forked).unwrap();
    let process = parent.process.to_string();
    let document = beside(&file, &program, &["--process", &process]);
    for of in ["program_peak_bytes", "replay_peak_bytes"] {
        let peak = document["rows"][1][of]["median"].as_f64().unwrap();
        assert!((2.0e6..2.6e6).contains(&peak), "{of}: {peak}");
    }
}

/// A file for events of a program called "four threads".
fn writer(file: &Path) -> flagstone_trace::write::Writer<std::fs::File> {
    let header: flagstone_trace::Header = serde_json::from_value(serde_json::json!({
        "schema": "flagstone-trace/1", "recorder": "a test", "command": ["four threads"],
        "page_size": 4096, "tick_ns": 1.0
    }))
    .unwrap();
    flagstone_trace::write::Writer::new(std::fs::File::create(file).unwrap(), &header).unwrap()
}

fn id(stream: u32) -> flagstone_trace::index::StreamId {
    flagstone_trace::index::StreamId {
        process: 1,
        image: 1,
        stream,
    }
}

struct Threads {
    events: u64,
    threads: u64,
    peak: u64,
}

/// Four threads; each frees what the one before it made.
fn threads(file: &Path) -> Threads {
    use flagstone_trace::{Event, Request};
    const THREADS: u64 = 4;
    const BLOCKS: u64 = 5000;
    const SIZE: u64 = 1024;
    let mut writer = writer(file);
    let (mut time, mut events) = (0, 0);
    let address = |thread: u64, block: u64| 0x10_0000 + (thread * BLOCKS + block) * SIZE;
    for thread in 0..=THREADS {
        for block in 0..BLOCKS {
            if thread > 0 {
                time += 100;
                let free = Event::Free {
                    address: address(thread - 1, block),
                };
                let stream = (thread % THREADS) as u32 + 1;
                writer.event(id(stream), 1, time, &free).unwrap();
                events += 1;
            }
            if thread < THREADS {
                time += 100;
                let request = Request {
                    size: SIZE,
                    ..Request::default()
                };
                let alloc = Event::Alloc {
                    address: address(thread, block),
                    request,
                };
                writer
                    .event(id(thread as u32 + 1), 1, time, &alloc)
                    .unwrap();
                events += 1;
            }
        }
    }
    writer.finish().unwrap();
    Threads {
        events,
        threads: THREADS,
        peak: BLOCKS * SIZE,
    }
}
