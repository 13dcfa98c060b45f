//! `flagstone reproduce`: every published table, ours beside it, and our default policy in the
//! same place.
//!
//! ```text
//!   documents ─► interpreter ─► asks ─► runner (the lab's cache, threads) ─► Runs
//!   published ─► Sheet ◄─ fill ── interpreter ◄──────────────────────────────┘
//!                  └─► view · json · results (Markdown) · html
//! ```
//!
//! The five documents are data (ADR 0048). Parameters are fitted on base rows only, frozen in the
//! documents' files and listed with the number of values tried. A cell that is far off stays, with its error.

mod ask;
mod check;
mod claim;
mod documents;
mod html;
mod interpreter;
mod json;
mod measured;
mod published;
mod reasons;
mod results;
mod runner;
mod score;
mod sheet;
mod view;
mod without;

use crate::exit::{Failure, Outcome};
use crate::outfile;
use ask::{Ask, Effort, Runs};
use flagstone_lab::Cache;
pub(super) use interpreter::base_row;
use runner::Making;
use sheet::Sheet;
use std::path::PathBuf;
use std::process::ExitCode;

/// The five documents.
const SEEDS: [&str; 5] = ["S0", "S1", "S2", "S3", "S4"];

/// The first seed if none is asked for: that of `docs/results.md`.
const FIRST_SEED: u64 = 1;

/// The last first seed: others follow it.
const LAST_SEED: u64 = u64::MAX - (1 << 32);

/// Regenerate the published tables, and run the default policy in the same place.
///
/// Each cell shows the published figure, what was got, its error, whether it is inside the
/// accuracy stated for its row, and the flagstone policy's figure. Simulated figures are
/// simulated, never measured; answers are cached in the user's cache directory.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  flagstone reproduce --quick             all five documents in about 45 s of processor time
  flagstone reproduce S2 S3 --json -      two of them as one JSON document
  flagstone reproduce all --html report.html --docs docs/results.md
  flagstone reproduce S3 --seed 101       the same with other seeds
  flagstone reproduce --quick --check before.json    is any row worse than it was?
  flagstone reproduce --quick --leave-one-out FILE.md    what does each mechanism earn?
  flagstone reproduce S1 --leave-one-out FILE.md --mechanism watched    one of them, in full runs of S1

Exit codes: 0 done, whatever the figures say; 1 with --check, a row got worse; 2 a wrong call or a
file that cannot be read or written;
130 interrupted (Ctrl-C): finished runs are in the cache and the next call goes on from there.")]
pub struct Args {
    /// Documents: S0 to S4, or all [default: all]
    #[arg(value_name = "S0..S4|all")]
    seeds: Vec<String>,
    /// Write the JSON document to F; `-` prints it instead of the tables
    #[arg(long, value_name = "F")]
    json: Option<PathBuf>,
    /// Write a self-contained HTML report to F
    #[arg(long, value_name = "F")]
    html: Option<PathBuf>,
    /// Write the results as Markdown to F
    #[arg(long, value_name = "F")]
    docs: Option<PathBuf>,
    /// First seed: runs that ask for several take it and those after it
    #[arg(long, default_value_t = FIRST_SEED, value_name = "S")]
    seed: u64,
    /// Fewer seeds and shorter windows: about 45 s of processor time, figures not steady
    #[arg(long)]
    quick: bool,
    /// Compare with a document that --json wrote: exit 1 if a row got worse
    #[arg(long, value_name = "BASELINE.json")]
    check: Option<PathBuf>,
    /// Leave mechanisms of the model out, one at a time, and write into F how many rows lie inside; F keeps
    /// what stands outside its marks
    #[arg(long, value_name = "F", conflicts_with_all = ["json", "html", "docs", "check"])]
    leave_one_out: Option<PathBuf>,
    /// With --leave-one-out: only these mechanisms
    #[arg(
        long,
        value_name = "NAME,..",
        value_delimiter = ',',
        requires = "leave_one_out"
    )]
    mechanism: Vec<String>,
    /// Simulate everything again instead of taking answers from the cache
    #[arg(long)]
    no_cache: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    let seeds = seeds(&args.seeds).map_err(|line| Failure::Usage(format!("reproduce: {line}")))?;
    if args.seed == 0 || args.seed > LAST_SEED {
        return Err(Failure::Usage(format!(
            "reproduce: --seed {}: give a number from 1 to {LAST_SEED}",
            args.seed
        )));
    }
    let others = [args.html.as_deref(), args.docs.as_deref()];
    outfile::all_writable("reproduce", args.json.as_deref(), &others)?;
    let kept = args
        .check
        .as_deref()
        .map(|file| check::Kept::read(file, args.quick, args.seed));
    let kept = kept
        .transpose()
        .map_err(|line| Failure::Usage(format!("reproduce: {line}")))?;
    let effort = if args.quick {
        Effort::Quick
    } else {
        Effort::Full
    };
    crate::exit::on_interrupt(if args.no_cache {
        "flagstone: reproduce: interrupted; nothing was written\n"
    } else {
        "flagstone: reproduce: interrupted; finished runs are in the cache, the next call goes on from there\n"
    });
    let making = Making {
        cache: (!args.no_cache).then(Cache::of_user).flatten(),
        first_seed: args.seed,
        without: None,
    };
    if let Some(file) = &args.leave_one_out {
        outfile::writable("reproduce", file)?;
        let asked = without::asked(&args.mechanism)
            .map_err(|line| Failure::Usage(format!("reproduce: {line}")))?;
        let table = without::table(&asked, &seeds, effort, &making);
        let document = std::fs::read_to_string(file).unwrap_or_default();
        outfile::write("reproduce", file, &without::placed(&document, &table))?;
        return Ok(ExitCode::SUCCESS);
    }
    let (runs, cost) = runner::run_until_precise(asks(&seeds, effort), &making);
    let mut sheet = filled(&seeds, &runs, effort);
    sheet.first_seed = args.seed;
    sheet.measured = match effort {
        Effort::Quick => Err(measured::QUICK.into()),
        Effort::Full => measured::rows(&seeds),
    };
    let to_stdout = args
        .json
        .as_ref()
        .is_some_and(|file| file.as_os_str() == "-");
    if let Some(file) = &args.json {
        let text = json::json(&sheet, args.quick, cost);
        if to_stdout {
            println!("{text}");
        } else {
            outfile::write("reproduce", file, &text)?;
        }
    }
    if let Some(file) = &args.html {
        outfile::write("reproduce", file, &html::page(&sheet, args.quick))?;
    }
    if let Some(file) = &args.docs {
        outfile::write(
            "reproduce",
            file,
            &results::markdown(&sheet, args.quick, file),
        )?;
    }
    if !to_stdout {
        view::print(&sheet);
        println!("{} runs simulated, {} from the cache", cost.made, cost.kept);
    }
    kept.map_or(Ok(ExitCode::SUCCESS), |kept| verdict(&kept.compare(&sheet)))
}

/// Tells on stderr how a run compares with a kept one; a finding if a row got worse.
fn verdict(compared: &check::Compared) -> Outcome {
    for line in &compared.worse {
        eprintln!("worse: {line}");
    }
    if compared.better > 0 {
        eprintln!(
            "better: {} rows; keep this run's document as the new baseline",
            compared.better
        );
    }
    match compared.worse.len() {
        0 => Ok(ExitCode::SUCCESS),
        count => Err(Failure::Finding(format!(
            "reproduce: {count} rows got worse"
        ))),
    }
}

/// The documents asked for, in order.
fn seeds(words: &[String]) -> Result<Vec<&'static str>, String> {
    let is = |word: &str, name: &str| word.eq_ignore_ascii_case(name);
    let known = |word: &str| is(word, "all") || SEEDS.iter().any(|seed| is(word, seed));
    if let Some(word) = words.iter().find(|word| !known(word)) {
        return Err(format!(
            "unknown document `{word}`; known: {}, all",
            SEEDS.join(", ")
        ));
    }
    if words.is_empty() || words.iter().any(|word| is(word, "all")) {
        return Ok(SEEDS.to_vec());
    }
    let asked = |seed: &&str| words.iter().any(|word| is(word, seed));
    Ok(SEEDS.into_iter().filter(asked).collect())
}

/// Runs to make for these documents.
fn asks(seeds: &[&str], effort: Effort) -> Vec<Ask> {
    let documents = seeds.iter().filter_map(|seed| documents::named(seed));
    documents
        .flat_map(|document| interpreter::asks(document, effort))
        .collect()
}

/// The sheet of these documents with what runs said.
fn filled(seeds: &[&str], runs: &Runs, effort: Effort) -> Sheet {
    let mut sheet = Sheet::new(seeds);
    for document in seeds.iter().filter_map(|seed| documents::named(seed)) {
        interpreter::fill(document, &mut sheet, runs, effort);
    }
    sheet
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::check;

    /// Everything that needs no simulation.
    fn computed() -> Sheet {
        filled(&SEEDS, &Runs::default(), Effort::Quick)
    }

    #[test]
    fn without_a_single_run_every_cell_is_computed_or_names_its_reason() {
        let sheet = computed();
        assert_eq!(sheet.cells.len(), 497);
        let left = Sheet::new(&SEEDS).cells[0].reason.clone();
        for cell in &sheet.cells {
            assert!(
                cell.got.is_some() || (cell.reason.is_some() && cell.reason != left),
                "{:?}",
                cell.published
            );
        }
    }

    #[test]
    fn computed_cells_come_out_as_published_where_the_rule_alone_decides() {
        let sheet = computed();
        let of = |table: &'static str| {
            let cells = sheet.cells.iter();
            cells.filter(move |cell| cell.published.table == table)
        };
        let example = || of("example mm_struct");
        assert!(example().count() == 4 && example().all(|cell| cell.inside() == Some(true)));
        let own_struct = || of("struct per_cpu_pages");
        assert!(own_struct().count() == 2 && own_struct().all(|cell| cell.inside().is_none()));
    }

    #[test]
    fn least_waste_moves_wastage_and_total_memory_as_published_on_every_machine() {
        let sheet = computed();
        let changes = sheet
            .cells
            .iter()
            .filter(|cell| cell.published.column == "change");
        // One published change is +0.06 %, which no spread population gives.
        let wrong: Vec<_> = changes
            .filter(|cell| sheet.sign(cell) != Some(true))
            .collect();
        assert!(
            wrong.iter().all(|cell| cell.published.value == 0.06),
            "{wrong:?}"
        );
    }

    #[test]
    fn everything_a_quick_run_asks_for_can_be_asked() {
        for effort in [Effort::Quick, Effort::Full] {
            for ask in asks(&SEEDS, effort) {
                let checked = ask.spec(1, None).and_then(|spec| spec.check());
                assert_eq!(checked, Ok(()), "{ask:?}");
            }
        }
    }

    #[test]
    fn the_page_fetches_nothing_is_small_and_every_chart_has_words_and_its_figures() {
        let page = html::page(&computed(), true);
        assert_eq!(check::nested(&page), Ok(()));
        assert!(page.contains("Content-Security-Policy") && page.contains("default-src 'none'"));
        // Links for readers fetch nothing by themselves.
        let own = page.split("<script>").next().unwrap();
        let own = own.replace("<a href=\"http", "");
        for fetched in [" src=", "<link rel=\"stylesheet", "@import", "href=\"http"] {
            assert!(!own.contains(fetched), "{fetched}");
        }
        assert!(page.len() < 2_000_000, "{} bytes", page.len());
        let charts = page.matches("<div class=\"chart\" id=").count();
        assert!(charts >= 5);
        assert_eq!(page.matches("role=\"img\" aria-label=").count(), charts);
        let specs = check::charts(&page);
        assert_eq!(specs.len(), charts);
        let described = |spec: &serde_json::Value| spec["description"].as_str().unwrap().len() > 40;
        assert!(specs.iter().all(described));
    }

    #[test]
    fn the_markdown_has_one_title_and_every_table() {
        let sheet = computed();
        let text = results::markdown(&sheet, true, "results.md".as_ref());
        assert_eq!(
            text.lines().filter(|line| line.starts_with("# ")).count(),
            1
        );
        for cell in &sheet.cells {
            assert!(text.contains(&format!("| {}", cell.published.table)));
        }
    }

    #[test]
    fn an_unknown_document_lists_the_known_ones() {
        let line = seeds(&["S7".into()]).unwrap_err();
        assert!(line.contains("S7") && line.contains("S0") && line.contains("all"));
        assert!(
            seeds(&["all".into(), "S7".into()]).is_err(),
            "also beside all"
        );
        assert_eq!(seeds(&["S3".into(), "S1".into()]).unwrap(), ["S1", "S3"]);
    }
}
