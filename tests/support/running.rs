//! Running a program with the library preloaded, for a bounded time.

use crate::library;
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

/// Time after which a program is taken for hung, unless its test says otherwise.
pub const LIMIT: Duration = Duration::from_secs(300);

/// A program that ended.
#[derive(Debug)]
pub struct Finished {
    /// How.
    pub status: ExitStatus,
    /// What it wrote to stdout.
    pub stdout: String,
    /// What it wrote to stderr.
    pub stderr: String,
}

impl Finished {
    /// The signal that killed it.
    pub fn signal(&self) -> Option<i32> {
        self.status.signal()
    }
}

/// A command with the library preloaded.
pub fn preloaded(program: impl AsRef<OsStr>) -> Command {
    let mut command = without(program);
    command.env("LD_PRELOAD", library());
    command
}

/// The same command on the C library's own allocator.
pub fn without(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command
        .env_remove("LD_PRELOAD")
        .env("LC_ALL", "C")
        .stdin(Stdio::null());
    command
}

/// Runs to the end. A program over its limit is killed with all its children and fails the test:
/// a hang is a finding.
pub fn finish(command: &mut Command, limit: Duration) -> Finished {
    let name = format!("{:?}", command.get_program());
    command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let mut child = command
        .spawn()
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    let group = -(child.id() as libc::pid_t);
    let stdout = collect(child.stdout.take().expect("stdout is a pipe"));
    let stderr = collect(child.stderr.take().expect("stderr is a pipe"));
    let (ended, over) = std::sync::mpsc::channel::<()>();
    let watchdog = std::thread::spawn(move || {
        let hung = over
            .recv_timeout(limit)
            .is_err_and(|e| e == std::sync::mpsc::RecvTimeoutError::Timeout);
        if hung {
            // SAFETY: signals the process group that this command leads; not yet reaped.
            unsafe { libc::kill(group, libc::SIGKILL) };
        }
        hung
    });
    // The pipes close when the program and its children have ended; only then is it reaped, so
    // that the watchdog cannot hit a group number that was given to somebody else.
    let stdout = stdout.join().expect("the reader of stdout ends");
    let stderr = stderr.join().expect("the reader of stderr ends");
    let _ = ended.send(());
    let hung = watchdog.join().expect("the watchdog ends");
    let status = child
        .wait()
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(
        !hung,
        "{name} was still running after {limit:?}\nstdout: {stdout}\nstderr: {stderr}"
    );
    assert!(
        !stderr.contains("cannot be preloaded"),
        "the library was not preloaded into {name}: {stderr}"
    );
    Finished {
        status,
        stdout,
        stderr,
    }
}

/// Runs to the end and expects exit status 0.
pub fn succeed(command: &mut Command, limit: Duration) -> Finished {
    let name = format!("{command:?}");
    let finished = finish(command, limit);
    assert!(
        finished.status.success(),
        "{name}: {}\nstdout: {}\nstderr: {}",
        finished.status,
        tail(&finished.stdout),
        tail(&finished.stderr)
    );
    finished
}

fn collect(mut pipe: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn tail(text: &str) -> &str {
    let lines = text.lines().count();
    let cut = text
        .lines()
        .take(lines.saturating_sub(40))
        .map(|line| line.len() + 1)
        .sum::<usize>();
    text.get(cut..).unwrap_or(text)
}
