//! What a whole tree of processes used: the program is started by a small process of ours that waits
//! for it and for all it leaves behind, so that neither this program's own size nor an earlier run
//! stands in its figures.

use crate::cmd::bench::allocators::Allocator;
use crate::cmd::bench::child::Sample;
use crate::cmd::bench::process;
use crate::exit::{Failure, Outcome};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

/// The word behind `bench` by which the small process is told apart.
pub const WATCH: &str = "--watch";

/// A command line, with what is set for it.
pub struct Line {
    program: PathBuf,
    words: Vec<OsString>,
    variables: Vec<(OsString, OsString)>,
    folder: Option<PathBuf>,
    user: Option<u32>,
}

impl Line {
    pub(super) fn new(program: PathBuf) -> Line {
        Line {
            program,
            words: Vec::new(),
            variables: Vec::new(),
            folder: None,
            user: None,
        }
    }

    pub(super) fn word(mut self, word: impl Into<OsString>) -> Line {
        self.words.push(word.into());
        self
    }

    pub(super) fn words<W: Into<OsString>>(mut self, words: impl IntoIterator<Item = W>) -> Line {
        self.words.extend(words.into_iter().map(Into::into));
        self
    }

    pub(super) fn variable(mut self, name: &str, value: impl Into<OsString>) -> Line {
        self.variables.push((name.into(), value.into()));
        self
    }

    pub(super) fn inside(mut self, folder: &Path) -> Line {
        self.folder = Some(folder.to_owned());
        self
    }

    /// Runs as this user instead of root.
    pub(super) fn run_by(mut self, user: Option<u32>) -> Line {
        self.user = user;
        self
    }

    /// Runs on the C library's malloc, unmeasured, with `input` on its standard input.
    pub(super) fn plainly(self, input: Option<&[u8]>) -> Result<(), String> {
        let name = self.program.display().to_string();
        let failed = |error: std::io::Error| format!("{name}: {error}");
        let mut command = Command::new(&self.program);
        command.env_remove("LD_PRELOAD").args(&self.words);
        command
            .envs(self.variables)
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command.stdin(input.map_or_else(Stdio::null, |_| Stdio::piped()));
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        let mut child = command.spawn().map_err(failed)?;
        if let (Some(mut pipe), Some(input)) = (child.stdin.take(), input) {
            pipe.write_all(input).map_err(failed)?;
        }
        let output = child.wait_with_output().map_err(failed)?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().last().unwrap_or("no message");
        Err(format!("{name}: {}: {last}", output.status))
    }

    /// The command that runs the line on an allocator under the watch.
    pub(super) fn under_watch(&self, own: &Path, on: &Allocator) -> Command {
        let mut command = Command::new(own);
        command.env_remove("LD_PRELOAD").stdin(Stdio::null());
        let library = on.library.clone().unwrap_or_default();
        let user = self.user.map_or(String::new(), |user| user.to_string());
        command
            .args(["bench", WATCH])
            .arg(library)
            .arg(user)
            .arg(&self.program);
        command.args(&self.words);
        command.envs(on.environment().iter().copied());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        command
    }

    /// Runs it to its end and says what the tree used.
    pub(super) fn watched(&self, own: &Path, on: &Allocator) -> Result<Sample, String> {
        let used = process::finish(self.under_watch(own, on))?;
        sample(&used.output)
    }
}

/// What the small process says.
#[derive(Serialize, Deserialize)]
struct Watched {
    cpu_ms: f64,
    sys_ms: f64,
    wall_ms: f64,
    peak_rss_kib: u64,
    page_faults: u64,
}

/// A run's figures from the line of the small process.
pub(super) fn sample(line: &str) -> Result<Sample, String> {
    let watched: Watched = serde_json::from_str(line)
        .map_err(|error| format!("unreadable result {line:?}: {error}"))?;
    let sample = Sample {
        value: watched.cpu_ms,
        ns_per_op: None,
        peak_rss_kib: watched.peak_rss_kib,
        page_faults: watched.page_faults,
        ..Sample::default()
    };
    Ok(sample
        .with("cpu_ms", watched.cpu_ms)
        .with("sys_ms", watched.sys_ms)
        .with("wall_ms", watched.wall_ms))
}

/// The small process: library or nothing, user or nothing, program, its words.
pub fn watch(mut words: impl Iterator<Item = OsString>) -> Outcome {
    let (library, user) = (words.next(), words.next());
    let Some(program) = words.next() else {
        return Err(Failure::Usage("nothing to watch".into()));
    };
    let mut command = Command::new(&program);
    command.args(words).stdout(Stdio::null());
    if let Some(library) = library.filter(|library| !library.is_empty()) {
        command.env("LD_PRELOAD", library);
    }
    if let Some(user) = user.and_then(|user| user.to_str()?.parse().ok()) {
        command.uid(user).gid(user);
    }
    let die_with_us = || {
        // SAFETY: takes no pointers and is async-signal-safe.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        Ok(())
    };
    // SAFETY: the first closure only makes a system call; the call takes no pointers: what the program
    // leaves behind becomes our child.
    unsafe {
        command.pre_exec(die_with_us);
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
    }
    let start = Instant::now();
    let failed = |error| Failure::Finding(format!("{}: {error}", program.display()));
    let status = command.status().map_err(failed)?;
    let wall_ms = start.elapsed().as_nanos() as f64 / 1e6;
    // SAFETY: a null status is allowed; ends when no child is left.
    while unsafe { libc::waitpid(-1, std::ptr::null_mut(), 0) } > 0 {}
    if !status.success() {
        let how = match (status.code(), status.signal()) {
            (Some(code), _) => return Ok(ExitCode::from(code.clamp(1, 125) as u8)),
            (None, signal) => format!("killed by signal {}", signal.unwrap_or(0)),
        };
        return Err(Failure::Finding(format!("{}: {how}", program.display())));
    }
    let line = serde_json::to_string(&used(wall_ms));
    println!(
        "{}",
        line.map_err(|error| Failure::Finding(error.to_string()))?
    );
    Ok(ExitCode::SUCCESS)
}

/// What all children used that were waited for, by themselves or by us.
fn used(wall_ms: f64) -> Watched {
    // SAFETY: a rusage of zeroes is valid, and the call fills it.
    let used = unsafe {
        let mut used: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &mut used);
        used
    };
    let ms = |at: libc::timeval| at.tv_sec as f64 * 1e3 + at.tv_usec as f64 / 1e3;
    Watched {
        cpu_ms: ms(used.ru_utime) + ms(used.ru_stime),
        sys_ms: ms(used.ru_stime),
        wall_ms,
        peak_rss_kib: used.ru_maxrss as u64,
        page_faults: (used.ru_minflt + used.ru_majflt) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_fails_says_its_last_words() {
        let shell = |script: &str| Line::new("sh".into()).word("-c").word(script);
        shell("cat > /dev/null").plainly(Some(b"input")).unwrap();
        let why = shell("echo why >&2; exit 3").plainly(None).unwrap_err();
        assert!(
            why.contains("exit status: 3") && why.ends_with("why"),
            "{why}"
        );
    }

    #[test]
    fn the_line_of_the_small_process_is_a_sample() {
        let line =
            "{\"cpu_ms\":5.0,\"sys_ms\":1.0,\"wall_ms\":6.0,\"peak_rss_kib\":9,\"page_faults\":3}";
        let sample = sample(line).unwrap();
        assert_eq!((sample.value, sample.peak_rss_kib), (5.0, 9));
        assert!(super::sample("oops").unwrap_err().contains("oops"));
    }
}
