//! `flagstone sweep collect`: a folder of records as one table.

use super::usage;
use crate::exit::Outcome;
use crate::outfile;
use flagstone_lab::{sweep, table};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// All records of a folder as one file: Parquet, CSV or JSON lines, by its name.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  flagstone sweep collect runs -o runs.parquet
  flagstone sweep collect runs -o - | head      JSON lines")]
pub struct CollectArgs {
    /// The folder
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// The file: .parquet, .csv or .jsonl; `-` is JSON lines on standard output
    #[arg(short, long, value_name = "F", default_value = "-")]
    output: PathBuf,
}

pub(super) fn run(args: &CollectArgs) -> Outcome {
    let file = &args.output;
    let ending = file.extension().and_then(|ending| ending.to_str());
    let to_stdout = file == Path::new("-");
    if !to_stdout && !matches!(ending, Some("parquet" | "csv" | "jsonl" | "json")) {
        return Err(usage(format!(
            "collect: -o {}: the name ends in .parquet, .csv or .jsonl, which says what to write",
            file.display()
        )));
    }
    outfile::writable("sweep collect", file)?;
    let records = sweep::collect(&args.folder).map_err(usage)?;
    let mut bytes = Vec::new();
    let written = match ending {
        Some("parquet") => table::parquet(&records, &mut bytes),
        Some("csv") => table::csv(&records, &mut bytes),
        _ => table::json_lines(&records, &mut bytes).map_err(|error| error.to_string()),
    };
    written.map_err(|why| usage(format!("collect: {}: {why}", file.display())))?;
    if to_stdout {
        outfile::write("sweep collect", file, &String::from_utf8_lossy(&bytes))?;
        return Ok(ExitCode::SUCCESS);
    }
    let put = outfile::whole(file, &bytes);
    put.map_err(|why| usage(format!("collect: {}: {why}", file.display())))?;
    println!("{} records in {}", records.len(), file.display());
    Ok(ExitCode::SUCCESS)
}
