//! `flagstone sim fit`: prices and think times from base rows, with every setting that was tried.
//!
//! `data/fits.toml` says what is fitted to what. A fit names published cells, whose figures come from the
//! table that `reproduce` has; cells that are not of the base are refused.

use super::usage;
use crate::args::Json;
use crate::cmd::reproduce::base_row;
use crate::exit::{Failure, Outcome};
use crate::outfile;
use crate::terminal::spaced;
use comfy_table::{Table, presets};
use flagstone_lab::fit::{self, BaseRow, Fit, THINK, Tried};
use flagstone_lab::{Cache, MODEL_VERSION, Options, names};
use flagstone_sim::Machine;
use serde::Serialize;
use std::collections::HashMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// What is fitted to what.
const FITS: &str = include_str!("../../../data/fits.toml");

/// Fit prices and think times to base rows: once for each machine and workload, never to patched rows.
///
/// Tries the settings in data/fits.toml, says how far each is from the published figures of the base, and
/// which is nearest. The program's profiles and workloads hold what was chosen; where one holds something
/// else, it is told.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  flagstone sim fit                            all fits: many minutes; runs are kept
  flagstone sim fit hackbench kbuild
  flagstone sim fit --log fits.jsonl --docs docs/fits.md

Exit status: 0 the program holds what was chosen; 1 it holds something else, or a run failed; 2 a wrong call.")]
pub struct FitArgs {
    /// Fits [default: all]
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Write every setting that was tried to F, one JSON object a line
    #[arg(long, value_name = "F")]
    log: Option<PathBuf>,
    /// Write the results as Markdown to F
    #[arg(long, value_name = "F")]
    docs: Option<PathBuf>,
    #[command(flatten)]
    json: Json,
    /// Runs at a time [default: the host's cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Make every run, keep none
    #[arg(long)]
    no_cache: bool,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    model_version: u32,
    tried: &'a [Tried],
    /// Where the program holds something else than was chosen.
    differs: &'a [String],
}

pub(super) fn run(args: &FitArgs) -> Outcome {
    let all = fit::parse(FITS).map_err(usage)?;
    let asked = |fit: &Fit| args.names.is_empty() || args.names.contains(&fit.name);
    if let Some(name) = args
        .names
        .iter()
        .find(|name| !all.iter().any(|fit| fit.name == **name))
    {
        let known: Vec<&str> = all.iter().map(|fit| &*fit.name).collect();
        let near = names::question(name, known.iter().copied());
        let known = known.join(", ");
        return Err(usage(format!("unknown fit `{name}`; {near}known: {known}")));
    }
    let others = [args.log.as_deref(), args.docs.as_deref()];
    outfile::all_writable("sim fit", args.json.path(), &others)?;
    let options = Options {
        cache: (!args.no_cache).then(Cache::of_user).flatten(),
        jobs: args.jobs.map(usize::from),
    };
    let mut machines: HashMap<&str, Machine> = HashMap::new();
    let mut tried = Vec::new();
    let spinner = crate::progress::spinner("{spinner} {msg}, {pos} runs, {elapsed}");
    // A fit that is asked for needs those before it on its machine.
    let needed = |index: usize, fit: &Fit| {
        asked(fit)
            || all[index..]
                .iter()
                .any(|later| asked(later) && later.machine == fit.machine)
    };
    for (index, one) in all.iter().enumerate() {
        if !needed(index, one) {
            continue;
        }
        spinner.set_message(one.name.clone());
        let machine = match machines.remove(&*one.machine) {
            Some(machine) => machine,
            None => names::machine(&one.machine).map_err(usage)?,
        };
        let rows = rows(one).map_err(usage)?;
        let found = fit::fit(one, &machine, &rows, &options, &|| spinner.inc(1));
        let found =
            found.map_err(|why| Failure::Finding(format!("sim fit: {}: {why}", one.name)))?;
        machines.insert(&one.machine, applied(machine, &found).map_err(usage)?);
        if asked(one) {
            tried.extend(found);
        }
    }
    spinner.finish_and_clear();
    let differs = differences(&all, &tried);
    if let Some(file) = &args.log {
        let lines = tried
            .iter()
            .map(|one| serde_json::to_string(one).expect("plain data") + "\n");
        outfile::write("sim fit", file, &lines.collect::<String>())?;
    }
    let text = markdown(&all, &tried);
    if let Some(file) = &args.docs {
        outfile::write("sim fit", file, &text)?;
    }
    let document = Document {
        schema: "flagstone.fit/1",
        model_version: MODEL_VERSION,
        tried: &tried,
        differs: &differs,
    };
    super::write_json(&args.json, &document)?;
    if !args.json.to_stdout() {
        print(&tried);
    }
    match differs.is_empty() {
        true => Ok(ExitCode::SUCCESS),
        false => Err(Failure::Finding(format!("sim fit: {}", differs.join("; ")))),
    }
}

/// What a fit's cells stand for.
fn rows(fit: &Fit) -> Result<Vec<BaseRow>, String> {
    let row = |cell: &String| base_row(cell, &fit.policy);
    let rows: Result<Vec<BaseRow>, String> = fit.cells.iter().map(row).collect();
    rows.map_err(|why| format!("fit `{}`: {why}", fit.name))
}

fn applied(mut machine: Machine, tried: &[Tried]) -> Result<Machine, String> {
    let chosen = tried.iter().filter(|one| one.chosen);
    for (what, value) in chosen
        .flat_map(|one| &one.setting)
        .filter(|(what, _)| what != THINK)
    {
        machine = fit::with(&machine, what, *value)?;
    }
    Ok(machine)
}

/// Where the program holds something else than the fits chose.
fn differences(fits: &[Fit], tried: &[Tried]) -> Vec<String> {
    let mut lines = Vec::new();
    for one in tried.iter().filter(|one| one.chosen) {
        let Some(fit) = fits.iter().find(|fit| fit.name == one.fit) else {
            continue;
        };
        for (what, value) in &one.setting {
            let held = match what.as_str() {
                THINK => names::workload(&fit.workload)
                    .ok()
                    .and_then(|known| known.fitted_think_ns),
                what => names::machine(&fit.machine)
                    .ok()
                    .and_then(|known| fit::figure(&known, what)),
            };
            if held != Some(*value) {
                let held = held.map_or("nothing".into(), |held| held.to_string());
                lines.push(format!(
                    "{}: {what} is {held} in the program, {value} is chosen",
                    fit.name
                ));
            }
        }
    }
    lines
}

/// A figure in as many digits as it needs.
fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        _ => format!("{value:.1}"),
    }
}

fn setting(one: &Tried) -> String {
    let parts = one
        .setting
        .iter()
        .map(|(what, value)| format!("{what} {value}"));
    parts.collect::<Vec<_>>().join(", ")
}

fn print(tried: &[Tried]) {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["fit", "settings tried", "nearest", "misfit"]);
    for one in tried.iter().filter(|one| one.chosen) {
        let count = tried.iter().filter(|other| other.fit == one.fit).count();
        let misfit = format!("{:.2}", one.misfit);
        table.add_row([one.fit.clone(), count.to_string(), setting(one), misfit]);
    }
    println!("{}", spaced(table, |column| column % 2 == 1));
}

fn markdown(fits: &[Fit], tried: &[Tried]) -> String {
    let mut text = format!(
        "# Fits: what was set by base rows\n\n\
         Written by `flagstone sim fit --docs docs/fits.md`; not by hand. Model version {MODEL_VERSION}, {} settings. \
         Only published rows of the base are used; a program test refuses others. The search begins in the middle of \
         every dial's values and depends on nothing else, so that it always ends in the same place. A misfit is the root mean square of \
         the rows' misses, each in units of the tolerance stated for its row.\n\n\
         Not fitted here: netio's scale, the price of a slab's page on `x86-2way-2008` (a greatest value of 50 runs), the shares of other data \
         that miss, and the seconds of S2's hackbench ([results](results.md#settings)).\n",
        tried.len()
    );
    for fit in fits {
        let of_fit: Vec<&Tried> = tried.iter().filter(|one| one.fit == fit.name).collect();
        if of_fit.is_empty() {
            continue;
        }
        let seeds = if fit.seeds == 1 {
            "one seed".into()
        } else {
            format!("{} seeds", fit.seeds)
        };
        let _ = write!(
            text,
            "\n## {}\n\n`{}` under `{}` on `{}`, {seeds}, window {}.\n\n|",
            fit.name, fit.workload, fit.policy, fit.machine, fit.window
        );
        for dial in &fit.dial {
            let _ = write!(text, " {} |", dial.what);
        }
        for cell in &fit.cells {
            let cell = cell.split(" | ").collect::<Vec<_>>();
            let _ = write!(text, " {}, {} |", cell[1], cell[2..].join(", "));
        }
        text.push_str(" misfit | |\n|");
        text.push_str(&"--:|".repeat(fit.dial.len() + fit.cells.len() + 1));
        text.push_str("---|\n|");
        text.push_str(" published |");
        text.push_str(&" |".repeat(fit.dial.len() - 1));
        for (_, published, _) in &of_fit[0].rows {
            let _ = write!(text, " {} |", short(*published));
        }
        text.push_str(" | |\n");
        for one in of_fit {
            text.push('|');
            for (_, value) in &one.setting {
                let _ = write!(text, " {value} |");
            }
            for (_, _, got) in &one.rows {
                let _ = write!(text, " {} |", short(*got));
            }
            let chosen = if one.chosen { "**chosen**" } else { "" };
            let _ = writeln!(text, " {:.3} | {chosen} |", one.misfit);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fit_names_rows_of_the_base_that_exist_and_prices_that_do() {
        for fit in fit::parse(FITS).unwrap() {
            assert_eq!(rows(&fit).unwrap().len(), fit.cells.len());
            let machine = names::machine(&fit.machine).unwrap();
            for dial in fit.dial.iter().filter(|dial| dial.what != THINK) {
                let held = fit::figure(&machine, &dial.what).unwrap();
                let (least, most) = (dial.values[0], dial.values[dial.values.len() - 1]);
                assert!(
                    (least..=most).contains(&held),
                    "{}: {}",
                    fit.name,
                    dial.what
                );
            }
            assert!(!fit.policy.contains('+'), "{}: a patched kernel", fit.name);
        }
    }

    #[test]
    fn a_patched_row_is_refused() {
        let mut fit = fit::parse(FITS).unwrap().remove(0);
        for cell in [
            "S0 | will-it-scale/mmap1 | 25% | patched",
            "S3 | kbuild | patch9 | build time",
        ] {
            fit.cells[0] = cell.into();
            let line = rows(&fit).unwrap_err();
            assert!(line.contains("no row of the base"), "{line}");
        }
    }

    #[test]
    fn profiles_and_workloads_hold_what_the_kept_log_chose() {
        let log = include_str!("../../../../../docs/fits.jsonl");
        let tried: Vec<Tried> = log
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let fits = fit::parse(FITS).unwrap();
        assert!(
            fits.iter()
                .all(|fit| tried.iter().any(|one| one.fit == fit.name && one.chosen))
        );
        assert_eq!(differences(&fits, &tried), Vec::<String>::new());
        assert_eq!(
            markdown(&fits, &tried),
            include_str!("../../../../../docs/fits.md")
        );
    }
}
