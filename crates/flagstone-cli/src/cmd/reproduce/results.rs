//! `docs/results.md`: the sheet as a document that is kept with the code.

use super::published::Published;
use super::sheet::{Cell, Sheet};
use super::view::{error, figure, maybe, remarks, verdict};
use core::fmt::Write;
use std::path::Path;
use std::process::Command;

/// Each document: its name, where it was published, and why rows of it are not reached.
const DOCUMENTS: [(&str, &str, &str); 5] = [
    (
        "S0",
        "Feng Tang, \"mm/slub: increase the maximum slab order to 4 for big systems\", 5 September 2023",
        "Gains have the published sign and rise with tasks, but waiting for the list lock comes out at \
         about half of the published, so gains and shares are too small. hackbench does not contend \
         at all here, probably because it has no more tasks than CPUs, where the real one has many \
         times more. Shares of single functions are not booked. The base rows of mmap1 share one \
         fitted think time; they are not hit exactly.",
    ),
    (
        "S1",
        "Christoph Lameter, answer on the SLUB regression, 21 December 2007",
        "SLAB is near, but its CPU 0 is too slow from 64 to 256 B. SLUB's freeing CPUs come out at \
         about half of the published cycles; the price of waiters on a test-and-set lock is the \
         first suspect, not shown. At 8 B the simulation is in the contended state and the mail, it \
         seems, in the other one: the phase diagram of the HTML report shows both. At 4096 B the \
         kernel hands the request to the page allocator. Seven freeing CPUs of one run are nearly \
         one figure: the 180 cells are about 40 independent ones.",
    ),
    (
        "S2",
        "Jay Patel, \"mm/slub: Reducing slub memory wastage\", 12 June 2023",
        "The author's populations are not known; ours are of small machines just booted, every \
         cache multiplied alike until the base's total is the published one. Total memory follows; \
         wastage depends on which caches are many, and is up to two and a half times too large. \
         After hackbench the 4K total hardly rises in the mail and more here: probably its objects \
         are no longer spread evenly over the CPUs. One group of hackbench has fewer tasks than \
         CPUs; start-up is not modelled. The 92 times of hackbench are six simulated speeds for \
         each policy and a number of groups: evidence that the patch costs no time, no more.",
    ),
    (
        "S3",
        "Huang Ying, \"mm: PCP high auto-tuning\" (V3), 16 October 2023",
        "AF_UNIX's scores follow; its lock share falls less than published, and data-cache misses \
         are far too few: that cache is modelled by reuse distance only. SCTP's steps are small in \
         both and partly of the wrong sign. kbuild gains almost three times what was published. It has no \
         page cache here, so its memory in use is small and parked pages weigh many times the \
         published 18.4 %; pagesets of patches 7 and 9 still grow when the longest window ends, so \
         that figure is not even steady.",
    ),
    (
        "S4",
        "Pekka J Enberg, \"SLUB: dynamic per-cache MIN_PARTIAL\", 4 August 2008",
        "What the document is about is not reproduced: the simulated bursts make no CPU give up an \
         empty slab, and only there does 2.6.26 consult min_partial, so SLUB and dynamic SLUB are \
         the same run by run, and spreads are far too small. Mean times inside their accuracy say \
         little: they are speeds in the published unit. User time is not an allocator's.",
    ),
];

/// The document; `beside` is where it will lie.
pub(super) fn markdown(sheet: &Sheet, quick: bool, beside: &Path) -> String {
    let mut text = String::from("# Results: five published trade-offs, regenerated\n\n");
    let _ = writeln!(
        text,
        "Written by `flagstone reproduce --docs docs/results.md{}`; not by hand. Commit {}, simulated \
         code {}, on {}. Simulated figures come from the allocator on virtual CPUs in virtual time \
         and do not depend on the host; nothing here was measured.\n",
        if quick { " --quick" } else { "" },
        commit(beside),
        env!("SIMULATED_CODE_DIGEST"),
        host()
    );
    let _ = writeln!(text, "**{}.**\n", sheet.summary().line());
    text.push_str(
        "Accuracies: S0 gains, S0 lock share, S1, the AF_UNIX scores and kbuild's time were stated \
         beforehand; those of S2, S4 and the other columns were chosen with first results in view, so \
         \"inside\" means less there. The explanations are written by hand and only guesses where they \
         say probably.\n\n",
    );
    text.push_str(
        "A cell reads `published · got · flagstone`, then + inside the accuracy of its row, − \
         outside, = fitted or so by definition, ? without a figure. The accuracies and everything \
         else are in the JSON document (`--json`). Signs: a patched figure must lie on the published \
         side of what the *base got*.\n",
    );
    for (seed, source, why) in DOCUMENTS {
        let cells: Vec<&Cell> = sheet
            .cells
            .iter()
            .filter(|cell| cell.published.seed == seed)
            .collect();
        if cells.is_empty() {
            continue;
        }
        let _ = writeln!(text, "\n## {seed}\n\n{source}.\n\n{why}\n");
        tables(&mut text, &cells);
        worst(&mut text, &cells);
    }
    targets(&mut text, sheet);
    settings(&mut text, sheet);
    text
}

fn name(known: &Published) -> (String, usize) {
    (known.table.clone(), known.nth)
}

fn tables(text: &mut String, cells: &[&Cell]) {
    let mut names: Vec<(String, usize)> = Vec::new();
    for cell in cells {
        if !names.contains(&name(&cell.published)) {
            names.push(name(&cell.published));
        }
    }
    for table in names {
        let of: Vec<&&Cell> = cells
            .iter()
            .filter(|cell| name(&cell.published) == table)
            .collect();
        let distinct = |pick: fn(&Published) -> &String| {
            of.iter().fold(Vec::new(), |mut seen: Vec<&String>, cell| {
                let word = pick(&cell.published);
                if !seen.contains(&word) {
                    seen.push(word);
                }
                seen
            })
        };
        let (rows, columns) = (distinct(|p| &p.row), distinct(|p| &p.column));
        let second = if table.1 > 0 {
            " (second set under this heading)"
        } else {
            ""
        };
        let _ = writeln!(text, "\n| {}{second} |{} |", table.0, join(&columns));
        let _ = writeln!(text, "|---|{}", "---|".repeat(columns.len()));
        for row in rows {
            let _ = write!(text, "| {row} |");
            for column in &columns {
                let cell = of
                    .iter()
                    .find(|cell| cell.published.row == *row && cell.published.column == **column);
                let _ = write!(
                    text,
                    " {} |",
                    cell.map_or(String::new(), |cell| short(cell))
                );
            }
            text.push('\n');
        }
    }
}

fn join(columns: &[&String]) -> String {
    let words: Vec<String> = columns.iter().map(|column| format!(" {column}")).collect();
    words.join(" |")
}

fn short(cell: &Cell) -> String {
    let sign = match verdict(cell) {
        "inside" => "+",
        "outside" => "−",
        "fitted" => "=",
        "no figure" => "?",
        _ => "",
    };
    format!(
        "{} · {} · {} {sign}",
        figure(cell.published.value),
        maybe(cell.got),
        maybe(cell.own)
    )
}

/// The five cells farthest outside, and what cells say about themselves.
fn worst(text: &mut String, cells: &[&Cell]) {
    let mut outside: Vec<&&Cell> = cells
        .iter()
        .filter(|cell| cell.inside() == Some(false))
        .collect();
    let size = |cell: &Cell| cell.error().map_or(0.0, f64::abs);
    outside.sort_by(|a, b| size(b).total_cmp(&size(a)));
    if !outside.is_empty() {
        let words: Vec<String> = outside
            .iter()
            .take(5)
            .map(|cell| {
                let known = &cell.published;
                format!(
                    "{} {} {} ({})",
                    known.table,
                    known.row,
                    known.column,
                    error(cell)
                )
            })
            .collect();
        let _ = writeln!(text, "\nFarthest outside: {}.", words.join("; "));
    }
    let mut sheet = Sheet::new(&[]);
    sheet.cells = cells.iter().map(|cell| (*cell).clone()).collect();
    for (line, count, _) in remarks(&sheet) {
        let _ = writeln!(
            text,
            "\n- {count} cells: {}",
            line.split_once(": ").map_or("", |l| l.1)
        );
    }
}

fn targets(text: &mut String, sheet: &Sheet) {
    text.push_str("\n## What the flagstone policy should reach\n\n| reached | document | wanted | found |\n|---|---|---|---|\n");
    for target in &sheet.targets {
        let reached = match target.reached {
            Some(true) => "yes",
            Some(false) => "**no**",
            None => "not judged",
        };
        let _ = writeln!(
            text,
            "| {reached} | {} | {} | {} |",
            target.seed, target.wanted, target.found
        );
    }
    text.push_str(
        "\nAll of it simulated or computed: the rows were not run on real threads by this command.\n",
    );
}

fn settings(text: &mut String, sheet: &Sheet) {
    text.push_str(
        "\n## Settings\n\nFrozen for base, patched and own rows alike.\n\n| document | setting | source | values tried |\n|---|---|---|---|\n",
    );
    for setting in &sheet.settings {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} |",
            setting.seed, setting.what, setting.source, setting.tried
        );
    }
}

/// The commit of the repository the document lies in.
fn commit(beside: &Path) -> String {
    let folder = beside
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let output = Command::new("git")
        .args(["rev-parse", "--short=12", "HEAD"])
        .current_dir(folder)
        .output();
    match output {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        }
        _ => "unknown".into(),
    }
}

/// The host in words: its processor and CPUs.
fn host() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find(|line| line.starts_with("model name"));
    let model = model
        .and_then(|line| line.split_once(": "))
        .map_or("an unnamed processor", |l| l.1);
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    format!("{cpus} CPUs of {}", model.trim())
}
