//! Fits: base rows, a few prices, and the setting that comes nearest.
//!
//! ```text
//!   dials × values ─► a setting ─► runs of its base rows ─► misfit     every setting goes into the log
//!                        ▲                                     │
//!                        └── a grid, or one dial after the other ┘
//! ```
//!
//! The search begins in the middle of every dial's values and not at what a profile holds today, so that the
//! same fits give the same log whatever was put in before. Which rows are base rows is the caller's to know.

use crate::record::Record;
use crate::runs::{Options, sim};
use crate::spec::{Spec, Task, Window};
use flagstone_sim::Machine;
use serde::{Deserialize, Serialize};

/// The dial that is no price of a machine: nanoseconds outside the allocator.
pub const THINK: &str = "think_ns";

/// Settings up to which all combinations of a fit's values are tried.
const GRID_MOST: usize = 40;

/// Rounds over the dials at most, where they are turned one after the other.
const ROUNDS_MOST: usize = 4;

/// One fit.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fit {
    /// What it is asked for by.
    pub name: String,
    /// The machine whose prices are fitted.
    pub machine: String,
    /// The workload.
    pub workload: String,
    /// The base's policy.
    pub policy: String,
    /// Seeds of every row.
    pub seeds: u64,
    /// The look, `32ms`, or `full`.
    pub window: String,
    /// What is turned.
    pub dial: Vec<Dial>,
    /// What it is held against: published cells of the base.
    pub cells: Vec<String>,
}

/// A price or parameter and the values it may have, in order.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dial {
    /// [`THINK`], or a field of a profile as `latency_ns.socket`.
    pub what: String,
    /// What is tried.
    pub values: Vec<f64>,
}

/// A published figure of the base, and the run behind it.
#[derive(Clone, Debug, PartialEq)]
pub struct BaseRow {
    /// Document, table, row and column, with ` | ` between.
    pub cell: String,
    /// Tasks of its run.
    pub tasks: u32,
    /// Bytes of an object, for workloads that have a size.
    pub size: Option<usize>,
    /// The figure: a column of a record.
    pub figure: String,
    /// What was published.
    pub published: f64,
    /// A miss of so much counts as one.
    pub unit: f64,
}

/// One setting that was tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tried {
    /// The fit.
    pub fit: String,
    /// Of which model.
    pub model_version: u32,
    /// What the dials were at.
    pub setting: Vec<(String, f64)>,
    /// Cell, published figure and the mean of what the seeds got.
    pub rows: Vec<(String, f64, f64)>,
    /// Root mean square of the misses, each in its row's unit.
    pub misfit: f64,
    /// Whether it is the nearest.
    pub chosen: bool,
}

/// Reads fits from TOML.
///
/// # Errors
/// One line.
pub fn parse(text: &str) -> Result<Vec<Fit>, String> {
    #[derive(Deserialize)]
    struct File {
        fit: Vec<Fit>,
    }
    let file: File = toml::from_str(text).map_err(|error| format!("fits: {}", error.message()))?;
    for fit in &file.fit {
        if fit.cells.is_empty() || fit.dial.iter().any(|dial| dial.values.is_empty()) {
            return Err(format!(
                "fit `{}`: no cells, or a dial without values",
                fit.name
            ));
        }
    }
    Ok(file.fit)
}

/// A machine with one of its figures changed.
///
/// # Errors
/// One line, where the profile has no such figure.
pub fn with(machine: &Machine, what: &str, value: f64) -> Result<Machine, String> {
    let mut tree = serde_json::to_value(machine).expect("plain data");
    let place = what
        .split('.')
        .try_fold(&mut tree, |place, part| place.get_mut(part));
    let place = place.filter(|place| place.is_number());
    *place.ok_or_else(|| format!("`{what}`: {} has no such figure", machine.name))? = value.into();
    let mut changed: Machine = serde_json::from_value(tree).map_err(|error| error.to_string())?;
    changed.name.clone_from(&machine.name);
    changed.check()?;
    Ok(changed)
}

/// A figure of a machine.
#[must_use]
pub fn figure(machine: &Machine, what: &str) -> Option<f64> {
    let tree = serde_json::to_value(machine).expect("plain data");
    let place = what
        .split('.')
        .try_fold(&tree, |place, part| place.get(part));
    place.and_then(serde_json::Value::as_f64)
}

/// Makes a fit: tries settings on `machine` and says all of them, in the order in which they were tried.
/// `rows` are what its cells stand for.
///
/// # Errors
/// One line: a run that cannot be made.
pub fn fit(
    fit: &Fit,
    machine: &Machine,
    rows: &[BaseRow],
    options: &Options,
    tick: &(dyn Fn() + Sync),
) -> Result<Vec<Tried>, String> {
    let settings = |settings: &[Vec<f64>]| -> Result<Vec<Tried>, String> {
        let mut specs = Vec::new();
        for setting in settings {
            specs.extend(specs_of(fit, rows, machine, setting)?);
        }
        let answers = sim(&specs, options, |_| tick());
        let runs: Result<Vec<Record>, String> = answers
            .into_iter()
            .map(|answer| answer.run.map(|run| run.record))
            .collect();
        let runs = runs?;
        let of_one = runs.chunks(rows.len() * fit.seeds as usize);
        settings
            .iter()
            .zip(of_one)
            .map(|(setting, runs)| judge(fit, rows, setting, runs))
            .collect()
    };
    let values: Vec<&[f64]> = fit.dial.iter().map(|dial| &dial.values[..]).collect();
    let mut tried = search(&values, settings)?;
    let best = nearest(&tried);
    tried[best].chosen = true;
    Ok(tried)
}

/// All runs of a setting, row by row.
fn specs_of(
    fit: &Fit,
    rows: &[BaseRow],
    machine: &Machine,
    setting: &[f64],
) -> Result<Vec<Spec>, String> {
    let mut machine = machine.clone();
    let mut think_ns = None;
    for (dial, &value) in fit.dial.iter().zip(setting) {
        match dial.what.as_str() {
            THINK => think_ns = Some(value),
            what => machine = with(&machine, what, value)?,
        }
    }
    let mut specs = Vec::new();
    for row in rows {
        let base = Spec::new(&fit.workload, machine.clone(), &fit.policy)?;
        let base = Spec {
            tasks: row.tasks,
            window: Window::parse(&fit.window)?,
            workload: Task {
                size: row.size,
                think_ns,
                ..base.workload.clone()
            },
            ..base
        };
        specs.extend((1..=fit.seeds).map(|seed| Spec {
            seed,
            ..base.clone()
        }));
    }
    Ok(specs)
}

fn judge(fit: &Fit, rows: &[BaseRow], setting: &[f64], runs: &[Record]) -> Result<Tried, String> {
    let mut got_rows = Vec::new();
    let mut squares = 0.0;
    for (row, runs) in rows.iter().zip(runs.chunks(fit.seeds as usize)) {
        let mut sum = 0.0;
        for run in runs {
            sum += run
                .figure(&row.figure)
                .ok_or_else(|| format!("fit `{}`: records have no `{}`", fit.name, row.figure))?;
        }
        let got = sum / runs.len() as f64;
        squares += ((got - row.published) / row.unit).powi(2);
        got_rows.push((row.cell.clone(), row.published, got));
    }
    Ok(Tried {
        fit: fit.name.clone(),
        model_version: flagstone_sim::MODEL_VERSION,
        setting: fit
            .dial
            .iter()
            .map(|dial| dial.what.clone())
            .zip(setting.iter().copied())
            .collect(),
        misfit: (squares / rows.len() as f64).sqrt(),
        rows: got_rows,
        chosen: false,
    })
}

/// The first of the settings with the least misfit.
fn nearest(tried: &[Tried]) -> usize {
    let all = tried.iter().enumerate();
    all.min_by(|a, b| a.1.misfit.total_cmp(&b.1.misfit))
        .map_or(0, |(index, _)| index)
}

/// All combinations of few values; of many the dials one after the other, until none wants to move.
fn search(
    values: &[&[f64]],
    mut run: impl FnMut(&[Vec<f64>]) -> Result<Vec<Tried>, String>,
) -> Result<Vec<Tried>, String> {
    let combinations: usize = values.iter().map(|values| values.len()).product();
    if combinations <= GRID_MOST {
        let mut grid = vec![Vec::new()];
        for values in values {
            let longer = grid.iter().flat_map(|setting: &Vec<f64>| {
                values
                    .iter()
                    .map(move |&value| [setting.as_slice(), &[value]].concat())
            });
            grid = longer.collect();
        }
        return run(&grid);
    }
    let mut best: Vec<f64> = values
        .iter()
        .map(|values| values[values.len() / 2])
        .collect();
    let mut tried: Vec<Tried> = Vec::new();
    for _ in 0..ROUNDS_MOST {
        let before = best.clone();
        for (dial, values) in values.iter().enumerate() {
            let settings = values.iter().map(|&value| {
                let mut setting = best.clone();
                setting[dial] = value;
                setting
            });
            let new: Vec<Vec<f64>> = settings
                .filter(|setting| !tried.iter().any(|known| is_at(known, setting)))
                .collect();
            tried.extend(run(&new)?);
            best = tried[nearest(&tried)]
                .setting
                .iter()
                .map(|(_, value)| *value)
                .collect();
        }
        if best == before {
            break;
        }
    }
    Ok(tried)
}

fn is_at(tried: &Tried, setting: &[f64]) -> bool {
    tried
        .setting
        .iter()
        .map(|(_, value)| *value)
        .eq(setting.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names;

    fn bowl(settings: &[Vec<f64>]) -> Result<Vec<Tried>, String> {
        let tried = settings.iter().map(|setting| Tried {
            fit: "bowl".into(),
            model_version: 0,
            setting: setting
                .iter()
                .map(|&value| (String::new(), value))
                .collect(),
            rows: Vec::new(),
            misfit: setting.iter().map(|value| (value - 3.0).powi(2)).sum(),
            chosen: false,
        });
        Ok(tried.collect())
    }

    #[test]
    fn few_settings_are_all_tried_and_of_many_the_lowest_is_found() {
        let values = [1.0, 2.0, 3.0, 4.0, 5.0];
        let all = search(&[&values, &values], bowl).unwrap();
        assert_eq!((all.len(), all[nearest(&all)].misfit), (25, 0.0));
        let some = search(&[&values[..], &values, &values], bowl).unwrap();
        assert!(some.len() < 125 && some[nearest(&some)].misfit == 0.0);
        for (index, one) in some.iter().enumerate() {
            assert!(
                !some[..index]
                    .iter()
                    .any(|other| other.setting == one.setting),
                "tried twice"
            );
        }
    }

    #[test]
    fn a_figure_of_a_profile_is_found_and_changed_by_its_name() {
        let machine = names::machine("spr-2s-224").unwrap();
        let changed = with(&machine, "latency_ns.socket", 99.0).unwrap();
        assert_eq!(figure(&changed, "latency_ns.socket"), Some(99.0));
        assert_eq!(changed.latency_ns.remote, machine.latency_ns.remote);
        for wrong in [
            "latency_ns.sockte",
            "latency_ns",
            "name",
            "topology.sockets.x",
        ] {
            assert!(with(&machine, wrong, 1.0).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_same_fit_says_the_same_and_its_choice_has_the_least_misfit() {
        let text = r#"
            [[fit]]
            name = "t"
            machine = "x86-16"
            workload = "random-mix"
            policy = "linux-6.5"
            seeds = 2
            window = "1ms"
            cells = ["none"]
            [[fit.dial]]
            what = "think_ns"
            values = [10.0, 500.0]
        "#;
        let fits = parse(text).unwrap();
        let machine = names::machine(&fits[0].machine).unwrap();
        let rows = [BaseRow {
            cell: "none".into(),
            tasks: 2,
            size: None,
            figure: "ops_per_task_per_s".into(),
            published: 1.9e6,
            unit: 0.25 * 1.9e6,
        }];
        let make = || fit(&fits[0], &machine, &rows, &Options::default(), &|| ()).unwrap();
        let tried = make();
        assert_eq!(tried, make());
        assert_eq!(
            tried.iter().map(|one| one.chosen).collect::<Vec<_>>(),
            [false, true]
        );
        assert!(
            tried[0].rows[0].2 > tried[1].rows[0].2,
            "more thinking, fewer operations"
        );
    }
}
