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
use flagstone_sim::machine::Queueing;
use std::fmt::Write;

/// A mechanism that can be left out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mechanism {
    /// The name it is left out by.
    pub(super) name: &'static str,
    /// What is then the case.
    without: &'static str,
    /// Takes its price from a profile.
    leave_out: fn(&mut Machine),
}

/// Those with a price in a published machine's profile, in the order of docs/design/mechanisms.md.
const MECHANISMS: [Mechanism; 17] = [
    Mechanism {
        name: "distance",
        without: "a line takes as long from the other socket as from this one",
        leave_out: |m| m.latency_ns.remote = m.latency_ns.socket,
    },
    Mechanism {
        name: "memory",
        without: "a line that nobody has is at hand",
        leave_out: |m| m.latency_ns.dram = m.latency_ns.l1,
    },
    Mechanism {
        name: "locked-instructions",
        without: "they cost no more than others",
        leave_out: |m| {
            m.latency_ns.atomic = 0.0;
            m.work_ns.local = 0.0;
        },
    },
    Mechanism {
        name: "handoff",
        without: "a lock is handed over in one way of its line",
        leave_out: |m| m.locks.handoff = 1.0,
    },
    Mechanism {
        name: "test-and-set",
        without: "all locks are queued",
        leave_out: |m| {
            m.locks.default = Queueing::Queued;
            m.locks.slab = None;
        },
    },
    Mechanism {
        name: "waiters",
        without: "waiters at test-and-set locks cost the winner nothing",
        leave_out: |m| m.locks.per_waiter_ns = 0.0,
    },
    Mechanism {
        name: "watched",
        without: "who spins does not fetch the holder's line back",
        leave_out: |m| {
            m.locks.watched = None;
            m.locks.watched_ns = None;
        },
    },
    Mechanism {
        name: "siblings",
        without: "threads of a core do not slow each other",
        leave_out: |m| {
            m.smt.slowdown = 1.0;
            m.smt.spinning = None;
            m.smt.at_hand = None;
        },
    },
    Mechanism {
        name: "spinning-siblings",
        without: "a sibling that spins slows nobody",
        leave_out: |m| m.smt.spinning = None,
    },
    Mechanism {
        name: "at-hand",
        without: "siblings do not slow lines at hand and locked instructions",
        leave_out: |m| m.smt.at_hand = None,
    },
    Mechanism {
        name: "slab-work",
        without: "a fresh slab costs only its pages and lines",
        leave_out: |m| {
            m.work_ns.slab = 0.0;
            m.work_ns.managed_slab = None;
        },
    },
    Mechanism {
        name: "managed-slab",
        without: "SLAB's fresh slab costs what SLUB's does",
        leave_out: |m| m.work_ns.managed_slab = None,
    },
    Mechanism {
        name: "slab-pages",
        without: "the pages of a fresh slab cost nothing",
        leave_out: |m| m.work_ns.slab_page = 0.0,
    },
    Mechanism {
        name: "blocks",
        without: "a block moved under the zone's lock costs only its lines",
        leave_out: |m| m.work_ns.block = 0.0,
    },
    Mechanism {
        name: "wake",
        without: "waking a task costs nothing",
        leave_out: |m| m.work_ns.wake = 0.0,
    },
    Mechanism {
        name: "rcu-batch",
        without: "deferred frees come all at once when their grace period has passed",
        leave_out: |m| m.rcu.batch = 1_000_000,
    },
    Mechanism {
        name: "data-misses",
        without: "other data that misses costs nothing",
        leave_out: |m| m.cache.line_ns = 0.0,
    },
];

impl Mechanism {
    /// The machine without it; `None` if it has no part in it.
    pub(super) fn taken_from(self, machine: &Machine) -> Option<Machine> {
        let mut without = machine.clone();
        (self.leave_out)(&mut without);
        (without != *machine).then_some(without)
    }
}

/// Where the table begins and ends in a document that has other text too.
const MARKS: [&str; 2] = ["<!-- leave-one-out -->", "<!-- end -->"];

/// The mechanisms of these names; all where there are none.
///
/// # Errors
/// One line: a name that is not known.
pub(super) fn asked(words: &[String]) -> Result<Vec<Mechanism>, String> {
    if words.is_empty() {
        return Ok(MECHANISMS.to_vec());
    }
    let known = |word: &String| {
        let names = MECHANISMS.map(|known| known.name);
        let found = MECHANISMS.into_iter().find(|known| known.name == *word);
        found.ok_or_else(|| {
            let near = flagstone_lab::names::question(word, names);
            format!(
                "unknown mechanism `{word}`; {near}known: {}",
                names.join(", ")
            )
        })
    };
    words.iter().map(known).collect()
}

/// Runs these documents once with all mechanisms and once without each of `mechanisms`, and writes the table.
pub(super) fn table(
    mechanisms: &[Mechanism],
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
        let words = [mechanism.name, mechanism.without];
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
        let names: HashSet<&str> = MECHANISMS.iter().map(|known| known.name).collect();
        assert_eq!(names.len(), MECHANISMS.len());
        let machines: Vec<Machine> = asks(&SEEDS, Effort::Quick)
            .iter()
            .map(|ask| names::machine(ask.machine).unwrap())
            .collect();
        for known in MECHANISMS {
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
            asked(&words).map(|found| found.iter().map(|one| one.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&[]).unwrap().len(), MECHANISMS.len());
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
