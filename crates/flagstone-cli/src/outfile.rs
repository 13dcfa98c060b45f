//! Files that a long command writes at its end.

use crate::exit::Failure;
use std::path::Path;

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
