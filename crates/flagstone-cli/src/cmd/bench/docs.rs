//! The tables of a run inside a document: everything between two markers is written anew, the rest of
//! the document stays as it is.

use super::allocators::{FLAGSTONE, full_name};
use super::html::About;
use super::means::{self, Place};
use super::report::{self, figure};
use super::runner::Measured;
use crate::exit::Failure;
use core::fmt::Write;
use std::path::Path;

/// The line above the tables.
const BEGIN: &str = "<!-- flagstone bench: tables begin -->";
/// The line below them.
const END: &str = "<!-- flagstone bench: tables end -->";

/// The document with its two markers, read before anything is measured.
pub fn readable(file: &Path) -> Result<String, Failure> {
    let usage = |what: &str| Failure::Usage(format!("bench: {}: {what}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| usage(&error.to_string()))?;
    if around(&text).is_none() {
        let wanted = format!("needs the lines `{BEGIN}` and `{END}`, in this order, once each");
        return Err(usage(&wanted));
    }
    Ok(text)
}

/// What stands up to the first marker, and what from the second on.
fn around(text: &str) -> Option<(&str, &str)> {
    let (above, rest) = text.split_once(BEGIN)?;
    let (_, below) = rest.split_once(END)?;
    let once = !below.contains(BEGIN) && !below.contains(END) && !above.contains(END);
    once.then_some((above, below))
}

/// The document with the tables of this run.
pub fn with_tables(text: &str, results: &[Measured], about: &About) -> String {
    let (above, below) = around(text).expect("looked at before the run");
    format!("{above}{BEGIN}\n\n{}\n{END}{below}", tables(results, about))
}

/// The machine without what its owner added to the kernel's version: a document is for others.
fn general(machine: &str) -> String {
    match machine.split_once("Linux ") {
        Some((rest, version)) => {
            let number = version.split('-').next().unwrap_or_default();
            format!("{rest}Linux {number}")
        }
        None => machine.to_owned(),
    }
}

fn tables(results: &[Measured], about: &About) -> String {
    let quick = if about.full {
        ""
    } else {
        ", quick: a first look and no result"
    };
    let mut text = format!(
        "Written by `flagstone bench --docs` {} on {}; medians of {} interleaved runs{quick}; library: {} \
         ({}). The best of each row is bold.\n",
        env!("CARGO_PKG_VERSION"),
        general(&about.machine),
        about.runs,
        about.commit,
        about.library
    );
    let list = means::places(results);
    for (name, places) in means::groups(&list) {
        if places[0].of_rows > 1 {
            of_means(&mut text, &means::heading(name, &places), &places);
        }
    }
    let time = |one: &report::Row| one.value();
    of_rows(
        &mut text,
        "Figures, in the unit of the row",
        results,
        time,
        true,
    );
    let size = |one: &report::Row| one.peak_rss_kib.map(|kib| kib / 1024.0);
    of_rows(&mut text, "Peak resident size, MiB", results, size, false);
    text
}

fn line(text: &mut String, cells: &[String]) {
    let _ = writeln!(text, "| {} |", cells.join(" | "));
}

fn of_means(text: &mut String, heading: &str, places: &[&Place]) {
    let _ = writeln!(text, "\n### {heading}\n");
    let mut heads = means::HEADS.map(str::to_owned);
    heads[7] = "on the front".into();
    line(text, &heads);
    line(text, &heads.map(|_| "---".to_owned()));
    for place in places {
        line(text, &means::cells(place));
    }
}

/// One line for each row of the run, one column for each allocator.
fn of_rows(
    text: &mut String,
    heading: &str,
    results: &[Measured],
    value: impl Fn(&report::Row) -> Option<f64>,
    with_unit: bool,
) {
    let Some(first) = results.first() else { return };
    let _ = writeln!(text, "\n### {heading}\n");
    let unit = |result: &Measured| with_unit.then(|| result.workload.unit.to_owned());
    let mut heads = vec!["workload".to_owned()];
    heads.extend(with_unit.then(|| "unit".to_owned()));
    heads.extend(
        first
            .outcomes
            .iter()
            .map(|outcome| match &*outcome.allocator.name {
                FLAGSTONE => FLAGSTONE.to_owned(),
                _ => full_name(&outcome.allocator).replace('-', " "),
            }),
    );
    line(text, &heads);
    line(text, &vec!["---".to_owned(); heads.len()]);
    for result in results {
        let rows: Vec<report::Row> = result
            .outcomes
            .iter()
            .map(|outcome| report::row(result, outcome))
            .collect();
        let values: Vec<Option<f64>> = rows.iter().map(&value).collect();
        let best = values.iter().flatten().copied().reduce(f64::min);
        let mut cells = vec![report::title(result)];
        cells.extend(unit(result));
        cells.extend(values.iter().map(|value| match value {
            Some(value) if Some(*value) == best => format!("**{}**", figure(*value)),
            Some(value) => figure(*value),
            None => "–".to_owned(),
        }));
        line(text, &cells);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_markers_is_replaced() {
        let text = format!("# Title\n\n{BEGIN}\nancient\n{END}\nafter\n");
        let about = About {
            machine: "a machine".into(),
            commit: "commit 0123abc",
            library: "inside this program".into(),
            runs: 3,
            full: false,
        };
        let new = with_tables(&text, &[], &about);
        assert!(new.starts_with("# Title\n\n") && new.ends_with(&format!("{END}\nafter\n")));
        assert!(!new.contains("ancient") && new.contains("medians of 3") && new.contains("quick"));
        assert_eq!(with_tables(&new, &[], &about), new, "again is the same");
    }

    #[test]
    fn a_kernel_is_named_without_its_local_version() {
        assert_eq!(general("2 CPUs, Linux 6.1.0-9-own"), "2 CPUs, Linux 6.1.0");
        assert_eq!(general("2 CPUs"), "2 CPUs");
    }

    #[test]
    fn markers_must_be_there_once_and_in_order() {
        assert!(around(&format!("{BEGIN}{END}")).is_some());
        for text in [
            String::new(),
            BEGIN.into(),
            format!("{END}{BEGIN}"),
            format!("{BEGIN}{END}{BEGIN}{END}"),
        ] {
            assert!(around(&text).is_none(), "{text}");
        }
    }
}
