//! Which program was meant by a name that no directory has.

use crate::suggest;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// The name in `directories` that is most like `wrong` and can be run, as `can_run` says.
///
/// Names that are not text are left out. Of names equally alike the last in the alphabet is taken, so the answer does
/// not depend on the order in which a file system lists them.
pub fn program(
    wrong: &OsStr,
    directories: impl Iterator<Item = PathBuf>,
    can_run: impl Fn(&Path) -> bool,
) -> Option<String> {
    let wrong = wrong.to_str()?;
    let mut known: Vec<(String, PathBuf)> = directories.flat_map(|path| names(&path)).collect();
    known.sort_unstable();
    loop {
        let near = suggest::closest(wrong, known.iter().map(|(name, _)| name.as_str()))?;
        let at = known.iter().rposition(|(name, _)| name == near)?;
        let (name, path) = known.remove(at);
        // A look at the file only for a name that is near: a PATH has thousands.
        if can_run(&path) {
            return Some(name);
        }
    }
}

fn names(directory: &Path) -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let named = entries.map(|entry| (entry.file_name().into_string(), entry.path()));
    named
        .filter_map(|(name, path)| Some((name.ok()?, path)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// What is meant by `wrong` where two directories have these names; those with a `-` cannot be run.
    fn meant(wrong: &str, names: [&str; 4]) -> Option<String> {
        let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        for (at, name) in names.into_iter().enumerate() {
            let path = directories[at % 2]
                .path()
                .join(name.trim_start_matches('-'));
            let mode = if name.starts_with('-') { 0o644 } else { 0o755 };
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
        let paths = directories.iter().map(|directory| directory.path().into());
        let can_run = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o111 != 0;
        let absent = std::iter::once(PathBuf::from("/no/such/directory"));
        program(OsStr::new(wrong), absent.chain(paths), can_run)
    }

    #[test]
    fn the_nearest_name_of_all_directories_is_meant() {
        let names = ["python2", "python3", "perl", "redis-server"];
        assert_eq!(meant("pyhton3", names).as_deref(), Some("python3"));
        assert_eq!(meant("redis-sever", names).as_deref(), Some("redis-server"));
        assert_eq!(meant("nginx", names), None);
    }

    #[test]
    fn what_cannot_be_run_is_not_meant() {
        let names = ["-serve", "-server.py", "servers2", "other"];
        assert_eq!(meant("server", names).as_deref(), Some("servers2"));
        assert_eq!(meant("server", ["-serve", "-servers", "a", "b"]), None);
    }
}
