//! Starting one measured process and waiting for what it used.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use super::allocators::Allocator;
use super::child::process::kib_field;

/// Seconds after which a measured process is taken for hung and killed.
const LIMIT_S: u32 = 600;

/// What a finished process used.
#[derive(Clone, Debug, Default)]
pub struct Used {
    /// Its standard output.
    pub output: String,
    /// User and system time, ns.
    pub cpu_ns: f64,
    /// Largest resident size as wait4 reports it, KiB; never below the size of this program.
    pub peak_rss_kib: u64,
    /// Minor and major page faults.
    pub page_faults: u64,
}

/// A command with the allocator preloaded and nothing else of this process's preloads.
pub fn command(program: impl AsRef<OsStr>, allocator: &Allocator) -> Command {
    let mut command = Command::new(program);
    command.env_remove("LD_PRELOAD").stdin(Stdio::null());
    if let Some(library) = &allocator.library {
        command.env("LD_PRELOAD", library);
    }
    for (name, value) in allocator.environment() {
        command.env(name, value);
    }
    command
}

/// Kills the process from inside after [`LIMIT_S`]: an alarm survives exec.
pub fn limit(command: &mut Command) {
    let arm = || {
        // SAFETY: alarm has no obligations and is async-signal-safe.
        unsafe { libc::alarm(LIMIT_S) };
        Ok(())
    };
    // SAFETY: the closure only calls an async-signal-safe function.
    unsafe { command.pre_exec(arm) };
}

/// Runs to the end; an exit status other than 0 is an error with the process's last line.
pub fn finish(mut command: Command) -> Result<Used, String> {
    limit(&mut command);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    let mut errors = child.stderr.take().expect("stderr is a pipe");
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        errors
            .read_to_end(&mut text)
            .map(|_| text)
            .unwrap_or_default()
    });
    let mut output = Vec::new();
    let mut pipe = child.stdout.take().expect("stdout is a pipe");
    pipe.read_to_end(&mut output)
        .map_err(|error| format!("reading a run: {error}"))?;
    let errors = reader.join().expect("the reader of stderr ends");
    let (status, usage) = wait(child.id())?;
    if status != 0 {
        let text = String::from_utf8_lossy(&errors);
        let last = text
            .lines()
            .rev()
            .find(|line| !line.trim().is_empty())
            .unwrap_or("no message");
        return Err(format!("{}: {last}", ending(status)));
    }
    let time = |at: libc::timeval| at.tv_sec as f64 * 1e9 + at.tv_usec as f64 * 1e3;
    Ok(Used {
        output: String::from_utf8_lossy(&output).into_owned(),
        cpu_ns: time(usage.ru_utime) + time(usage.ru_stime),
        peak_rss_kib: usage.ru_maxrss as u64,
        page_faults: (usage.ru_minflt + usage.ru_majflt) as u64,
    })
}

fn wait(pid: u32) -> Result<(i32, libc::rusage), String> {
    let mut status = 0;
    // SAFETY: a rusage of zeroes is valid, and both pointers are valid for writing.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        loop {
            if libc::wait4(pid as libc::pid_t, &mut status, 0, &mut usage) >= 0 {
                return Ok((status, usage));
            }
            let error = std::io::Error::last_os_error();
            if error.kind() != std::io::ErrorKind::Interrupted {
                return Err(format!("waiting for a run: {error}"));
            }
        }
    }
}

fn ending(status: i32) -> String {
    if libc::WIFSIGNALED(status) {
        let signal = libc::WTERMSIG(status);
        let why = if signal == libc::SIGALRM {
            " (hung)"
        } else {
            ""
        };
        return format!("killed by signal {signal}{why}");
    }
    format!("exit {}", libc::WEXITSTATUS(status))
}

/// Memory of a process at the moment it exits.
#[derive(Clone, Copy, Debug, Default)]
pub struct AtExit {
    /// Resident pages, KiB.
    pub rss_kib: u64,
    /// Resident pages that nobody shares, KiB.
    pub private_kib: u64,
}

/// Runs the command under ptrace to its exit and reads `smaps_rollup` there: the exact resident
/// size of a program too short-lived to be looked at otherwise.
pub fn memory_at_exit(mut command: Command) -> Result<AtExit, String> {
    limit(&mut command);
    let trace_me = || {
        // SAFETY: PTRACE_TRACEME takes no pointers and is async-signal-safe.
        if unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
        Ok(())
    };
    // SAFETY: the closure only makes one system call.
    unsafe { command.pre_exec(trace_me) };
    let child = command
        .spawn()
        .map_err(|error| format!("tracing a run: {error}"))?;
    let pid = child.id() as libc::pid_t;
    let options = libc::PTRACE_O_TRACEEXIT | libc::PTRACE_O_EXITKILL;
    let (mut prepared, mut found) = (false, AtExit::default());
    loop {
        let (status, _) = wait(child.id())?;
        if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
            return if status == 0 {
                Ok(found)
            } else {
                Err(ending(status))
            };
        }
        let mut deliver = libc::WSTOPSIG(status);
        if !prepared {
            // SAFETY: the child is stopped at its exec; the option word is passed by value.
            unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, pid, 0, options) };
            (prepared, deliver) = (true, 0);
        } else if status >> 8 == libc::SIGTRAP | (libc::PTRACE_EVENT_EXIT << 8) {
            found = rollup(pid).unwrap_or_default();
            deliver = 0;
        }
        // SAFETY: the child is stopped; the signal number is passed by value.
        unsafe { libc::ptrace(libc::PTRACE_CONT, pid, 0, deliver) };
    }
}

fn rollup(pid: libc::pid_t) -> Option<AtExit> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let private = kib_field(&text, "Private_Clean:")? + kib_field(&text, "Private_Dirty:")?;
    Some(AtExit {
        rss_kib: kib_field(&text, "Rss:")?,
        private_kib: private,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain() -> Allocator {
        Allocator {
            name: "glibc".into(),
            version: String::new(),
            library: None,
            unusable: None,
        }
    }

    #[test]
    fn a_finished_process_leaves_output_time_and_faults() {
        let mut echo = command("sh", &plain());
        echo.args(["-c", "echo done"]);
        let used = finish(echo).unwrap();
        assert_eq!(used.output, "done\n");
        assert!(used.page_faults > 0);
    }

    #[test]
    fn a_failed_process_says_its_last_line() {
        let mut fail = command("sh", &plain());
        fail.args(["-c", "echo first >&2; echo second >&2; exit 3"]);
        assert_eq!(finish(fail).unwrap_err(), "exit 3: second");
    }

    #[test]
    fn memory_is_read_at_the_exit_of_true() {
        let at_exit = memory_at_exit(command("true", &plain())).unwrap();
        assert!(at_exit.rss_kib > 100, "{at_exit:?}");
        assert!(at_exit.private_kib < at_exit.rss_kib, "{at_exit:?}");
    }
}
