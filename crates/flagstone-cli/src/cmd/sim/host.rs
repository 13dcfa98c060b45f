//! `flagstone sim calibrate` and `flagstone sim validate`: the host itself.

use crate::args::Json;
use crate::exit::{Failure, Outcome};
use crate::outfile;
use crate::terminal::spaced;
use comfy_table::{Table, presets};
use flagstone_sim::Machine;
use flagstone_sim::host::validate::{self, Row};
use flagstone_sim::host::{profile, threads};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Wall time of one real run of a comparison.
const SPAN: Duration = Duration::from_millis(900);
/// The same under `--quick`.
const SPAN_QUICK: Duration = Duration::from_millis(300);
/// How often everything is measured and compared; once under `--quick`.
const PASSES: u64 = 3;

/// The document of `validate --json`.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    machine: &'a str,
    about: &'a str,
    /// Seconds since 1970.
    at: u64,
    /// Load averages before and after.
    load: [f64; 2],
    within: usize,
    /// Rows whose measurement may be quoted.
    calm: usize,
    /// How often everything was measured and compared; a row is its middle one.
    passes: usize,
    rows: &'a [Row],
}

fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let word = text.split_whitespace().next().unwrap_or_default();
    word.parse().unwrap_or(0.0)
}

/// Measure this host and write its profile, a TOML file for `--machine`: about 15 s.
#[derive(clap::Args)]
pub struct CalibrateArgs {
    /// The file; `-` is standard output
    #[arg(value_name = "F", default_value = "-")]
    pub(super) file: PathBuf,
}

/// Run the same programs on real threads here and on the virtual machine, and compare.
#[derive(clap::Args)]
pub struct ValidateArgs {
    /// Profile to hold against the host [default: one measured before each pass]
    #[arg(long, value_name = "M")]
    machine: Option<String>,
    /// One short pass
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    json: Json,
}

/// Measures the host and writes its profile to `path`; `-` is standard output.
pub(super) fn calibrate(path: &Path) -> Outcome {
    outfile::writable("sim", path)?;
    let before = load();
    let bar = crate::progress::spinner("measuring this host: {elapsed}");
    let found = profile::measure().map_err(|line| Failure::Finding(format!("sim: {line}")));
    bar.finish_and_clear();
    let found = found?;
    if before > threads::allowed().len() as f64 {
        eprintln!(
            "flagstone: sim: load average {before:.1}: the machine is busy; calibrate again when it is idle"
        );
    }
    for equation in &found.equations {
        let fit = equation.predicted(&found.prices) / equation.measured;
        if (fit - 1.0).abs() > validate::WITHIN {
            eprintln!(
                "flagstone: sim: {}, {}, {}: {:.1} ns here, the profile says {:.1}",
                equation.row.policy,
                equation.row.step,
                equation.part,
                equation.measured,
                equation.measured * fit
            );
        }
    }
    outfile::write("sim: calibrate", path, &found.text)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs the same programs here and on the virtual machine, and prints both.
pub(super) fn validate(args: &ValidateArgs) -> Outcome {
    let machine = args.machine.as_deref().map(super::machine).transpose();
    let machine = machine.map_err(super::usage)?;
    let (quick, json) = (args.quick, &args.json);
    outfile::all_writable("sim validate", json.path(), &[])?;
    let finding = |line| Failure::Finding(format!("sim: {line}"));
    let before = load();
    let cpus = threads::allowed().len().min(validate::CPUS_MOST) as u64;
    let (span, passes) = if quick {
        (SPAN_QUICK, 1)
    } else {
        (SPAN, PASSES)
    };
    let bar = super::progress(passes * (1 + cpus * 3 * validate::POLICIES.len() as u64));
    let mut all = Vec::new();
    let mut last = None;
    for _ in 0..passes {
        let machine = match &machine {
            Some(machine) => machine.clone(),
            None => profile::measure().map_err(finding)?.machine,
        };
        bar.inc(1);
        all.push(validate::compare(&machine, span, || bar.inc(1)).map_err(finding)?);
        last = Some(machine);
    }
    let machine = last.expect("one pass at least");
    let rows = validate::middle(&all);
    bar.finish_and_clear();
    let within = rows.iter().filter(|row| row.within).count();
    let calm = rows.iter().filter(|row| row.calm).count();
    let off = rows.iter().filter(|row| row.calm && !row.within).count();
    let load = [before, load()];
    if json.path().is_some() {
        let at = SystemTime::now().duration_since(UNIX_EPOCH);
        let document = Document {
            schema: "flagstone.validate/1",
            machine: &machine.name,
            about: &machine.about,
            at: at.map_or(0, |at| at.as_secs()),
            load,
            within,
            calm,
            passes: all.len(),
            rows: &rows,
        };
        super::write_json(json, &document)?;
    } else {
        print(&machine, &rows, all.len(), load);
    }
    if off > 0 {
        return Err(Failure::Finding(format!(
            "sim: {off} of {calm} rows are further than {:.0} % from what was measured",
            validate::WITHIN * 100.0
        )));
    }
    if calm < rows.len() {
        return Err(Failure::Usage(format!(
            "sim: the machine was too busy for {} of {} rows, which say nothing; run it again when \
             it is idle, or with the right to raise priorities",
            rows.len() - calm,
            rows.len()
        )));
    }
    Ok(ExitCode::SUCCESS)
}

/// What a row says.
fn verdict(row: &Row) -> &'static str {
    match (row.calm, row.within) {
        (false, _) => "too busy",
        (true, true) => "yes",
        (true, false) => "no",
    }
}

fn print(machine: &Machine, rows: &[Row], passes: usize, load: [f64; 2]) {
    println!(
        "{}: {}; load {:.1} before, {:.1} after",
        machine.name, machine.about, load[0], load[1]
    );
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "workload",
        "policy",
        "CPUs",
        "measured\nns",
        "simulated\nns",
        "ratio",
        "within\n25 %",
        "of calm\npasses",
        "program\nns",
        "pace",
        "line\nns",
    ]);
    for row in rows {
        table.add_row([
            row.workload.clone(),
            row.policy.to_owned(),
            row.cpus.to_string(),
            format!("{:.1}", row.measured_ns),
            format!("{:.1}", row.simulated_ns),
            format!("{:.2}", row.ratio),
            verdict(row).to_owned(),
            span_of(&row.ratios),
            format!("{:.1}", row.program_ns),
            format!("{:.2}", row.pace),
            row.line_ns.map_or(String::new(), |[before, after]| {
                format!(
                    "{before:.0} .. {after:.0}{}",
                    if row.still { "" } else { " !" }
                )
            }),
        ]);
    }
    println!("{}", spaced(table, |column| column > 1 && column != 6));
    if passes > 1 {
        println!("a row is the one with the middle ratio of its calm passes, of {passes}");
    }
    if rows.iter().any(|row| !row.still) {
        println!(
            "!  a line seldom took as long between the CPUs as before the run: the host moved them"
        );
    }
}

/// Least and greatest of the ratios, and how many there are.
fn span_of(ratios: &[f64]) -> String {
    match ratios {
        [] => String::new(),
        [one] => format!("{one:.2}"),
        [least, .., most] => format!("{}: {least:.2} .. {most:.2}", ratios.len()),
    }
}
