//! `flagstone sim pagesets`: page events of a real kernel through the pageset rules of a policy.

use super::usage;
use crate::args::Json;
use crate::exit::Outcome;
use crate::outfile;
use crate::terminal::spaced;
use comfy_table::{Table, presets};
use flagstone_lab::names;
use flagstone_lab::pagesets::{Report, Score, built_in, play, read};
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;

/// Hold the pageset rules of a policy against page events of a real kernel.
///
/// Refills and drains must come at the same events with the same pages. Each line says how many did, of
/// all; in brackets of those that are scored, which ends where tasks that emit no events have changed a
/// pageset. docs/design/simulator.md says how events are read.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  flagstone sim pagesets                          recordings of Linux 6.18 that the program carries
  flagstone sim pagesets run.csv.zst --policy linux-6.18     with run.zoneinfo0 beside it
  flagstone sim pagesets --policy linux-6.1       rules that this kernel does not have")]
pub struct PagesetsArgs {
    /// Recordings: NAME.csv or NAME.csv.zst with NAME.zoneinfo0 beside it [default: those built in]
    #[arg(value_name = "F")]
    files: Vec<PathBuf>,
    /// Whose rules
    #[arg(long, value_name = "P", default_value = "linux-6.18")]
    policy: String,
    #[command(flatten)]
    json: Json,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    policy: &'a str,
    traces: &'a [Report],
}

pub(super) fn run(args: &PagesetsArgs) -> Outcome {
    let (name, policy) = names::policy(&args.policy).map_err(usage)?;
    outfile::all_writable("sim pagesets", args.json.path(), &[])?;
    let mut traces = Vec::new();
    for file in &args.files {
        traces.extend(read(file).map_err(|why| usage(format!("pagesets: {why}")))?);
    }
    if args.files.is_empty() {
        traces = built_in();
    }
    let bar = super::progress(traces.len() as u64);
    let played = traces.iter().map(|trace| {
        let report = play(trace, &policy);
        bar.inc(1);
        report
    });
    let reports: Vec<Report> = played.collect();
    bar.finish_and_clear();
    if args.json.path().is_some() {
        let document = Document {
            schema: "flagstone.pagesets/1",
            policy: &name,
            traces: &reports,
        };
        return super::write_json(&args.json, &document);
    }
    print(&name, &reports);
    Ok(ExitCode::SUCCESS)
}

fn figures(score: Score) -> String {
    format!(
        "{} / {} ({} / {})",
        score.matched, score.all, score.matched_of_scored, score.scored
    )
}

fn sum(reports: &[Report], of: fn(&Report) -> Score) -> Score {
    reports
        .iter()
        .map(of)
        .fold(Score::default(), |all, one| Score {
            all: all.all + one.all,
            matched: all.matched + one.matched,
            scored: all.scored + one.scored,
            matched_of_scored: all.matched_of_scored + one.matched_of_scored,
        })
}

fn print(policy: &str, reports: &[Report]) {
    println!("pagesets under the rules of {policy}: matched / all (of those scored)");
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["recording", "events", "refills", "drains", "blind"]);
    for report in reports {
        table.add_row([
            report.name.clone(),
            report.events.to_string(),
            figures(report.refills),
            figures(report.drains),
            report.blind_windows.to_string(),
        ]);
    }
    if reports.len() > 1 {
        let events: usize = reports.iter().map(|report| report.events).sum();
        let all = [
            sum(reports, |report| report.refills),
            sum(reports, |report| report.drains),
        ];
        table.add_row([
            "all".into(),
            events.to_string(),
            figures(all[0]),
            figures(all[1]),
            String::new(),
        ]);
    }
    println!("{}", spaced(table, |column| column > 0));
    for report in reports {
        if let Some(miss) = &report.first_miss {
            println!("{}: first miss at {miss}", report.name);
        }
    }
}
