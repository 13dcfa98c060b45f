//! A tree of small text files: a directory of this host, or a captured copy.

use super::quote;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Name of the file at the top of a capture that says how it was made and what was unreadable.
pub const MANIFEST: &str = "flagstone-capture.txt";

/// Largest file a reader accepts; zoneinfo of 1024 CPUs and 16 nodes is about 6 MiB.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Largest capture accepted as a tar file: a capture of 1000 caches is about 20 MiB.
const ARCHIVE_BYTES_MAX: u64 = 512 << 20;

/// Why a file gave no text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Absent {
    /// There is no such file: the kernel does not have it, or the capture left it out.
    Missing,
    /// The file exists but this user may not read it (or could not when it was captured).
    Denied,
    /// Reading failed in another way.
    Failed(String),
}

impl Absent {
    /// The reason in a few words.
    #[must_use]
    pub fn reason(&self) -> &str {
        match self {
            Self::Missing => "not there",
            Self::Denied => "permission denied",
            Self::Failed(why) => why,
        }
    }
}

impl From<io::Error> for Absent {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::Missing,
            io::ErrorKind::PermissionDenied => Self::Denied,
            _ => Self::Failed(error.to_string()),
        }
    }
}

/// An entry of a tar file held in memory.
enum Entry {
    File(Vec<u8>),
    Link(String),
}

enum Store {
    Dir(PathBuf),
    Archive(BTreeMap<String, Entry>),
}

/// A root below which all paths are read; paths are relative and use `/`.
pub struct Tree {
    store: Store,
    /// Paths (or directories) that the capture's manifest lists as unreadable when it was made.
    denied: Vec<String>,
    /// `key value` lines of the manifest.
    facts: BTreeMap<String, String>,
}

impl Tree {
    /// The running host: `/`.
    #[must_use]
    pub fn live() -> Self {
        Self {
            store: Store::Dir("/".into()),
            denied: Vec::new(),
            facts: BTreeMap::new(),
        }
    }

    /// A captured tree: a directory, or the tar file `host --capture` wrote.
    ///
    /// # Errors
    /// One line: `path` does not exist, is unreadable, or is a file that is not a tar archive.
    pub fn open(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let meta = fs::metadata(path).map_err(|e| format!("{shown}: {e}"))?;
        let store = if meta.is_dir() {
            Store::Dir(path.to_owned())
        } else {
            let file = fs::File::open(path).map_err(|e| format!("{shown}: {e}"))?;
            Store::Archive(unpack(file.take(ARCHIVE_BYTES_MAX)).map_err(|e| {
                format!("{shown}: not a directory and not a readable tar file ({e})")
            })?)
        };
        Ok(Self::with_manifest(store))
    }

    /// A captured tree from the bytes of a tar archive.
    ///
    /// # Errors
    /// The archive reader's reason.
    pub fn from_tar(bytes: impl Read) -> Result<Self, String> {
        unpack(bytes).map(|files| Self::with_manifest(Store::Archive(files)))
    }

    fn with_manifest(store: Store) -> Self {
        let mut tree = Self {
            store,
            denied: Vec::new(),
            facts: BTreeMap::new(),
        };
        if let Ok(text) = tree.text(MANIFEST) {
            for line in text.lines() {
                match line.split_once(' ') {
                    Some(("denied", path)) => tree.denied.push(path.trim().to_owned()),
                    Some((key, value)) => {
                        tree.facts.insert(key.to_owned(), value.trim().to_owned());
                    }
                    None => {}
                }
            }
        }
        tree
    }

    /// Whether this is the root of the running system.
    #[must_use]
    pub fn is_live(&self) -> bool {
        matches!(&self.store, Store::Dir(root) if root == Path::new("/"))
    }

    /// What the capture's manifest says under `key`, for example `page_size`.
    #[must_use]
    pub fn fact(&self, key: &str) -> Option<&str> {
        self.facts.get(key).map(String::as_str)
    }

    /// The text of the file at `path`; bytes that are not UTF-8 become replacement characters.
    ///
    /// # Errors
    /// [`Absent`] says why there is no text.
    pub fn text(&self, path: &str) -> Result<String, Absent> {
        match self.bytes(path) {
            Ok(bytes) => Ok(String::from_utf8(bytes)
                .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())),
            Err(Absent::Missing) if self.was_denied(path) => Err(Absent::Denied),
            Err(absent) => Err(absent),
        }
    }

    fn was_denied(&self, path: &str) -> bool {
        self.denied.iter().any(|d| {
            path.strip_prefix(d.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    fn bytes(&self, path: &str) -> Result<Vec<u8>, Absent> {
        match &self.store {
            Store::Dir(root) => {
                // A captured tree may hold anything; a FIFO or device would block or never end.
                // The live /proc and /sys hold none at the paths asked for.
                let full = root.join(path);
                let mut bytes = Vec::with_capacity(64);
                let file = if self.is_live() {
                    fs::File::open(full)?
                } else {
                    let meta = fs::metadata(&full)?;
                    if !meta.is_file() {
                        return Err(Absent::Failed("not a regular file".into()));
                    }
                    fs::File::open(full)?
                };
                file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
                Ok(bytes)
            }
            Store::Archive(files) => match files.get(path) {
                Some(Entry::File(bytes)) => Ok(bytes.clone()),
                Some(Entry::Link(_)) => Err(Absent::Failed("a link, not a file".into())),
                None => Err(Absent::Missing),
            },
        }
    }

    /// Names in the directory at `path`, sorted, each with its link target if it is a symlink.
    ///
    /// # Errors
    /// [`Absent`] when there is no such directory or it may not be listed.
    pub fn list(&self, path: &str) -> Result<Vec<(String, Option<String>)>, Absent> {
        let mut names = match &self.store {
            Store::Dir(root) => list_dir(&root.join(path))?,
            Store::Archive(files) => list_archive(files, path),
        };
        if names.is_empty() {
            return Err(if self.was_denied(path) {
                Absent::Denied
            } else {
                Absent::Missing
            });
        }
        names.sort();
        Ok(names)
    }
}

fn list_dir(dir: &Path) -> Result<Vec<(String, Option<String>)>, Absent> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let target = if entry.file_type()?.is_symlink() {
            fs::read_link(entry.path())
                .ok()
                .map(|t| t.to_string_lossy().into_owned())
        } else {
            None
        };
        names.push((name, target));
    }
    Ok(names)
}

fn list_archive(files: &BTreeMap<String, Entry>, path: &str) -> Vec<(String, Option<String>)> {
    let prefix = format!("{path}/");
    let mut names: Vec<(String, Option<String>)> = Vec::new();
    for (full, entry) in files.range(prefix.clone()..) {
        let Some(rest) = full.strip_prefix(&prefix) else {
            break;
        };
        let (name, deeper) = match rest.split_once('/') {
            Some((name, _)) => (name, true),
            None => (rest, false),
        };
        // All paths below one name share a prefix, so they are neighbours in path order.
        if names.last().is_some_and(|(last, _)| last == name) {
            continue;
        }
        let target = match entry {
            Entry::Link(to) if !deeper => Some(to.clone()),
            _ => None,
        };
        names.push((name.to_owned(), target));
    }
    names
}

fn unpack(reader: impl Read) -> Result<BTreeMap<String, Entry>, String> {
    let mut files = BTreeMap::new();
    let mut archive = tar::Archive::new(reader);
    for entry in archive.entries().map_err(|e| e.to_string())? {
        let mut entry = entry.map_err(|e| e.to_string())?;
        let path = entry
            .path()
            .map_err(|e| e.to_string())?
            .to_string_lossy()
            .into_owned();
        let path = path.trim_start_matches("./").trim_matches('/').to_owned();
        let kind = entry.header().entry_type();
        if kind.is_symlink() || kind.is_hard_link() {
            let to = entry.link_name().map_err(|e| e.to_string())?;
            let to = to.ok_or_else(|| format!("link {} without a target", quote(&path)))?;
            files.insert(path, Entry::Link(to.to_string_lossy().into_owned()));
        } else if kind.is_file() {
            if entry.size() > FILE_BYTES_MAX {
                return Err(format!(
                    "{} is larger than {FILE_BYTES_MAX} bytes",
                    quote(&path)
                ));
            }
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).map_err(|e| e.to_string())?;
            files.insert(path, Entry::File(bytes));
        }
    }
    if files.is_empty() {
        Err("it holds no files".into())
    } else {
        Ok(files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(files: &[(&str, &str)], links: &[(&str, &str)]) -> Tree {
        let mut builder = tar::Builder::new(Vec::new());
        for (path, text) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(0o644);
            builder
                .append_data(&mut header, path, text.as_bytes())
                .unwrap();
        }
        for (path, to) in links {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(tar::EntryType::Symlink);
            header.set_size(0);
            builder.append_link(&mut header, path, to).unwrap();
        }
        let bytes = builder.into_inner().unwrap();
        Tree::from_tar(&bytes[..]).unwrap()
    }

    #[test]
    fn an_archive_lists_directories_and_links_like_a_file_system() {
        let tree = archive(
            &[
                ("./d/one/size", "1"),
                ("d/one/order", "2"),
                ("d/one-b/size", "3"),
                ("e/x", "4"),
            ],
            &[("d/alias", "one")],
        );
        let names = tree.list("d").unwrap();
        assert_eq!(
            names,
            [
                ("alias".to_owned(), Some("one".to_owned())),
                ("one".to_owned(), None),
                ("one-b".to_owned(), None)
            ]
        );
        assert_eq!(tree.text("d/one/order").unwrap(), "2");
        assert_eq!(tree.text("d/two"), Err(Absent::Missing));
        assert_eq!(tree.list("nowhere"), Err(Absent::Missing));
    }

    #[test]
    fn the_manifest_turns_a_missing_file_into_a_denied_one() {
        let tree = archive(
            &[(
                MANIFEST,
                "page_size 65536\ndenied proc/slabinfo\ndenied sys/kernel/slab\n",
            )],
            &[],
        );
        assert_eq!(tree.text("proc/slabinfo"), Err(Absent::Denied));
        assert_eq!(tree.list("sys/kernel/slab"), Err(Absent::Denied));
        assert_eq!(
            tree.text("sys/kernel/slab/kmalloc-64/order"),
            Err(Absent::Denied)
        );
        assert_eq!(tree.text("sys/kernel/slabs"), Err(Absent::Missing));
        assert_eq!(tree.fact("page_size"), Some("65536"));
    }

    #[test]
    fn bytes_that_are_no_archive_are_refused() {
        assert!(Tree::from_tar(&b"not a tar"[..]).is_err());
        assert!(Tree::from_tar(&b""[..]).is_err());
    }
}
