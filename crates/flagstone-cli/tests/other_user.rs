//! Commands that become another user, who may not open the folder where the library lies.

use flagstone_cli::preload::user_id;
use std::path::Path;
use std::process::{Command, Output};

/// What `setpriv` becomes.
const BEHIND: [&str; 6] = [
    "setpriv",
    "--reuid",
    "65534",
    "--clear-groups",
    "sort",
    "/dev/null",
];

fn is_here() -> bool {
    let is_here = user_id() == 0 && Path::new("/usr/bin/setpriv").exists();
    assert!(
        is_here || std::env::var_os("FLAGSTONE_TESTS_STRICT").is_none(),
        "needs root and setpriv (util-linux)"
    );
    if !is_here {
        eprintln!("skipped: a command that changes its user needs root and setpriv");
    }
    is_here
}

/// Runs the command with its library in a folder that is closed to others.
fn closed(folder: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flagstone"))
        .args(words)
        .arg("--")
        .args(BEHIND)
        .env("XDG_CACHE_HOME", folder.join("cache"))
        .env_remove("LD_PRELOAD")
        .output()
        .expect("started")
}

/// One text of a wrapped or a plain report.
fn flat(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn record_run_and_check_say_who_may_not_open_the_library() {
    if !is_here() {
        return;
    }
    // The command makes its own folders for their owner alone.
    let folder = tempfile::tempdir().unwrap();
    let why = format!(
        "may not open {}/cache, where the library lies",
        folder.path().display()
    );
    let file = folder.path().join("trace.fst");
    let output = closed(folder.path(), &["record", "-o", file.to_str().unwrap()]);
    let said = flat(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(
        said.contains("nothing of sort is in the file: as user "),
        "{said}"
    );
    assert!(said.contains(&why), "{said}");

    let output = closed(folder.path(), &["run"]);
    let said = flat(&output.stderr);
    assert!(
        said.contains("sort ran without the library: as user "),
        "{said}"
    );
    assert!(said.contains(&why), "{said}");
    assert!(said.contains("All figures are of setpriv"), "{said}");

    let profile = folder.path().join("heap.pb.gz");
    let words = ["run", "--quiet", "--profile", profile.to_str().unwrap()];
    let said = flat(&closed(folder.path(), &words).stderr);
    assert!(said.contains("left no profile: sort ran without"), "{said}");

    let output = closed(folder.path(), &["check"]);
    let said = flat(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("became sort, which has not: as user "),
        "{said}"
    );
    assert!(said.contains(&why), "{said}");
}

#[test]
fn a_recording_of_a_cleared_environment_names_the_program_that_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.fst");
    let record = |words: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_flagstone"))
            .args(["record", "-o", file.to_str().unwrap(), "--"])
            .args(words)
            .output()
            .expect("started");
        assert!(output.status.success());
        flat(&output.stderr)
    };
    let said = record(&["env", "-u", "LD_PRELOAD", "sort", "/dev/null"]);
    let line = "nothing of sort is in the file: LD_PRELOAD was overwritten or cleared";
    assert!(said.contains(line), "{said}");
    let said = record(&["env", "A=1", "sort", "/dev/null"]);
    assert!(!said.contains("nothing of"), "{said}");
}
