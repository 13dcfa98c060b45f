//! Which allocators are on this machine, and which of them a run is to measure.

use crate::exit::Failure;
use std::path::{Path, PathBuf};

/// An allocator that can be measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocator {
    /// Name in tables and on the command line.
    pub name: String,
    /// Version, as the library itself or its file name says.
    pub version: String,
    /// Library to preload; none is the C library's own malloc.
    pub library: Option<PathBuf>,
    /// Why it cannot run any workload here, if so.
    pub unusable: Option<String>,
}

impl Allocator {
    /// Environment a process on this allocator gets besides the preload.
    ///
    /// Google's tcmalloc registers restartable sequences itself and can only do so where the C
    /// library has not; without this it falls back to per-thread caches (docs: tcmalloc, rseq.md).
    pub fn environment(&self) -> &'static [(&'static str, &'static str)] {
        if self.name == TCMALLOC {
            &[("GLIBC_TUNABLES", "glibc.pthread.rseq=0")]
        } else {
            &[]
        }
    }
}

/// The name of the allocator under test.
pub const FLAGSTONE: &str = "flagstone";
/// The name of the C library's allocator.
pub const GLIBC: &str = "glibc";
/// Google's tcmalloc (Debian's is gperftools).
pub const TCMALLOC: &str = "tcmalloc";

/// Libraries that distributions install, by file name.
const SYSTEM: [(&str, &str); 8] = [
    ("jemalloc", "libjemalloc.so.2"),
    ("mimalloc2", "libmimalloc.so.2"),
    ("mimalloc2", "libmimalloc.so.2.0"),
    ("mimalloc3", "libmimalloc.so.3"),
    ("gperftools", "libtcmalloc_minimal.so.4"),
    ("rpmalloc", "librpmalloc.so"),
    ("snmalloc", "libsnmallocshim.so"),
    ("scudo", "libscudo.so"),
];

/// Folders in which libraries are looked for.
fn library_folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = ["/usr/local/lib", "/usr/lib64", "/usr/lib"]
        .iter()
        .map(PathBuf::from)
        .collect();
    let multiarch = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    folders.insert(0, PathBuf::from(multiarch));
    folders
}

/// Where `libflagstone.so` is: `given` (`--lib`), `FLAGSTONE_LIB`, or the one inside this program.
/// Not one that lies beside the program: it may be of an older build.
pub fn flagstone_library(given: Option<&Path>) -> Result<PathBuf, String> {
    if let Some(path) = given {
        return readable(path);
    }
    if let Some(path) = std::env::var_os("FLAGSTONE_LIB") {
        return readable(Path::new(&path));
    }
    crate::preload::library_path(&crate::preload::PRODUCT).map_err(|failure| match failure {
        Failure::Usage(line) | Failure::Finding(line) => line,
    })
}

/// Where that library comes from, in words.
pub fn flagstone_origin(given: Option<&Path>) -> String {
    let named = given.map(Path::to_owned);
    match named.or_else(|| std::env::var_os("FLAGSTONE_LIB").map(PathBuf::from)) {
        Some(path) => path.display().to_string(),
        None => "inside this program".into(),
    }
}

fn readable(path: &Path) -> Result<PathBuf, String> {
    if !path.is_file() {
        return Err(format!("{}: no such library", path.display()));
    }
    path.canonicalize()
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// The peers on this machine: the C library, what the distribution installed, what
/// `bench/peers` built.
pub fn peers() -> Vec<Allocator> {
    let mut list = vec![Allocator {
        name: GLIBC.into(),
        version: super::child::probe::glibc_version(),
        library: None,
        unusable: None,
    }];
    for (name, file) in SYSTEM {
        let found = library_folders()
            .into_iter()
            .find_map(|folder| readable(&folder.join(file)).ok());
        let Some(library) = found else { continue };
        if list
            .iter()
            .all(|known| known.library.as_ref() != Some(&library))
        {
            let version = version_in(&library);
            list.push(Allocator {
                name: name.into(),
                version,
                library: Some(library),
                unusable: None,
            });
        }
    }
    list.extend(built_peers());
    list
}

/// Libraries named `<name>-<version>.so` in `FLAGSTONE_PEERS`, or in `target/peers`.
fn built_peers() -> Vec<Allocator> {
    let folder = std::env::var_os("FLAGSTONE_PEERS")
        .map(PathBuf::from)
        .or_else(|| {
            let program = std::env::current_exe().ok()?;
            program
                .ancestors()
                .map(|at| at.join("peers"))
                .find(|at| at.is_dir())
        });
    let Some(entries) = folder.and_then(|folder| std::fs::read_dir(folder).ok()) else {
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    files.retain(|path| path.extension().is_some_and(|ending| ending == "so"));
    files.sort();
    let is_named = |path: &PathBuf| path.file_stem()?.to_str()?.rsplit_once('-').map(drop);
    let read = |path: PathBuf| readable(&path).ok().map(of_file);
    files.retain(|path| is_named(path).is_some());
    files.into_iter().filter_map(read).collect()
}

/// The allocator in a library, by its file name: one that distributions install, or
/// `<name>-<version>.so` as `bench/peers` calls them. The same library has one name however it was
/// found, because limits and settings go by it.
fn of_file(library: PathBuf) -> Allocator {
    let file = library
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let stem = file.split(".so").next().unwrap_or(&file);
    let installed = SYSTEM.iter().find(|(_, known)| *known == file);
    let (name, version) = match (installed, stem.rsplit_once('-')) {
        (Some((name, _)), _) => (*name, version_in(&library)),
        (None, Some((name, version))) if version.starts_with(|c: char| c.is_ascii_digit()) => {
            (name, version.to_owned())
        }
        _ => (stem, version_in(&library)),
    };
    Allocator {
        name: name.into(),
        version,
        library: Some(library),
        unusable: None,
    }
}

/// `libmimalloc.so.2.0` says 2.0; the probe replaces it where the library knows better.
fn version_in(library: &Path) -> String {
    let name = library
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    name.split_once(".so.")
        .map_or(String::new(), |(_, version)| version.to_owned())
}

/// The peers that `--against` means: `all`, names, `name-version`, or paths of libraries.
pub fn choose(wanted: &[String]) -> Result<Vec<Allocator>, String> {
    let known = peers();
    let mut chosen: Vec<Allocator> = Vec::new();
    for want in wanted {
        let found: Vec<Allocator> = if want == "all" {
            known.clone()
        } else if want.contains('/') {
            vec![of_file(readable(Path::new(want))?)]
        } else {
            let named = |one: &&Allocator| one.name == *want || full_name(one) == *want;
            known.iter().filter(named).cloned().collect()
        };
        if found.is_empty() {
            let names: Vec<String> = known.iter().map(full_name).collect();
            return Err(format!(
                "no allocator '{want}' here; found: {} (a path with a '/' is taken as a library; bench/peers builds more)",
                names.join(", ")
            ));
        }
        chosen.extend(
            found
                .into_iter()
                .filter(|one| !chosen.contains(one))
                .collect::<Vec<_>>(),
        );
    }
    Ok(chosen)
}

/// `name-version`.
pub fn full_name(allocator: &Allocator) -> String {
    format!("{}-{}", allocator.name, allocator.version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_library_is_always_a_peer() {
        let list = choose(&["glibc".to_owned()]).unwrap();
        assert_eq!(list.len(), 1);
        assert_eq!(list[0].library, None);
    }

    #[test]
    fn an_unknown_peer_names_those_found() {
        let line = choose(&["hoard".to_owned()]).unwrap_err();
        assert!(
            line.contains("no allocator 'hoard' here; found: glibc-"),
            "{line}"
        );
    }

    #[test]
    fn a_missing_library_is_named() {
        let line = flagstone_library(Some(Path::new("/nowhere/libflagstone.so"))).unwrap_err();
        assert_eq!(line, "/nowhere/libflagstone.so: no such library");
    }

    #[test]
    fn a_library_has_one_name_whether_it_was_found_or_given_by_path() {
        let named = |file: &str| full_name(&of_file(PathBuf::from(file)));
        assert_eq!(named("/p/target/peers/snmalloc-0.7.6.so"), "snmalloc-0.7.6");
        assert_eq!(of_file("/p/tcmalloc-0.1.14.so".into()).name, TCMALLOC);
        assert!(
            !of_file("/p/tcmalloc-0.1.14.so".into())
                .environment()
                .is_empty()
        );
        assert_eq!(
            of_file("/opt/lib/libsnmallocshim.so".into()).name,
            "snmalloc"
        );
        assert_eq!(named("/usr/lib/libjemalloc.so.2"), "jemalloc-2");
        assert_eq!(of_file("/opt/my-own.so".into()).name, "my-own");
    }

    #[test]
    fn a_version_is_read_off_a_file_name() {
        assert_eq!(version_in(Path::new("/usr/lib/libmimalloc.so.2.0")), "2.0");
        assert_eq!(version_in(Path::new("/opt/librpmalloc.so")), "");
    }
}
