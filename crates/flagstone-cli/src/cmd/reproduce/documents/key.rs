//! Names of cells as documents write them: `table | row | column`.

use super::super::published::Published;
use serde::Deserialize;

/// A cell by table, row and column. In a reference `.` is what the cell has that refers; in a pattern `*` is any.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(in crate::cmd::reproduce) struct Key([String; 3]);

impl TryFrom<String> for Key {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let parts: Vec<String> = text.split(" | ").map(str::to_owned).collect();
        let parts = parts.try_into();
        parts
            .map(Self)
            .map_err(|_| format!("`{text}`: a cell is `table | row | column`"))
    }
}

impl Key {
    /// The cell it names from this one: table, row, column, and which of equal ones.
    pub(in crate::cmd::reproduce) fn from(
        &self,
        at: [&str; 3],
        nth: usize,
    ) -> ([String; 3], usize) {
        let own = |part: usize| match self.0[part].as_str() {
            "." => at[part].to_owned(),
            other => other.to_owned(),
        };
        let nth = if self.0[0] == "." { nth } else { 0 };
        ([own(0), own(1), own(2)], nth)
    }

    /// Whether it is a pattern of this cell.
    pub(in crate::cmd::reproduce) fn fits(&self, known: &Published) -> bool {
        let is = [&known.table, &known.row, &known.column];
        self.0
            .iter()
            .zip(is)
            .all(|(want, is)| want == "*" || want == is)
    }
}
