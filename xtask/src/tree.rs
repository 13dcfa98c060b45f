//! The files of the project, read once.

use crate::source::Source;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders that hold nothing written by hand: build output, captured data, snapshots.
const SKIPPED: [&str; 4] = ["target", "data", "corpus", "snapshots"];

/// A broken rule, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The file, from the workspace's folder.
    pub path: String,
    /// The line, from 1; 0 for the whole file.
    pub line: usize,
    /// What is wrong, and what to do.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what),
            line => write!(f, "{}:{line}: {}", self.path, self.what),
        }
    }
}

/// A text file.
#[derive(Debug)]
pub struct Text {
    /// From the workspace's folder, with `/`.
    pub path: String,
    /// All of it.
    pub text: String,
}

/// The project's files.
#[derive(Debug, Default)]
pub struct Tree {
    /// Rust sources.
    pub rust: Vec<Source>,
    /// Markdown, C, C++, Python, shell and manifests.
    pub other: Vec<Text>,
    /// The workspace's folder.
    pub root: PathBuf,
}

impl Tree {
    /// Reads everything below `root` that was written by hand.
    pub fn read(root: &Path) -> Self {
        let mut tree = Self {
            root: root.to_path_buf(),
            ..Self::default()
        };
        tree.visit(root, "");
        tree
    }

    fn visit(&mut self, folder: &Path, prefix: &str) {
        let entries =
            fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut entries: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        entries.sort();
        for path in entries {
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
                continue;
            };
            let below = format!("{prefix}{name}");
            if path.is_dir() {
                // Cargo marks its target folders, whatever their names, with this file.
                let built = path.join("CACHEDIR.TAG").exists();
                if !built && !name.starts_with('.') && !SKIPPED.contains(&name) {
                    self.visit(&path, &format!("{below}/"));
                }
                continue;
            }
            let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
            match ending {
                "rs" => self.rust.push(Source::new(&below, &contents(&path))),
                "md" | "toml" | "c" | "cpp" | "h" | "py" | "sh" => self.other.push(Text {
                    path: below,
                    text: contents(&path),
                }),
                _ => {}
            }
        }
    }

    /// The texts with this ending.
    pub fn with_ending<'a>(&'a self, ending: &'a str) -> impl Iterator<Item = &'a Text> {
        self.other
            .iter()
            .filter(move |text| text.path.ends_with(ending))
    }

    /// One text by its path.
    pub fn text(&self, path: &str) -> Option<&str> {
        let found = self.other.iter().find(|text| text.path == path);
        found.map(|found| found.text.as_str())
    }
}

fn contents(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The workspace's folder.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies in the workspace")
        .to_path_buf()
}
