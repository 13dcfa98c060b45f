//! Arguments that several commands have, with one grammar.

use flagstone_lab::Rules;
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

/// `--json[=FILE]` of commands whose own words may follow it, such as a process's number: none of them is its file.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct JsonBeside {
    /// Write the figures as one JSON document to FILE; `-` or no FILE means standard output
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-", require_equals = true)]
    pub json: Option<PathBuf>,
}

impl JsonBeside {
    /// See [`Json::path`].
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.json.as_deref()
    }

    /// See [`Json::to_stdout`].
    #[must_use]
    pub fn to_stdout(&self) -> bool {
        self.path() == Some(Path::new("-"))
    }
}

/// `--policy A,B`, or repeated, and the knobs set on every one of them.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Policies {
    /// Policy; repeat it, or separate by commas, to compare [default: flagstone]
    #[arg(long, value_name = "P", value_delimiter = ',')]
    pub policy: Vec<String>,
    /// Set a knob on every policy, as in `slab_max_order=4`; a size may end in K, M, G or T
    #[arg(long, value_name = "K=V")]
    pub set: Vec<String>,
}

impl Policies {
    /// The policies, checked; `default` if none was given.
    ///
    /// # Errors
    /// One line: what is wrong and what was probably meant.
    pub fn rules_or(&self, default: &str) -> Result<Vec<Rules>, String> {
        let default = [default.to_owned()];
        let names = match self.policy.is_empty() {
            true => &default[..],
            false => &self.policy,
        };
        names
            .iter()
            .map(|name| Rules::parse(name, &self.set))
            .collect()
    }
}
