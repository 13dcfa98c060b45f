//! `flagstone record`, `trace` and `replay` as their users see them.

mod replaying;

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
fn a_file_is_not_written_over_itself() {
    let folder = tempfile::tempdir().unwrap();
    let [file, other] = ["a.fst", "link.fst"].map(|name| folder.path().join(name));
    assert!(record(&file, &[], &["true"]).status.success());
    let before = std::fs::read(&file).unwrap();
    std::os::unix::fs::symlink(&file, &other).unwrap();
    for command in ["cut", "merge", "import"] {
        let output = flagstone(&["trace", command, lossless(&file), "-o", lossless(&other)]);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains("link.fst is read"), "{told}");
        assert!(std::fs::read(&file).unwrap() == before, "{command}");
    }
}

/// Sites are numbered by each file for itself.
#[test]
fn sites_of_merged_files_keep_their_names() {
    use flagstone_trace::{Event, Header, Request, Trace, write::Writer};
    let folder = tempfile::tempdir().unwrap();
    let [one, two, both] = ["1.fst", "2.fst", "12.fst"].map(|name| folder.path().join(name));
    let write = |file: &Path, sites: &[&str]| {
        let header: Header = serde_json::from_value(serde_json::json!({
            "schema": "flagstone-trace/1", "recorder": "\u{1b}[31m", "page_size": 4096,
            "tick_ns": 1.0, "sites": sites
        }))
        .unwrap();
        let mut writer = Writer::new(std::fs::File::create(file).unwrap(), &header).unwrap();
        let id = flagstone_trace::index::StreamId {
            process: 1,
            image: 1,
            stream: 1,
        };
        for site in 1..=sites.len() as u32 {
            let address = u64::from(site) * 64;
            let request = Request {
                site,
                ..Request::default()
            };
            let event = Event::Alloc { address, request };
            writer.event(id, 1, u64::from(site), &event).unwrap();
        }
        writer.finish().unwrap();
    };
    write(&one, &["dentry", "filp"]);
    write(&two, &["sock", "dentry"]);
    let words = ["trace", "merge", lossless(&one), lossless(&two), "-o"];
    let merged = flagstone(&[&words[..], &[lossless(&both)]].concat());
    assert!(merged.status.success(), "{}", text(&merged.stderr));
    let trace = Trace::open(&both).unwrap();
    let names: Vec<Vec<&str>> = trace
        .streams()
        .iter()
        .map(|stream| {
            let mut names = Vec::new();
            let mut note = |event| {
                if let Event::Alloc { request, .. } = event {
                    names.push(trace.header().sites[request.site as usize - 1].as_str());
                }
            };
            let seen = trace.each(stream, |_, event| {
                note(event);
                Ok::<(), flagstone_trace::Error>(())
            });
            seen.unwrap();
            names
        })
        .collect();
    assert_eq!(names, [["dentry", "filp"], ["sock", "dentry"]]);
    let shown = flagstone(&["trace", "info", lossless(&both)]);
    let shown = text(&shown.stdout);
    assert!(shown.contains("recorded by  \\u{1b}[31m"), "{shown}");
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
    let notes = document["header"]["notes"].to_string();
    assert!(
        notes.contains("inferred where their address was allocated again: 1."),
        "{notes}"
    );

    std::fs::write(&file, "nothing of interest\n").unwrap();
    let output = flagstone(&["trace", "import", lossless(&file), "-o", lossless(&trace)]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no kmem event"));
}

/// A C program from its source, with more words for the compiler; none without a compiler.
fn compiled(output: &Path, source: &str, words: &[&str]) -> Option<()> {
    let file = output.with_extension("c");
    std::fs::write(&file, source).unwrap();
    let mut compiler = Command::new("cc");
    compiler.arg("-O1").arg("-o").arg(output).arg(&file);
    let Ok(done) = compiler.args(words).output() else {
        eprintln!("skipped: no cc");
        return None;
    };
    assert!(done.status.success(), "{}", text(&done.stderr));
    Some(())
}

/// Libraries' constructors run before a program's, and before those of a library that is preloaded plainly.
#[test]
fn what_libraries_allocate_before_the_program_begins_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("libearly.so");
    let early = "#include <stdlib.h>
void *kept;
__attribute__((constructor)) static void early(void) { kept = malloc(77777); }
";
    let Some(()) = compiled(&library, early, &["-shared", "-fPIC"]) else {
        return;
    };
    let program = folder.path().join("late");
    let late = "#include <stdlib.h>
extern void *kept;
int main(void) { free(kept); return 0; }
";
    compiled(&program, late, &[lossless(&library)]);
    let file = folder.path().join("late.fst");
    let output = record(&file, &["--under", "glibc"], &[lossless(&program)]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document = info(&file);
    assert_eq!(count(&document, "unknown_frees"), 0, "{document}");
    assert!(count(&document, "bytes_allocated") >= 77777, "{document}");
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
        (vec!["record", "--max-size", "7P", "--", "true"], "64M"),
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
