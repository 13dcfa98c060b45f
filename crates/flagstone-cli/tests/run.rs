//! `flagstone run` as its users see it: real programs, real signals, real mistakes.

#[path = "support/run.rs"]
mod support;

use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use support::{bytes_of, document, flagstone, installed, run, sum, text};

/// Both ledgers add up to the resident sizes of their moments within 2 %, and no sample is above
/// the peak.
fn closes(command: &[&str]) -> Value {
    let (output, document) = document(command);
    assert!(
        output.status.success(),
        "{command:?}: {}",
        text(&output.stderr)
    );
    assert_eq!(document["schema"], "flagstone.run/1");
    assert_eq!(document["at_exit"], true, "{command:?}");
    let resident = document["rss_bytes"].as_f64().expect("a resident size");
    let off = (sum(&document["ledger"]) - resident).abs() / resident;
    assert!(off <= 0.02, "{command:?}: {:.2} % off", off * 100.0);
    let peak = document["peak_sample_rss_bytes"].as_f64().expect("a peak");
    let off = (sum(&document["ledger_at_peak"]) - peak).abs() / peak;
    assert!(off <= 0.02, "{command:?} at peak: {:.2} % off", off * 100.0);
    assert!(peak >= resident);
    assert!(peak <= document["peak_rss_kib"].as_f64().expect("KiB") * 1024.0);
    document
}

#[test]
fn the_ledger_closes_for_python() {
    let Some(python) = installed("python3") else {
        return;
    };
    let program = "import os\nos.environ\nx = [str(i) * 3 for i in range(200000)]\nprint(len(x))";
    let python = python.to_str().expect("text");
    closes(&[python, "-c", program]);
    let document = closes(&["env", "PYTHONMALLOC=malloc", python, "-c", program]);
    let live = bytes_of(&document["ledger_at_peak"], "live");
    assert!(live > 5e6, "200,000 strings live: {live}");
}

#[test]
fn the_ledger_closes_for_sort_and_counts_its_large_buffer() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("numbers");
    let lines: Vec<String> = (0..200_000u64)
        .map(|i| (i * 7919 % 200_003).to_string())
        .collect();
    std::fs::write(&file, lines.join("\n")).expect("written");
    let file = file.to_str().expect("text");
    let document = closes(&["sort", "-S", "30M", "-n", file]);
    let at_peak = &document["ledger_at_peak"];
    let large = bytes_of(at_peak, "huge_blocks") + bytes_of(at_peak, "large_runs");
    assert!(large > 1e6, "the lines lie in a large buffer: {large}");
}

#[test]
fn the_ledger_closes_for_git_perl_and_sqlite() {
    if let Some(git) = installed("git") {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().to_str().expect("text");
        closes(&[git.to_str().expect("text"), "init", "-q", path]);
    }
    if let Some(perl) = installed("perl") {
        let program = "my %h; $h{$_} = $_ x 4 for 1 .. 50000; print scalar keys %h";
        closes(&[perl.to_str().expect("text"), "-e", program]);
    }
    if let Some(sqlite) = installed("sqlite3") {
        let query = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n \
                     WHERE i < 20000) SELECT count(*), max(hex(i)) FROM n ORDER BY 2;";
        closes(&[sqlite.to_str().expect("text"), ":memory:", query]);
    }
}

#[test]
fn the_ledger_closes_for_a_threaded_program_in_cpp() {
    let Some(compiler) = installed("g++") else {
        return;
    };
    let directory = tempfile::tempdir().expect("a directory");
    let source = directory.path().join("threads.cc");
    std::fs::write(
        &source,
        "#include <thread>\n#include <vector>\n#include <string>\n#include <memory>\n\
         int main() {\n  std::vector<std::vector<std::unique_ptr<std::string>>> all(4);\n\
         std::vector<std::thread> threads;\n  for (auto &part : all) threads.emplace_back([&part] {\n\
         for (int i = 0; i < 20000; i++) {\n\
         part.push_back(std::make_unique<std::string>(40 + i % 200, 'x'));\n\
         if (i % 3 == 0) part[i / 2].reset();\n } });\n\
         for (auto &t : threads) t.join();\n  quick_exit(0);\n}\n",
    )
    .expect("written");
    let program = directory.path().join("threads");
    let built = Command::new(compiler)
        .args(["-O1", "-pthread", "-include", "cstdlib", "-o"])
        .args([&program, &source])
        .status()
        .expect("started");
    assert!(built.success());
    let document = closes(&[program.to_str().expect("text")]);
    let live = bytes_of(&document["ledger"], "live");
    let rounding = bytes_of(&document["ledger"], "rounding");
    // 80,000 strings of 40 to 239 bytes, of which a third was dropped, and their 32-byte heads.
    assert!(live > 5e6, "{live} live bytes");
    assert!(rounding > 0.0 && rounding < live);
    let caches = document["caches"].as_array().expect("caches");
    let active: u64 = caches
        .iter()
        .filter_map(|cache| cache["active"].as_u64())
        .sum();
    assert!(active > 90_000, "{active} objects");
}

/// Allocates in four threads until the process ends, forks meanwhile, and ends while they go on.
const BUSY: &str = r"
#include <cstdlib>
#include <cstring>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>
static void churn(unsigned seed) {
    std::vector<void *> held(3000);
    for (;;) {
        seed = seed * 1103515245 + 12345;
        void *&slot = held[(seed >> 8) % held.size()];
        free(slot);
        size_t bytes = (seed >> 16) % 3000;
        if ((seed >> 5) % 500 == 0) bytes *= 200;
        slot = malloc(bytes);
        if (slot) memset(slot, 1, bytes);
    }
}
int main() {
    for (unsigned t = 0; t < 4; t++) std::thread(churn, t).detach();
    for (int i = 0; i < 10; i++) {
        usleep(20000);
        pid_t child = fork();
        if (child == 0) {
            free(malloc(100000));
            if (i % 2) exit(0);
            _exit(0);
        }
        int status = 1;
        waitpid(child, &status, 0);
        if (status) return 9;
    }
    return 0;
}
";

#[test]
fn nothing_is_counted_twice_while_other_threads_go_on() {
    let Some(compiler) = installed("g++") else {
        return;
    };
    let directory = tempfile::tempdir().expect("a directory");
    let source = directory.path().join("busy.cc");
    std::fs::write(&source, BUSY).expect("written");
    let program = directory.path().join("busy");
    let built = Command::new(compiler)
        .args(["-O1", "-pthread", "-o"])
        .args([&program, &source])
        .status()
        .expect("started");
    assert!(built.success());
    let (output, document) = document(&[program.to_str().expect("text")]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    // Memory moves while it is measured, so the two halves may differ by what moved.
    for (lines, resident) in [
        ("ledger", "rss_bytes"),
        ("ledger_at_peak", "peak_sample_rss_bytes"),
    ] {
        let resident = document[resident].as_f64().expect("bytes");
        let off = (sum(&document[lines]) - resident).abs() / resident;
        assert!(off < 0.2, "{lines}: {off}");
    }
    let others = document["other_processes"].as_array().expect("an array");
    assert_eq!(others.len(), 10, "every forked child reports");
}

#[test]
fn a_killed_program_leaves_its_last_sample() {
    let Some(perl) = installed("perl") else {
        return;
    };
    let program = "my @a = map { $_ x 3 } 1 .. 200000; kill 9, $$";
    let (output, document) = document(&[perl.to_str().expect("text"), "-e", program]);
    assert_eq!(output.status.code(), Some(137));
    assert_eq!(document["at_exit"], false);
    assert!(sum(&document["ledger"]) > 5e6);
    assert!(text(&output.stderr).contains("last sample"));
}

#[test]
fn caches_have_the_kernels_columns() {
    let (_, document) = document(&["sh", "-c", "true"]);
    let caches = document["caches"].as_array().expect("caches");
    assert!(!caches.is_empty());
    for cache in caches {
        for column in [
            "object_size",
            "size",
            "order",
            "objects_per_slab",
            "slabs",
            "objects",
            "active",
        ] {
            assert!(cache[column].is_u64(), "{column} of {cache}");
        }
        let all = cache["slabs"]
            .as_u64()
            .zip(cache["objects_per_slab"].as_u64());
        assert_eq!(
            all.map(|(slabs, each)| slabs * each),
            cache["objects"].as_u64()
        );
        assert!(cache["active"].as_u64() <= cache["objects"].as_u64());
    }
    assert!(document["pages"]["zones"][0]["lock_takes"].as_u64() > Some(0));
}

#[test]
fn stdin_stdout_and_exit_status_are_the_commands() {
    let mut child = flagstone()
        .args([
            "--quiet",
            "--",
            "sh",
            "-c",
            "cat; echo problem >&2; exit 42",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(b"through and through\n").expect("read");
    drop(stdin);
    let output = child.wait_with_output().expect("ended");
    assert_eq!(output.status.code(), Some(42));
    assert_eq!(text(&output.stdout), "through and through\n");
    assert_eq!(text(&output.stderr), "problem\n");
}

#[test]
fn a_command_ended_by_a_signal_gives_128_and_the_signal() {
    let (output, document) = document(&["sh", "-c", "kill -KILL $$"]);
    assert_eq!(output.status.code(), Some(137));
    assert_eq!(
        (&document["exit"], &document["signal"]),
        (&137.into(), &9.into())
    );
    assert!(text(&output.stderr).contains("signal 9"));
}

#[test]
fn signals_are_forwarded_to_the_command() {
    let script = "trap 'echo got TERM; exit 5' TERM; trap 'echo got USR1' USR1; echo ready; \
                  while :; do sleep 0.05; done";
    let mut child = flagstone()
        .args(["--quiet", "--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut next = || lines.next().expect("a line").expect("text");
    assert_eq!(next(), "ready");
    let send = |signal| {
        // SAFETY: sending a signal has no memory effects; the child is ours and not yet waited for.
        assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
    };
    send(libc::SIGUSR1);
    assert_eq!(next(), "got USR1");
    send(libc::SIGTERM);
    assert_eq!(next(), "got TERM");
    let status = child.wait().expect("ended");
    assert_eq!((status.code(), status.signal()), (Some(5), None));
}

#[test]
fn children_and_replaced_programs_are_counted_too() {
    let (output, document) = document(&["sh", "-c", "ls / >/dev/null; (true); seq 3 | wc -l"]);
    assert_eq!(text(&output.stdout).trim(), "3");
    let others = document["other_processes"].as_array().expect("an array");
    let names: Vec<_> = others
        .iter()
        .filter_map(|p| p["program"].as_str())
        .collect();
    assert!(names.contains(&"ls") && names.contains(&"wc"), "{names:?}");
    assert!(text(&output.stderr).contains("more processes"));
    let (_, replaced) = self::document(&["sh", "-c", "exec seq 3"]);
    assert_eq!(replaced["at_exit"], true);
    assert!(sum(&replaced["ledger"]) > 0.0);
}

#[test]
fn policy_and_settings_reach_the_command_and_are_named() {
    let (_, document) = {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("run.json");
        let output = flagstone()
            .args([
                "--policy",
                "linux-7.0",
                "--set",
                "slab_max_order=0",
                "--json",
            ])
            .arg(&file)
            .args(["--", "sh", "-c", "true"])
            .output()
            .expect("started");
        assert!(output.status.success(), "{}", text(&output.stderr));
        let bytes = std::fs::read(&file).expect("written");
        let document: Value = serde_json::from_slice(&bytes).expect("one document");
        (output, document)
    };
    assert_eq!(document["policy"], "linux-7.0 slab_max_order=0");
    for cache in document["caches"].as_array().expect("caches") {
        let internal = cache["internal"] == true;
        let fits = cache["size"].as_u64() <= Some(4096);
        assert!(internal || !fits || cache["order"] == 0, "{cache}");
    }
}

#[test]
fn an_earlier_preload_list_is_kept_behind_ours() {
    let output = flagstone()
        .args(["--quiet", "--", "sh", "-c", "echo $LD_PRELOAD"])
        .env("LD_PRELOAD", "libm.so.6")
        .output()
        .expect("started");
    let list = text(&output.stdout);
    let (ours, theirs) = list.trim().split_once(':').expect("two entries");
    assert!(ours.contains("libflagstone"), "{list}");
    assert_eq!(theirs, "libm.so.6");
}

#[test]
fn mistakes_are_one_line_with_the_right_status() {
    let directory = tempfile::tempdir().expect("a directory");
    let plain = directory.path().join("plain");
    std::fs::write(&plain, "#!/bin/sh\n").expect("written");
    let plain = plain.to_str().expect("text");
    for (arguments, status, word) in [
        (
            &["--", "no-such-command"][..],
            127,
            "no program 'no-such-command' in PATH",
        ),
        (&["--", "/no/such/file"], 127, "no such file"),
        (&["--", plain], 126, "chmod"),
        (&["--", "/"], 126, "directory"),
        (&["--policy", "linux-99", "--", "true"], 2, "linux-99"),
        (&["--set", "nonsense", "--", "true"], 2, "KEY=VALUE"),
        (&["--set", "barn_full=many", "--", "true"], 2, "barn_full"),
        (&["--json", "/no/such/dir/f", "--", "true"], 2, "--json"),
        (&[], 2, "CMD"),
        (&["--colour", "--", "true"], 2, "--colour"),
    ] {
        let output = run(arguments);
        let line = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {line}");
        assert_eq!(line.lines().count(), 1, "{arguments:?}: {line}");
        assert!(
            line.starts_with("flagstone: ") && line.contains(word),
            "{line}"
        );
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn text_fits_eighty_columns_and_has_no_colour_in_a_pipe() {
    let output = run(&["--", "sh", "-c", "true"]);
    let shown = text(&output.stderr);
    assert!(shown.contains("Where its memory was") && shown.contains("Caches"));
    assert!(!shown.contains('\u{1b}'));
    for line in shown.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
}
