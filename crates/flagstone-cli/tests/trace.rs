//! `flagstone record`, `trace` and `replay` as their users see them.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn flagstone(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flagstone"))
        .args(words)
        .output()
        .expect("started")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn lossless(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

/// The command that is recorded: this one, which allocates some thousand times.
const PLAN: [&str; 9] = [
    env!("CARGO_BIN_EXE_flagstone"),
    "plan",
    "--policy",
    "linux-6.5",
    "--cpus",
    "8",
    "--page-size",
    "4096",
    "--size=640",
];

fn record(file: &Path, options: &[&str], command: &[&str]) -> Output {
    let mut words = vec!["record", "-o", lossless(file)];
    words.extend(options);
    words.push("--");
    words.extend(command);
    flagstone(&words)
}

fn info(file: &Path) -> Value {
    let output = flagstone(&["trace", "info", "--json", lossless(file)]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("a document")
}

fn count(document: &Value, name: &str) -> u64 {
    document["counts"][name].as_u64().expect(name)
}

#[test]
fn a_recording_leaves_the_program_as_it_is_and_misses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plan.fst");
    let plain = flagstone(&PLAN[1..]);
    for under in ["glibc", "flagstone"] {
        let output = record(&file, &["--under", under], &PLAN);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(output.stdout, plain.stdout, "under {under}");
        let document = info(&file);
        assert!(count(&document, "allocations") > 500, "{document}");
        for gap in ["lost", "unknown_frees", "missing_frees"] {
            assert_eq!(count(&document, gap), 0, "{gap} under {under}: {document}");
        }
        let per_event =
            document["file_bytes"].as_f64().unwrap() / document["events"].as_f64().unwrap();
        assert!(per_event < 4.5, "{per_event} bytes an event under {under}");
    }
}

#[test]
fn threads_and_children_are_recorded_and_the_exit_status_is_passed_on() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("children.fst");
    let script = format!(
        "{} >/dev/null; {} >/dev/null; exit 7",
        PLAN.join(" "),
        PLAN.join(" ")
    );
    let output = record(&file, &["--under", "glibc"], &["sh", "-c", &script]);
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    let document = info(&file);
    let programs = document["programs"].as_array().unwrap();
    let plans = programs
        .iter()
        .filter(|program| program["name"] == "flagstone");
    assert_eq!(plans.count(), 2, "{document}");
}

#[test]
fn a_full_file_ends_the_recording_with_one_line_and_not_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("small.fst");
    let output = record(&file, &["--max-size", "1K", "--quiet"], &PLAN);
    assert!(output.status.success());
    assert_eq!(output.stdout, flagstone(&PLAN[1..]).stdout);
    let told = text(&output.stderr);
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(
        told.contains("recording ends") && told.contains("--max-size"),
        "{told}"
    );
}

/// Runs a shell line in which `$0` is the command and `$1` a file; what the recorded one prints is what it
/// prints alone, and there is one line about the recording's end.
fn ends_the_recording_only(line: &str, file: &Path, reason: &str) {
    let output = Command::new("sh")
        .args(["-c", line, PLAN[0], lossless(file)])
        .args(&PLAN[1..])
        .output()
        .expect("sh");
    let told = text(&output.stderr);
    assert!(output.status.success(), "{}: {told}", output.status);
    assert_eq!(output.stdout, flagstone(&PLAN[1..]).stdout, "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(
        told.contains("recording ends") && told.contains(reason),
        "{told}"
    );
}

#[test]
fn a_limit_of_files_ends_the_recording_and_not_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("limited.fst");
    let line = "ulimit -f 2; f=$1; shift; \"$0\" record --quiet -o \"$f\" -- \"$0\" \"$@\"";
    ends_the_recording_only(line, &file, "ulimit -f");
}

#[test]
fn a_full_disk_ends_the_recording_and_not_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let disk = lossless(folder.path());
    // A mount of its own for this shell; it goes with it.
    let mount = format!("mount -t tmpfs -o size=4k none {disk} && ");
    let may = Command::new("unshare")
        .args(["-m", "sh", "-c", &format!("{mount}true")])
        .output();
    if !may.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: a full disk: unshare and mount need root");
        return;
    }
    let line = format!(
        "exec unshare -m sh -c '{mount}f=$1; shift; \"$0\" record --quiet -o \"$f\" -- \"$0\" \"$@\"' \"$0\" \"$@\""
    );
    ends_the_recording_only(&line, &folder.path().join("full.fst"), "disk full");
}

#[test]
fn a_cut_file_is_read_and_a_foreign_one_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plan.fst");
    assert!(record(&file, &[], &PLAN).status.success());
    let bytes = std::fs::read(&file).unwrap();
    let cut = folder.path().join("cut.fst");
    std::fs::write(&cut, &bytes[..bytes.len() - 10]).unwrap();
    let output = flagstone(&["trace", "info", lossless(&cut)]);
    assert!(output.status.success());
    assert!(
        text(&output.stderr).contains("no whole frame"),
        "{}",
        text(&output.stderr)
    );
    for (name, content) in [("empty", &b""[..]), ("elf", b"\x7fELF and so on")] {
        let foreign = folder.path().join(name);
        std::fs::write(&foreign, content).unwrap();
        for command in [&["trace", "info"][..], &["trace", "to-csv"], &["replay"]] {
            let mut words = command.to_vec();
            words.push(lossless(&foreign));
            let output = flagstone(&words);
            let told = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{told}");
            assert_eq!(told.lines().count(), 1, "{told}");
            assert!(
                told.contains(name) && told.contains("flagstone-trace/1"),
                "{told}"
            );
        }
    }
}

#[test]
fn csv_has_a_line_for_each_event_and_parts_add_up() {
    let folder = tempfile::tempdir().unwrap();
    let [file, one, two, both] =
        ["a.fst", "one.fst", "two.fst", "both.fst"].map(|name| folder.path().join(name));
    assert!(record(&file, &[], &PLAN).status.success());
    let whole = info(&file);
    let lines = |file: &Path| {
        let output = flagstone(&["trace", "to-csv", lossless(file)]);
        assert!(output.status.success());
        text(&output.stdout).lines().count() as u64 - 1
    };
    let events = whole["events"].as_u64().unwrap();
    assert_eq!(lines(&file), events);
    let middle = (whole["seconds"].as_f64().unwrap() / 2.0).to_string();
    let words = ["trace", "cut", lossless(&file), "-o"];
    let cut = |bound: &str, to: &Path| {
        let mut all = words.to_vec();
        all.extend([lossless(to), bound, &middle]);
        assert!(flagstone(&all).status.success());
        lines(to)
    };
    assert_eq!(cut("--to", &one) + cut("--from", &two), events);
    let merged = flagstone(&[
        "trace",
        "merge",
        lossless(&one),
        lossless(&two),
        "-o",
        lossless(&both),
    ]);
    assert!(merged.status.success(), "{}", text(&merged.stderr));
    assert_eq!(lines(&both), events);
}

#[test]
fn an_event_at_the_very_bound_of_two_parts_is_in_one() {
    let folder = tempfile::tempdir().unwrap();
    let [text_file, file, part] = ["k.txt", "k.fst", "part.fst"].map(|n| folder.path().join(n));
    let line = |second: u32| {
        format!(
            "sh-1 [000] ..... {second}.000000: kmalloc: call_site=f ptr=00000000aaaa{second}40 bytes_req=60 bytes_alloc=64 gfp_flags=GFP_KERNEL\n"
        )
    };
    std::fs::write(&text_file, (10..15).map(line).collect::<String>()).unwrap();
    let words = [lossless(&text_file), "-o", lossless(&file)];
    assert!(
        flagstone(&[&["trace", "import"][..], &words].concat())
            .status
            .success()
    );
    for (bound, events) in [(["--to", "2"], 2), (["--from", "2"], 3)] {
        let words = ["trace", "cut", lossless(&file), "-o", lossless(&part)];
        let output = flagstone(&[&words[..], &bound].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(count(&info(&part), "allocations"), events, "{bound:?}");
    }
}

#[test]
fn kernel_events_are_imported_and_missing_frees_are_inferred() {
    let folder = tempfile::tempdir().unwrap();
    let (file, trace) = (folder.path().join("trace.txt"), folder.path().join("k.fst"));
    let lines = "# tracer: nop
   sh-1 [000] ..... 10.000001: kmem_cache_alloc: call_site=f+0x1 ptr=00000000aaaa0000 name=dentry bytes_req=192 bytes_alloc=192 gfp_flags=GFP_KERNEL
   sh-1 [001] ..... 10.000002: kmalloc: call_site=f+0x1 ptr=00000000aaaa0040 bytes_req=60 bytes_alloc=64 gfp_flags=GFP_KERNEL
   sh-1 [000] ..... 10.000003: kmem_cache_alloc: call_site=f+0x1 ptr=00000000aaaa0000 name=dentry bytes_req=192 bytes_alloc=192 gfp_flags=GFP_KERNEL
   sh-1 [001] ..... 10.000004: kfree: call_site=f+0x1 ptr=00000000aaaa0040
   sh-1 [001] ..... 10.000005: kfree: call_site=f+0x1 ptr=00000000bbbb0040
   sh-1 [001] ..... 10.000006: mm_page_alloc: page=x pfn=0x1234 order=3 migratetype=0 gfp_flags=GFP_KERNEL
   sh-1 [001] ..... 10.000007: mm_page_free: page=x pfn=0x1234 order=3
";
    std::fs::write(&file, lines).unwrap();
    let output = flagstone(&["trace", "import", lossless(&file), "-o", lossless(&trace)]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document = info(&trace);
    assert_eq!(count(&document, "allocations"), 3);
    assert_eq!(count(&document, "frees"), 3, "one of them inferred");
    assert_eq!(count(&document, "missing_frees"), 0);
    assert_eq!(count(&document, "unknown_frees"), 1);
    assert_eq!(
        (
            count(&document, "page_allocations"),
            count(&document, "page_frees")
        ),
        (1, 1)
    );
    let sites = &document["header"]["sites"];
    assert_eq!(sites, &serde_json::json!(["dentry", "kmalloc-64"]));
    let note = document["header"]["notes"][0].as_str().unwrap();
    assert!(note.contains("1 inferred where their address"), "{note}");

    std::fs::write(&file, "nothing of interest\n").unwrap();
    let output = flagstone(&["trace", "import", lossless(&file), "-o", lossless(&trace)]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no kmem event"));
}

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

#[test]
fn wrong_calls_are_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.fst");
    for (words, what) in [
        (
            vec![
                "record",
                "--under",
                "/nowhere.so",
                "-o",
                lossless(&file),
                "--",
                "true",
            ],
            "glibc",
        ),
        (
            vec!["record", "-o", "/nowhere/x.fst", "--", "true"],
            "/nowhere/x.fst",
        ),
        (vec!["record", "--max-size", "7T", "--", "true"], "64M"),
        (vec!["replay", "/nowhere.fst"], "/nowhere.fst"),
    ] {
        let output = flagstone(&words);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert_eq!(told.lines().count(), 1, "{told}");
        assert!(told.contains(what), "{told}");
    }
    let missing = record(&file, &[], &["no-such-program-anywhere"]);
    assert_eq!(missing.status.code(), Some(127));
}
