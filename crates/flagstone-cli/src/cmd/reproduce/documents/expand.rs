//! What a document writes once and means several times.
//!
//! ```text
//!   for = { size = [8, 16], name = "x" }   the element twice: "{size}" becomes 8 and 16, "{name}" x in both
//!   rows = "sizes"                         what [sets] has under that name; in a list, its elements
//!   [[table.tables]]                       tables of an element with `for`, as many times
//! ```
//!
//! This works on the values of the file, before they are read as what they mean.

use toml::{Table, Value};

/// Keys of a table under which sets may stand.
const WITH_SETS: [&str; 6] = ["run", "rows", "columns", "rules", "targets", "extras"];

/// Names and what they stand for.
type Bindings = Vec<(String, Value)>;

/// All tables of a list, those inside others too, with sets put in.
pub(super) fn tables(list: &[Value], sets: &Table) -> Result<Vec<Table>, String> {
    let mut found = Vec::new();
    nested(list, sets, &Vec::new(), &mut found)?;
    Ok(found)
}

fn nested(
    list: &[Value],
    sets: &Table,
    outer: &Bindings,
    found: &mut Vec<Table>,
) -> Result<(), String> {
    for element in list {
        let Value::Table(element) = element else {
            return Err("a table is not a value".into());
        };
        let mut element = element.clone();
        for own in rounds(&mut element, outer)? {
            let mut table = element.clone();
            if let Some(Value::Array(inside)) = table.remove("tables") {
                nested(&inside, sets, &own, found)?;
                continue;
            }
            fill(&mut table, &own);
            for key in WITH_SETS {
                if let Some(value) = table.get_mut(key) {
                    *value = with_sets(value, sets, &own)?;
                }
            }
            found.push(table);
        }
    }
    Ok(())
}

/// A value with what [sets] has in the place of names, and elements with `for` as many times.
fn with_sets(value: &Value, sets: &Table, bound: &Bindings) -> Result<Value, String> {
    let set = |name: &str| {
        let known = || sets.keys().cloned().collect::<Vec<_>>().join(", ");
        let found = sets.get(name).cloned();
        let mut found = found.ok_or_else(|| format!("unknown set `{name}`; known: {}", known()))?;
        substitute(&mut found, bound);
        with_sets(&found, sets, bound)
    };
    match value {
        Value::String(name) => set(name),
        Value::Array(list) => {
            let mut all = Vec::new();
            for element in list {
                match element {
                    Value::String(name) => match set(name)? {
                        Value::Array(elements) => all.extend(elements),
                        other => all.push(other),
                    },
                    Value::Table(table) => {
                        all.extend(repeated(table, bound)?.into_iter().map(Value::Table));
                    }
                    other => all.push(other.clone()),
                }
            }
            Ok(Value::Array(all))
        }
        other => Ok(other.clone()),
    }
}

/// An element as many times as its `for` says.
pub(super) fn repeated(element: &Table, outer: &Bindings) -> Result<Vec<Table>, String> {
    let mut element = element.clone();
    let rounds = rounds(&mut element, outer)?;
    Ok(rounds
        .iter()
        .map(|bound| {
            let mut one = element.clone();
            fill(&mut one, bound);
            one
        })
        .collect())
}

/// What names stand for in each round of an element's `for`, which is taken out; one round where there is none.
fn rounds(element: &mut Table, outer: &Bindings) -> Result<Vec<Bindings>, String> {
    let Some(Value::Table(names)) = element.remove("for") else {
        return Ok(vec![outer.clone()]);
    };
    let lists = names.values().filter_map(Value::as_array).map(Vec::len);
    let lists: Vec<usize> = lists.collect();
    let count = lists.iter().copied().max().unwrap_or(1);
    if let Some(short) = lists.into_iter().find(|length| *length != count) {
        return Err(format!("for: lists of {short} and of {count} values"));
    }
    let round = |index: usize| {
        let mut bound = outer.clone();
        for (name, value) in &names {
            let mut value = match value {
                Value::Array(list) => list[index].clone(),
                one => one.clone(),
            };
            substitute(&mut value, outer);
            bound.push((name.clone(), value));
        }
        // One name may stand in what another stands for.
        let plain = bound.clone();
        for (_, value) in &mut bound {
            substitute(value, &plain);
        }
        bound
    };
    Ok((0..count).map(round).collect())
}

fn fill(table: &mut Table, bound: &Bindings) {
    for (_, value) in table.iter_mut() {
        substitute(value, bound);
    }
}

/// Puts what names stand for into every text; a text that is a name alone becomes the value itself.
fn substitute(value: &mut Value, bound: &Bindings) {
    match value {
        Value::String(text) => {
            for (name, what) in bound {
                let place = format!("{{{name}}}");
                if *text == place {
                    *value = what.clone();
                    return;
                }
                let words = match what {
                    Value::String(words) => words.clone(),
                    other => other.to_string(),
                };
                *text = text.replace(&place, &words);
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|one| substitute(one, bound)),
        Value::Table(table) => fill(table, bound),
        _ => {}
    }
}
