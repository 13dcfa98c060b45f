//! The figures as text on standard error: the answer first, then what it rests on; 80 columns are
//! enough.

pub(crate) mod caches;
mod ledger;
mod pages;
mod processes;

use super::advice::Try;
use super::document::Outcome;
use super::reports::Found;
use crate::terminal::{Screen, size, unpadded, wrap};
use comfy_table::{Cell, CellAlignment, ColumnConstraint, ContentArrangement, Table, presets};
use std::fmt::Write as _;
use std::io::Write as _;

pub(crate) use ledger::closing;

/// Columns where standard error is no terminal and `COLUMNS` is not set.
const WIDTH_PIPE: u16 = 80;

/// Prints the outcome on standard error.
pub fn print(outcome: &Outcome, found: &Found) {
    let screen = Screen::of(&std::io::stderr(), WIDTH_PIPE);
    let text = render(outcome, found, screen);
    // Nothing sensible is left to do if nobody reads it.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

fn render(outcome: &Outcome, found: &Found, screen: Screen) -> String {
    let mut out = String::from("\n");
    summary(&mut out, outcome, screen);
    if found.main.is_some() {
        ledger::table_of(&mut out, outcome, screen);
        processes::every(&mut out, &outcome.processes, screen);
        caches::table_of(&mut out, &outcome.caches, screen);
        pages::layer(&mut out, outcome, screen);
    } else {
        out.push_str(
            "It left no figures: it ran without the library (an environment cleared on the\n\
             way, a static program started by it) or had no right to write them.\n\n",
        );
        processes::every(&mut out, &outcome.processes, screen);
    }
    processes::others(&mut out, outcome, screen);
    for why in &found.damaged {
        let _ = writeln!(out, "A report could not be read: {why}");
    }
    out
}

/// How the command ended, where its memory was, and what to try.
fn summary(out: &mut String, outcome: &Outcome, screen: Screen) {
    let program = outcome.command.first().map_or("", String::as_str);
    let ended = match outcome.signal {
        Some(signal) => format!("ended by signal {signal}"),
        None => format!("exit {}", outcome.exit),
    };
    let line = format!(
        "flagstone: {program}: {ended}, {:.2} s, {}",
        outcome.wall_s,
        peaks(outcome)
    );
    let line = wrap(&line, screen.width, 2);
    let _ = writeln!(out, "{}", screen.heading(line.trim_end()));
    let line = format!(
        "policy {}; CPU: {:.2} s user, {:.2} s system",
        outcome.policy, outcome.user_s, outcome.system_s
    );
    out.push_str(&wrap(&line, screen.width, 2));
    if outcome.restartable_sequences == Some(false) {
        out.push_str("without restartable sequences: a lock per CPU served, which is slower\n");
    }
    out.push('\n');
    if let Some(why) = &outcome.unserved {
        let text = wrap(why, screen.width, 0);
        let _ = writeln!(out, "{}\n", screen.heading(text.trim_end()));
    }
    if let Some(answer) = &outcome.answer {
        out.push_str(&wrap(&answer.text, screen.width, 0));
        out.push('\n');
    }
    tries(out, &outcome.tries, screen);
}

/// The peaks of the command's own process and of the others, told apart.
fn peaks(outcome: &Outcome) -> String {
    let kib = |kib: u64| size(kib * 1024);
    match (outcome.own_peak_rss_kib, outcome.children_peak_rss_kib) {
        (Some(own), Some(children)) => {
            let name = outcome.peak_process.as_ref();
            let name = name.filter(|_| children > own);
            let name = name.and_then(|process| process.program.as_deref());
            let name = name.map_or(String::new(), |name| format!(" ({name})"));
            format!("peak {}; largest child {}{name}", kib(own), kib(children))
        }
        _ => format!("peak {}", kib(outcome.peak_rss_kib)),
    }
}

fn tries(out: &mut String, tries: &[Try], screen: Screen) {
    if tries.is_empty() {
        return;
    }
    let _ = writeln!(out, "{}", screen.heading("Try:"));
    for (index, one) in tries.iter().enumerate() {
        let _ = writeln!(out, " {}. {}", index + 1, screen.strong(&one.change));
        for (label, text) in [
            ("why ", &one.because),
            ("gain", &one.gain),
            ("cost", &one.cost),
        ] {
            out.push_str(&wrap(&format!("    {label}  {text}"), screen.width, 10));
        }
        if let Some(seen) = &one.measured {
            let text = format!("    seen  {}", seen.words());
            out.push_str(&wrap(&text, screen.width, 10));
        }
    }
    if tries
        .iter()
        .any(|one| one.apply.is_any() && one.measured.is_none())
    {
        let note = "Gains are upper bounds, computed from the ledger below; `flagstone run --try` runs the \
                    command again with each setting and shows what it brings.";
        out.push_str(&wrap(note, screen.width, 0));
    }
    out.push('\n');
}

pub(crate) fn table(header: &[&str], screen: Screen) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(screen.width);
    table.set_header(header.iter().enumerate().map(|(at, name)| {
        Cell::new(name).set_alignment(if at == 0 || *name == "what it is" {
            CellAlignment::Left
        } else {
            CellAlignment::Right
        })
    }));
    table
}

pub(crate) fn number(value: impl ToString) -> Cell {
    Cell::new(value.to_string()).set_alignment(CellAlignment::Right)
}

pub(crate) fn push_table(out: &mut String, table: &mut Table) {
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((if at == 0 { 0 } else { 1 }, 0));
        if at == 0 {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    out.push_str(&unpadded(table));
    out.push_str("\n\n");
}

#[cfg(test)]
mod tests;
