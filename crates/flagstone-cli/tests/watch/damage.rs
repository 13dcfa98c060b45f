//! What the program wrote over is noticed: one line, no panic, no end that does not come.

use crate::ours::{Running, ask, closes, on_library, refused};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::process::Command;

/// Memory of a process that sleeps, as its own program would write to it.
struct Victim {
    process: Running,
    memory: File,
    /// Addresses of its library's own data.
    data: Vec<(u64, u64)>,
}

impl Victim {
    fn new() -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", "echo up; exec sleep 1000"]);
        let process = Running::start(on_library(&mut command));
        // The shell's maps are another program's.
        crate::ours::until("it sleeps", || {
            let name = std::fs::read_to_string(format!("/proc/{}/comm", process.pid));
            name.is_ok_and(|name| name == "sleep\n") && ask(&["stat", &process.pid]).0 == Some(0)
        });
        let path = format!("/proc/{}/mem", process.pid);
        let memory = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .unwrap();
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", process.pid)).unwrap();
        let ours = maps
            .lines()
            .filter(|line| line.contains("libflagstone") && line.contains(" rw-p "));
        let data = ours
            .map(|line| {
                let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
                let number = |text| u64::from_str_radix(text, 16).unwrap();
                (number(start), number(end))
            })
            .collect();
        Self {
            process,
            memory,
            data,
        }
    }

    /// Where these bytes are, at a line of memory.
    fn find(&self, what: &[u8]) -> u64 {
        for &(start, end) in &self.data {
            let mut bytes = vec![0; (end - start) as usize];
            self.memory.read_exact_at(&mut bytes, start).unwrap();
            let found = (0..bytes.len())
                .step_by(64)
                .find(|&at| bytes[at..].starts_with(what));
            if let Some(at) = found {
                return start + at as u64;
            }
        }
        panic!("not in {:x?}", self.data);
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        self.memory.write_all_at(bytes, at).unwrap();
    }

    fn word(&self, at: u64) -> u64 {
        let mut bytes = [0; 8];
        self.memory.read_exact_at(&mut bytes, at).unwrap();
        u64::from_ne_bytes(bytes)
    }
}

#[test]
fn damaged_control_words_are_refused_and_reading_goes_on() {
    let victim = Victim::new();
    let pid = victim.process.pid.as_str();
    let control = victim.find(b"flagctl\x01");
    for (at, word) in [(0, 0), (8, 0x4141_4141_4141_4141)] {
        let before = victim.word(control + at);
        victim.write(control + at, &u64::to_ne_bytes(word));
        refused(
            &["set", pid, "trim=0"],
            &["control words are damaged", "nothing is told"],
        );
        refused(&["trim", pid], &["control words are damaged"]);
        victim.write(control + at, &before.to_ne_bytes());
    }
    closes(pid);
    assert_eq!(
        ask(&["set", "--wait", "0", pid, "trim=0"]).0,
        Some(1),
        "idle, and whole again"
    );
}

#[test]
fn a_damaged_beacon_is_refused() {
    let victim = Victim::new();
    let pid = victim.process.pid.as_str();
    let beacon = victim.find(b"\x7fflagstone-heap");
    let before = victim.word(beacon + 40);
    for wrong in [0, 8, before + 64, !0, 0x1234] {
        victim.write(beacon + 40, &u64::to_ne_bytes(wrong));
        refused(&["stat", pid], &["process"]);
    }
    victim.write(beacon + 40, &before.to_ne_bytes());
    // Its bell and its control words.
    for at in [80, 88] {
        let before = victim.word(beacon + at);
        victim.write(beacon + at, &0x1000_u64.to_ne_bytes());
        refused(&["set", pid, "trim=0"], &["damaged"]);
        victim.write(beacon + at, &before.to_ne_bytes());
    }
    victim.write(beacon + 32, &9_u32.to_ne_bytes());
    refused(&["stat", pid], &["its beacon is damaged"]);
    victim.write(beacon + 32, &1_u32.to_ne_bytes());
    closes(pid);
}

#[test]
fn damaged_pages_of_the_heap_end_in_one_line_or_in_figures_but_always_end() {
    for (seed, fill) in [(1_u64, 0xff_u8), (3, 0)] {
        let victim = Victim::new();
        let pid = victim.process.pid.as_str();
        let beacon = victim.find(b"\x7fflagstone-heap");
        let heap = victim.word(beacon + 40);
        let tables = victim.word(beacon + 72);
        // The heap's own struct behind its gate, and the zones.
        let mut at = heap + 0x2000 + seed * 64;
        while at < heap + 0x4000 {
            victim.write(at, &[fill; 24]);
            at += 192;
        }
        let _outside = victim
            .memory
            .write_all_at(&[fill; 512], tables + seed * 128);
        for verb in ["stat", "verify", "trim"] {
            let (code, out, err) = ask(&[verb, "--wait=0", pid]);
            let words = if verb == "trim" {
                (code, out, err)
            } else {
                ask(&[verb, pid])
            };
            let (code, out, err) = words;
            match code {
                Some(2) => assert_eq!(
                    (out.as_str(), err.lines().count()),
                    ("", 1),
                    "{verb}: {err}"
                ),
                Some(0 | 1) => assert!(err.lines().count() <= 1, "{verb}: {err}"),
                _ => panic!("{verb}: {code:?} {out}{err}"),
            }
        }
        let (_, _, err) = ask(&["ps"]);
        assert!(!err.contains("panicked"), "{err}");
    }
}
