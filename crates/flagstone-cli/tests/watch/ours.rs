//! Programs that run on the library, and the command beside them.

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long anything is waited for.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn flagstone() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flagstone"));
    command.env_remove("LD_PRELOAD");
    command
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Exit status, standard output, standard error.
pub fn said(command: &mut Command) -> (Option<i32>, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    (status.code(), text(&stdout), text(&stderr))
}

pub fn ask(words: &[&str]) -> (Option<i32>, String, String) {
    said(flagstone().args(words))
}

/// What a command says in JSON, which must be well.
pub fn json(words: &[&str]) -> Value {
    let (code, out, err) = ask(words);
    assert_eq!(code, Some(0), "{words:?}: {out}{err}");
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{words:?}: {error}: {out}"))
}

/// A refusal: exit 2 and one line with all these words.
pub fn refused(words: &[&str], parts: &[&str]) {
    let (code, out, err) = ask(words);
    assert_eq!(code, Some(2), "{words:?}: {out}{err}");
    assert_eq!(
        (out.as_str(), err.lines().count()),
        ("", 1),
        "{words:?}: {err}"
    );
    for part in parts {
        assert!(err.contains(part), "{words:?}: no '{part}' in {err}");
    }
}

/// The library that the command carries, as `run` puts it there.
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let program = "printf %s \"$LD_PRELOAD\"";
        let words = ["run", "--quiet", "--", "sh", "-c", program];
        let (_, list, _) = ask(&words);
        PathBuf::from(list.split(':').next().unwrap())
    })
}

/// A process that ends with its handle.
pub struct Running {
    pub child: Child,
    /// Of the process looked at, which may be the child's child.
    pub pid: String,
    /// What it said first.
    pub line: String,
    /// Kept open: a program may write more.
    _out: BufReader<ChildStdout>,
}

impl Running {
    /// Starts it and waits for its first line.
    pub fn start(command: &mut Command) -> Self {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "{command:?} ended");
        let pid = child.id().to_string();
        Self {
            child,
            pid,
            line,
            _out: out,
        }
    }

    /// A Python program on the library; it says a line once it has what it needs.
    pub fn python(program: &str) -> Self {
        Self::start(on_library(Command::new("python3").args(["-c", program])))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn on_library(command: &mut Command) -> &mut Command {
    command.env("LD_PRELOAD", library())
}

/// A program of C, compiled.
pub fn compiled(folder: &Path, source: &str) -> PathBuf {
    let (from, to) = (folder.join("p.c"), folder.join("program"));
    std::fs::write(&from, source).unwrap();
    let status = Command::new("cc")
        .args(["-O1", "-pthread", "-w", "-o"])
        .arg(&to)
        .arg(&from)
        .status();
    assert!(status.unwrap().success());
    to
}

/// A program that holds many blocks with holes between them, and goes on allocating and freeing.
pub const BUSY: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(void) {
    enum { COUNT = 300000 };
    static char *all[COUNT];
    for (int i = 0; i < COUNT; i++) { all[i] = malloc(100 + i % 900); memset(all[i], 1, 100); }
    for (int i = 0; i < COUNT; i++) if (i % 3000 > 300) { free(all[i]); all[i] = 0; }
    puts("up"); fflush(stdout);
    for (;;) {
        char *some[64];
        for (int i = 0; i < 64; i++) some[i] = malloc(3000 + i * 8);
        for (int i = 0; i < 64; i++) free(some[i]);
        usleep(1000);
    }
}
"#;

/// Waits until `done`, or fails.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether a program is here; else says what is skipped. With `FLAGSTONE_TESTS_STRICT=1` it must be.
pub fn here(program: &str, what: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    if !found {
        eprintln!("skipped: {what}: {program} is not here");
        assert!(
            std::env::var_os("FLAGSTONE_TESTS_STRICT").is_none(),
            "{program} is not here"
        );
    }
    found
}

/// Whether this user is root; else says what is skipped.
pub fn root(what: &str) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let root = status.lines().any(|line| line.starts_with("Uid:\t0\t"));
    if !root {
        eprintln!("skipped: {what}: it needs root");
    }
    root
}

/// The ledger's sum against the kernel's count, within two percent.
pub fn closes(pid: &str) -> Value {
    let reading = json(&["stat", pid, "--json"]);
    let (sum, rss) = (
        reading["sum_bytes"].as_u64().unwrap(),
        reading["rss_bytes"].as_u64().unwrap(),
    );
    let lines = reading["ledger"].as_array().unwrap();
    let added: u64 = lines
        .iter()
        .map(|line| line["bytes"].as_u64().unwrap())
        .sum();
    assert_eq!(added, sum, "the lines make the sum");
    assert!(sum.abs_diff(rss) * 50 <= rss, "{sum} of {rss}: {reading}");
    reading
}
