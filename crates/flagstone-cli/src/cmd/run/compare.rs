//! `flagstone run --compare A,B,… -- CMD`: the command on several allocators, in turns.
//!
//! ```text
//!   A B C │ A B C │ A B C …      the first round warms up and is not counted
//! ```
//!
//! The command's input is empty and its output is dropped: what many runs print together is of no
//! use. Every figure is the kernel's account of the ended process and of the children it waited for.

use super::settings::Settings;
use crate::args::Json;
use crate::cmd::bench::allocators::{self, Allocator};
use crate::cmd::bench::figures::Summary;
use crate::exit::{Failure, Outcome};
use crate::terminal::{Screen, size, unpadded, wrap};
use crate::{outfile, preload, progress, suggest};
use comfy_table::{Cell, CellAlignment, Table, presets};
use serde::Serialize;
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

/// What the command runs on.
struct Subject {
    name: String,
    library: Option<PathBuf>,
    variables: Vec<(OsString, OsString)>,
    removed: Vec<String>,
}

/// One run.
struct Run {
    wall_s: f64,
    cpu_s: f64,
    peak_kib: f64,
    minor_faults: f64,
    major_faults: f64,
    failed: bool,
}

/// A figure over all runs.
#[derive(Clone, Copy, Debug, Serialize)]
struct Figure {
    median: f64,
    min: f64,
    max: f64,
}

/// One allocator's figures.
#[derive(Debug, Serialize)]
struct Row {
    allocator: String,
    library: Option<PathBuf>,
    runs: usize,
    failed_runs: usize,
    wall_s: Figure,
    cpu_s: Figure,
    peak_rss_kib: Figure,
    /// The peak is not above this command's own size, of which the process began as a copy: it may
    /// be smaller.
    peak_is_bound: bool,
    minor_faults: Figure,
    major_faults: Figure,
}

#[derive(Debug, Serialize)]
struct Document {
    schema: &'static str,
    command: Vec<String>,
    rows: Vec<Row>,
}

/// Runs `command` `runs` times on each of `names`, in turns.
///
/// # Errors
/// A usage failure for an unknown allocator, a library that cannot be preloaded, or a program that
/// cannot be started.
pub fn run(
    names: &[String],
    runs: usize,
    (program, command): (&Path, &[OsString]),
    json: &Json,
) -> Outcome {
    let subjects = names.iter().map(|name| subject(name));
    let subjects = subjects.collect::<Result<Vec<Subject>, Failure>>()?;
    if let Some(file) = json.path() {
        outfile::writable("run: --json", file)?;
    }
    let bar = progress::bar(
        ((runs + 1) * subjects.len()) as u64,
        "{elapsed_precise} {bar:30} {pos}/{len} runs, {left}",
    );
    let mut all: Vec<Vec<Run>> = subjects.iter().map(|_| Vec::new()).collect();
    for round in 0..=runs {
        for (subject, found) in subjects.iter().zip(&mut all) {
            let one = match round {
                0 => warm_up(subject, program, command).map(|()| None)?,
                _ => Some(once(subject, program, command)?),
            };
            found.extend(one);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let rows = subjects.into_iter().zip(&all);
    let rows: Vec<Row> = rows.map(|(subject, found)| row(subject, found)).collect();
    let failed = rows.iter().any(|row| row.failed_runs > 0);
    let document = Document {
        schema: "flagstone.compare/1",
        command: command
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect(),
        rows,
    };
    if let Some(file) = json.path() {
        outfile::write_json("run: --json", file, &document)?;
    }
    if !json.to_stdout() {
        print!("{}", render(&document, Screen::of(&std::io::stdout(), 80)));
    }
    Ok(ExitCode::from(u8::from(failed)))
}

/// The allocator that `name` means: `glibc`, a library, one that `bench` finds, or a policy with any
/// `:key=value`.
fn subject(name: &str) -> Result<Subject, Failure> {
    let refuse = |why: String| Failure::Usage(format!("run: --compare {name}: {why}"));
    if name.contains('/') || name.ends_with(".so") {
        let library = Path::new(name)
            .canonicalize()
            .map_err(|_| refuse("no such library".into()))?;
        return Ok(preloaded(name.to_owned(), Some(library)));
    }
    let peers = allocators::peers();
    if let Some(peer) = peers.iter().find(|peer| peer.name == name) {
        return Ok(of_peer(peer));
    }
    let mut words = name.split(':');
    let policy = words.next().unwrap_or_default();
    let set: Vec<String> = words.map(str::to_owned).collect();
    let settings = Settings::of(Some(policy), &set).map_err(|failure| {
        let names = peers.iter().map(|peer| peer.name.as_str());
        match (failure, suggest::closest(name, names)) {
            (_, Some(near)) => refuse(format!("did you mean '{near}'?")),
            (Failure::Usage(line) | Failure::Finding(line), None) => {
                let why = line.split_once(": ").map_or(line.as_str(), |(_, why)| why);
                refuse(format!("{why}; allocators found here: {}", listed(&peers)))
            }
        }
    })?;
    let (variables, removed) = settings.variables();
    Ok(Subject {
        name: name.to_owned(),
        library: Some(preload::library_path(preload::serving(
            settings.policy_name(),
        ))?),
        variables: variables
            .into_iter()
            .map(|(key, value)| (key.into(), value))
            .collect(),
        removed,
    })
}

fn listed(peers: &[Allocator]) -> String {
    let names: Vec<&str> = peers.iter().map(|peer| peer.name.as_str()).collect();
    names.join(", ")
}

fn preloaded(name: String, library: Option<PathBuf>) -> Subject {
    Subject {
        name,
        library,
        variables: Vec::new(),
        removed: Vec::new(),
    }
}

fn of_peer(peer: &Allocator) -> Subject {
    let variables = peer.environment().iter();
    let variables = variables.map(|(key, value)| ((*key).into(), (*value).into()));
    Subject {
        variables: variables.collect(),
        ..preloaded(peer.name.clone(), peer.library.clone())
    }
}

fn prepared(subject: &Subject, program: &Path, words: &[OsString]) -> Command {
    let mut command = Command::new(program);
    command.arg0(&words[0]).args(&words[1..]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    for name in &subject.removed {
        command.env_remove(name);
    }
    command.envs(subject.variables.iter().cloned());
    if let Some(library) = &subject.library {
        command.env(
            "LD_PRELOAD",
            super::child::preload_list(std::slice::from_ref(library)),
        );
    }
    command
}

/// The first run: brings files into memory, and tells whether the loader took the library.
fn warm_up(subject: &Subject, program: &Path, words: &[OsString]) -> Result<(), Failure> {
    let start = |error: std::io::Error| not_run(program, &error);
    let mut command = prepared(subject, program, words);
    let mut child = command.stderr(Stdio::piped()).spawn().map_err(start)?;
    let mut said = Vec::new();
    if let Some(stderr) = &mut child.stderr {
        stderr.read_to_end(&mut said).map_err(start)?;
    }
    child.wait().map_err(start)?;
    let said = String::from_utf8_lossy(&said);
    match said
        .lines()
        .find(|line| line.contains("cannot be preloaded"))
    {
        Some(line) => Err(Failure::Usage(format!(
            "run: --compare {}: {line}",
            subject.name
        ))),
        None => Ok(()),
    }
}

fn not_run(program: &Path, error: &std::io::Error) -> Failure {
    Failure::Usage(format!("run: {}: {error}", program.display()))
}

fn once(subject: &Subject, program: &Path, words: &[OsString]) -> Result<Run, Failure> {
    let start = |error: std::io::Error| not_run(program, &error);
    let mut command = prepared(subject, program, words);
    let began = Instant::now();
    let child = command.stderr(Stdio::null()).spawn().map_err(start)?;
    let mut status = 0;
    // SAFETY: plain integers; all zeroes is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: two structures to fill; the process is our child, and nobody else waits for it.
    while unsafe { libc::wait4(child.id() as i32, &raw mut status, 0, &raw mut usage) } < 0 {
        let error = std::io::Error::last_os_error();
        if error.kind() != std::io::ErrorKind::Interrupted {
            return Err(start(error));
        }
    }
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    Ok(Run {
        wall_s: began.elapsed().as_secs_f64(),
        cpu_s: seconds(usage.ru_utime) + seconds(usage.ru_stime),
        peak_kib: usage.ru_maxrss as f64,
        minor_faults: usage.ru_minflt as f64,
        major_faults: usage.ru_majflt as f64,
        failed: status != 0,
    })
}

fn row(subject: Subject, runs: &[Run]) -> Row {
    let figure = |of: fn(&Run) -> f64| {
        let summary = Summary::of(runs.iter().map(of).collect());
        summary.map_or(
            Figure {
                median: 0.0,
                min: 0.0,
                max: 0.0,
            },
            |summary| Figure {
                median: summary.median,
                min: summary.min,
                max: summary.max,
            },
        )
    };
    let peak = figure(|run| run.peak_kib);
    Row {
        allocator: subject.name,
        library: subject.library,
        runs: runs.len(),
        failed_runs: runs.iter().filter(|run| run.failed).count(),
        wall_s: figure(|run| run.wall_s),
        cpu_s: figure(|run| run.cpu_s),
        peak_is_bound: peak.min <= super::child::own_rss_kib() as f64,
        peak_rss_kib: peak,
        minor_faults: figure(|run| run.minor_faults),
        major_faults: figure(|run| run.major_faults),
    }
}

/// Seconds with three digits that tell something.
fn seconds(value: f64) -> String {
    match value {
        0.0..1.0 => format!("{:.0} ms", value * 1000.0),
        1.0..100.0 => format!("{value:.2} s"),
        _ => format!("{value:.0} s"),
    }
}

fn spread(figure: Figure) -> String {
    match figure.median < 1.0 {
        true => format!("{:.0}..{:.0}", figure.min * 1000.0, figure.max * 1000.0),
        false => format!("{:.2}..{:.2}", figure.min, figure.max),
    }
}

fn render(document: &Document, screen: Screen) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let heads = [
        "allocator",
        "wall",
        "min..max",
        "CPU",
        "min..max",
        "peak",
        "faults",
    ];
    table.set_header(heads);
    for row in &document.rows {
        let peak = size((row.peak_rss_kib.median * 1024.0) as u64);
        let bound = if row.peak_is_bound { "≤ " } else { "" };
        let faults = row.minor_faults.median + row.major_faults.median;
        table.add_row([
            Cell::new(&row.allocator),
            Cell::new(seconds(row.wall_s.median)),
            Cell::new(spread(row.wall_s)),
            Cell::new(seconds(row.cpu_s.median)),
            Cell::new(spread(row.cpu_s)),
            Cell::new(format!("{bound}{peak}")),
            Cell::new(format!("{faults:.0}")),
        ]);
    }
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((if at == 0 { 0 } else { 1 }, 0));
        if at > 0 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut out = unpadded(&table) + "\n";
    let runs = document.rows.first().map_or(0, |row| row.runs);
    let mut notes = vec![format!(
        "Medians of {runs} runs each, in turns after one to warm up; peak is the largest process's. \
         The command's output was dropped."
    )];
    if document.rows.iter().any(|row| row.peak_is_bound) {
        notes.push("≤: not above this command's own size, so it may be smaller.".to_owned());
    }
    for row in document.rows.iter().filter(|row| row.failed_runs > 0) {
        notes.push(format!(
            "{}: {} of {} runs failed (exit status or signal).",
            row.allocator, row.failed_runs, row.runs
        ));
    }
    for note in notes {
        out.push_str(&wrap(&note, screen.width, 0));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocators_are_libraries_peers_or_policies_with_settings() {
        assert!(subject("glibc").unwrap().library.is_none());
        let own = subject("flagstone:sheaf_capacity=8").unwrap();
        assert!(own.library.is_some());
        let conf = own
            .variables
            .iter()
            .find(|(key, _)| key == "FLAGSTONE_CONF");
        assert!(conf.is_some_and(|(_, value)| value == "sheaf_capacity:8"));
        let refused = |name: &str| match subject(name) {
            Err(Failure::Usage(line)) => line,
            _ => panic!("{name} was accepted"),
        };
        assert!(refused("glibcc").contains("did you mean 'glibc'?"));
        assert!(refused("linux-6.4").contains("linux-6.1"));
        assert!(refused("/no/such.so").contains("no such library"));
        assert!(refused("flagstone:nonsense").contains("KEY=VALUE"));
    }

    #[test]
    fn times_are_short_and_keep_three_digits() {
        let shown = [0.0042, 0.5, 1.234, 250.4].map(seconds);
        assert_eq!(shown, ["4 ms", "500 ms", "1.23 s", "250 s"]);
    }
}
