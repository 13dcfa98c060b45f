//! What the commands leave in a process: those that read nothing, those that tell a request, killed or not.

use crate::ours::{BUSY, Running, ask, closes, compiled, flagstone, on_library, said};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};

/// Holds blocks of each kind, and sleeps.
const ASLEEP: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(void) {
    static char *all[4000];
    for (int i = 0; i < 4000; i++) memset(all[i] = malloc(40 + i * 4), 1, 40);
    for (int i = 0; i < 4000; i += 3) free(all[i]);
    memset(malloc(20 << 20), 1, 1 << 20);
    puts("up");
    fflush(stdout);
    for (;;) pause();
}
"#;

/// Bytes of a request and of the counter that makes a slow path look at it.
const REQUEST_BYTES: usize = 168 + 8;

/// All that the process may write to, by address.
fn memory(pid: &str) -> BTreeMap<u64, Vec<u8>> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let file = File::open(format!("/proc/{pid}/mem")).unwrap();
    let mut found = BTreeMap::new();
    for line in maps.lines().filter(|line| line.contains(" rw")) {
        let (range, _) = line.split_once(' ').unwrap();
        let (start, end) = range.split_once('-').unwrap();
        let [start, end] = [start, end].map(|word| u64::from_str_radix(word, 16).unwrap());
        let mut bytes = vec![0; (end - start) as usize];
        file.read_exact_at(&mut bytes, start).unwrap();
        found.insert(start, bytes);
    }
    found
}

/// How many bytes differ; both have the same mappings.
fn changed(before: &BTreeMap<u64, Vec<u8>>, after: &BTreeMap<u64, Vec<u8>>) -> usize {
    assert!(before.keys().eq(after.keys()), "mappings came or went");
    let pairs = before.values().zip(after.values());
    pairs
        .map(|(before, after)| {
            assert_eq!(before.len(), after.len());
            before.iter().zip(after).filter(|(a, b)| a != b).count()
        })
        .sum()
}

/// What the kernel counts of a process: its resident size, its faults, how often it ran, who traces it.
fn counts(pid: &str) -> Vec<String> {
    let text = |name| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap();
    let (status, stat) = (text("status"), text("stat"));
    let lines = [
        "State:",
        "TracerPid:",
        "VmRSS:",
        "Threads:",
        "voluntary_ctxt_switches:",
        "nonvoluntary_ctxt_switches:",
    ];
    let mut found: Vec<String> = status
        .lines()
        .filter(|line| lines.iter().any(|name| line.starts_with(name)))
        .map(str::to_owned)
        .collect();
    assert_eq!(found.len(), lines.len(), "{status}");
    // Behind the name: minor faults are the eighth.
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    found.push(fields.split(' ').nth(7).unwrap().to_owned());
    found
}

/// A command that runs, and whose words nobody reads.
fn started(words: &[&str]) -> Child {
    let mut command = flagstone();
    let command = command.args(words);
    let command = command.stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

#[test]
fn what_reads_leaves_a_sleeping_process_as_it_was_to_the_byte() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), ASLEEP);
    let asleep = Running::start(on_library(&mut Command::new(program)));
    let pid = asleep.pid.as_str();
    let mut last = Vec::new();
    crate::ours::until("it sleeps", || {
        let now = counts(pid);
        let sleeps = now[0].contains("\tS") && now == last;
        last = now;
        sleeps
    });
    let (bytes, kernel) = (memory(pid), counts(pid));
    let reads: [(&[&str], i32); 10] = [
        (&["ps"], 0),
        (&["metrics"], 0),
        (&["stat", pid], 0),
        (&["stat", pid, "--maps"], 0),
        (&["top", "--once", pid], 0),
        (&["get", pid], 0),
        (&["verify", pid], 0),
        (&["metrics", pid], 0),
        (&["trim", "--dry-run", pid], 0),
        // There is no such knob, so nothing is told.
        (&["set", pid, "no_such_knob=1"], 2),
    ];
    for (words, status) in reads {
        let (code, out, err) = ask(words);
        assert_eq!(code, Some(status), "{words:?}: {out}{err}");
        assert_eq!(changed(&bytes, &memory(pid)), 0, "{words:?}");
        assert_eq!(counts(pid), kernel, "{words:?}");
    }
    for words in [
        &["set", "--wait", "0", pid, "trim=0"][..],
        &["trim", "--wait", "0", pid],
    ] {
        assert_eq!(ask(words).0, Some(1), "{words:?}: it sleeps");
        let bytes = changed(&bytes, &memory(pid));
        assert!((1..=REQUEST_BYTES).contains(&bytes), "{words:?}: {bytes}");
        assert_eq!(counts(pid), kernel, "{words:?}");
    }
}

#[test]
fn a_command_killed_at_any_moment_leaves_no_trace() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), BUSY);
    let busy = Running::start(on_library(&mut Command::new(program)));
    let pid = busy.pid.as_str();
    let commands: [&[&str]; 9] = [
        &["stat", pid],
        &["trim", pid],
        &["verify", pid],
        &["set", pid, "cache.malloc-64.min_partial=2"],
        &["top", "--once", pid],
        &["profile", pid, "--for", "1s", "--json"],
        &["get", pid],
        &["metrics", pid],
        &["ps"],
    ];
    for (round, words) in (0..27).zip(commands.iter().cycle()) {
        let mut command = started(words);
        // Later each time: before it has read, while it reads, while it tells.
        for _ in 0..round * 20_000 {
            std::hint::spin_loop();
        }
        let _ = command.kill();
        let _ = command.wait();
        let tracer = &counts(pid)[1];
        assert_eq!(tracer, "TracerPid:\t0", "{words:?}");
    }
    let knob = "cache.malloc-64.min_partial=1";
    let (code, out, err) = ask(&["set", "--wait", "60", pid, knob]);
    assert_eq!(code, Some(0), "{out}{err}");
    // A profile ends by itself at the moment that its request named.
    crate::ours::until("no profile is on", || {
        ask(&["get", pid, "profile"]).1.trim() == "0"
    });
    closes(pid);
    let (code, out, err) = ask(&["verify", pid]);
    assert_eq!(code, Some(0), "{out}{err}");
}

#[test]
fn nothing_traces_or_stops_a_busy_process_while_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), BUSY);
    let busy = Running::start(on_library(&mut Command::new(program)));
    let pid = busy.pid.as_str();
    let readers: [&[&str]; 8] = [
        &["stat", pid],
        &["stat", pid, "--maps"],
        &["top", "--once", pid],
        &["get", pid],
        &["verify", pid],
        &["metrics", pid],
        &["trim", "--dry-run", pid],
        &["check", pid],
    ];
    for words in readers {
        let mut reading = started(words);
        loop {
            let seen = counts(pid);
            // It runs, or waits for its own work: neither stopped (T) nor traced (t).
            let letter = seen[0].trim_start_matches("State:").trim();
            assert!(!letter.starts_with(['T', 't']), "{words:?}: {letter}");
            assert_eq!(seen[1], "TracerPid:\t0", "{words:?}");
            if let Some(status) = reading.try_wait().unwrap() {
                assert_eq!(status.code(), Some(0), "{words:?}");
                break;
            }
        }
    }
}

/// The calls by which one process stops, traces or signals another, or changes its memory other than by writing a few bytes.
const ON_OTHERS: [libc::c_long; 12] = [
    libc::SYS_ptrace,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_tgkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_pidfd_send_signal,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
];

/// The command with a filter that ends it, and whatever it starts, at the first of these calls.
fn alone(command: &mut Command) -> &mut Command {
    let statement = |code: u32, k| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    };
    // The number of the call is the first word that a filter sees.
    let mut filter = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0)];
    for (at, call) in ON_OTHERS.into_iter().enumerate() {
        filter.push(libc::sock_filter {
            code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
            jt: (ON_OTHERS.len() - at) as u8,
            jf: 0,
            k: call as u32,
        });
    }
    let answer = libc::BPF_RET | libc::BPF_K;
    filter.push(statement(answer, libc::SECCOMP_RET_ALLOW));
    filter.push(statement(answer, libc::SECCOMP_RET_KILL_PROCESS));
    let install = move || {
        let program = libc::sock_fprog {
            len: filter.len() as u16,
            filter: filter.as_ptr().cast_mut(),
        };
        // SAFETY: numbers, and a filter that lives during the call.
        let failed = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
                || libc::prctl(
                    libc::PR_SET_SECCOMP,
                    libc::SECCOMP_MODE_FILTER,
                    &raw const program,
                ) != 0
        };
        match failed {
            true => Err(std::io::Error::last_os_error()),
            false => Ok(()),
        }
    };
    // SAFETY: two system calls, which are safe in the child of a fork.
    unsafe { command.pre_exec(install) }
}

#[test]
fn no_command_makes_a_call_that_could_stop_or_signal_the_process() {
    let mut signals = Command::new("sh");
    let signals = alone(signals.args(["-c", "kill -0 $$"])).status().unwrap();
    assert_eq!(signals.signal(), Some(libc::SIGSYS), "the filter works");

    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), BUSY);
    let busy = Running::start(on_library(&mut Command::new(program)));
    let pid = busy.pid.as_str();
    let profile = folder.path().join("heap.pb.gz");
    let profile = profile.to_str().unwrap();
    let commands: [&[&str]; 13] = [
        &["ps"],
        &["metrics"],
        &["stat", pid],
        &["stat", pid, "--maps"],
        &["top", "--once", pid],
        &["get", pid],
        &["verify", pid],
        &["metrics", pid],
        &["trim", "--dry-run", pid],
        &["check", pid],
        &["set", "--wait", "60", pid, "cache.malloc-64.min_partial=1"],
        &["trim", "--wait", "60", pid],
        &["profile", pid, "--for", "1s", "-o", profile],
    ];
    for words in commands {
        let (code, out, err) = said(alone(flagstone().args(words)));
        assert_eq!(code, Some(0), "{words:?}: {out}{err}");
    }
}
