//! Expressions and texts of a document: what a cell, a target or a figure beside is computed from.
//!
//! ```text
//!   1.2 * base.ops        a number, a figure under the policy called `base`, the four operations
//!   min(slab.x, slub.x)   functions: mean sd min max deviation sqrt min_of_rows max_of_rows
//!   `detail.MiB live`     a name with blanks
//!   `table | . | base`    a published figure; a dot is this cell's own table, row or column
//!   "{own.ops:+.1} %"     in texts: a sign, digits behind the point, or ± for mean and deviation
//! ```
//!
//! Values are [`Stat`]s. Of two that both vary the left one's deviation is kept, and the right one counts as its
//! mean: a patched row over its base has the spread of the patched one.

use super::super::ask::Stat;
use super::key::Key;
use serde::Deserialize;

/// A parsed expression.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub(in crate::cmd::reproduce) enum Expression {
    /// A number.
    Number(f64),
    /// A figure or a parameter, with policies and other runs before it.
    Name(String),
    /// A published figure.
    Published(Key),
    /// Two values and what is done with them.
    Both(char, Box<[Expression; 2]>),
    /// A function.
    Call(Function, Vec<Expression>),
}

/// Functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cmd::reproduce) enum Function {
    /// The mean over seeds, without deviation; of several values their mean.
    Mean,
    /// The deviation over seeds; of several values theirs.
    Sd,
    /// The least over seeds; of several values the one with the least mean.
    Min,
    /// Likewise the most.
    Max,
    /// The deviation with an error of its own.
    Deviation,
    /// The square root.
    Sqrt,
    /// The least over the rows of the table.
    MinOfRows,
    /// Likewise the most.
    MaxOfRows,
}

const FUNCTIONS: [(&str, Function); 8] = [
    ("mean", Function::Mean),
    ("sd", Function::Sd),
    ("min", Function::Min),
    ("max", Function::Max),
    ("deviation", Function::Deviation),
    ("sqrt", Function::Sqrt),
    ("min_of_rows", Function::MinOfRows),
    ("max_of_rows", Function::MaxOfRows),
];

/// What names stand for.
pub(in crate::cmd::reproduce) trait Names: Sized {
    /// A figure or a parameter.
    fn name(&self, name: &str) -> Result<Stat, String>;
    /// A published figure.
    fn published(&self, key: &Key) -> Result<f64, String>;
    /// The row's own name.
    fn row(&self) -> &str;
    /// The same names in every row of the table.
    fn rows(&self) -> Vec<Self>;
}

impl TryFrom<String> for Expression {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut parser = Parser { rest: &text };
        let found = parser.sum();
        let found = found.and_then(|found| match parser.rest.trim() {
            "" => Ok(found),
            rest => Err(format!("`{rest}` is left over")),
        });
        found.map_err(|why| format!("expression `{text}`: {why}"))
    }
}

impl Expression {
    /// Its value.
    ///
    /// # Errors
    /// One line: a run was not made or has no such figure.
    pub(in crate::cmd::reproduce) fn value(&self, names: &impl Names) -> Result<Stat, String> {
        match self {
            Self::Number(number) => Ok(Stat::exact(*number)),
            Self::Name(name) => names.name(name),
            Self::Published(key) => names.published(key).map(Stat::exact),
            Self::Both(operation, of) => {
                let [a, b] = [of[0].value(names)?, of[1].value(names)?];
                a.with(*operation, b)
            }
            Self::Call(function, of) => call(*function, of, names),
        }
    }

    /// The names, numbers and cells that it is made of.
    pub(in crate::cmd::reproduce) fn leaves(&self) -> Vec<&Expression> {
        match self {
            Self::Number(_) | Self::Published(_) | Self::Name(_) => vec![self],
            Self::Both(_, of) => of.iter().flat_map(Self::leaves).collect(),
            Self::Call(_, of) => of.iter().flat_map(Self::leaves).collect(),
        }
    }
}

fn call(function: Function, of: &[Expression], names: &impl Names) -> Result<Stat, String> {
    let in_rows = matches!(function, Function::MinOfRows | Function::MaxOfRows);
    let values: Result<Vec<Stat>, String> = match in_rows {
        true => names.rows().iter().map(|row| of[0].value(row)).collect(),
        false => of.iter().map(|one| one.value(names)).collect(),
    };
    let values = values?;
    let means = || Stat::of(&values.iter().map(|value| value.mean).collect::<Vec<_>>());
    Ok(match (function, &values[..]) {
        (Function::Mean, [one]) => Stat::exact(one.mean),
        (Function::Mean, _) => Stat::exact(means().mean),
        (Function::Sd, [one]) => Stat::exact(one.sd.unwrap_or(0.0)),
        (Function::Sd, _) => Stat::exact(means().sd.unwrap_or(0.0)),
        (Function::Min, [one]) => Stat::exact(one.min),
        (Function::Max, [one]) => Stat::exact(one.max),
        (Function::Min, [first, rest @ ..]) => {
            let less = |least: Stat, one: &Stat| if one.mean <= least.mean { *one } else { least };
            rest.iter().fold(*first, less)
        }
        (Function::Max, [first, rest @ ..]) => {
            let more = |most: Stat, one: &Stat| if one.mean >= most.mean { *one } else { most };
            rest.iter().fold(*first, more)
        }
        (Function::Deviation, [one, ..]) => one.deviation(),
        (Function::Sqrt, [one, ..]) => Stat::exact(one.mean.sqrt()),
        (Function::MinOfRows, _) => Stat::exact(means().min),
        (Function::MaxOfRows, _) => Stat::exact(means().max),
        (_, []) => return Err("a function of nothing".into()),
    })
}

struct Parser<'a> {
    rest: &'a str,
}

impl Parser<'_> {
    /// Takes one of these signs, if it is next.
    fn take(&mut self, signs: &str) -> Option<char> {
        self.rest = self.rest.trim_start();
        let sign = self.rest.chars().next().filter(|c| signs.contains(*c))?;
        self.rest = &self.rest[sign.len_utf8()..];
        Some(sign)
    }

    fn expect(&mut self, sign: &str) -> Result<(), String> {
        let found = self.take(sign);
        found.map(drop).ok_or_else(|| match self.rest {
            "" => format!("`{sign}` is missing at the end"),
            rest => format!("`{sign}` is missing before `{rest}`"),
        })
    }

    fn sum(&mut self) -> Result<Expression, String> {
        self.both("+-", Self::product)
    }

    fn product(&mut self) -> Result<Expression, String> {
        self.both("*/", Self::one)
    }

    /// Values of `part` with these signs between them, from the left.
    fn both(
        &mut self,
        signs: &str,
        part: fn(&mut Self) -> Result<Expression, String>,
    ) -> Result<Expression, String> {
        let mut left = part(self)?;
        while let Some(sign) = self.take(signs) {
            left = Expression::Both(sign, Box::new([left, part(self)?]));
        }
        Ok(left)
    }

    fn one(&mut self) -> Result<Expression, String> {
        if self.take("(").is_some() {
            let inside = self.sum()?;
            self.expect(")")?;
            return Ok(inside);
        }
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        let mut word = word.to_owned();
        self.rest = rest;
        if self.rest.starts_with('`') {
            let quoted = self.rest[1..].split_once('`');
            let (quoted, rest) = quoted.ok_or("a closing ` is missing")?;
            self.rest = rest;
            if word.is_empty() && quoted.contains(" | ") {
                return Key::try_from(quoted.to_owned()).map(Expression::Published);
            }
            word.push_str(quoted);
        }
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            let number = word.parse().map(Expression::Number);
            return number.map_err(|_| format!("`{word}` is no number"));
        }
        if word.is_empty() {
            return Err(match self.rest {
                "" => "a value is missing at the end".into(),
                rest => format!("a value is missing before `{rest}`"),
            });
        }
        match self.take("(") {
            Some(_) => self.arguments(&word),
            None => Ok(Expression::Name(word)),
        }
    }

    fn arguments(&mut self, word: &str) -> Result<Expression, String> {
        let found = FUNCTIONS.iter().find(|(name, _)| *name == word);
        let (_, function) = found.ok_or_else(|| {
            let known = FUNCTIONS.map(|(name, _)| name).join(", ");
            format!("unknown function `{word}`; known: {known}")
        })?;
        let mut of = vec![self.sum()?];
        while self.take(",").is_some() {
            of.push(self.sum()?);
        }
        self.expect(")")?;
        Ok(Expression::Call(*function, of))
    }
}

/// What stands for the row's name in a text.
pub(in crate::cmd::reproduce) const ROW: &str = "row";

/// A text with values in it.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(in crate::cmd::reproduce) struct Text {
    /// Words, and the value behind them with its format.
    parts: Vec<(String, Option<(Expression, Format)>)>,
}

/// How a value is written.
#[derive(Clone, Copy, Debug)]
struct Format {
    digits: Option<usize>,
    /// With its sign, whatever it is.
    signed: bool,
    /// With its deviation, if it has one.
    deviation: bool,
}

impl TryFrom<String> for Text {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = &text[..];
        while let Some((words, behind)) = rest.split_once('{') {
            let inside = behind.split_once('}');
            let (inside, behind) = inside.ok_or_else(|| format!("text `{text}`: no `}}`"))?;
            let (value, format) = inside.rsplit_once(':').unwrap_or((inside, ""));
            let digits = format.trim_start_matches(['+', '±']).strip_prefix('.');
            let format = Format {
                digits: digits.and_then(|digits| digits.parse().ok()),
                signed: format.starts_with('+'),
                deviation: format.starts_with('±'),
            };
            parts.push((
                words.to_owned(),
                Some((Expression::try_from(value.to_owned())?, format)),
            ));
            rest = behind;
        }
        parts.push((rest.to_owned(), None));
        Ok(Self { parts })
    }
}

impl Text {
    /// The text with its values.
    ///
    /// # Errors
    /// One line, if there is no value.
    pub(in crate::cmd::reproduce) fn filled(&self, names: &impl Names) -> Result<String, String> {
        let mut text = String::new();
        for (words, value) in &self.parts {
            text.push_str(words);
            match value {
                Some((Expression::Name(name), _)) if name == ROW => text.push_str(names.row()),
                Some((value, format)) => text.push_str(&format.words(value.value(names)?)),
                None => {}
            }
        }
        Ok(text)
    }

    /// The expressions in it.
    pub(in crate::cmd::reproduce) fn values(&self) -> impl Iterator<Item = &Expression> {
        let values = self.parts.iter().filter_map(|(_, value)| value.as_ref());
        values.map(|(value, _)| value)
    }
}

impl Format {
    fn words(self, value: Stat) -> String {
        let Some(digits) = self.digits else {
            return value.mean.to_string();
        };
        match (self.signed, value.sd.filter(|_| self.deviation)) {
            (true, _) => format!("{:+.digits$}", value.mean),
            (false, Some(sd)) => format!("{:.digits$} ± {sd:.digits$}", value.mean),
            (false, None) => format!("{:.digits$}", value.mean),
        }
    }
}
