//! What `flagstone run` says first: the answer, every process, comparisons, documents on stdout.

#[path = "support/run.rs"]
mod support;

#[path = "support/browser.rs"]
mod browser;

use serde_json::Value;
use std::path::Path;
use std::process::Command;
use support::{bytes_of, document, document_with, flagstone, installed, run, sum, text};

/// Forks two workers that grow, each to another size, while their parent stays small.
const PRE_FORK: &str = r#"
import os, sys, time
workers = []
for megabytes in (24, 48):
    pid = os.fork()
    if pid == 0:
        block = b"x" * (megabytes << 20)
        sys.stdout.write("worker %d\n" % megabytes)
        sys.stdout.flush()
        os._exit(0)
    workers.append(pid)
for pid in workers:
    os.waitpid(pid, 0)
sys.exit(3)
"#;

#[test]
fn own_peak_and_childrens_peak_are_told_apart() {
    let Some(python) = installed("python3") else {
        return;
    };
    let (output, document) = document(&[python.to_str().expect("text"), "-c", PRE_FORK]);
    assert_eq!(output.status.code(), Some(3));
    let kib = |field: &str| document[field].as_u64().expect("KiB");
    let (own, children) = (kib("own_peak_rss_kib"), kib("children_peak_rss_kib"));
    assert!(children > 48 << 10, "the larger worker: {children}");
    assert!(own < 40 << 10, "the parent never held a block: {own}");
    assert_eq!(kib("peak_rss_kib").max(children), kib("peak_rss_kib"));
    let at_peak = sum(&document["ledger_at_peak"]);
    assert!(
        at_peak <= own as f64 * 1024.0 * 1.02,
        "the ledger is of the own process"
    );
    let shown = text(&output.stderr);
    let first = shown.lines().find(|line| line.starts_with("flagstone:"));
    assert!(
        first.is_some_and(|line| line.contains("largest child")),
        "{shown}"
    );
    assert!(
        shown.contains("run --all"),
        "it says how to see them: {shown}"
    );
    let answer = document["answer"]["text"].as_str().expect("an answer");
    assert!(
        answer.starts_with("The largest process was a child (python3"),
        "{answer}"
    );
    assert_eq!(document["try"][0]["rule"], "every-process");
}

#[test]
fn all_gives_every_forked_worker_a_ledger_and_changes_nothing_for_the_command() {
    let Some(python) = installed("python3") else {
        return;
    };
    let python = python.to_str().expect("text");
    let (output, document) = document_with(&["--all"], &[python, "-c", PRE_FORK]);
    assert_eq!(output.status.code(), Some(3));
    let mut lines: Vec<String> = text(&output.stdout).lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["worker 24", "worker 48"]);
    let processes = document["processes"].as_array().expect("an array");
    assert_eq!(processes.len(), 3);
    let mut held: Vec<u64> = processes
        .iter()
        .map(|process| {
            assert_eq!(process["state"], "ended", "{process}");
            let resident = process["peak_sample_rss_bytes"].as_f64().expect("bytes");
            let off = (sum(&process["ledger_at_peak"]) - resident).abs() / resident;
            assert!(off <= 0.02, "{:.2} % off", off * 100.0);
            process["answer"]["at_peak"]["held_bytes"]
                .as_u64()
                .expect("bytes")
                >> 20
        })
        .collect();
    held.sort_unstable();
    assert!(
        held[0] < 24 && (24..48).contains(&held[1]) && held[2] >= 48,
        "{held:?}"
    );
    assert!(text(&output.stderr).contains("Every process"));
    let answer = document["answer"]["text"].as_str().expect("an answer");
    assert!(
        answer.starts_with("The largest process was a child, python3 ("),
        "{answer}"
    );
    // The worker's memory is the program's own: its call sites are asked for, not why nothing helps the parent.
    assert!(!answer.contains("No setting"), "{answer}");
    let rules = document["try"].as_array().expect("an array").iter();
    let rules: Vec<_> = rules.map(|one| one["rule"].as_str()).collect();
    assert_eq!(rules, [Some("call-sites")], "{document}");
}

#[test]
fn a_worker_that_waits_until_it_is_killed_leaves_a_ledger_with_all() {
    let Some(python) = installed("python3") else {
        return;
    };
    let program = "import os, signal\nr, w = os.pipe()\npid = os.fork()\nif pid == 0:\n    \
                   os.write(w, b'x')\n    signal.pause()\nos.read(r, 1)\nos.kill(pid, 9)\n\
                   os.waitpid(pid, 0)\n";
    let python = python.to_str().expect("text");
    let (output, document) = document_with(&["--all", "--quiet"], &[python, "-c", program]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let processes = document["processes"].as_array().expect("an array");
    let killed = processes
        .iter()
        .find(|process| process["state"] == "killed");
    let killed = killed.expect("the worker left a ledger");
    assert!(sum(&killed["ledger"]) > 1e6);
}

/// A worker maps 64 MiB itself and allocates nothing from then on; it is killed when somebody has looked: the process that
/// started the command has waited for a further child, which its count of the faults of such children tells. It grows by the
/// second half when nobody looks, so that a look comes which finds the first half at least.
const OWN_MAPPING: &str = r#"
import mmap, os, sys, time
end = time.monotonic() + 60
(touched, tell), (go, say) = os.pipe(), os.pipe()
worker = os.fork()
if worker == 0:
    block = mmap.mmap(-1, 64 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for at in range(0, 64 << 20, 4096):
        if at == 32 << 20:
            os.write(tell, b"x")
            os.read(go, 1)
        block[at] = 1
    while True:
        pass
def others():
    starter = "/proc/%d/task" % os.getppid()
    named = [open("%s/%s/children" % (starter, task)).read().split() for task in os.listdir(starter)]
    return set(sum(named, [])) - {str(os.getpid())}
def waited_for():
    return open("/proc/%d/stat" % os.getppid()).read().rsplit(")", 1)[1].split()[8]
os.read(touched, 1)
while others() and time.monotonic() < end:
    pass
before = waited_for()
os.write(say, b"x")
while waited_for() == before and time.monotonic() < end:
    pass
os.kill(worker, 9)
os.waitpid(worker, 0)
sys.exit(9 if time.monotonic() >= end else 0)
"#;

#[test]
fn what_a_killed_worker_had_mapped_itself_was_seen_from_outside() {
    let Some(python) = installed("python3") else {
        return;
    };
    let python = python.to_str().expect("text");
    let (output, document) = document_with(&["--all"], &[python, "-c", OWN_MAPPING]);
    let shown = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{shown}");
    let worker = &document["processes"][1];
    assert_eq!(worker["state"], "killed", "{shown}");
    assert!(worker["peak_rss_kib"].as_u64() >= Some(32 << 10), "{shown}");
    let kinds = worker["outside_at_peak"].as_array().expect("kinds");
    let anonymous = kinds.iter().find(|kind| kind["kind"] == "anonymous");
    let seen = anonymous.expect("the kind")["bytes"].as_u64();
    assert!(seen >= Some(4 << 20), "{shown}");
}

#[test]
fn what_only_cached_objects_hold_is_pinned_and_no_fragmentation() {
    let Some(compiler) = installed("g++") else {
        return;
    };
    let directory = tempfile::tempdir().expect("a directory");
    let source = directory.path().join("flush.cc");
    // As a store after a flush: everything is free, but each CPU keeps some objects at hand.
    std::fs::write(
        &source,
        "#include <cstdlib>\n#include <vector>\n#include <unistd.h>\nint main() {\n\
         std::vector<void *> all;\n for (int i = 0; i < 200000; i++) all.push_back(malloc(200));\n\
         for (size_t i = 0; i < all.size(); i++) free(all[(i * 7919) % all.size()]);\n _exit(0);\n}\n",
    )
    .expect("written");
    let program = directory.path().join("flush");
    let built = Command::new(compiler)
        .args(["-O1", "-o"])
        .args([&program, &source])
        .status()
        .expect("started");
    assert!(built.success());
    let (output, document) = document(&[program.to_str().expect("text")]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let ledger = &document["ledger"];
    let pinned = bytes_of(ledger, "pinned_by_cached");
    let fragmented = bytes_of(ledger, "free_in_partial_slabs");
    // How much is cached goes by the clock: 2 MB at once, some 80 KB after a second of falling.
    assert!(fragmented < pinned / 4.0, "{fragmented} beside {pinned}");
    assert!(pinned > 0.0, "cached objects of scattered slabs");
}

#[test]
fn what_lies_outside_the_heap_is_split_by_what_is_mapped() {
    let Some(python) = installed("python3") else {
        return;
    };
    let python = python.to_str().expect("text");
    let program = "x = [str(i) * 3 for i in range(200000)]";
    let (output, document) = document(&[python, "-c", program]);
    for (kinds, ledger) in [("outside", "ledger"), ("outside_at_peak", "ledger_at_peak")] {
        let kinds = document[kinds].as_array().expect("kinds");
        let sum: u64 = kinds.iter().filter_map(|kind| kind["bytes"].as_u64()).sum();
        assert_eq!(sum as f64, bytes_of(&document[ledger], "non_heap"));
        let of = |name: &str| {
            let kind = kinds.iter().find(|kind| kind["kind"] == name);
            kind.and_then(|kind| kind["bytes"].as_u64())
                .expect("the kind")
        };
        assert!(of("program") > 1 << 20, "the interpreter and its libraries");
        assert!(of("stacks") > 0);
    }
    let at_peak = document["outside_at_peak"].as_array().expect("kinds");
    let anonymous = at_peak.iter().find(|kind| kind["kind"] == "anonymous");
    let anonymous = anonymous.expect("the kind")["bytes"].as_u64();
    assert!(anonymous > Some(8 << 20), "Python's arenas: {anonymous:?}");
    let hint = text(&output.stderr);
    assert!(hint.contains("PYTHONMALLOC=malloc"), "{hint}");
    let (output, _) = self::document(&["env", "PYTHONMALLOC=malloc", python, "-c", program]);
    let shown = text(&output.stderr);
    assert!(
        !shown.contains("1. PYTHONMALLOC"),
        "it is set already: {shown}"
    );
}

#[test]
fn a_document_on_standard_output_is_there_alone() {
    for json in [&["--json"][..], &["--json", "-"], &["--json=-"]] {
        let output = flagstone()
            .args(json)
            .args(["--quiet", "--", "sh", "-c", "echo mine; exit 4"])
            .output()
            .expect("started");
        assert_eq!(output.status.code(), Some(4));
        let document: Value = serde_json::from_slice(&output.stdout).expect("one document");
        assert_eq!(document["exit"], 4);
        assert_eq!(text(&output.stderr), "mine\n", "{json:?}");
    }
    assert!(!Path::new("-").exists());
}

#[test]
fn the_answer_comes_first_and_its_figures_add_up() {
    let (output, document) = document(&["sh", "-c", "true"]);
    let shown = text(&output.stderr);
    // Sentences are broken over lines.
    let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    let at = |what: &str| {
        shown
            .find(what)
            .unwrap_or_else(|| panic!("{what}: {shown}"))
    };
    assert!(at("At its peak") < at("Where its memory was"));
    assert!(at("Little is fragmentation (") < at("Where its memory was"));
    let shares = document["answer"]["at_peak"].as_object().expect("shares");
    let total: u64 = shares.values().filter_map(Value::as_u64).sum();
    assert_eq!(total as f64, sum(&document["ledger_at_peak"]));
    let timeline = document["timeline"]["samples"].as_array().expect("samples");
    assert!(!timeline.is_empty());
    for sample in timeline {
        let lines = sample["ledger"].as_array().expect("lines").len();
        assert_eq!(
            lines,
            document["timeline"]["lines"]
                .as_array()
                .expect("names")
                .len()
        );
    }
}

#[test]
fn what_is_proposed_is_tried_in_turns_while_the_command_speaks_once() {
    let Some(python) = installed("python3") else {
        return;
    };
    let python = python.to_str().expect("text");
    let program = "x = [str(i) * 3 for i in range(300000)]; print('once')";
    let shown = text(&run(&["--", python, "-c", program]).stderr);
    assert!(shown.contains("`flagstone run --try`"), "{shown}");
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("run.json");
    let output = flagstone()
        .arg("--try")
        .arg(format!("--json={}", file.display()))
        .args(["--", python, "-c", program])
        .env_remove("PYTHONMALLOC")
        .output()
        .expect("started");
    let shown = text(&output.stderr);
    assert_eq!(text(&output.stdout), "once\n", "{shown}");
    assert!(shown.contains("    seen  at its end "), "{shown}");
    assert!(!shown.contains("`flagstone run --try`"), "{shown}");
    let bytes = std::fs::read(&file).expect("written");
    let document: Value = serde_json::from_slice(&bytes).expect("one document");
    let tried = document["try"].as_array().expect("changes");
    let python = tried.iter().find(|one| one["rule"] == "python-malloc");
    let seen = &python.expect("it has arenas")["measured"];
    assert_eq!(
        (&seen["runs"], &seen["failed_runs"]),
        (&3.into(), &0.into())
    );
    let peak = |name: &str| seen[name].as_u64().expect("bytes");
    assert!(peak("peak_bytes") > 10 << 20 && peak("peak_bytes_before") > 10 << 20);
}

/// Leaves one block in ten of a cache, here and there.
const SCATTER: &str = "#include <stdlib.h>\n#include <string.h>\nint main(void) {\n\
    enum { N = 200000 };\n static char *at[N];\n\
    for (int i = 0; i < N; i++) memset(at[i] = malloc(200), 1, 200);\n srand(1);\n\
    for (int i = 0; i < N; i++) if (rand() % 10) free(at[i]);\n return 0;\n}\n";

#[test]
fn fragmentation_is_answered_with_what_helps_under_each_policy() {
    let Some(compiler) = installed("gcc") else {
        return;
    };
    let directory = tempfile::tempdir().expect("a directory");
    let source = directory.path().join("scatter.c");
    std::fs::write(&source, SCATTER).expect("written");
    let program = directory.path().join("scatter");
    let built = Command::new(compiler)
        .args(["-O1", "-o"])
        .args([&program, &source])
        .status();
    assert!(built.expect("a compiler").success());
    let ran = |arguments: &[&str]| {
        let output = flagstone()
            .args(arguments)
            .args(["--json", "-", "--quiet", "--"])
            .arg(&program)
            .output()
            .expect("started");
        serde_json::from_slice::<Value>(&output.stdout).expect("one document")
    };
    let rule = |tries: &[Value], name: &str| tries.iter().find(|one| one["rule"] == name).cloned();
    let tries = |document: &Value| document["try"].as_array().expect("changes").clone();
    let document = ran(&[]);
    let answer = document["answer"]["text"].as_str().expect("words");
    assert!(answer.contains("Fragmentation took "), "{answer}");
    let own = tries(&document);
    let apart = rule(&own, "lifetimes-apart").expect("fragmented");
    let why = apart["because"].as_str().expect("words");
    assert!(why.contains("would hold them"), "{why}");
    assert!(
        why.contains("at its end"),
        "of which moment it speaks: {why}"
    );
    assert!(!own.iter().any(|one| {
        one["change"]
            .as_str()
            .is_some_and(|change| change.contains("slab_max_order"))
    }));
    let kernels = tries(&ran(&["--policy", "linux-6.12", "--try"]));
    let policy = rule(&kernels, "own-policy").expect("fragmented");
    let bytes = |name: &str| policy["measured"][name].as_u64().expect("bytes");
    assert!(bytes("end_bytes") < bytes("end_bytes_before"), "{policy}");
    let set = [
        "--set",
        "retain_bytes_min=1M",
        "--set",
        "retain_share=0",
        "--set",
        "pcp_bytes_max=256K",
    ];
    assert_eq!(
        rule(&tries(&ran(&set)), "fewer-free-pages"),
        None,
        "it is set"
    );
}

/// Much is free between objects when the most memory is used, and nothing at the end.
const PEAK: &str = r#"
#include <stdlib.h>
#include <string.h>
enum { BLOCKS = 400000, BYTES = 200 };
static char *blocks[BLOCKS], *large[64];
int main(void) {
    for (int at = 0; at < BLOCKS; at++)
        memset(blocks[at] = malloc(BYTES), 1, BYTES);
    for (int at = 0; at < BLOCKS; at++)
        if (at % 8)
            free(blocks[at]);
    for (int at = 0; at < 64; at++)
        memset(large[at] = malloc(2 << 20), 1, 2 << 20);
    for (int at = 0; at < BLOCKS; at += 8)
        free(blocks[at]);
    for (int at = 0; at < 64; at++)
        free(large[at]);
    return 0;
}
"#;

#[test]
fn a_change_says_of_which_moment_its_gain_is() {
    let Some(compiler) = installed("cc") else {
        return;
    };
    let directory = tempfile::tempdir().expect("a directory");
    let (source, program) = (
        directory.path().join("peak.c"),
        directory.path().join("peak"),
    );
    std::fs::write(&source, PEAK).expect("written");
    let built = Command::new(compiler)
        .args(["-O1", "-fno-builtin", "-o"])
        .args([&program, &source])
        .status();
    assert!(built.expect("a compiler").success());
    let (_, document) = document(&[program.to_str().expect("text")]);
    let answer = document["answer"]["text"].as_str().expect("words");
    assert!(answer.contains("Fragmentation took "), "{answer}");
    let tries = document["try"].as_array().expect("changes");
    let find = |name: &str| tries.iter().find(|one| one["rule"] == name);
    let words = |one: &Value| format!("{} {}", one["because"], one["gain"]);
    let apart = words(find("lifetimes-apart").expect("it was fragmented"));
    assert!(apart.contains("at its peak"), "{apart}");
    for one in tries.iter().map(words) {
        assert!(one.contains("at its "), "of a moment: {one}");
    }
}

#[test]
fn compare_runs_the_command_on_each_allocator_in_turns() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("compare.json");
    let log = directory.path().join("log");
    let script = format!("echo ${{FLAGSTONE_POLICY:-none}} >> {}", log.display());
    let output = flagstone()
        .args(["--compare", "glibc,flagstone,7.0", "--runs", "2", "--json"])
        .arg(&file)
        .args(["--", "sh", "-c", &script])
        .output()
        .expect("started");
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(
        shown.lines().all(|line| line.chars().count() <= 80),
        "{shown}"
    );
    let order = std::fs::read_to_string(&log).expect("every run wrote a line");
    let round = ["none", "flagstone", "linux-7.0"];
    assert_eq!(
        order.lines().collect::<Vec<_>>(),
        round.repeat(3),
        "in turns"
    );
    let bytes = std::fs::read(&file).expect("written");
    let document: Value = serde_json::from_slice(&bytes).expect("one document");
    assert_eq!(document["schema"], "flagstone.compare/1");
    let rows = document["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 3);
    for row in rows {
        assert_eq!((&row["runs"], &row["failed_runs"]), (&2.into(), &0.into()));
        assert!(row["minor_faults"]["median"].as_f64() > Some(0.0));
    }
}

#[test]
fn compare_says_what_is_wrong_before_anything_runs() {
    for (list, word) in [
        ("glibcc", "did you mean 'glibc'?"),
        ("/no/such.so", "no such library"),
        ("flagstoen", "did you mean 'flagstone'?"),
    ] {
        let output = run(&["--compare", list, "--", "false"]);
        let line = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(line.lines().count() == 1 && line.contains(word), "{line}");
    }
    let output = run(&["--compare", "glibc", "--runs", "1", "--", "false"]);
    assert_eq!(
        output.status.code(),
        Some(1),
        "a run that fails is a finding"
    );
    assert!(text(&output.stdout).contains("1 of 1 runs failed"));
}

#[test]
fn the_html_report_shows_the_answer_and_draws_memory_over_time() {
    let Some(python) = installed("python3") else {
        return;
    };
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("run.html");
    let output = flagstone()
        .args(["--quiet", "--all", "--html"])
        .arg(&file)
        .arg("--")
        .arg(python)
        .args(["-c", PRE_FORK])
        .output()
        .expect("started");
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    let page = std::fs::read_to_string(&file).expect("written");
    assert!(page.contains("At its peak") && page.contains("Every process"));
    browser::drawn(&file);
}
