//! Starts `flagstone run` and reads what it wrote.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub fn flagstone() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flagstone"));
    command.arg("run");
    command
}

pub fn run(arguments: &[&str]) -> Output {
    flagstone().args(arguments).output().expect("started")
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The program's path, or `None` with a word about what is skipped.
pub fn installed(name: &str) -> Option<PathBuf> {
    let found = ["/usr/bin", "/bin"]
        .iter()
        .map(|directory| Path::new(directory).join(name))
        .find(|path| path.exists());
    if found.is_none() {
        eprintln!("skipped: {name} is not installed");
    }
    found
}

/// Runs `command` and returns its document.
pub fn document(command: &[&str]) -> (Output, Value) {
    document_with(&[], command)
}

/// The same with options of `run`.
pub fn document_with(options: &[&str], command: &[&str]) -> (Output, Value) {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("run.json");
    let output = flagstone()
        .args(options)
        .arg("--json")
        .arg(&file)
        .arg("--")
        .args(command)
        .output()
        .expect("started");
    let bytes = std::fs::read(&file).expect("the document was written");
    (
        output,
        serde_json::from_slice(&bytes).expect("one document"),
    )
}

pub fn sum(lines: &Value) -> f64 {
    let lines = lines.as_array().expect("an array of lines");
    assert!(!lines.is_empty(), "a ledger has lines");
    lines
        .iter()
        .map(|line| line["bytes"].as_f64().expect("bytes"))
        .sum()
}

pub fn bytes_of(lines: &Value, name: &str) -> f64 {
    let lines = lines.as_array().expect("an array of lines");
    let line = lines.iter().find(|line| line["line"] == name);
    line.expect("the line is there")["bytes"]
        .as_f64()
        .expect("bytes")
}
