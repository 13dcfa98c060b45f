//! The preload libraries on disk: carried inside the command, written once, found again.
//!
//! The dynamic loader takes a path, so the bytes must lie in a file. It goes to the user's cache
//! directory under a name that tells builds apart; another version never disturbs a running one.
//!
//! Never loaded: a file that somebody else could have written, or whose bytes are not ours.

use crate::exit::Failure;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A library this command was built with: its bytes, and its file name in a cache directory.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    bytes: &'static [u8],
    name: &'static str,
}

/// The product: the policy `flagstone` alone.
pub static PRODUCT: Library = Library {
    bytes: include_bytes!(concat!(env!("OUT_DIR"), "/libflagstone.so")),
    name: concat!(
        "libflagstone-",
        env!("CARGO_PKG_VERSION"),
        "-",
        env!("FLAGSTONE_LIBRARY_DIGEST"),
        ".so"
    ),
};

/// The same with the engines of old kernels plugged in: every policy.
static KERNELS: Library = Library {
    bytes: include_bytes!(concat!(env!("OUT_DIR"), "/libflagstone-kernels.so")),
    name: concat!(
        "libflagstone-kernels-",
        env!("CARGO_PKG_VERSION"),
        "-",
        env!("FLAGSTONE_LIBRARY_KERNELS_DIGEST"),
        ".so"
    ),
};

/// The recorder of traces, preloaded before an allocator.
pub static RECORDER: Library = Library {
    bytes: include_bytes!(concat!(env!("OUT_DIR"), "/libflagstone_record.so")),
    name: concat!(
        "libflagstone_record-",
        env!("CARGO_PKG_VERSION"),
        "-",
        env!("FLAGSTONE_LIBRARY_RECORDER_DIGEST"),
        ".so"
    ),
};

/// The library that serves a policy.
pub fn serving(policy: &str) -> &'static Library {
    match policy {
        "flagstone" => &PRODUCT,
        _ => &KERNELS,
    }
}

/// Where a preload library lies, after writing it if need be.
///
/// # Errors
/// A usage failure naming each place tried and why it would not do.
pub fn library_path(library: &Library) -> Result<PathBuf, Failure> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let mut refusals = Vec::new();
    for directory in places(variable, &std::env::temp_dir()) {
        match place_in(library, &directory) {
            Ok(path) => return Ok(path),
            Err(why) => refusals.push(format!("{}: {why}", directory.display())),
        }
    }
    Err(Failure::Usage(format!(
        "no place for the preload library ({}); set XDG_CACHE_HOME to a private directory",
        refusals.join("; ")
    )))
}

/// Directories to try, best first.
fn places<V: AsRef<OsStr>>(variable: impl Fn(&str) -> Option<V>, temp: &Path) -> Vec<PathBuf> {
    let absolute = |value: V| Some(PathBuf::from(value.as_ref())).filter(|p| p.is_absolute());
    let cache = variable("XDG_CACHE_HOME").and_then(absolute);
    let home = variable("HOME").and_then(absolute);
    let user = user_id();
    cache
        .or_else(|| home.map(|home| home.join(".cache")))
        .map(|cache| cache.join("flagstone"))
        .into_iter()
        .chain([temp.join(format!("flagstone-{user}"))])
        .collect()
}

/// The effective user.
pub fn user_id() -> u32 {
    // SAFETY: no preconditions, cannot fail.
    unsafe { libc::geteuid() }
}

/// Makes sure that the library lies in `directory`.
fn place_in(library: &Library, directory: &Path) -> Result<PathBuf, String> {
    let path = directory.join(library.name);
    if path
        .as_os_str()
        .as_bytes()
        .iter()
        .any(|b| b" :".contains(b))
    {
        return Err("the loader splits paths at blanks and colons".into());
    }
    let create = DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory);
    create.map_err(|error| error.to_string())?;
    private(&fs::symlink_metadata(directory).map_err(|error| error.to_string())?)?;
    executable(directory)?;
    if !library.is_at(&path) {
        library
            .write(directory, &path)
            .map_err(|error| error.to_string())?;
    }
    Ok(path)
}

/// Refuses a directory or file that another user could change.
fn private(metadata: &fs::Metadata) -> Result<(), String> {
    if metadata.is_symlink() {
        return Err("is a symbolic link".into());
    }
    if metadata.uid() != user_id() {
        return Err("belongs to another user".into());
    }
    if metadata.mode() & 0o022 != 0 {
        return Err("others may write there".into());
    }
    Ok(())
}

/// Refuses a file system from which nothing can be executed: the loader could not map the library.
fn executable(directory: &Path) -> Result<(), String> {
    let path = std::ffi::CString::new(directory.as_os_str().as_bytes())
        .map_err(|_| "a zero byte in the path")?;
    // SAFETY: plain integers; all zeroes is a value.
    let mut answer: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: a zero-terminated path and a structure to fill.
    let result = unsafe { libc::statvfs(path.as_ptr(), &raw mut answer) };
    if result == 0 && answer.f_flag & libc::ST_NOEXEC != 0 {
        return Err("mounted noexec".into());
    }
    Ok(())
}

impl Library {
    /// Whether the file is there, private and byte for byte the library.
    fn is_at(&self, path: &Path) -> bool {
        fs::symlink_metadata(path).is_ok_and(|metadata| {
            metadata.is_file()
                && private(&metadata).is_ok()
                && metadata.len() == self.bytes.len() as u64
        }) && fs::read(path).is_ok_and(|bytes| bytes == self.bytes)
    }

    /// Writes the library beside its place and moves it there, so that nobody ever sees half of it.
    fn write(&self, directory: &Path, path: &Path) -> io::Result<()> {
        let draft = directory.join(format!(".{}.{}", self.name, std::process::id()));
        let _ = fs::remove_file(&draft);
        let written = draft_file(&draft).and_then(|mut file| {
            file.write_all(self.bytes)?;
            fs::rename(&draft, path)
        });
        if written.is_err() {
            let _ = fs::remove_file(&draft);
        }
        written
    }
}

fn draft_file(draft: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(draft)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn private_directory() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).unwrap();
        directory
    }

    #[test]
    fn both_libraries_are_elf_files_and_the_guests_one_is_larger() {
        assert!(PRODUCT.bytes.starts_with(b"\x7fELF") && KERNELS.bytes.starts_with(b"\x7fELF"));
        assert!(PRODUCT.bytes.len() < KERNELS.bytes.len());
        assert_ne!(PRODUCT.name, KERNELS.name);
    }

    #[test]
    fn the_product_serves_its_own_policy_and_nothing_else() {
        assert_eq!(serving("flagstone").name, PRODUCT.name);
        for other in ["linux-6.5", "linux-7.0", "slab-2.6.24", "flagstone+order4"] {
            assert_eq!(serving(other).name, KERNELS.name, "{other}");
        }
    }

    #[test]
    fn the_product_holds_no_name_of_a_kernel() {
        let holds = |library: &Library, text: &str| {
            let mut windows = library.bytes.windows(text.len());
            windows.any(|window| window == text.as_bytes())
        };
        for name in ["linux-2.6.24", "linux-6.5", "dynamic-min-partial"] {
            assert!(holds(&KERNELS, name) && !holds(&PRODUCT, name), "{name}");
        }
    }

    #[test]
    fn the_library_is_written_once_and_found_again() {
        let directory = private_directory();
        let path = place_in(&PRODUCT, directory.path()).unwrap();
        assert_eq!(fs::read(&path).unwrap(), PRODUCT.bytes);
        let first = fs::metadata(&path).unwrap().ino();
        assert_eq!(place_in(&PRODUCT, directory.path()).unwrap(), path);
        assert_eq!(fs::metadata(&path).unwrap().ino(), first);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_damaged_library_is_replaced() {
        let directory = private_directory();
        let path = place_in(&PRODUCT, directory.path()).unwrap();
        fs::write(&path, vec![0; PRODUCT.bytes.len()]).unwrap();
        place_in(&PRODUCT, directory.path()).unwrap();
        assert_eq!(fs::read(&path).unwrap(), PRODUCT.bytes);
    }

    #[test]
    fn a_directory_others_may_write_to_is_refused() {
        let directory = private_directory();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(
            place_in(&PRODUCT, directory.path())
                .unwrap_err()
                .contains("others")
        );
    }

    #[test]
    fn a_symbolic_link_is_refused() {
        let directory = private_directory();
        let link = directory.path().join("link");
        symlink(directory.path(), &link).unwrap();
        assert!(
            place_in(&PRODUCT, &link)
                .unwrap_err()
                .contains("symbolic link")
        );
    }

    #[test]
    fn a_path_the_loader_would_split_is_refused() {
        let directory = private_directory();
        assert!(place_in(&PRODUCT, &directory.path().join("a b")).is_err());
        assert!(place_in(&PRODUCT, &directory.path().join("a:b")).is_err());
    }

    #[test]
    fn the_cache_directory_of_the_user_comes_first() {
        let temp = Path::new("/t");
        let with = |pairs: &'static [(&str, &str)]| {
            let found = places(
                |name| pairs.iter().find(|(key, _)| *key == name).map(|p| p.1),
                temp,
            );
            found[0].clone()
        };
        assert_eq!(
            with(&[("XDG_CACHE_HOME", "/c"), ("HOME", "/h")]),
            Path::new("/c/flagstone")
        );
        assert_eq!(with(&[("HOME", "/h")]), Path::new("/h/.cache/flagstone"));
        assert_eq!(
            with(&[("XDG_CACHE_HOME", "relative"), ("HOME", "/h")]),
            Path::new("/h/.cache/flagstone")
        );
        let user = user_id();
        assert_eq!(with(&[]), PathBuf::from(format!("/t/flagstone-{user}")));
    }
}
