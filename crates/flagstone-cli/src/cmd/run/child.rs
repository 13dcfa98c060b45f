//! The command as a child: started with the library, its signals forwarded, its end awaited.

use super::last::Last;
use super::looks::Looks;
use super::timeline::{Point, Watch, coarse_ns};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::SeqCst};
use std::time::Instant;

/// How to start.
pub struct Start<'a> {
    /// The file.
    pub program: &'a Path,
    /// The command as given: its name and arguments.
    pub command: &'a [OsString],
    /// Libraries to preload, first come first served.
    pub preload: &'a [PathBuf],
    /// Variables to set, and those without a value to remove.
    pub variables: &'a [(OsString, Option<OsString>)],
    /// Where the command's standard output goes.
    pub output: Output,
    /// Where its processes leave their documents, if these are to be completed from outside.
    pub documents: Option<&'a Path>,
}

/// Where the command's standard output goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Where ours goes.
    Own,
    /// To standard error: ours is taken by a document.
    Error,
    /// Nowhere, nor its standard error, and its input is empty: it only runs to be measured.
    Nowhere,
}

/// A child that ended.
#[derive(Debug)]
pub struct Ended {
    /// Its process number.
    pub process: i32,
    /// As `wait` gives it.
    status: i32,
    /// Seconds from start to end.
    pub wall_s: f64,
    /// Seconds of processor time, its children's included: for the program, for the system.
    pub cpu_s: (f64, f64),
    /// When it was started, on the clock of samples.
    pub began_ns: u64,
    /// Its resident size over time.
    pub resident: Vec<Point>,
    /// What was seen of its processes from outside.
    pub looks: Option<Looks>,
    /// Largest resident size of it or any child it waited for, in KiB, as the kernel counts: this
    /// program's own size included, since the child begins as a copy of it.
    pub max_rss_kib: u64,
    /// This program's own largest resident size at the start, in KiB.
    pub own_rss_kib: u64,
    /// The last program that it was.
    pub last: Option<Last>,
}

/// A child that could not be started: exit status and the line that says why.
#[derive(Debug)]
pub struct NotStarted {
    /// Exit status.
    pub code: u8,
    /// What to print.
    pub line: String,
}

impl Ended {
    /// The status to pass on: the child's, or 128 + n after signal n.
    pub fn code(&self) -> u8 {
        match self.signal() {
            Some(signal) => 128 + signal as u8,
            None => libc::WEXITSTATUS(self.status) as u8,
        }
    }

    /// Whether somebody ended it from outside.
    pub fn was_interrupted(&self) -> bool {
        let by = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];
        self.signal().is_some_and(|signal| by.contains(&signal))
    }

    /// The signal that ended the child.
    pub fn signal(&self) -> Option<i32> {
        libc::WIFSIGNALED(self.status).then(|| libc::WTERMSIG(self.status))
    }
}

/// Starts the command, forwards signals to it, and waits for its end.
///
/// # Errors
/// If it cannot be started.
pub fn run(start: &Start<'_>) -> Result<Ended, NotStarted> {
    let mut command = Command::new(start.program);
    command.arg0(&start.command[0]).args(&start.command[1..]);
    for (name, value) in start.variables {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.env("LD_PRELOAD", preload_list(start.preload));
    if start.output == Output::Error {
        let error = io::stderr().as_fd().try_clone_to_owned();
        command.stdout(error.map_err(|error| not_started(start, &error))?);
    }
    if start.output == Output::Nowhere {
        command.stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
    }
    let own_rss_kib = own_rss_kib();
    forward_signals();
    let began = Instant::now();
    let began_ns = coarse_ns();
    let child = command
        .spawn()
        .map_err(|error| not_started(start, &error))?;
    let process = child.id() as i32;
    address_to(process);
    let watch = Watch::start(process, start.documents.map(Looks::new));
    let ended = wait(process, own_rss_kib, began);
    let (resident, looks) = watch.stop(began_ns);
    let ended = ended.map(|ended| Ended {
        began_ns,
        resident,
        looks,
        ..ended
    });
    ended.map_err(|error| NotStarted {
        code: 2,
        line: format!("waiting for {}: {error}", start.program.display()),
    })
}

/// The libraries before what is preloaded already.
pub fn preload_list(libraries: &[PathBuf]) -> OsString {
    let others = std::env::var_os("LD_PRELOAD").filter(|list| !list.is_empty());
    let all: Vec<OsString> = libraries
        .iter()
        .map(|library| library.as_os_str().to_owned())
        .chain(others)
        .collect();
    all.join(OsStr::new(":"))
}

fn not_started(start: &Start<'_>, error: &io::Error) -> NotStarted {
    let code = if error.kind() == io::ErrorKind::NotFound {
        127
    } else {
        126
    };
    NotStarted {
        code,
        line: format!("{}: {error}", start.program.display()),
    }
}

/// This program's own largest resident size, in KiB.
pub fn own_rss_kib() -> u64 {
    // SAFETY: plain integers; all zeroes is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: a structure to fill.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    usage.ru_maxrss as u64
}

/// Waits until a child has ended, and leaves it to be waited for.
///
/// # Errors
/// The system's.
pub fn await_end(process: i32) -> io::Result<()> {
    loop {
        // SAFETY: plain integers; all zeroes is a value.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let flags = libc::WEXITED | libc::WNOWAIT;
        // SAFETY: a structure to fill.
        let result = unsafe { libc::waitid(libc::P_PID, process as u32, &raw mut info, flags) };
        if result == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

fn wait(process: i32, own_rss_kib: u64, began: Instant) -> io::Result<Ended> {
    // Only looks, so that the number stays the child's until no signal can be sent to it.
    await_end(process)?;
    let wall_s = began.elapsed().as_secs_f64();
    let last = Last::of(process as u32);
    CHILD.store(0, SeqCst);
    let mut status = 0;
    // SAFETY: plain integers; all zeroes is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: two structures to fill; the child has ended, so this does not wait.
    if unsafe { libc::wait4(process, &raw mut status, 0, &raw mut usage) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    Ok(Ended {
        process,
        status,
        wall_s,
        cpu_s: (seconds(usage.ru_utime), seconds(usage.ru_stime)),
        began_ns: 0,
        resident: Vec::new(),
        looks: None,
        max_rss_kib: usage.ru_maxrss as u64,
        own_rss_kib,
        last,
    })
}

/// Signals passed on to the command.
const FORWARDED: [i32; 9] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGWINCH,
    libc::SIGALRM,
    libc::SIGCONT,
];

/// The command's process number while it runs.
static CHILD: AtomicI32 = AtomicI32::new(0);
/// Signals that came before the command had a number, as bits.
static EARLY: AtomicU64 = AtomicU64::new(0);

extern "C" fn forward(signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // A terminal sends its signals to the whole foreground group: the command has got them.
    // SAFETY: the kernel hands a filled structure to a handler that asked for one.
    if unsafe { (*info).si_code } == SI_KERNEL {
        return;
    }
    match CHILD.load(SeqCst) {
        0 => {
            EARLY.fetch_or(1 << signal, SeqCst);
        }
        // SAFETY: sending a signal has no memory effects; the process is our child.
        child => unsafe {
            libc::kill(child, signal);
        },
    }
}

/// `si_code` of signals that the kernel itself sends.
const SI_KERNEL: i32 = 0x80;

fn forward_signals() {
    for signal in FORWARDED {
        // SAFETY: plain integers; all zeroes is a value.
        let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: asks for the present action.
        unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut before) };
        if before.sa_sigaction == libc::SIG_IGN {
            // Ignored by whoever started us (nohup): so it stays, for the command too.
            continue;
        }
        // SAFETY: as above.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = forward as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        // SAFETY: the handler only uses atomics and `kill`.
        unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    }
}

/// From now on signals go to `process`, those that came early first.
fn address_to(process: i32) {
    CHILD.store(process, SeqCst);
    let early = EARLY.swap(0, SeqCst);
    for signal in FORWARDED {
        if early & 1 << signal != 0 {
            // SAFETY: as in `forward`.
            unsafe { libc::kill(process, signal) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(status: i32) -> Ended {
        Ended {
            process: 1,
            status,
            wall_s: 0.0,
            cpu_s: (0.0, 0.0),
            began_ns: 0,
            resident: Vec::new(),
            looks: None,
            max_rss_kib: 0,
            own_rss_kib: 0,
            last: None,
        }
    }

    #[test]
    fn statuses_are_passed_on_and_signals_count_from_128() {
        assert_eq!(ended(0).code(), 0);
        assert_eq!(ended(3 << 8).code(), 3);
        assert_eq!(ended(255 << 8).code(), 255);
        assert_eq!(ended(libc::SIGKILL).code(), 137);
        assert_eq!(ended(libc::SIGSEGV | 0x80).code(), 139);
        assert_eq!(ended(libc::SIGTERM).signal(), Some(15));
    }
}
