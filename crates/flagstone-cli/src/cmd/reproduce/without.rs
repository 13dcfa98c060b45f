//! Leaving mechanisms out, one at a time: how many rows lie inside with and without each.
//!
//! A mechanism is left out by taking its price from the profiles. Runs whose machine does not change by it
//! are the runs with it; nothing is fitted anew, so that a base may leave its place too.

use super::ask::{Ask, Effort};
use super::runner::{self, Making};
use super::score::Score;
use super::sheet::Sheet;
use super::{documents, interpreter};
use flagstone_lab::names;
use flagstone_sim::Machine;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::OnceLock;

/// Those with a price in a published machine's profile, in the order of docs/design/mechanisms.md.
const MECHANISMS: &str = include_str!("../../../data/mechanisms.toml");

/// A mechanism that can be left out.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mechanism {
    /// The name it is left out by.
    pub(super) name: String,
    /// What is then the case.
    without: String,
    /// Figures of a profile, and what each becomes: a number, a word, or another figure's value.
    #[serde(default)]
    set: BTreeMap<String, Value>,
    /// Figures that a profile has no more.
    #[serde(default)]
    none: Vec<String>,
}

/// All mechanisms.
fn all() -> &'static [Mechanism] {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        mechanism: Vec<Mechanism>,
    }
    static ALL: OnceLock<Vec<Mechanism>> = OnceLock::new();
    ALL.get_or_init(|| {
        let file: File = toml::from_str(MECHANISMS).expect("a test reads it");
        file.mechanism
    })
}

impl Mechanism {
    /// The machine without it; `None` if it has no part in it.
    pub(super) fn taken_from(&self, machine: &Machine) -> Option<Machine> {
        let before = serde_json::to_value(machine).expect("plain data");
        let mut tree = before.clone();
        let place = |figure: &str| format!("/{}", figure.replace('.', "/"));
        for (figure, value) in &self.set {
            let other = value.as_str().and_then(|other| tree.pointer(&place(other)));
            let value = other.unwrap_or(value).clone();
            *tree.pointer_mut(&place(figure))? = value;
        }
        for figure in &self.none {
            if let Some(held) = tree.pointer_mut(&place(figure)) {
                *held = Value::Null;
            }
        }
        (tree != before).then(|| serde_json::from_value(tree).expect("a profile as before"))
    }
}

/// Where the table begins and ends in a document that has other text too.
const MARKS: [&str; 2] = ["<!-- leave-one-out -->", "<!-- end -->"];

/// The mechanisms of these names; all where there are none.
///
/// # Errors
/// One line: a name that is not known.
pub(super) fn asked(words: &[String]) -> Result<Vec<&'static Mechanism>, String> {
    if words.is_empty() {
        return Ok(all().iter().collect());
    }
    let known = |word: &String| {
        let names = || all().iter().map(|known| known.name.as_str());
        let found = all().iter().find(|known| known.name == *word);
        found.ok_or_else(|| {
            let near = flagstone_lab::names::question(word, names());
            format!(
                "unknown mechanism `{word}`; {near}known: {}",
                names().collect::<Vec<_>>().join(", ")
            )
        })
    };
    words.iter().map(known).collect()
}

/// Runs these documents once with all mechanisms and once without each of `mechanisms`, and writes the table.
pub(super) fn table(
    mechanisms: &[&'static Mechanism],
    seeds: &[&'static str],
    effort: Effort,
    making: &Making,
) -> String {
    let sheet = |without| {
        let making = Making {
            without,
            ..making.clone()
        };
        sheet(seeds, effort, &making)
    };
    let all = sheet(None);
    let asks = asks(seeds, effort);
    let of = |seed: &&'static str| format!("{} ({seed})", Score::of(&all, Some(seed)).cells);
    let mut text = format!(
        "Written by `flagstone reproduce --leave-one-out F`; not by hand. Model version {}, {}. Independent figures inside \
         their tolerance, of {}; nothing is fitted anew.\n\n| left out | then | {} | all | directions right |\n|---|---|{}--:|--:|\n",
        flagstone_sim::MODEL_VERSION,
        match effort {
            Effort::Quick => "quick runs: one seed, short looks, not settled",
            Effort::Full => "full runs",
        },
        seeds.iter().map(of).collect::<Vec<_>>().join(", "),
        seeds.join(" | "),
        "--:|".repeat(seeds.len()),
    );
    line(
        &mut text,
        seeds,
        ["nothing", "the model as it is"],
        &all,
        &all,
    );
    for mechanism in mechanisms {
        let machine = |ask: &Ask| {
            let known = names::machine(ask.machine).ok()?;
            mechanism.taken_from(&known)
        };
        if !asks.iter().any(|ask| machine(ask).is_some()) {
            continue;
        }
        let words = [mechanism.name.as_str(), &mechanism.without];
        line(&mut text, seeds, words, &sheet(Some(*mechanism)), &all);
    }
    text
}

/// Runs behind published cells, on machines with a profile of their own.
fn asks(seeds: &[&str], effort: Effort) -> Vec<Ask> {
    let documents = seeds.iter().filter_map(|seed| documents::named(seed));
    let asks = documents.flat_map(|document| interpreter::asks_of_cells(document, effort));
    asks.filter(|ask| !ask.machine.contains('@')).collect()
}

fn sheet(seeds: &[&'static str], effort: Effort, making: &Making) -> Sheet {
    let (runs, _) = runner::run_until_precise(asks(seeds, effort), making);
    super::filled(seeds, &runs, effort)
}

fn line(text: &mut String, seeds: &[&str], words: [&str; 2], sheet: &Sheet, all: &Sheet) {
    let _ = write!(text, "| {} |", words.join(" | "));
    for seed in seeds.iter().map(|seed| Some(*seed)).chain([None]) {
        let (now, before) = (Score::of(sheet, seed).inside, Score::of(all, seed).inside);
        let change = now as i64 - before as i64;
        let _ = match change {
            0 => write!(text, " {now} |"),
            _ => write!(text, " {now} ({change:+}) |"),
        };
    }
    let sum = sheet.summary();
    let _ = writeln!(text, " {} of {} |", sum.claims_right, sum.claims);
}

/// `document` with the table between its marks; the table alone where there are none.
pub(super) fn placed(document: &str, table: &str) -> String {
    let found = document.split_once(MARKS[0]).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(MARKS[1])?;
        Some((before, after))
    });
    match found {
        Some((before, after)) => format!("{before}{}\n{table}{}{after}", MARKS[0], MARKS[1]),
        None => table.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::reproduce::{Runs, SEEDS, filled};
    use flagstone_lab::Cache;
    use std::collections::HashSet;

    #[test]
    fn every_mechanism_has_a_name_of_its_own_and_a_part_in_some_published_machine() {
        let names: HashSet<&str> = all().iter().map(|known| known.name.as_str()).collect();
        assert_eq!(names.len(), all().len());
        let machines: Vec<Machine> = asks(&SEEDS, Effort::Quick)
            .iter()
            .map(|ask| names::machine(ask.machine).unwrap())
            .collect();
        for known in all() {
            assert!(
                machines
                    .iter()
                    .any(|machine| known.taken_from(machine).is_some()),
                "{} is left out of nothing",
                known.name
            );
            let left =
                |machine: &Machine| known.taken_from(machine).is_none_or(|m| m.check().is_ok());
            assert!(machines.iter().all(left), "{}", known.name);
        }
    }

    #[test]
    fn a_run_without_a_mechanism_is_another_run_only_where_the_machine_has_it() {
        let ask = asks(&SEEDS, Effort::Quick).remove(0);
        let digest = |mechanism| ask.spec(1, mechanism).unwrap().digest();
        let without = |name: &str| digest(asked(&[name.into()]).unwrap().pop());
        assert_ne!(without("handoff"), digest(None));
        assert_eq!(without("watched"), digest(None), "a machine of 2023");
    }

    #[test]
    fn a_table_goes_between_its_marks_and_a_line_says_what_changed() {
        let document = format!("before\n{}\nold\n{}\nafter\n", MARKS[0], MARKS[1]);
        let text = placed(&document, "new\n");
        assert_eq!(
            text,
            format!("before\n{}\nnew\n{}\nafter\n", MARKS[0], MARKS[1])
        );
        assert_eq!(placed("nothing", "new\n"), "new\n");
        let sheet = filled(&SEEDS, &Runs::default(), Effort::Quick);
        let mut text = String::new();
        line(&mut text, &SEEDS, ["x", "y"], &sheet, &Sheet::new(&SEEDS));
        assert!(text.contains("(+") && text.lines().count() == 1, "{text}");
    }

    #[test]
    fn mechanisms_are_asked_for_by_name_and_an_unknown_one_is_told_with_the_nearest() {
        let names = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            asked(&words).map(|found| {
                found
                    .iter()
                    .map(|one| one.name.as_str())
                    .collect::<Vec<_>>()
            })
        };
        assert_eq!(names(&[]).unwrap().len(), all().len());
        assert_eq!(names(&["wake", "memory"]).unwrap(), ["wake", "memory"]);
        let line = names(&["wake", "hand-off"]).unwrap_err();
        assert!(line.contains("did you mean 'handoff'?"), "{line}");
    }

    #[test]
    fn a_table_of_one_document_and_one_mechanism_has_their_columns_and_lines() {
        let folder = tempfile::tempdir().unwrap();
        let watched = asked(&["watched".into()]).unwrap();
        let making = Making {
            cache: Some(Cache::at(folder.path())),
            first_seed: 1,
            without: None,
        };
        let text = table(&watched, &["S1"], Effort::Quick, &making);
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(
            lines[0],
            "| left out | then | S1 | all | directions right |"
        );
        assert!(lines[2].starts_with("| nothing |"), "{text}");
        assert!(
            lines[3].starts_with("| watched |") && lines.len() == 4,
            "{text}"
        );
    }
}
