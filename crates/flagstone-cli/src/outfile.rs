//! Files that a long command writes at its end.

use crate::exit::Failure;
use serde::Serialize;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Where long temporary files go: `TMPDIR`, else `/var/tmp`, which unlike `/tmp` is seldom memory.
pub fn spool_folder() -> PathBuf {
    let long = Path::new("/var/tmp");
    match std::env::var_os("TMPDIR") {
        None if long.is_dir() => long.into(),
        _ => std::env::temp_dir(),
    }
}

/// A long temporary file without a name: a killed command leaves nothing behind.
///
/// # Errors
/// The system's.
pub fn spool() -> std::io::Result<File> {
    tempfile::tempfile_in(spool_folder())
}

/// Finds out before the work whether a file can be written at the end, and writes nothing. `-` is
/// standard output.
///
/// # Errors
/// One line for the user: the command, the file, and why not.
pub fn writable(command: &str, file: &Path) -> Result<(), Failure> {
    if file.as_os_str() == "-" {
        return Ok(());
    }
    let folder = file
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let open = || match file.exists() {
        true => std::fs::OpenOptions::new()
            .append(true)
            .open(file)
            .map(drop),
        false => tempfile::tempfile_in(folder.unwrap_or(Path::new("."))).map(drop),
    };
    let refused = match folder {
        _ if file.is_dir() => Some("is a directory".to_owned()),
        Some(folder) if !folder.is_dir() => Some("its directory does not exist".to_owned()),
        _ => open().err().map(|error| error.to_string()),
    };
    match refused {
        None => Ok(()),
        Some(why) => Err(Failure::Usage(format!(
            "{command}: {}: {why}; give the name of a file",
            file.display()
        ))),
    }
}

/// Like [`writable`] for all files of a call, none of which may be asked for twice. Only the JSON
/// document can go to standard output.
///
/// # Errors
/// One line for the user.
pub fn all_writable(
    command: &str,
    json: Option<&Path>,
    others: &[Option<&Path>],
) -> Result<(), Failure> {
    if others.contains(&Some(Path::new("-"))) {
        return Err(Failure::Usage(format!(
            "{command}: only --json can be `-`; give each other document the name of a file"
        )));
    }
    let others = others.iter().copied().flatten();
    let files: Vec<&Path> = json.into_iter().chain(others).collect();
    for (index, file) in files.iter().enumerate() {
        writable(command, file)?;
        let twice = files[..index].iter().any(|before| same(before, file));
        if twice && *file != Path::new("/dev/null") {
            return Err(Failure::Usage(format!(
                "{command}: {} is asked for twice: give each document a file of its own",
                file.display()
            )));
        }
    }
    Ok(())
}

/// Whether two paths mean one file, which need not be there yet.
fn same(one: &Path, other: &Path) -> bool {
    let place = |file: &Path| {
        file.canonicalize().ok().or_else(|| {
            let folder = file.parent().filter(|at| !at.as_os_str().is_empty());
            let folder = folder.unwrap_or(Path::new(".")).canonicalize().ok()?;
            Some(folder.join(file.file_name()?))
        })
    };
    one == other || place(one).is_some_and(|place_of| Some(place_of) == place(other))
}

/// Writes a document at the end of the work; `-` is standard output.
///
/// # Errors
/// One line for the user: the command, the file, and why not.
pub fn write(command: &str, file: &Path, text: &str) -> Result<(), Failure> {
    if file.as_os_str() == "-" {
        let mut stdout = std::io::stdout().lock();
        let printed = stdout
            .write_all(text.as_bytes())
            .and_then(|()| stdout.flush());
        return printed
            .map_err(|error| Failure::Usage(format!("{command}: standard output: {error}")));
    }
    // A pipe or a device is written to; a file is there whole or as it was.
    let special = file.exists() && !file.is_file();
    let written = if special {
        std::fs::write(file, text)
    } else {
        whole(file, text.as_bytes())
    };
    written.map_err(|error| Failure::Usage(format!("{command}: {}: {error}", file.display())))
}

/// Writes `document` as JSON; `-` is standard output.
///
/// # Errors
/// As [`write`].
pub fn write_json<T: Serialize>(command: &str, file: &Path, document: &T) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(document)
        .map_err(|error| Failure::Usage(format!("{command}: {error}")))?;
    write(command, file, &(text + "\n"))
}

pub use flagstone_lab::cache::whole;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_asked_for_under_two_paths_is_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let plain = folder.path().join("r.out");
        let around = folder.path().join("./sub/../r.out");
        std::fs::create_dir(folder.path().join("sub")).unwrap();
        let refused = all_writable("bench", Some(&plain), &[Some(&around)]);
        assert!(matches!(refused, Err(Failure::Usage(line)) if line.contains("asked for twice")));
        let other = folder.path().join("sub/r.out");
        assert!(all_writable("bench", Some(&plain), &[Some(&other), None]).is_ok());
        assert!(!plain.exists() && !other.exists(), "nothing is written yet");
    }

    #[test]
    fn only_the_json_document_goes_to_standard_output() {
        let dash = Path::new("-");
        assert!(all_writable("bench", Some(dash), &[None]).is_ok());
        let refused = all_writable("bench", None, &[Some(dash)]);
        assert!(matches!(refused, Err(Failure::Usage(line)) if line.contains("only --json")));
    }

    #[test]
    fn a_document_that_cannot_be_put_in_place_leaves_the_old_one_and_nothing_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("r.out");
        std::fs::create_dir(&file).unwrap();
        assert!(whole(&file, b"text").is_err());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        std::fs::remove_dir(&file).unwrap();
        std::fs::write(&file, "old").unwrap();
        write("bench", &file, "new").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");
    }
}
