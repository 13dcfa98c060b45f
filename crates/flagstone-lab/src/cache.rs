//! Runs that were made before: one file each, named by the spec's digest.
//!
//! ```text
//!   $XDG_CACHE_HOME/flagstone/sim/<model version>/<digest of spec>.json    a Run
//! ```
//!
//! The model version is part of a spec, so of its digest; the folder of its own is for whoever looks. A
//! file that cannot be read, or that answers another question, is as none: the run is made again.

use crate::record::Run;
use crate::spec::Spec;
use std::io;
use std::path::{Path, PathBuf};

/// A folder of runs.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
}

/// What a cache holds of one model version.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holding {
    /// The version, as its folder is called.
    pub version: String,
    /// Runs.
    pub runs: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Cache {
    /// The cache in `folder`, which need not be there yet.
    #[must_use]
    pub fn at(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
        }
    }

    /// The user's own; none where neither `XDG_CACHE_HOME` nor `HOME` says where.
    #[must_use]
    pub fn of_user() -> Option<Self> {
        let absolute = |name: &str| {
            let path = PathBuf::from(std::env::var_os(name)?);
            path.is_absolute().then_some(path)
        };
        let cache =
            absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
        Some(Self::at(&cache.join("flagstone").join("sim")))
    }

    /// Where it is.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn file(&self, spec: &Spec) -> PathBuf {
        let version = self.folder.join(spec.model_version.to_string());
        version.join(format!("{}.json", spec.digest()))
    }

    /// The kept run of `spec`.
    #[must_use]
    pub fn get(&self, spec: &Spec) -> Option<Run> {
        let bytes = std::fs::read(self.file(spec)).ok()?;
        let run: Run = serde_json::from_slice(&bytes).ok()?;
        (run.record.spec_digest == spec.digest()).then_some(run)
    }

    /// Keeps a run. A cache that cannot be written is no failure.
    pub fn put(&self, spec: &Spec, run: &Run) {
        let file = self.file(spec);
        let text = serde_json::to_vec(run);
        if let (Some(folder), Ok(text)) = (file.parent(), text)
            && std::fs::create_dir_all(folder).is_ok()
        {
            let _ = whole(&file, &text);
        }
    }

    /// What is in it, a model version after the other.
    #[must_use]
    pub fn list(&self) -> Vec<Holding> {
        let folders = std::fs::read_dir(&self.folder)
            .into_iter()
            .flatten()
            .flatten();
        let mut all: Vec<Holding> = folders
            .filter(|entry| entry.path().is_dir())
            .map(|entry| {
                let files = std::fs::read_dir(entry.path())
                    .into_iter()
                    .flatten()
                    .flatten();
                let sizes = files.filter_map(|file| Some(file.metadata().ok()?.len()));
                let (runs, bytes) = sizes.fold((0, 0), |(n, sum), bytes| (n + 1, sum + bytes));
                Holding {
                    version: entry.file_name().to_string_lossy().into_owned(),
                    runs,
                    bytes,
                }
            })
            .collect();
        all.sort_by_key(|held| (held.version.parse::<u32>().ok(), held.version.clone()));
        all
    }

    /// Forgets everything, or all but this program's model version.
    ///
    /// # Errors
    /// What the system says.
    pub fn clear(&self, keep: Option<u32>) -> io::Result<()> {
        for held in self.list() {
            if keep.is_none_or(|version| held.version != version.to_string()) {
                std::fs::remove_dir_all(self.folder.join(&held.version))?;
            }
        }
        Ok(())
    }
}

/// Writes a file whole or not at all: beside it first, then in its place.
///
/// # Errors
/// What the system says.
pub fn whole(file: &Path, text: &[u8]) -> io::Result<()> {
    let folder = file
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let mut beside = tempfile::Builder::new()
        .prefix(".flagstone-")
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
        .tempfile_in(folder.unwrap_or(Path::new(".")))?;
    io::Write::write_all(&mut beside, text)?;
    beside
        .persist(file)
        .map(drop)
        .map_err(|refused| refused.error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Window, names};

    fn spec() -> Spec {
        let machine = names::machine("xeon-2007-8").unwrap();
        let mut spec = Spec::new("one-alloc-n-free", machine, "flagstone").unwrap();
        spec.workload.size = Some(64);
        spec.tasks = 2;
        spec.window = Window::QUICK;
        spec
    }

    #[test]
    fn a_run_is_remembered_bit_for_bit_until_the_cache_is_cleared() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path());
        let run = spec().run().unwrap();
        assert!(cache.get(&spec()).is_none() && cache.list().is_empty());
        cache.put(&spec(), &run);
        assert_eq!(cache.get(&spec()).as_ref(), Some(&run));
        assert_eq!((cache.list().len(), cache.list()[0].runs), (1, 1));
        cache.clear(Some(flagstone_sim::MODEL_VERSION)).unwrap();
        assert!(
            cache.get(&spec()).is_some(),
            "runs of this version were to stay"
        );
        cache.clear(None).unwrap();
        assert!(cache.get(&spec()).is_none());
    }

    #[test]
    fn a_damaged_or_foreign_file_is_as_none() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path());
        let other = Spec { seed: 2, ..spec() };
        cache.put(&spec(), &spec().run().unwrap());
        std::fs::copy(cache.file(&spec()), cache.file(&other)).unwrap();
        assert!(cache.get(&other).is_none(), "it answers another question");
        std::fs::write(cache.file(&spec()), b"{\"record\":").unwrap();
        assert!(cache.get(&spec()).is_none());
    }

    #[test]
    fn a_record_can_be_run_again_from_what_it_names() {
        let record = spec().run().unwrap().record;
        let again = record.spec().unwrap().run().unwrap().record;
        assert_eq!(again, record);
    }
}
