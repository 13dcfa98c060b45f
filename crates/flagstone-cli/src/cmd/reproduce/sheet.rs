//! The sheet: every published cell with what was got in its place, and how it is judged.
//!
//! ```text
//!   published ──► Cell { got, own, method, reason } ──► error ──► inside its accuracy?
//!                                                └────► sign: does it move the published way?
//! ```
//!
//! A cell that a parameter was fitted to, or that is 100 by definition, is marked `fitted` and
//! counts in neither sum. A cell without a figure carries its reason. Signs are counted twice: all
//! of them, and those that are claims (see `claim`).

use super::ask::Stat;
use super::claim;
use super::measured;
use super::published::{self, Published};
use super::score::{self, Score};
use serde::Serialize;

/// How a figure came about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Method {
    /// From the rules alone.
    Computed,
    /// On virtual CPUs.
    Simulated,
}

/// Percent or points: a smaller move of ours has no sign.
const SIGN_LEAST: f64 = 0.05;

/// How close counts as reproduced.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Accuracy {
    /// The very number.
    Exact,
    /// Within so many units of the published figure (percentage points, mostly), and never more than half
    /// of it: what zero would meet judges nothing.
    Points(f64),
    /// Within so many percent of it.
    Percent(f64),
    /// Between it divided and it multiplied by this.
    Factor(f64),
}

impl Accuracy {
    /// Whether `got` is close enough to `published`.
    pub(super) fn holds(self, published: f64, got: f64) -> bool {
        match self {
            Self::Exact => got == published,
            Self::Points(points) => (got - published).abs() <= points.min(published.abs() / 2.0),
            Self::Percent(percent) => (got - published).abs() <= published.abs() * percent / 100.0,
            Self::Factor(factor) => {
                got > 0.0 && got <= published * factor && got * factor >= published
            }
        }
    }

    /// How far `got` is from `published`, in tolerances: above one is outside.
    pub(super) fn distance(self, published: f64, got: f64) -> f64 {
        let away = (got - published).abs();
        match self {
            Self::Exact if away == 0.0 => 0.0,
            Self::Exact => f64::INFINITY,
            Self::Points(points) => away / points.min(published.abs() / 2.0),
            Self::Percent(percent) => away / (published.abs() * percent / 100.0),
            Self::Factor(_) if got <= 0.0 => f64::INFINITY,
            Self::Factor(factor) => (got / published).ln().abs() / factor.ln(),
        }
    }

    /// Set on this day, before the first result of its row was seen.
    pub(super) const fn blind(self, on: &'static str) -> Stated {
        Stated {
            accuracy: self,
            on,
            blind: true,
        }
    }

    /// Set on this day, with results in view.
    pub(super) const fn seen(self, on: &'static str) -> Stated {
        Stated {
            accuracy: self,
            on,
            blind: false,
        }
    }

    /// In words.
    pub(super) fn words(self) -> String {
        match self {
            Self::Exact => "exact".into(),
            Self::Points(points) => format!("±{points} points"),
            Self::Percent(percent) => format!("±{percent} %"),
            Self::Factor(factor) => format!("a factor of {factor}"),
        }
    }
}

/// An accuracy, the day on which it was set, and whether results had been seen then.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Stated {
    /// What is promised.
    pub(super) accuracy: Accuracy,
    /// Since when, as 2026-11-20.
    pub(super) on: &'static str,
    /// Whether it was set before the first result.
    pub(super) blind: bool,
}

impl Stated {
    /// In words, without the day.
    pub(super) fn words(self) -> String {
        self.accuracy.words()
    }
}

/// What a figure's direction is judged against.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Versus {
    /// The figure is a change: its own sign counts.
    Zero,
    /// Another cell of the same document: table, row, column, and which of equal keys.
    Cell([String; 3], usize),
}

/// A published cell and what stands beside it.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    /// What the document says.
    pub(super) published: Published,
    /// What was got in its place.
    pub(super) got: Option<f64>,
    /// Standard deviation over seeds, if there were several.
    pub(super) spread: Option<f64>,
    /// The `flagstone` policy in the same place.
    pub(super) own: Option<f64>,
    /// How.
    pub(super) method: Method,
    /// Why there is no figure, or what to know about it.
    pub(super) reason: Option<String>,
    /// The machine or the captured population.
    pub(super) profile: Option<String>,
    /// A parameter was fitted to this cell, or it is so by definition.
    pub(super) fitted: bool,
    /// What its row promises.
    pub(super) accuracy: Option<Stated>,
    /// What its direction is judged against.
    pub(super) versus: Option<Versus>,
}

impl Cell {
    /// In percent of the published figure; points where that is a percentage itself or nothing.
    pub(super) fn error(&self) -> Option<f64> {
        let (got, published) = (self.got?, self.published.value);
        Some(match self.error_unit() {
            "points" => got - published,
            _ => (got - published) / published.abs() * 100.0,
        })
    }

    /// The unit of [`Cell::error`].
    pub(super) fn error_unit(&self) -> &'static str {
        if self.published.unit.starts_with('%') || self.published.value == 0.0 {
            "points"
        } else {
            "%"
        }
    }

    /// Whether the figure is within what its row promises; `None` if there is nothing to judge.
    pub(super) fn inside(&self) -> Option<bool> {
        if self.fitted {
            return None;
        }
        self.judge(self.got?)
    }

    /// Whether another figure in this place would be within it.
    pub(super) fn judge(&self, figure: f64) -> Option<bool> {
        let stated = self.accuracy?;
        Some(stated.accuracy.holds(self.published.value, figure))
    }
}

/// Figures for one cell.
#[derive(Clone, Debug, Default)]
pub(super) struct Fill {
    /// What was got, with its deviation over seeds, or why not.
    pub(super) got: Option<Result<(f64, Option<f64>), String>>,
    /// Our own policy's.
    pub(super) own: Option<f64>,
    /// Fitted or by definition.
    pub(super) fitted: bool,
    /// Promised accuracy.
    pub(super) accuracy: Option<Stated>,
    /// Direction.
    pub(super) versus: Option<Versus>,
    /// Machine or population.
    pub(super) profile: Option<String>,
    /// A remark.
    pub(super) note: Option<String>,
}

/// A figure beside the published ones: a remedy, a phase, memory, a count.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Extra {
    /// Which document it belongs to.
    pub(super) seed: &'static str,
    /// Its table.
    pub(super) table: String,
    /// The row.
    pub(super) row: String,
    /// The column.
    pub(super) column: String,
    /// The figure.
    pub(super) got: f64,
    /// How.
    pub(super) method: Method,
    /// Its unit.
    pub(super) unit: &'static str,
}

/// Something the default policy should reach on a row, and whether it does.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Target {
    /// Which document.
    pub(super) seed: &'static str,
    /// What is wanted.
    pub(super) wanted: String,
    /// What was found.
    pub(super) found: String,
    /// Reached; `None` if the runs do not tell, or there are none.
    pub(super) reached: Option<bool>,
    /// How far on the wanted side, in standard errors of the difference; none where nothing varies.
    pub(super) margin: Option<f64>,
}

impl Target {
    /// A target that is reached if the first of each pair is at most the second, by the rule of published
    /// claims ([`claim::LEAST`] standard errors); missed if one is above by as many, else not told.
    pub(super) fn at_most(
        seed: &'static str,
        wanted: String,
        found: String,
        pairs: &[(Stat, Stat)],
    ) -> Self {
        let margin = |(less, more): &(Stat, Stat)| {
            let apart = more.mean - less.mean;
            let error = less.error().hypot(more.error());
            if error == 0.0 {
                if apart >= 0.0 {
                    f64::INFINITY
                } else {
                    f64::NEG_INFINITY
                }
            } else {
                apart / error
            }
        };
        let least = pairs.iter().map(margin).fold(f64::INFINITY, f64::min);
        let told = least.abs() >= claim::LEAST;
        Self {
            seed,
            wanted,
            found,
            reached: told.then_some(least > 0.0),
            margin: least.is_finite().then_some(least),
        }
    }

    /// How it came out, in a word or two.
    pub(super) fn verdict(&self) -> &'static str {
        match self.reached {
            Some(true) => "yes",
            Some(false) => "no",
            None => "not told",
        }
    }
}

/// A value that decides figures and is the same for base, patched and own rows.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Setting {
    /// Which document.
    pub(super) seed: &'static str,
    /// The value.
    pub(super) what: String,
    /// Where it comes from; for a fit, the base row it was fitted to.
    pub(super) source: String,
    /// Values tried before this one was kept.
    pub(super) tried: u32,
}

/// Whether a machine's profile was fitted to this cell, as the profile says.
fn fitted(machine: &str, [table, row, column]: [&str; 3]) -> bool {
    let name = format!("{table}/{row}/{column}");
    let machine = machine.split(',').next().unwrap_or(machine);
    flagstone_sim::Machine::named(machine).is_ok_and(|machine| machine.fitted_to.contains(&name))
}

/// Values tried while a machine's profile was fitted, as the profile says.
pub(super) fn tried(machine: &str) -> u32 {
    flagstone_sim::Machine::named(machine).map_or(0, |machine| machine.settings_tried)
}

/// Everything one call produces.
#[derive(Clone, Debug)]
pub(super) struct Sheet {
    /// The published cells, in the documents' order.
    pub(super) cells: Vec<Cell>,
    /// Figures without a published one.
    pub(super) extras: Vec<Extra>,
    /// What the default policy should reach.
    pub(super) targets: Vec<Target>,
    /// What decides the figures.
    pub(super) settings: Vec<Setting>,
    /// What was measured on real threads.
    pub(super) measured: measured::Found,
    /// The seed that simulated runs begin with.
    pub(super) first_seed: u64,
}

impl Sheet {
    /// The published cells of the documents asked for, nothing got yet.
    pub(super) fn new(seeds: &[&str]) -> Self {
        let asked = |cell: &Published| seeds.contains(&cell.seed.as_str());
        let cells = published::cells().into_iter().filter(asked);
        Self {
            cells: cells
                .map(|published| Cell {
                    published,
                    got: None,
                    spread: None,
                    own: None,
                    method: Method::Simulated,
                    reason: Some("nothing in this program regenerates it".into()),
                    profile: None,
                    fitted: false,
                    accuracy: None,
                    versus: None,
                })
                .collect(),
            extras: Vec::new(),
            targets: Vec::new(),
            settings: Vec::new(),
            measured: Err("not asked for".into()),
            first_seed: super::FIRST_SEED,
        }
    }

    /// The cell of a key, the `nth` of equal ones.
    pub(super) fn cell(&self, table: &str, row: &str, column: &str, nth: usize) -> Option<&Cell> {
        self.find(table, row, column, nth)
            .map(|found| &self.cells[found])
    }

    fn find(&self, table: &str, row: &str, column: &str, nth: usize) -> Option<usize> {
        self.cells.iter().position(|cell| {
            let known = &cell.published;
            known.table == table && known.row == row && known.column == column && known.nth == nth
        })
    }

    /// Fills in one cell.
    pub(super) fn fill(&mut self, method: Method, at: [&str; 3], nth: usize, fill: Fill) {
        let [table, row, column] = at;
        let found = self.find(table, row, column, nth);
        let found = found.unwrap_or_else(|| panic!("no published cell {table}/{row}/{column}"));
        let by_machine = fill.profile.as_deref().is_some_and(|name| fitted(name, at));
        let cell = &mut self.cells[found];
        cell.method = method;
        cell.reason = fill.note;
        match fill.got {
            Some(Ok((got, spread))) => (cell.got, cell.spread) = (Some(got), spread),
            Some(Err(reason)) => cell.reason = Some(reason),
            None => {}
        }
        cell.own = fill.own;
        cell.fitted = fill.fitted || by_machine;
        cell.accuracy = fill.accuracy;
        cell.versus = fill.versus;
        cell.profile = fill.profile;
    }

    /// Whether a figure moves the way the published one does: `None` if that is not asked.
    ///
    /// Moves are percent of the base cell, points where the unit is a percentage. A published
    /// move of less than a half is "unchanged", right if ours is less than 2; any other is wrong
    /// where ours has no size to speak of, whatever its sign.
    pub(super) fn sign(&self, cell: &Cell) -> Option<bool> {
        self.moves_as_published(cell, cell.got.filter(|_| !cell.fitted)?)
    }

    /// Likewise, but `None` where the documents make no claim of a direction.
    pub(super) fn claimed_sign(&self, cell: &Cell) -> Option<bool> {
        let right = self.sign(cell)?;
        claim::none(self, cell).is_none().then_some(right)
    }

    fn moves_as_published(&self, cell: &Cell, got: f64) -> Option<bool> {
        let published = cell.published.value;
        let points = cell.published.unit.starts_with('%');
        let (published, got) = match cell.versus.as_ref()? {
            Versus::Zero => (published, got),
            Versus::Cell([table, row, column], nth) => {
                let other = &self.cells[self.find(table, row, column, *nth)?];
                let moved = |value: f64, base: f64| {
                    let by = value - base;
                    if points { by } else { by / base.abs() * 100.0 }
                };
                (
                    moved(published, other.published.value),
                    moved(got, other.got?),
                )
            }
        };
        if published.is_nan() || got.is_nan() {
            return None;
        }
        Some(if published.abs() < 0.5 {
            got.abs() < 2.0
        } else {
            got * published > 0.0 && got.abs() >= SIGN_LEAST
        })
    }

    /// The sums of the summary line.
    pub(super) fn summary(&self) -> Summary {
        let mut sum = Summary::default();
        for cell in &self.cells {
            sum.cells += 1;
            sum.missing += usize::from(cell.got.is_none());
            sum.fitted += usize::from(cell.fitted && cell.got.is_some());
            if let Some(right) = self.sign(cell) {
                sum.signs += 1;
                sum.signs_right += usize::from(right);
            }
            if let Some(right) = self.claimed_sign(cell) {
                sum.claims += 1;
                sum.claims_right += usize::from(right);
            }
            if let Some(inside) = cell.inside() {
                sum.judged += 1;
                sum.inside += usize::from(inside);
            }
        }
        sum.settings_tried = self.settings.iter().map(|setting| setting.tried).sum();
        sum.score = Score::of(self, None);
        sum.targets = self.targets.len();
        sum.targets_reached = self
            .targets
            .iter()
            .filter(|target| target.reached == Some(true))
            .count();
        sum.targets_not_told = (self.targets.iter())
            .filter(|target| target.reached.is_none())
            .count();
        sum
    }

    /// The result in plain sentences.
    pub(super) fn headline(&self) -> String {
        let sum = self.summary();
        let documents: Vec<String> = score::by_document(self)
            .into_iter()
            .map(|(name, score)| format!("{name} {}", score.skill_words()))
            .collect();
        format!(
            "{} published figures are independent of each other and of everything fitted. The simulation has \
             {} of them within the stated tolerance; predicting that nothing changes has {}. Skill over doing \
             nothing is {} of 1 ({}). Of {} claimed directions {} are right. {} settings were tried. The \
             flagstone policy reaches {} of its {} targets, and of {} the runs do not tell",
            sum.score.cells,
            sum.score.inside,
            sum.score.nothing_inside,
            sum.score.skill_words(),
            documents.join(", "),
            sum.claims,
            sum.claims_right,
            sum.settings_tried,
            sum.targets_reached,
            sum.targets,
            sum.targets_not_told
        )
    }

    /// What the simulation should be as good as, set on 2026-11-22, and how good it is.
    pub(super) fn goals(&self) -> Vec<Goal> {
        let sum = self.summary();
        let skill = |(name, score, least): (&str, Score, f64)| Goal {
            wanted: format!("{name}: skill at least {least}"),
            found: score.skill_words(),
            reached: score.skill.map(|skill| skill >= least),
        };
        let all = [("all documents", sum.score, 0.75)].into_iter();
        let each = score::by_document(self).into_iter();
        let mut goals: Vec<Goal> = all
            .chain(each.map(|(name, score)| (name, score, 0.5)))
            .map(skill)
            .collect();
        let share = sum.claims_right as f64 / sum.claims.max(1) as f64 * 100.0;
        goals.push(Goal {
            wanted: "at least 97 % of claimed directions right".into(),
            found: format!("{share:.1} %"),
            reached: (sum.claims > 0).then_some(share >= 97.0),
        });
        for cell in &self.cells {
            let known = &cell.published;
            let promised = cell.accuracy.map(|stated| stated.accuracy);
            let Some(Accuracy::Points(points)) = promised.filter(|_| known.column == "gain") else {
                continue;
            };
            let off = cell.got.map(|got| got - known.value);
            goals.push(Goal {
                wanted: format!(
                    "{} {} {} gain within ±{points} points",
                    known.seed, known.table, known.row
                ),
                found: off.map_or_else(|| "–".into(), |off| format!("{off:+.1}")),
                reached: off.map(|off| off.abs() <= points),
            });
        }
        if let Some(factor) = score::factor(self, "S1") {
            goals.push(Goal {
                wanted: "S1 within a factor of 1.25, root mean square".into(),
                found: format!("{factor:.2}"),
                reached: Some(factor <= 1.25),
            });
        }
        goals
    }
}

/// How good the simulation should be in one respect, and how good it is.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Goal {
    /// What is wanted.
    pub(super) wanted: String,
    /// What was found.
    pub(super) found: String,
    /// Whether it is so.
    pub(super) reached: Option<bool>,
}

/// How a whole sheet came out.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub(super) struct Summary {
    /// Published cells asked for.
    pub(super) cells: usize,
    /// Cells without a figure.
    pub(super) missing: usize,
    /// Cells that are fitted or so by definition, not judged.
    pub(super) fitted: usize,
    /// Cells with a direction.
    pub(super) signs: usize,
    /// Of these, with the published one.
    pub(super) signs_right: usize,
    /// Cells with a direction that is a claim by the document's own spread.
    pub(super) claims: usize,
    /// Of these, with the published one.
    pub(super) claims_right: usize,
    /// Cells with an accuracy and a figure.
    pub(super) judged: usize,
    /// Of these, within it.
    pub(super) inside: usize,
    /// Values tried for all settings together.
    pub(super) settings_tried: u32,
    /// What the default policy should reach.
    pub(super) targets: usize,
    /// Of these, reached.
    pub(super) targets_reached: usize,
    /// Of these, those of which the runs do not tell.
    pub(super) targets_not_told: usize,
    /// Independent cells, beside doing nothing.
    #[serde(rename = "independent")]
    pub(super) score: Score,
}

#[cfg(test)]
#[path = "sheet_tests.rs"]
mod tests;
