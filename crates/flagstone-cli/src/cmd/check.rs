//! `flagstone check`: is the allocator really in use, and if not, why.
//!
//! A running process is looked at from outside ([`crate::watch::target`]); a command is run to its end with the
//! library preloaded, and has been served if it left a report and did not become another program afterwards.

use super::run::child::await_end;
use super::run::last::Last;
use super::run::program::{self, Refusal};
use crate::exit::{Failure, Outcome};
use crate::preload;
use crate::watch::target::{self, Heap, Region};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, ExitCode};

/// Say whether a process or a command really runs on Flagstone, and if not, why.
///
/// Exit status: 0 in use, 1 not in use, 2 for a wrong call or a process that is gone or another
/// user's.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  flagstone check 4711
  flagstone check -- redis-server --version")]
pub struct Args {
    /// A running process
    #[arg(value_name = "PID", conflicts_with = "command")]
    pid: Option<u32>,
    /// Print one JSON document instead of text
    #[arg(long)]
    json: bool,
    /// A command to run to its end, with the library preloaded
    #[arg(last = true, value_name = "CMD", required_unless_present = "pid")]
    command: Vec<OsString>,
}

/// What was found, in the words that are printed.
#[derive(Serialize)]
struct Finding {
    schema: &'static str,
    pid: Option<u32>,
    in_use: bool,
    /// One sentence.
    verdict: String,
    /// What else is worth knowing, a line each.
    notes: Vec<String>,
}

/// Looks, prints, and answers by the exit status.
///
/// # Errors
/// A usage failure for a process that cannot be looked at and a command that cannot be run.
pub fn run(args: &Args) -> Outcome {
    let finding = match args.pid {
        Some(pid) => of_process(pid).map_err(|why| Failure::Usage(format!("check: {why}")))?,
        None => of_command(&args.command)?,
    };
    if args.json {
        let text = serde_json::to_string_pretty(&finding);
        println!("{}", text.map_err(|e| Failure::Usage(e.to_string()))?);
    } else {
        let word = if finding.in_use {
            "in use"
        } else {
            "not in use"
        };
        println!("{word}: {}", finding.verdict);
        for note in &finding.notes {
            println!("note: {note}");
        }
    }
    Ok(ExitCode::from(u8::from(!finding.in_use)))
}

fn finding(pid: Option<u32>, verdict: Result<String, String>, notes: Vec<String>) -> Finding {
    let in_use = verdict.is_ok();
    let (Ok(verdict) | Err(verdict)) = verdict;
    Finding {
        schema: "flagstone.check/1",
        pid,
        in_use,
        verdict,
        notes,
    }
}

/// A running process, and what it has mapped.
struct Process {
    pid: u32,
    regions: Vec<Region>,
}

impl Process {
    /// Names of mapped files.
    fn files(&self) -> impl Iterator<Item = &str> {
        self.regions.iter().map(Region::file_name)
    }

    /// The library under its own name.
    fn library(&self) -> Option<&str> {
        let names = ["libflagstone.so", "libflagstone-kernels.so"];
        let is_it = |region: &&Region| {
            names
                .iter()
                .any(|name| region.file_name().starts_with(name))
        };
        self.regions.iter().find(is_it).map(|region| &*region.name)
    }
}

fn of_process(pid: u32) -> Result<Finding, String> {
    let (regions, heaps) = target::heaps(pid)?;
    let process = Process { pid, regions };
    let others = other_allocators(&process);
    let built = heaps.iter().filter(|heap| heap.state != 0);
    let built: Vec<&Heap> = built.collect();
    let mut notes = Vec::new();
    // A library whose data nobody has written to yet has no beacon that can be told from its file.
    let library = process.library();
    let loaded = heaps.first().map(|heap| heap.file.as_str()).or(library);
    let verdict = match (built.first(), loaded) {
        (Some(heap), _) => {
            notes.extend(others.iter().map(|name| {
                format!("{name} is loaded too: what is called by its own names does not come here")
            }));
            if built.len() > 1 {
                notes.push(
                    "two heaps: the program has one linked in, and the library is preloaded".into(),
                );
            }
            notes.extend(why_locks(&process, heap));
            Ok(format!("flagstone {} from {}", heap.version, heap.file))
        }
        (None, Some(file)) => Err(match others.first() {
            Some(name) => {
                format!("{file} is loaded, but {name} comes before it and takes every call")
            }
            None => format!("{file} is loaded, but nothing has been allocated from it yet"),
        }),
        (None, None) => Err(why_absent(&process, &others)),
    };
    Ok(finding(Some(pid), verdict, notes))
}

/// Files of other allocators that the process has mapped.
fn other_allocators(process: &Process) -> Vec<String> {
    const NAMES: [&str; 10] = [
        "libjemalloc",
        "libmimalloc",
        "libtcmalloc",
        "libsnmalloc",
        "librpmalloc",
        "libhoard",
        "libmesh",
        "libscudo",
        "libhardened_malloc",
        "libasan",
    ];
    let mut found: Vec<String> = process
        .files()
        .filter(|file| NAMES.iter().any(|name| file.starts_with(name)))
        .map(String::from)
        .collect();
    found.dedup();
    found
}

fn has(process: &Process, start: &str) -> bool {
    process.files().any(|file| file.starts_with(start))
}

/// Why slots are reached by locks, if they are.
fn why_locks(process: &Process, heap: &Heap) -> Option<String> {
    let why = match heap.state {
        2 if has(process, "ld-musl") => "musl registers no restartable sequences",
        2 if variable(process.pid, "GLIBC_TUNABLES").is_some_and(|v| v.contains("rseq=0")) => {
            "GLIBC_TUNABLES switches restartable sequences off (glibc.pthread.rseq=0)"
        }
        2 => "the C library registered no restartable sequences (glibc 2.35 and Linux 4.18 do)",
        _ => return None,
    };
    Some(format!("one lock per CPU, slower than usual: {why}"))
}

/// Why the library is not in a process.
fn why_absent(process: &Process, others: &[String]) -> String {
    let pid = process.pid;
    let dynamic = has(process, "ld-linux") || has(process, "ld-musl") || has(process, "ld.so");
    if !dynamic && !has(process, "libc.so") {
        return "the program is static: no loader reads LD_PRELOAD; link libflagstone.a or the Rust crate".into();
    }
    if is_privileged(pid) {
        return "the program has more rights than its caller (setuid or file capabilities): the loader ignores LD_PRELOAD".into();
    }
    let asked = variable(pid, "LD_PRELOAD").unwrap_or_default();
    if asked.contains("libflagstone") {
        return format!(
            "LD_PRELOAD={asked} names the library, but the loader could not open it there (missing in this container, or of another machine)"
        );
    }
    let instead = others
        .first()
        .map_or(String::new(), |name| format!("; {name} is loaded instead"));
    match asked.as_str() {
        "" => format!(
            "LD_PRELOAD was not set when the program started, or was removed on the way{instead}"
        ),
        _ => format!(
            "LD_PRELOAD={asked} was set by somebody else and replaced the library{instead}; append instead"
        ),
    }
}

/// A variable of the environment a process was started with.
fn variable(pid: u32, name: &str) -> Option<String> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let prefix = format!("{name}=");
    let mut texts = environment.split(|&byte| byte == 0);
    let value = texts.find_map(|text| text.strip_prefix(prefix.as_bytes()))?;
    Some(String::from_utf8_lossy(value).into_owned())
}

/// Whether the kernel told the loader to trust nobody (`AT_SECURE`).
fn is_privileged(pid: u32) -> bool {
    let vector = fs::read(format!("/proc/{pid}/auxv")).unwrap_or_default();
    let (words, _) = vector.as_chunks::<8>();
    let words: Vec<u64> = words.iter().map(|word| u64::from_ne_bytes(*word)).collect();
    words
        .chunks_exact(2)
        .any(|pair| pair[0] == libc::AT_SECURE && pair[1] != 0)
}

fn of_command(command: &[OsString]) -> Result<Finding, Failure> {
    let program = match program::find(&command[0]) {
        Ok(program) => program,
        Err(Refusal::Code(_, line)) => {
            return Err(Failure::Usage(format!("check: {line}")));
        }
        Err(Refusal::Usage(line)) => {
            return Ok(finding(None, Err(line), Vec::new()));
        }
    };
    let library = preload::library_path(&preload::PRODUCT)?;
    let folder = tempfile::tempdir().map_err(|error| Failure::Usage(format!("check: {error}")))?;
    let mut list = library.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|list| !list.is_empty()) {
        list.push(":");
        list.push(others);
    }
    let mut child = Command::new(&program);
    child.args(&command[1..]).env("LD_PRELOAD", list);
    child.env("FLAGSTONE_RUN_REPORT", folder.path());
    let shown = || String::from_utf8_lossy(program.as_os_str().as_bytes()).into_owned();
    let failed = |error| Failure::Usage(format!("check: {}: {error}", shown()));
    let mut child = child.spawn().map_err(failed)?;
    let pid = child.id();
    let last = last_of(pid);
    let status = child.wait().map_err(failed)?;
    let report = fs::read(folder.path().join(format!("{pid}.json"))).ok();
    let verdict = match report.map(|bytes| serde_json::from_slice::<Report>(&bytes)) {
        Some(Ok(report))
            if !report.at_exit
                && last
                    .as_ref()
                    .is_some_and(|last| last.name != report.program) =>
        {
            let last = last.map(|last| (last.why(&library), last.name));
            let (why, name) = last.unwrap_or_default();
            Err(format!(
                "{} had the library and then became {name}, which has not: {why}",
                report.program
            ))
        }
        Some(_) => Ok(format!(
            "flagstone {} from {}",
            env!("CARGO_PKG_VERSION"),
            library.display()
        )),
        None => Err(format!(
            "{} did not load the library: it cleared LD_PRELOAD and started itself again, or its loader refused",
            shown()
        )),
    };
    let notes = (!status.success()).then(|| format!("the command itself ended with {status}"));
    Ok(finding(Some(pid), verdict, notes.into_iter().collect()))
}

/// What a check needs of the report that a served program leaves.
#[derive(Deserialize)]
struct Report {
    program: String,
    #[serde(rename = "final")]
    at_exit: bool,
}

/// Waits for the end of a child, which stays one: the last program that it was.
fn last_of(pid: u32) -> Option<Last> {
    await_end(pid as i32).ok()?;
    Last::of(pid)
}
