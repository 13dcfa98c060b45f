//! A sweep's file: what is varied, as grids and lists.
//!
//! ```text
//!   workload = ["mmap1", "larson"]      a value or a list: a grid over all lists
//!   tasks = [1, 2, 4]
//!   seeds = 5                           1 to 5; or a list; or { first = 7, count = 5 }
//!   [knobs]                             a grid as well
//!   sheaf_capacity = [16, 32]
//!   [[case]]                            each case stands in for the keys it names
//!   policy = "linux-6.5"
//!   knobs = { cpu_partial = 30 }
//! ```
//!
//! A mistake names the file, the line, and what was probably meant.

use crate::names;
use crate::spec::{Rules, Spec, Window};
use crate::units;
use flagstone_core::policy::KEYS;
use flagstone_sim::{Machine, Placement};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Keys of a file and of a case.
const KEYS_OF_A_FILE: [&str; 11] = [
    "workload",
    "machine",
    "policy",
    "tasks",
    "seeds",
    "size",
    "think",
    "placement",
    "window",
    "knobs",
    "case",
];

/// Most specs of one sweep: beyond it something was mistyped.
const SPECS_MAX: usize = 1_000_000;

/// A read file.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Every spec once, in the order of their digests.
    pub specs: Vec<Spec>,
}

/// One table's lists; an absent one is empty.
#[derive(Clone, Default)]
struct Axes {
    workloads: Vec<String>,
    machines: Vec<Machine>,
    policies: Vec<String>,
    tasks: Vec<Tasks>,
    seeds: Vec<u64>,
    sizes: Vec<usize>,
    thinks: Vec<f64>,
    placements: Vec<Placement>,
    window: Option<Window>,
    /// Values of each knob, and where it stands.
    knobs: BTreeMap<String, Vec<String>>,
}

#[derive(Clone, Copy)]
enum Tasks {
    All,
    Count(u32),
}

type Value<'a> = Spanned<DeValue<'a>>;

/// The file on the way.
struct Reader<'a> {
    name: &'a str,
    text: &'a str,
    /// Machines' files are looked for here.
    folder: &'a Path,
}

/// Reads the text of the file called `name`; machines' files lie beside it, in `folder`.
///
/// # Errors
/// One line: file, line, what is wrong.
pub fn parse(name: &str, text: &str, folder: &Path) -> Result<Plan, String> {
    at_most(name, text, folder, SPECS_MAX)
}

/// The same for a sweep of at most `most` runs.
pub(crate) fn at_most(name: &str, text: &str, folder: &Path, most: usize) -> Result<Plan, String> {
    let reader = Reader { name, text, folder };
    let table = DeTable::parse(text).map_err(|error| {
        let place = error.span().unwrap_or(0..0);
        let what = error
            .message()
            .lines()
            .next()
            .unwrap_or("not readable")
            .to_owned();
        reader.at(&place, &what)
    })?;
    let table = table.into_inner();
    let mut base = Axes::default();
    let mut cases = Vec::new();
    for (key, value) in &table {
        match (key.get_ref().as_ref(), value.get_ref()) {
            ("case", DeValue::Array(list)) => cases = list.iter().collect(),
            ("case", _) => return Err(reader.at(&value.span(), "cases are written [[case]]")),
            (word, _) => reader.key(&mut base, word, key.span(), value)?,
        }
    }
    let mut specs = BTreeMap::new();
    let mut add = |axes: &Axes, place: Range<usize>| {
        // Before any of them is made.
        if axes.runs() > most {
            return Err(reader.at(&place, &format!("more than {most} runs")));
        }
        reader.grid(axes, |spec| {
            spec.check().map_err(|why| reader.at(&place, &why))?;
            specs.insert(spec.digest(), spec);
            match specs.len() > most {
                true => Err(reader.at(&place, &format!("more than {most} runs"))),
                false => Ok(()),
            }
        })
    };
    if cases.is_empty() {
        add(&base, 0..0)?;
    }
    for case in cases {
        let DeValue::Table(inner) = case.get_ref() else {
            return Err(reader.at(&case.span(), "a case is a table"));
        };
        let mut own = Axes::default();
        for (key, value) in inner {
            if key.get_ref() == "case" {
                return Err(reader.at(&key.span(), "a case has no cases"));
            }
            reader.key(&mut own, key.get_ref(), key.span(), value)?;
        }
        add(&base.under(own), case.span())?;
    }
    Ok(Plan {
        specs: specs.into_values().collect(),
    })
}

impl Axes {
    /// Runs of the grid; lists that are absent have one value.
    fn runs(&self) -> usize {
        let lists = [
            self.workloads.len(),
            self.machines.len(),
            self.policies.len(),
            self.tasks.len(),
            self.seeds.len(),
            self.sizes.len(),
            self.thinks.len(),
            self.placements.len(),
        ];
        let knobs = self.knobs.values().map(Vec::len);
        let values = lists.into_iter().chain(knobs).map(|values| values.max(1));
        values.fold(1, usize::saturating_mul)
    }

    /// The same with what `other` names in place of its own.
    fn under(&self, other: Self) -> Self {
        fn or<T: Clone>(own: Vec<T>, base: &[T]) -> Vec<T> {
            if own.is_empty() { base.to_vec() } else { own }
        }
        let mut knobs = self.knobs.clone();
        knobs.extend(other.knobs);
        Self {
            workloads: or(other.workloads, &self.workloads),
            machines: or(other.machines, &self.machines),
            policies: or(other.policies, &self.policies),
            tasks: or(other.tasks, &self.tasks),
            seeds: or(other.seeds, &self.seeds),
            sizes: or(other.sizes, &self.sizes),
            thinks: or(other.thinks, &self.thinks),
            placements: or(other.placements, &self.placements),
            window: other.window.or(self.window),
            knobs,
        }
    }
}

impl Reader<'_> {
    /// A mistake with its line.
    fn at(&self, place: &Range<usize>, what: &str) -> String {
        let before = self.text.get(..place.start).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        match place.end {
            0 => format!("{}: {what}", self.name),
            _ => format!("{}, line {line}: {what}", self.name),
        }
    }

    /// Takes one key.
    fn key(
        &self,
        axes: &mut Axes,
        key: &str,
        place: Range<usize>,
        value: &Value<'_>,
    ) -> Result<(), String> {
        match key {
            "workload" => {
                axes.workloads = self.each(value, |word| {
                    names::workload(word).map(|known| known.name.to_owned())
                })?;
            }
            "machine" => axes.machines = self.each(value, |word| self.machine(word))?,
            "policy" => {
                axes.policies =
                    self.each(value, |word| names::policy(word).map(|(name, _)| name))?
            }
            "tasks" => axes.tasks = self.each(value, tasks)?,
            "seeds" => axes.seeds = self.seeds(value)?,
            "size" => axes.sizes = self.each(value, units::bytes)?,
            "think" => axes.thinks = self.each(value, units::nanoseconds)?,
            "placement" => {
                axes.placements = self.each(value, |word| match word {
                    "compact" => Ok(Placement::Compact),
                    "spread" => Ok(Placement::Spread),
                    _ => Err(format!("placement `{word}`: it is compact or spread")),
                })?;
            }
            "window" => axes.window = self.each(value, Window::parse)?.pop(),
            "knobs" => self.knobs(axes, value)?,
            _ => {
                let near = names::question(key, KEYS_OF_A_FILE);
                let known = KEYS_OF_A_FILE.join(", ");
                return Err(self.at(
                    &place,
                    &format!("unknown key `{key}`; {near}known: {known}"),
                ));
            }
        }
        Ok(())
    }

    /// A value or a list of values, each read by `read`, which is told the text.
    fn each<T>(
        &self,
        value: &Value<'_>,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Vec<T>, String> {
        let one = |value: &Value<'_>| {
            let text = match value.get_ref() {
                DeValue::String(text) => text.to_string(),
                DeValue::Integer(number) => number.to_string(),
                DeValue::Float(number) => number.to_string(),
                _ => return Err(self.at(&value.span(), "a text, a number, or a list of them")),
            };
            read(&text).map_err(|why| self.at(&value.span(), &why))
        };
        match value.get_ref() {
            DeValue::Array(list) if list.is_empty() => {
                Err(self.at(&value.span(), "an empty list runs nothing"))
            }
            DeValue::Array(list) => list.iter().map(one).collect(),
            _ => Ok(vec![one(value)?]),
        }
    }

    fn machine(&self, word: &str) -> Result<Machine, String> {
        let base = word.rsplit_once('@').map_or(word, |(base, _)| base);
        match base.ends_with(".toml") && Path::new(base).is_relative() {
            true => names::machine(&self.folder.join(word).to_string_lossy()),
            false => names::machine(word),
        }
    }

    /// A count, a list, or a table of `first` and `count`.
    fn seeds(&self, value: &Value<'_>) -> Result<Vec<u64>, String> {
        let range = |first: u64, count: u64| match first.checked_add(count) {
            Some(end) if count > 0 && count <= SPECS_MAX as u64 => Ok((first..end).collect()),
            _ => Err(self.at(
                &value.span(),
                &format!("{count} seeds from {first} on cannot be"),
            )),
        };
        match value.get_ref() {
            DeValue::Array(_) => self.each(value, units::count),
            DeValue::Table(table) => {
                let (mut first, mut count) = (1, None);
                for (key, value) in table {
                    let number = self.each(value, units::count)?.pop().unwrap_or(0);
                    match key.get_ref().as_ref() {
                        "first" => first = number,
                        "count" => count = Some(number),
                        other => {
                            let near = names::question(other, ["first", "count"]);
                            let what = format!("unknown key `{other}`; {near}known: first, count");
                            return Err(self.at(&key.span(), &what));
                        }
                    }
                }
                let count = count.ok_or_else(|| self.at(&value.span(), "seeds need a count"))?;
                range(first, count)
            }
            _ => range(1, self.each(value, units::count)?.pop().unwrap_or(0)),
        }
    }

    fn knobs(&self, axes: &mut Axes, value: &Value<'_>) -> Result<(), String> {
        let DeValue::Table(table) = value.get_ref() else {
            return Err(self.at(
                &value.span(),
                "knobs are a table: [knobs], or { KEY = VALUE }",
            ));
        };
        for (key, value) in table {
            let name = key.get_ref();
            if !KEYS.iter().any(|(known, _)| known == name) {
                let near = names::question(name, KEYS.iter().map(|(known, _)| *known));
                let what = format!(
                    "unknown knob `{name}`; {near}`flagstone run --help` and docs/options.md list all"
                );
                return Err(self.at(&key.span(), &what));
            }
            let values = self.each(value, |word| {
                let mut policy = flagstone_core::policy::Policy::default();
                let set = names::set(&mut policy, &format!("{name}={word}"));
                set.map(|(_, value)| value)
            })?;
            axes.knobs.insert(name.to_string(), values);
        }
        Ok(())
    }

    /// Every spec of a grid.
    fn grid(
        &self,
        axes: &Axes,
        mut tell: impl FnMut(Spec) -> Result<(), String>,
    ) -> Result<(), String> {
        if axes.workloads.is_empty() {
            return Err(format!(
                "{}: no workload; write workload = \"mmap1\"",
                self.name
            ));
        }
        let or = |texts: &[String], default: &str| match texts.is_empty() {
            true => vec![default.to_owned()],
            false => texts.to_vec(),
        };
        let machines = match axes.machines.is_empty() {
            true => vec![names::machine("this-machine")?],
            false => axes.machines.clone(),
        };
        let mut policies = Vec::new();
        for name in or(&axes.policies, "flagstone") {
            for settings in settings(&axes.knobs) {
                policies.push(Rules::parse(&name, &settings)?);
            }
        }
        let seeds = if axes.seeds.is_empty() {
            &[1][..]
        } else {
            &axes.seeds
        };
        let all_tasks = if axes.tasks.is_empty() {
            &[Tasks::All][..]
        } else {
            &axes.tasks
        };
        for workload in &axes.workloads {
            let known = names::workload(workload)?;
            for machine in &machines {
                let mut base = Spec::new(workload, machine.clone(), "flagstone")?;
                base.window = axes.window.unwrap_or(Window::FULL);
                for (size, think, placement) in triples(axes) {
                    base.workload.size = size;
                    base.workload.think_ns = think;
                    base.workload.placement = placement;
                    for tasks in all_tasks {
                        base.tasks = match *tasks {
                            Tasks::Count(count) => count,
                            Tasks::All => machine.cpus() / known.tasks.step * known.tasks.step,
                        };
                        for policy in &policies {
                            for &seed in seeds {
                                tell(Spec {
                                    seed,
                                    policy: policy.clone(),
                                    ..base.clone()
                                })?;
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

fn tasks(word: &str) -> Result<Tasks, String> {
    match word {
        "all" => Ok(Tasks::All),
        _ => {
            let count = word.parse();
            let count = count.map_err(|_| format!("tasks `{word}`: a number, or \"all\""))?;
            Ok(Tasks::Count(count))
        }
    }
}

/// All combinations of what a workload can be told.
fn triples(axes: &Axes) -> Vec<(Option<usize>, Option<f64>, Option<Placement>)> {
    fn some<T: Copy>(list: &[T]) -> Vec<Option<T>> {
        match list.is_empty() {
            true => vec![None],
            false => list.iter().copied().map(Some).collect(),
        }
    }
    let mut all = Vec::new();
    for size in some(&axes.sizes) {
        for think in some(&axes.thinks) {
            for placement in some(&axes.placements) {
                all.push((size, think, placement));
            }
        }
    }
    all
}

/// All combinations of knobs, each as `KEY=VALUE`.
fn settings(knobs: &BTreeMap<String, Vec<String>>) -> Vec<Vec<String>> {
    knobs
        .iter()
        .fold(vec![Vec::new()], |before, (key, values)| {
            let with = |chosen: &Vec<String>, value: &String| {
                let mut chosen = chosen.clone();
                chosen.push(format!("{key}={value}"));
                chosen
            };
            before
                .iter()
                .flat_map(|chosen| values.iter().map(move |value| with(chosen, value)))
                .collect()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Spec>, String> {
        parse("s.toml", text, Path::new(".")).map(|plan| plan.specs)
    }

    #[test]
    fn a_grid_is_every_combination_and_a_case_stands_in_for_what_it_names() {
        let grid = "workload = [\"larson\", \"random-mix\"]\nmachine = \"x86-16\"\ntasks = [2, \"all\"]\n\
                    size = [\"1K\", 64]\nseeds = 3\nwindow = \"quick\"\n[knobs]\nbarn_full = [1, 2]\n";
        let specs = read(grid).unwrap();
        assert_eq!(specs.len(), 2 * 2 * 2 * 3 * 2);
        assert!(specs.iter().all(|spec| spec.policy.knobs.len() == 1));
        let digests: Vec<String> = specs.iter().map(Spec::digest).collect();
        assert!(digests.is_sorted());
        let cases = format!(
            "{grid}[[case]]\npolicy = \"6.5\"\nknobs = {{ cpu_partial = [30, 60] }}\n[[case]]\nseeds = [9]\n"
        );
        let cases = read(&cases).unwrap();
        assert_eq!(cases.len(), 2 * 2 * 2 * 3 * 4 + 2 * 2 * 2 * 2);
        let kernel = cases.iter().filter(|spec| spec.policy.name == "linux-6.5");
        assert!(kernel.clone().all(|spec| spec.policy.knobs.len() == 2));
    }

    #[test]
    fn what_is_asked_for_twice_is_one_spec() {
        let specs = read(
            "workload = \"larson\"\nmachine = \"x86-16\"\nseeds = [1, 1]\npolicy = [\"7.0\", \"linux-7.0\"]\n",
        );
        assert_eq!(specs.unwrap().len(), 1);
    }

    #[test]
    fn a_mistake_names_file_line_and_what_was_meant() {
        let head = "workload = \"larson\"\nmachine = \"x86-16\"\n";
        let cases = [
            (
                "polcy = \"7.0\"",
                "s.toml, line 3: unknown key `polcy`; did you mean 'policy'?",
            ),
            (
                "policy = [\"7.0\",\n \"flagstoen\"]",
                "line 4: unknown policy 'flagstoen'; did you mean 'flagstone'?",
            ),
            (
                "[knobs]\nsheaf_capcity = 3",
                "line 4: unknown knob `sheaf_capcity`; did you mean 'sheaf_capacity'?",
            ),
            (
                "[knobs]\nslab_max_order = 44",
                "line 4: --set slab_max_order=44",
            ),
            (
                "[[case]]\nseed = 3",
                "line 4: unknown key `seed`; did you mean 'seeds'?",
            ),
            (
                "seeds = { frist = 3, count = 2 }",
                "line 3: unknown key `frist`; did you mean 'first'?",
            ),
            ("seeds = { first = 3 }", "line 3: seeds need a count"),
            ("tasks = [1, 99]", "99 tasks"),
            ("tasks = []", "line 3: an empty list"),
            ("size = \"8MB\"", "line 3: `8MB` is no size"),
            ("window = \"soon\"", "line 3: window `soon`"),
            ("think = true", "line 3: a text, a number"),
            ("tasks = [1", "line 3"),
            ("machine = \"cray\"", "line 3"),
        ];
        for (text, part) in cases {
            let line = read(&format!("{head}{text}\n")).unwrap_err();
            assert!(line.contains(part), "{text}: {line}");
            assert_eq!(line.lines().count(), 1, "{line}");
        }
        assert!(read("").unwrap_err().contains("no workload"));
        assert!(
            read("workload = \"hackbnch\"")
                .unwrap_err()
                .contains("line 1"),
            "did you mean"
        );
    }
}
