//! Which processes can be reached, and what is said of the others.

use crate::ours::{
    Running, closes, flagstone, here, library, on_library, refused, root, said, text, until,
};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

const SLEEP: &str = "echo up; exec sleep 1000";

fn sleeping(library: &Path) -> Running {
    let mut command = Command::new("sh");
    Running::start(command.args(["-c", SLEEP]).env("LD_PRELOAD", library))
}

/// A copy of the library with some bytes changed behind the magic of its beacon.
fn doctored(folder: &Path, at: usize, bytes: &[u8]) -> std::path::PathBuf {
    let mut library = std::fs::read(library()).unwrap();
    let magic = b"\x7fflagstone-heap\x03";
    let places: Vec<usize> = (0..library.len() - magic.len())
        .step_by(64)
        .filter(|&at| library[at..].starts_with(magic))
        .collect();
    assert_eq!(places.len(), 1, "one beacon, at a line of the file");
    library[places[0] + at..places[0] + at + bytes.len()].copy_from_slice(bytes);
    let path = folder.join("libother.so");
    std::fs::write(&path, library).unwrap();
    path
}

#[test]
fn a_process_that_is_gone_or_none_of_ours_is_one_line() {
    let mut gone = Command::new("true").spawn().unwrap();
    let pid = gone.id().to_string();
    gone.wait().unwrap();
    for words in [
        &["stat", &pid] as &[&str],
        &["get", &pid],
        &["set", &pid, "trim=0"],
        &["trim", &pid],
        &["verify", &pid],
        &["top", &pid],
        &["metrics", &pid],
    ] {
        refused(words, &[&format!("process {pid}: there is none")]);
    }
    let plain = Running::start(
        Command::new("sh")
            .args(["-c", SLEEP])
            .env_remove("LD_PRELOAD"),
    );
    refused(
        &["stat", &plain.pid],
        &["has no heap of Flagstone", "flagstone check"],
    );
    refused(&["stat", "0"], &["PID"]);
}

#[test]
fn a_process_of_another_version_or_build_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let other = sleeping(&doctored(folder.path(), 16, b"0.0.9\0"));
    refused(
        &["stat", &other.pid],
        &["runs flagstone 0.0.9", "this command is"],
    );
    drop(other);
    let other = sleeping(&doctored(folder.path(), 64, &[1; 8]));
    refused(&["stat", &other.pid], &["another build of flagstone"]);
    drop(other);
    // A beacon of a layout to come.
    let other = sleeping(&doctored(folder.path(), 15, &[9]));
    refused(&["stat", &other.pid], &["runs"]);
    refused(&["set", &other.pid, "trim=0"], &["runs"]);
}

#[test]
fn a_process_of_another_user_is_one_line() {
    if !root("a process of another user") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.path(), mode.clone()).unwrap();
    let command = folder.path().join("flagstone");
    std::fs::copy(env!("CARGO_BIN_EXE_flagstone"), &command).unwrap();
    std::fs::set_permissions(&command, mode).unwrap();
    let process = sleeping(library());
    let mut other = Command::new(&command);
    let (code, out, err) = said(other.uid(65534).gid(65534).args(["stat", &process.pid]));
    assert_eq!((code, out.as_str()), (Some(2), ""), "{err}");
    assert!(
        err.contains("not yours to look at") && err.lines().count() == 1,
        "{err}"
    );
}

#[test]
fn a_user_reads_and_tells_their_own_process_without_root() {
    if !root("another user's own process") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.path(), mode.clone()).unwrap();
    let (command, ours) = (
        folder.path().join("flagstone"),
        folder.path().join("ours.so"),
    );
    for (from, to) in [
        (Path::new(env!("CARGO_BIN_EXE_flagstone")), &command),
        (library(), &ours),
    ] {
        std::fs::copy(from, to).unwrap();
        std::fs::set_permissions(to, mode.clone()).unwrap();
    }
    let mut target = Command::new("sh");
    target
        .args(["-c", SLEEP])
        .env("LD_PRELOAD", &ours)
        .current_dir("/");
    let process = Running::start(target.uid(65534).gid(65534));
    let mut own = Command::new(&command);
    let (code, out, err) = said(
        own.uid(65534)
            .gid(65534)
            .current_dir("/")
            .args(["stat", &process.pid]),
    );
    if code == Some(2) && err.contains("ptrace_scope") {
        eprintln!("skipped: a user's own process: kernel.yama.ptrace_scope forbids it");
        return;
    }
    assert_eq!(code, Some(0), "{out}{err}");
    let mut own = Command::new(&command);
    own.uid(65534).gid(65534).current_dir("/");
    let (code, out, err) = said(own.args(["set", "--wait", "0", &process.pid, "trim=0"]));
    assert_eq!(code, Some(1), "idle: {out}{err}");
}

#[test]
fn a_library_that_was_renamed_and_deleted_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("renamed.so");
    std::fs::copy(library(), &copy).unwrap();
    // Another program started now would not find it.
    let mut shell = Command::new("sh");
    let process = Running::start(
        shell
            .args(["-c", "echo up; while :; do sleep 1; done"])
            .env("LD_PRELOAD", &copy),
    );
    std::fs::remove_file(&copy).unwrap();
    closes(&process.pid);
}

#[test]
fn a_process_in_another_pid_namespace_and_root_is_read_from_its_host() {
    if !root("another pid namespace") || !here("unshare", "another pid namespace") {
        return;
    }
    let mut command = Command::new("unshare");
    let inner = "mount -t tmpfs none /mnt 2>/dev/null; echo up; exec sleep 1000";
    command.args([
        "--pid",
        "--mount",
        "--fork",
        "--mount-proc",
        "sh",
        "-c",
        inner,
    ]);
    let mut container = Running::start(on_library(&mut command));
    let outer = container.child.id();
    let children = format!("/proc/{outer}/task/{outer}/children");
    let mut inner = String::new();
    until("the process inside is there", || {
        inner = text(&std::fs::read(&children).unwrap_or_default())
            .trim()
            .to_owned();
        !inner.is_empty()
    });
    container.pid.clone_from(&inner);
    closes(&inner);
    let (code, out, err) = said(flagstone().args(["set", "--wait", "0", &inner, "trim=0"]));
    assert_eq!(code, Some(1), "idle: {out}{err}");
    // Killing the outer one leaves the inner one.
    let _ = Command::new("kill").args(["-9", &inner]).status();
}
