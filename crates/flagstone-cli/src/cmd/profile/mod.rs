//! `flagstone profile`: where a program's memory comes from, by samples.
//!
//! ```text
//!   attach   a process that runs: its switch, its tables      raw      the tables, from a process or a file
//!   sites    named, weighed, scaled                           symbols  addresses → functions and lines
//!   pprof · folded   files for other tools                    view     the same as text and as JSON
//! ```
//!
//! `run --profile` comes through [`of_run`].

mod attach;
mod folded;
mod pprof;
mod raw;
mod sites;
mod symbols;
mod view;

use crate::args::JsonBeside;
use crate::exit::{Failure, Outcome};
use crate::{outfile, suggest};
pub use folded::Of;
use raw::Raw;
use sites::Sites;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};
use symbols::Symbols;

/// Mean bytes between samples where nobody says another number.
const INTERVAL: &str = "512K";

/// Show which places in a program its memory comes from, by samples.
///
/// TARGET is a running process on Flagstone, which is sampled for a while and then left as it was, or the
/// file that FLAGSTONE_PROFILE=F left. The files open in `go tool pprof`, speedscope and flame graphs;
/// docs/profiles.md says how exact the figures are.
///
/// Exit status: 0 fine, 2 for a wrong call, or a process that is gone, another user's, idle, or not on Flagstone.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  flagstone profile 4711 --for 30s -o heap.pb.gz
  go tool pprof -http=: heap.pb.gz
  flagstone run --profile heap.pb.gz -- python3 service.py
  FLAGSTONE_PROFILE=heap.raw LD_PRELOAD=libflagstone.so CMD; flagstone profile heap.raw")]
pub struct Args {
    /// A process number, or a file that the library left
    #[arg(value_name = "TARGET")]
    target: String,
    /// How long to sample a process: 500ms, 30s, 5m
    #[arg(long = "for", value_name = "TIME", default_value = "30s", value_parser = duration)]
    time: Duration,
    /// Mean bytes between samples of a process: half of it costs twice as much
    #[arg(long, value_name = "BYTES", default_value = INTERVAL, value_parser = interval)]
    interval: u64,
    /// Write the profile to F in pprof's format, compressed
    #[arg(short, long, value_name = "F")]
    output: Option<PathBuf>,
    /// Write folded stacks to F, for flame graphs and speedscope
    #[arg(long, value_name = "F")]
    folded: Option<PathBuf>,
    /// Which bytes folded stacks count
    #[arg(long, value_name = "WHICH", default_value = "live")]
    of: Of,
    #[command(flatten)]
    json: JsonBeside,
    /// Places shown
    #[arg(long, value_name = "N", default_value_t = 12)]
    top: usize,
}

/// Takes or reads the profile and writes it.
///
/// # Errors
/// A usage failure: see the command's text.
pub fn run(args: &Args) -> Outcome {
    let others = [args.output.as_deref(), args.folded.as_deref()];
    outfile::all_writable("profile", args.json.path(), &others)?;
    let (sites, notes) = match args.target.parse() {
        Ok(pid) => {
            let window = attach::take(pid, args.interval, args.time)?;
            let root = PathBuf::from(format!("/proc/{pid}/root"));
            (named(window.raw, &root, false), window.notes)
        }
        Err(_) => (of_file(Path::new(&args.target))?, Vec::new()),
    };
    let mut all = [sites];
    write(&mut all, "profile", args.output.as_deref())?;
    if let Some(file) = &args.folded {
        outfile::write("profile: --folded", file, &folded::text(&mut all, args.of))?;
    }
    if let Some(file) = args.json.path() {
        outfile::write_json("profile: --json", file, &view::document(&mut all))?;
    }
    if !args.json.to_stdout() {
        view::print(&mut all, &notes, args.top);
    }
    Ok(ExitCode::SUCCESS)
}

fn of_file(path: &Path) -> Result<Sites, Failure> {
    let shown = path.display();
    let failed = |why: String| Failure::Usage(format!("profile: {shown}: {why}"));
    let bytes = std::fs::read(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            failed("neither a process number nor a file that is there".to_owned())
        }
        _ => failed(error.to_string()),
    })?;
    if bytes.starts_with(&[0x1F, 0x8B]) {
        return Err(failed(
            "it is compressed, a profile for `go tool pprof` already".to_owned(),
        ));
    }
    if !raw::is_raw(&bytes) {
        return Err(failed(
            "no profile of Flagstone's; give the file that FLAGSTONE_PROFILE named".to_owned(),
        ));
    }
    let tables = raw::of_file(&bytes).map_err(failed)?;
    Ok(named(tables, Path::new("/"), true))
}

/// The tables with names. `is_from_start` says whether all that is live was seen.
fn named(tables: Raw, root: &Path, is_from_start: bool) -> Sites {
    let mappings = symbols::mappings(&tables.maps);
    let program = mappings
        .iter()
        .find(|mapping| mapping.name.starts_with('/'));
    let program = program.and_then(|mapping| mapping.name.rsplit('/').next());
    let title = format!("{} ({})", program.unwrap_or("process"), tables.process);
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let symbols = Symbols::new(mappings, root.to_owned());
    let mut sites = Sites::new(tables, symbols, title, is_from_start);
    let duration = Duration::from_nanos(sites.duration_ns);
    let began = wall.unwrap_or_default().saturating_sub(duration);
    sites.wall_ns = began.as_nanos() as i64;
    sites
}

/// Writes pprof's format, or folded stacks to a file whose name says so.
fn write(all: &mut [Sites], command: &str, file: Option<&Path>) -> Result<(), Failure> {
    let Some(file) = file else { return Ok(()) };
    let failed =
        |error: std::io::Error| Failure::Usage(format!("{command}: {}: {error}", file.display()));
    if file.extension().is_some_and(|kind| kind == "folded") {
        return outfile::write(command, file, &folded::text(all, Of::Live));
    }
    let bytes = pprof::encode(all).map_err(failed)?;
    match file.exists() && !file.is_file() {
        true => std::fs::write(file, bytes).map_err(failed),
        false => outfile::whole(file, &bytes).map_err(failed),
    }
}

/// The variables that have the library profile a command and its children into `folder`.
pub fn variables(folder: &Path, interval: Option<u64>) -> Vec<(&'static str, std::ffi::OsString)> {
    let mut variables = vec![("FLAGSTONE_PROFILE", folder.join("%p").into_os_string())];
    if let Some(mean) = interval {
        variables.push(("FLAGSTONE_PROFILE_INTERVAL", mean.to_string().into()));
    }
    variables
}

/// What a command and its children left in `folder`, as one file, and shown: the command's own process first.
///
/// Processes without a sample leave nothing. If none left anything, the file is a profile without places, unless `lost` says why
/// there is none to be had.
///
/// # Errors
/// A usage failure: the file cannot be written.
pub fn of_run(
    (folder, process): (&Path, i32),
    file: &Path,
    is_quiet: bool,
    lost: Option<&str>,
) -> Result<(), Failure> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let bytes = std::fs::read(entry.path()).unwrap_or_default();
        if let Ok(tables) = raw::of_file(&bytes)
            && (tables.samples > 0 || tables.process == process as u64)
        {
            all.push(named(tables, Path::new("/"), true));
        }
    }
    all.sort_by_key(|sites| (sites.raw.process != process as u64, sites.raw.process));
    let is_empty = all.is_empty();
    if let Some(why) = lost.filter(|_| is_empty) {
        eprintln!("flagstone: run: --profile: the command left no profile: {why}");
        return Ok(());
    }
    write(&mut all, "run: --profile", Some(file))?;
    if is_empty {
        eprintln!(
            "flagstone: run: --profile: no sample: the command allocated too little for one; a smaller --profile-interval takes more"
        );
    } else if !is_quiet {
        view::print_run(&mut all, file);
    }
    Ok(())
}

/// A time such as `500ms`, `30s`, `5m`.
fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: f64 = digits.parse().map_err(|_| wrong_time())?;
    let seconds = match &text[digits.len()..] {
        "ms" => number / 1e3,
        "s" | "" => number,
        "m" => number * 60.0,
        "h" => number * 3600.0,
        _ => return Err(wrong_time()),
    };
    match (0.01..=86_400.0).contains(&seconds) {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err("from 10ms to 24h".to_owned()),
    }
}

fn wrong_time() -> String {
    "a number and ms, s, m or h, such as 30s".to_owned()
}

/// A number of bytes such as `512K`.
pub fn interval(text: &str) -> Result<u64, String> {
    let bytes = suggest::bytes(text).ok_or("a number of bytes that may end in K, M, G or T")?;
    match (4 << 10..=1 << 40).contains(&bytes) {
        true => Ok(bytes),
        false => Err("from 4K to 1T bytes".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_intervals_have_units() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("7"), Ok(Duration::from_secs(7)));
        for wrong in ["", "s", "1y", "0s", "1e9h", "-1s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
        assert_eq!(interval("512K"), Ok(512 << 10));
        for most in ["1T", "1t", "1024G"] {
            assert_eq!(interval(most), Ok(1 << 40), "{most}");
        }
        for wrong in ["", "K", "1", "2T", "1P", "99999999999G", "99999999999T"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }
}
