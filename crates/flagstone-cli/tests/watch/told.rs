//! What a running process is told: set, trim, and the idle one.

use crate::ours::{BUSY, Running, ask, closes, compiled, json, on_library, refused, until};
use serde_json::Value;
use std::process::Command;

fn busy() -> (tempfile::TempDir, Running) {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), BUSY);
    let running = Running::start(on_library(&mut Command::new(program)));
    (folder, running)
}

fn idle() -> Running {
    Running::start(on_library(
        Command::new("sh").args(["-c", "echo up; exec sleep 1000"]),
    ))
}

#[test]
fn a_set_knob_is_what_get_says_afterwards() {
    let (_folder, busy) = busy();
    let knob = "cache.malloc-256.min_partial";
    let before = json(&["get", &busy.pid, knob, "--json"])["knobs"][knob]
        .as_u64()
        .unwrap();
    let set = json(&[
        "set",
        "--wait",
        "60",
        &busy.pid,
        &format!("{knob}={}", before + 3),
        "--json",
    ]);
    assert_eq!(
        (&set["applied"], &set["before"]),
        (&true.into(), &before.into()),
        "{set}"
    );
    let (code, out, _) = ask(&["get", &busy.pid, knob]);
    assert_eq!(
        (code, out.trim()),
        (Some(0), (before + 3).to_string().as_str())
    );
    let (code, out, err) = ask(&["set", "--wait", "60", &busy.pid, "cache.malloc-3k.shrink=1"]);
    assert_eq!(code, Some(0), "{out}{err}");
    let all = json(&["get", &busy.pid, "--json"]);
    assert!(
        all["knobs"].as_object().unwrap().len() > 100,
        "every cache's"
    );
    let (_, out, _) = ask(&["get", &busy.pid, "cache.malloc-64"]);
    assert_eq!(out.lines().count(), 7, "{out}");
}

#[test]
fn a_processs_number_behind_json_is_no_files_name() {
    let (_folder, busy) = busy();
    for command in ["stat", "get", "verify"] {
        let found = json(&[command, "--json", &busy.pid]);
        assert_eq!(found["pid"].to_string(), busy.pid, "{command}");
    }
    assert!(!std::path::Path::new(&busy.pid).exists());
}

#[test]
fn a_knob_that_is_not_there_is_asked_for_and_a_bad_value_says_why() {
    let (_folder, busy) = busy();
    let pid = busy.pid.as_str();
    refused(
        &["get", pid, "cpu"],
        &["did you mean 'cpus'?", "min_partial (set: 0 to 65536)"],
    );
    refused(
        &["set", pid, "cache.malloc-64.min_parial=1"],
        &["did you mean 'cache.malloc-64.min_partial'?", "known are"],
    );
    refused(
        &["set", pid, "cache.malloc-64.order=1"],
        &["can only be read"],
    );
    refused(
        &["set", pid, "cache.malloc-64.min_partial=1G"],
        &["out of its range"],
    );
    refused(
        &["set", pid, "cache.malloc-64.min_partial=x"],
        &["must be 0 to 65536"],
    );
    refused(&["set", pid, "cpus"], &["expected KNOB=VALUE"]);
    refused(&["trim", pid, "--keep", "much"], &["--keep much"]);
}

#[test]
fn a_profile_is_a_knob_like_any_other_and_a_renamed_library_is_found_for_one() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), BUSY);
    let library = folder.path().join("renamed.so");
    std::fs::copy(crate::ours::library(), &library).unwrap();
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", &library);
    let busy = Running::start(&mut command);
    let pid = busy.pid.as_str();
    let is = |value: &str| ask(&["get", pid, "profile"]).1.trim() == value;
    assert!(is("0"));
    let (code, out, err) = ask(&["set", "--wait", "60", pid, "profile=64K"]);
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(is("65536"));
    let (code, out, err) = ask(&["profile", pid, "--for", "200ms"]);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("was on already"), "{out}");
    assert_eq!(ask(&["set", "--wait", "60", pid, "profile=off"]).0, Some(0));
    assert!(is("0"));
    let (code, out, err) = ask(&["profile", pid, "--for", "200ms", "--interval", "64K"]);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("samples of 64.0 KiB"), "{out}");
    until("the profile goes back", || is("0"));
    refused(
        &["set", pid, "profile=1"],
        &["out of its range (off, or 4K"],
    );
    refused(&["set", pid, "profile=much"], &["must be off, or 4K"]);
}

/// A figure of `stat`; none where the heap changed too fast to be shown this time.
fn seen(pid: &str, figure: impl Fn(&Value) -> &Value) -> Option<u64> {
    let (code, out, _) = ask(&["stat", pid, "--json"]);
    let stat: Value = (code == Some(0)).then(|| serde_json::from_str(&out).ok())??;
    figure(&stat).as_u64()
}

#[test]
fn a_limit_is_set_in_a_running_process_and_shown() {
    let folder = tempfile::tempdir().unwrap();
    // Asks for more and more; what it does not get it leaves.
    let source = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(void) {
    void *at; long got = 0;
    puts("up"); fflush(stdout);
    for (;;) {
        if ((at = malloc(got < 300 ? 100000 : 1000000))) {
            if (got < 300) { memset(at, 1, 100000); got++; } else free(at);
        }
        if (got == 300) usleep(200); /* a heap that changes without end is not shown */
    }
}"#;
    let program = compiled(folder.path(), source);
    let running = Running::start(on_library(&mut Command::new(program)));
    let pid = running.pid.as_str();
    until("it holds 30 MB", || {
        seen(pid, |stat| &stat["rss_bytes"]) > Some(30_000_000)
    });
    let (code, out, err) = ask(&["set", "--wait", "60", pid, "limit=30M"]);
    assert_eq!(code, Some(0), "{out}{err}");
    until("requests meet the limit", || {
        seen(pid, |stat| &stat["bounds"]["limit_refused"]) > Some(10)
    });
    let (_, out, _) = ask(&["stat", pid]);
    assert!(out.contains("Limit 30.0 MiB: "), "{out}");
    let (_, out, _) = ask(&["metrics", pid]);
    let metric = |name: &str| out.lines().any(|line| line.starts_with(name));
    assert!(
        metric("flagstone_limit_bytes{") && metric("flagstone_limit_refused_total{"),
        "{out}"
    );
    assert_eq!(ask(&["set", "--wait", "60", pid, "limit=off"]).0, Some(0));
    assert_eq!(ask(&["get", pid, "limit"]).1.trim(), "0");
    refused(&["set", pid, "limit=1K"], &["limit=1K: out of its range"]);
    assert_eq!(ask(&["set", "--wait", "60", pid, "pressure=on"]).0, Some(0));
    until("it looks at pressure", || {
        seen(pid, |stat| &stat["bounds"]["pressure_looks"]) > Some(1)
    });
}

#[test]
fn a_budget_that_is_lowered_goes_back_as_the_program_frees() {
    let folder = tempfile::tempdir().unwrap();
    // Most of it is freed and kept; then it goes up and down by a little.
    let source = BUSY.replace("i % 3000 > 300", "1").replace(
        "for (int i = 0; i < 64; i++) free(some[i]);",
        "for (int i = 0; i < 64; i++) free(some[i]); free(malloc(200000));",
    );
    let program = compiled(folder.path(), &source);
    let mut command = Command::new(program);
    command.env("FLAGSTONE_RETAIN_BYTES_MIN", "1G");
    let running = Running::start(on_library(&mut command));
    let pid = running.pid.as_str();
    assert_eq!(
        ask(&["get", pid, "retain_bytes_min"]).1.trim(),
        "1073741824"
    );
    let free = || {
        let reading = json(&["stat", pid, "--json"]);
        let lines = reading["ledger"].as_array().unwrap();
        let line = lines.iter().find(|line| line["line"] == "free_pages");
        line.unwrap()["bytes"].as_u64().unwrap()
    };
    assert!(free() > 30 << 20, "{}", free());
    let (code, out, err) = ask(&["set", "--wait", "60", pid, "retain_bytes_min=1M"]);
    assert_eq!(code, Some(0), "{out}{err}");
    until("free pages go back", || free() < 15 << 20);
}

#[test]
fn budget_allowance_and_sheaves_of_a_running_process_are_set_and_hold() {
    let (_folder, busy) = busy();
    let pid = busy.pid.as_str();
    for (knob, before, to) in [
        ("retain_share", "16", "8"),
        ("allowance", "3", "10"),
        ("cache.malloc-256.sheaf_capacity", "", "20"),
    ] {
        let was = ask(&["get", pid, knob]).1;
        assert!(before.is_empty() || was.trim() == before, "{knob}: {was}");
        let (code, out, err) = ask(&["set", "--wait", "60", pid, &format!("{knob}={to}")]);
        assert_eq!(code, Some(0), "{out}{err}");
        assert_eq!(ask(&["get", pid, knob]).1.trim(), to, "{knob}");
    }
    // Traffic would make them longer; what was told holds.
    until("its upkeep came by often", || {
        ask(&["set", "--wait", "60", pid, "retain_share=0"]).0 == Some(0)
    });
    assert_eq!(ask(&["get", pid, "retain_share"]).1.trim(), "0");
    let (_, out, _) = ask(&["get", pid, "cache.malloc-256.sheaf_capacity"]);
    assert_eq!(out.trim(), "20");
    for (setting, why) in [
        ("retain_share=2000", "0 to 1024"),
        ("allowance=0", "1 to 100"),
        ("cache.malloc-256.sheaf_capacity=0", "1 to 253"),
        ("cache.malloc-256.sheaf_capacity=254", "1 to 253"),
        (
            "cache.sheaf-256.sheaf_capacity=8",
            "a cache that has sheaves",
        ),
    ] {
        refused(&["set", pid, setting], &["out of its range", why]);
    }
    closes(pid);
    let (code, out, err) = ask(&["verify", pid]);
    assert_eq!(code, Some(0), "{out}{err}");
}

#[test]
fn trim_gives_back_what_the_ledger_foretold() {
    let folder = tempfile::tempdir().unwrap();
    // Everything freed, so that much is to be given back; the caches would keep it for a while.
    let source = BUSY.replace("i % 3000 > 300", "1");
    let program = compiled(folder.path(), &source);
    let mut command = Command::new(program);
    // Free memory stays until it is asked for.
    command.env("FLAGSTONE_RETAIN_BYTES_MIN", "1G");
    let running = Running::start(on_library(&mut command));
    let foretold = json(&["trim", "--dry-run", &running.pid, "--json"]);
    let trim = json(&["trim", "--wait", "60", &running.pid, "--json"]);
    let bytes = |of: &serde_json::Value, name: &str| of[name].as_u64().unwrap();
    let (said, did) = (
        bytes(&trim, "foretold_bytes"),
        bytes(&trim, "given_back_bytes"),
    );
    assert!(said > 30 << 20, "much is free: {foretold} {trim}");
    assert!(said.abs_diff(did) * 10 <= said, "{trim}");
    let (before, after) = (
        bytes(&trim, "rss_before_bytes"),
        bytes(&trim, "rss_after_bytes"),
    );
    assert!(before - after > said / 2, "the kernel says so too: {trim}");
    closes(&running.pid);
}

#[test]
fn an_idle_process_is_said_to_be_idle_and_keeps_the_request() {
    let idle = idle();
    until("it sleeps", || {
        std::fs::read_to_string(format!("/proc/{}/comm", idle.pid))
            .is_ok_and(|name| name == "sleep\n")
    });
    let knob = "cache.malloc-64.min_partial=0";
    let (code, out, err) = ask(&["set", "--wait", "0", &idle.pid, knob]);
    assert_eq!(code, Some(1), "{err}");
    assert!(
        out.contains("is idle") && out.contains("at its next one"),
        "{out}"
    );
    let (code, out, _) = ask(&["trim", "--wait", "0", &idle.pid]);
    assert_eq!(code, Some(1), "{out}");
    assert!(out.starts_with("foretold"), "{out}");
    // Told again before it took the first: the last counts.
    let (code, ..) = ask(&["set", "--wait", "0", &idle.pid, knob]);
    assert_eq!(code, Some(1));
    closes(&idle.pid);
}

#[test]
fn the_child_of_a_fork_does_not_do_what_its_parent_was_told() {
    let folder = tempfile::tempdir().unwrap();
    let source = r#"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static void wake(int signal) {}
int main(void) {
    signal(SIGUSR1, wake);
    puts("up"); fflush(stdout);
    pause();
    fork();
    for (int i = 0; i < 100000; i++) if (!malloc(100)) return 1;
    for (;;) pause();
}
"#;
    let program = compiled(folder.path(), source);
    let parent = Running::start(on_library(&mut Command::new(program)));
    let knob = "cache.malloc-64.min_partial";
    let get = |pid: &str| {
        json(&["get", pid, knob, "--json"])["knobs"][knob]
            .as_u64()
            .unwrap()
    };
    let before = get(&parent.pid);
    let setting = format!("{knob}={}", before + 70);
    assert_eq!(
        ask(&["set", "--wait", "0", &parent.pid, &setting]).0,
        Some(1),
        "it pauses"
    );
    assert_eq!(get(&parent.pid), before, "not yet");
    let woken = Command::new("kill").args(["-USR1", &parent.pid]).status();
    assert!(woken.unwrap().success());
    until("the parent does it as it wakes", || {
        get(&parent.pid) == before + 70
    });
    let children = format!("/proc/{0}/task/{0}/children", parent.pid);
    let child = std::fs::read_to_string(children).unwrap().trim().to_owned();
    let live = |pid: &str| {
        json(&["stat", pid, "--json"])["sum_bytes"]
            .as_u64()
            .unwrap()
    };
    until("the child has taken slow paths", || live(&child) > 10 << 20);
    assert_eq!(get(&child), before);
    let _ = Command::new("kill").args(["-9", &child]).status();
}
