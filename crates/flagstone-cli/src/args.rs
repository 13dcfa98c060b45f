//! Arguments that several commands have, with one grammar.

use std::path::{Path, PathBuf};

/// `--json[=FILE]`: where the JSON document goes.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Json {
    /// Write the figures as one JSON document to FILE; `-` or no FILE means standard output
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<PathBuf>,
}

impl Json {
    /// The file, `-` for standard output; `None` where no document is asked for.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.json.as_deref()
    }

    /// Whether the document goes to standard output.
    #[must_use]
    pub fn to_stdout(&self) -> bool {
        self.path() == Some(Path::new("-"))
    }
}
