//! What a command's process was at its end, and why that program may have run without the library.
//!
//! ```text
//!   setpriv (served) ──exec──► sort, as nobody: the loader may not open the library ──► ended, not waited for yet
//! ```
//!
//! The loader goes on without a library that it cannot open, so only the name and the user of the last program tell.

use super::reports::Report;
use crate::preload::user_id;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The last program of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Last {
    /// As the kernel keeps it: fifteen bytes.
    pub name: String,
    /// Its effective user.
    pub user: u32,
}

impl Last {
    /// Of a process that runs, or has ended and is still to be waited for.
    pub fn of(process: u32) -> Option<Self> {
        let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let value = |key: &str| status.lines().find_map(|line| line.strip_prefix(key));
        let user = value("Uid:")?.split_whitespace().nth(1)?;
        Some(Self {
            name: value("Name:")?.trim().to_owned(),
            user: user.parse().ok()?,
        })
    }

    /// Whether it ran as somebody else than this program.
    pub fn is_other_user(&self) -> bool {
        self.user != user_id()
    }

    /// Why it has not loaded `library`, which the program before it had.
    pub fn why(&self, library: &Path) -> String {
        match self.closed(library) {
            Some(closed) => format!(
                "as {} it may not open {closed}, where the library lies; put flagstone behind what changes the user",
                user_name(self.user)
            ),
            None => "LD_PRELOAD was overwritten or cleared on the way, or it is static".to_owned(),
        }
    }

    /// The first part of the way to `library` that its user may not pass.
    pub fn closed(&self, library: &Path) -> Option<String> {
        let mut parts: Vec<&Path> = library.ancestors().collect();
        parts.reverse();
        let is_closed =
            |path: &&Path| fs::metadata(path).is_ok_and(|found| !passes(&found, self.user));
        let found = parts.into_iter().find(is_closed);
        found
            .filter(|_| self.is_other_user())
            .map(|path| path.display().to_string())
    }

    /// What `run` says of a command whose last figures are of another program, or of another user: a sentence.
    pub fn unserved(&self, main: Option<&Report>, library: &Path) -> Option<String> {
        let name = &self.name;
        match main {
            Some(report) if report.at_exit => None,
            Some(report) if report.program != *name => Some(format!(
                "{name} ran without the library: {}. All figures are of {}, which became {name}.",
                self.why(library),
                report.program
            )),
            Some(_) => self.is_other_user().then(|| {
                format!(
                    "{name} became {}, who may not write the report: all figures are of before.",
                    user_name(self.user)
                )
            }),
            None => self
                .closed(library)
                .map(|_| format!("{name} ran without the library: {}.", self.why(library))),
        }
    }
}

/// Whether `user` may search a directory, or read a file. What its group decides is not known: that passes.
fn passes(found: &fs::Metadata, user: u32) -> bool {
    let bit = if found.is_dir() { 1 } else { 4 };
    let group_and_others = bit << 3 | bit;
    match found.uid() == user {
        true => found.mode() & bit << 6 != 0,
        false => user == 0 || found.mode() & group_and_others != 0,
    }
}

/// `user nobody`, or its number where it has no name.
fn user_name(user: u32) -> String {
    let accounts = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(user)).then(|| name.to_owned())
    });
    format!("user {}", name.unwrap_or_else(|| user.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_folder_closed_to_a_user_is_named_and_an_open_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let closed = folder.path().join("closed");
        let library = closed.join("library.so");
        fs::create_dir(&closed).unwrap();
        fs::write(&library, "").unwrap();
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(folder.path(), 0o755);
        mode(&closed, 0o700);
        mode(&library, 0o644);
        let last = Last {
            name: "sort".to_owned(),
            user: user_id() + 1,
        };
        let shown = closed.display().to_string();
        assert_eq!(last.closed(&library).as_ref(), Some(&shown));
        assert!(last.why(&library).contains(&shown));
        let own = Last {
            user: user_id(),
            ..last.clone()
        };
        assert_eq!(own.closed(&library), None);
        mode(&closed, 0o711);
        assert_eq!(last.closed(&library), None);
        assert!(last.why(&library).contains("LD_PRELOAD"));
        mode(&library, 0o600);
        assert!(last.closed(&library).is_some());
    }

    #[test]
    fn this_process_has_a_name_and_a_user() {
        let own = Last::of(std::process::id()).unwrap();
        assert!(!own.name.is_empty() && own.user == user_id());
        assert_eq!(user_name(0), "user root");
        assert_eq!(user_name(4_000_000_000), "user 4000000000");
    }
}
