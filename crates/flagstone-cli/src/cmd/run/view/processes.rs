//! The processes of a run: all with their shares for `--all`, else in a sentence.

use super::{number, push_table, table};
use crate::cmd::run::answer;
use crate::cmd::run::document::{Outcome, Process, State};
use crate::terminal::{Screen, size, wrap};
use comfy_table::Cell;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Processes listed one by one.
const PROCESSES_MAX: usize = 40;

/// Every process at its peak, the command's own first, then by size.
pub(super) fn every(out: &mut String, processes: &[Process], screen: Screen) {
    if processes.is_empty() {
        return;
    }
    let _ = writeln!(out, "{}", screen.heading("Every process, at its peak"));
    let mut table = table(
        &[
            "pid program",
            "peak",
            "held",
            "rounding",
            "between",
            "cached",
            "outside",
        ],
        screen,
    );
    let (shown, rest) = processes.split_at(processes.len().min(PROCESSES_MAX));
    for one in shown {
        let state = match one.state {
            State::Ended => "",
            State::Killed => " (killed)",
            State::Alive => " (alive)",
        };
        let name = format!("{} {}{state}", one.pid, one.program);
        table.add_row(row(name, one));
    }
    if !rest.is_empty() {
        let largest = rest.iter().map(|one| one.peak_rss_kib).max().unwrap_or(0);
        let name = format!("{} more, each at most", rest.len());
        table.add_row([Cell::new(name), number(size(largest * 1024))]);
    }
    push_table(out, &mut table);
    // The blank line belongs behind the sentence.
    out.pop();
    out.push_str(&wrap(
        "between: free objects between used ones. Pages that forked processes share count in each \
         of them. --json has every line of every ledger.",
        screen.width,
        0,
    ));
    if processes.iter().any(|one| one.state != State::Ended) {
        out.push_str("(killed), (alive): figures of the last look at the process.\n");
    }
    if shown.iter().any(missed) {
        out.push_str(
            "*: this peak lay between two looks; the other columns are of the largest one.\n",
        );
    }
    out.push('\n');
}

/// Whether no look was at the process's peak.
fn missed(one: &Process) -> bool {
    answer::missed(one.peak_rss_kib * 1024, &one.answer.at_peak)
}

fn row(name: String, one: &Process) -> Vec<Cell> {
    let shares = &one.answer.at_peak;
    let mark = if missed(one) { "*" } else { "" };
    let peak = format!("{}{mark}", size(one.peak_rss_kib * 1024));
    let figures = [
        shares.held_bytes,
        shares.rounding_bytes,
        shares.fragmented_bytes,
        shares.cached_bytes,
        shares.outside_bytes,
    ];
    [Cell::new(name), number(peak)]
        .into_iter()
        .chain(figures.map(|bytes| number(size(bytes))))
        .collect()
}

/// What other processes there were, in a sentence.
pub(super) fn others(out: &mut String, outcome: &Outcome, screen: Screen) {
    let others = &outcome.other_processes;
    let Some(largest) = others.first() else {
        return;
    };
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    for other in others {
        *names.entry(&other.program).or_default() += 1;
    }
    let mut names: Vec<_> = names.into_iter().collect();
    names.sort_by_key(|&(name, count)| (std::cmp::Reverse(count), name));
    let rest = names.len().saturating_sub(6);
    let mut list: Vec<String> = names
        .iter()
        .take(6)
        .map(|&(name, count)| match count {
            1 => name.to_owned(),
            _ => format!("{name} ×{count}"),
        })
        .collect();
    if rest > 0 {
        list.push(format!("{rest} more programs"));
    }
    let noun = if others.len() == 1 {
        "process"
    } else {
        "processes"
    };
    let line = format!(
        "And {} more {noun}: {}; the largest peak was {} ({}).",
        others.len(),
        list.join(", "),
        size(largest.peak_rss_kib * 1024),
        largest.program
    );
    out.push_str(&wrap(&line, screen.width, 0));
}
