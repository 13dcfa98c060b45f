//! What a command is, before it is started: where it lies, and whether a library can be put in.
//!
//! ```text
//!   name ─► PATH ─► file ─► #! ─► its interpreter (and so on) ─► ELF: an interpreter of its own?
//! ```
//!
//! The loader that reads `LD_PRELOAD` is the ELF file's interpreter: without one (a static
//! program), with another one (another C library), in another class (32 bits), or where the
//! kernel tells it to trust nobody (setuid), nothing can be preloaded.

use super::near;
use object::Object as _;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// How many interpreters of scripts are followed; the kernel's own limit is 4.
const DEPTH: u32 = 5;

/// Why a command is not started.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    /// With the exit status of shells: 127 not found, 126 not executable.
    Code(u8, String),
    /// A program no library can be put into: exit 2.
    Usage(String),
}

/// Finds `command` as a shell would, and refuses what cannot be run or not be preloaded.
///
/// # Errors
/// See [`Refusal`].
pub fn find(command: &OsStr) -> Result<PathBuf, Refusal> {
    let path = locate(command)?;
    inspect(&path, DEPTH)?;
    Ok(path)
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn not_found(name: &str, why: &str) -> Refusal {
    Refusal::Code(127, format!("{name}: {why}"))
}

fn not_executable(name: &str, why: &str) -> Refusal {
    Refusal::Code(126, format!("{name}: {why}"))
}

fn locate(command: &OsStr) -> Result<PathBuf, Refusal> {
    if command.as_bytes().contains(&b'/') {
        let path = PathBuf::from(command);
        return match executable(&path) {
            Kind::Absent => Err(absent(&path)),
            Kind::Directory => Err(not_executable(&shown(&path), "is a directory")),
            Kind::Plain => Err(not_executable(&shown(&path), "not executable; chmod +x it")),
            Kind::Executable => Ok(path),
        };
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/bin:/bin"));
    let directories = || {
        std::env::split_paths(&path).map(|directory| match directory.as_os_str().is_empty() {
            true => PathBuf::from("."),
            false => directory,
        })
    };
    let mut plain = None;
    for directory in directories() {
        let candidate = directory.join(command);
        match executable(&candidate) {
            Kind::Executable if !command.is_empty() => return Ok(candidate),
            Kind::Plain => plain = plain.or(Some(candidate)),
            _ => {}
        }
    }
    if let Some(path) = plain {
        return Err(not_executable(&shown(&path), "not executable; chmod +x it"));
    }
    let name = command.to_string_lossy();
    let meant = near::program(command, directories(), can_run);
    let question = meant.map_or(String::new(), |near| format!("; did you mean '{near}'?"));
    let line = format!("no program '{name}' in PATH{question}");
    Err(Refusal::Code(127, line))
}

/// A path that nothing is at, with its neighbour of a similar name.
fn absent(path: &Path) -> Refusal {
    let directory = path.parent().map(Path::to_owned);
    let near = path.file_name().and_then(|name| {
        let near = near::program(name, directory.into_iter(), can_run)?;
        Some(path.with_file_name(near))
    });
    let question = near.map(|near| format!("; did you mean '{}'?", shown(&near)));
    let why = format!("no such file{}", question.unwrap_or_default());
    not_found(&shown(path), &why)
}

fn can_run(path: &Path) -> bool {
    matches!(executable(path), Kind::Executable)
}

enum Kind {
    Absent,
    Directory,
    Plain,
    Executable,
}

fn executable(path: &Path) -> Kind {
    let Ok(metadata) = fs::metadata(path) else {
        return Kind::Absent;
    };
    if metadata.is_dir() {
        return Kind::Directory;
    }
    let Ok(name) = std::ffi::CString::new(path.as_os_str().as_bytes()) else {
        return Kind::Absent;
    };
    // SAFETY: a zero-terminated path.
    if unsafe { libc::access(name.as_ptr(), libc::X_OK) } == 0 {
        Kind::Executable
    } else {
        Kind::Plain
    }
}

/// Follows scripts to the program that the kernel will load, and looks at that.
fn inspect(path: &Path, depth: u32) -> Result<(), Refusal> {
    let Ok(file) = File::open(path) else {
        // Executable but not readable: the kernel may run what we may not look at.
        return Ok(());
    };
    let mut start = Vec::new();
    if (&file).take(512).read_to_end(&mut start).is_err() {
        return Ok(());
    }
    if let Some(line) = start.strip_prefix(b"#!") {
        return match interpreter(line) {
            Some(next) if depth > 0 => inspect_interpreter(path, &next, depth - 1),
            _ => Err(not_executable(
                &shown(path),
                "no usable interpreter after #!",
            )),
        };
    }
    if !start.starts_with(b"\x7fELF") {
        let why = "neither a program nor a script that starts with #!";
        return Err(not_executable(&shown(path), why));
    }
    if let Some(why) = rights(path, &file) {
        return Err(no_library(path, why));
    }
    match Elf::of(&start) {
        Some(elf) => elf.check(path, &file),
        None => Err(no_library(path, "its ELF header is for another machine")),
    }
}

fn inspect_interpreter(script: &Path, next: &Path, depth: u32) -> Result<(), Refusal> {
    match executable(next) {
        Kind::Executable => inspect(next, depth),
        _ => Err(not_found(
            &shown(script),
            &format!("its interpreter {} is missing", shown(next)),
        )),
    }
}

fn no_library(path: &Path, why: &str) -> Refusal {
    Refusal::Usage(format!(
        "{}: {why}, so no allocator can be loaded into it",
        shown(path)
    ))
}

/// The path after `#!`.
fn interpreter(line: &[u8]) -> Option<PathBuf> {
    let line = line.split(|&b| b == b'\n').next()?;
    let word = line
        .split(|b| b" \t\r".contains(b))
        .find(|word| !word.is_empty())?;
    Some(PathBuf::from(OsString::from_vec(word.to_vec())))
}

/// Why the kernel would start the program with more rights than its caller has.
fn rights(path: &Path, file: &File) -> Option<&'static str> {
    let mode = file.metadata().ok()?.mode();
    if mode & libc::S_ISUID != 0 {
        return Some("setuid: the loader ignores LD_PRELOAD");
    }
    if mode & libc::S_ISGID != 0 && mode & libc::S_IXGRP != 0 {
        return Some("setgid: the loader ignores LD_PRELOAD");
    }
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: zero-terminated names, and no buffer is written with a size of zero.
    let size = unsafe {
        libc::getxattr(
            path.as_ptr(),
            c"security.capability".as_ptr(),
            std::ptr::null_mut(),
            0,
        )
    };
    (size > 0).then_some("has file capabilities: the loader ignores LD_PRELOAD")
}

/// Where the program headers of an ELF file lie.
struct Elf {
    wide: bool,
    machine: u16,
    offset: u64,
    size: u64,
    count: u64,
}

/// Program header that names the interpreter.
const PT_INTERP: u32 = 3;

impl Elf {
    /// The header in `start`; `None` if its bytes are in another order or too few.
    fn of(start: &[u8]) -> Option<Self> {
        let little = *start.get(5)? == 1;
        if little != cfg!(target_endian = "little") {
            return None;
        }
        let wide = *start.get(4)? == 2;
        let (at, size_at) = if wide { (32, 54) } else { (28, 42) };
        Some(Self {
            wide,
            machine: short(start, 18)?,
            offset: if wide {
                long(start, at)?
            } else {
                word(start, at)?.into()
            },
            size: short(start, size_at)?.into(),
            count: short(start, size_at + 2)?.into(),
        })
    }

    fn check(&self, path: &Path, file: &File) -> Result<(), Refusal> {
        let own = own_header();
        if self.wide != cfg!(target_pointer_width = "64")
            || own.as_ref().is_some_and(|own| own.0 != self.machine)
        {
            return Err(no_library(path, "a program of another kind of machine"));
        }
        let Some(interpreter) = self.interpreter(file) else {
            let why = match is_go(path) {
                true => "statically linked by Go, whose heap is its own (GOMEMLIMIT bounds it)",
                false => "statically linked: it has no dynamic loader",
            };
            return Err(no_library(path, why));
        };
        let name = |path: &[u8]| path.rsplit(|&b| b == b'/').next().map(<[u8]>::to_vec);
        match own {
            Some((_, ours)) if name(&ours) != name(&interpreter) => Err(no_library(
                path,
                &format!(
                    "made for another C library (its loader is {})",
                    String::from_utf8_lossy(&interpreter)
                ),
            )),
            _ => Ok(()),
        }
    }

    /// The loader the file names.
    fn interpreter(&self, file: &File) -> Option<Vec<u8>> {
        for index in 0..self.count {
            let mut header = [0; 56];
            let room = header.get_mut(..self.size as usize)?;
            file.read_exact_at(room, self.offset + index * self.size)
                .ok()?;
            if word(&header, 0)? != PT_INTERP {
                continue;
            }
            let (at, bytes) = if self.wide {
                (long(&header, 8)?, long(&header, 32)?)
            } else {
                (word(&header, 4)?.into(), word(&header, 16)?.into())
            };
            let mut name = vec![0; bytes.min(4096) as usize];
            file.read_exact_at(&mut name, at).ok()?;
            name.truncate(name.iter().position(|&b| b == 0).unwrap_or(name.len()));
            return Some(name);
        }
        None
    }
}

/// Whether the Go linker made a program: it notes there how it was built.
pub fn is_go(path: &Path) -> bool {
    let Ok(file) = File::open(path) else {
        return false;
    };
    let cache = object::ReadCache::new(file);
    object::File::parse(&cache).is_ok_and(|file| file.section_by_name(".go.buildinfo").is_some())
}

/// Machine and loader of this very program, for whose C library the preload library is built.
fn own_header() -> Option<(u16, Vec<u8>)> {
    let file = File::open("/proc/self/exe").ok()?;
    let mut start = Vec::new();
    (&file).take(64).read_to_end(&mut start).ok()?;
    let elf = Elf::of(&start)?;
    Some((elf.machine, elf.interpreter(&file)?))
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn file(directory: &Path, name: &str, bytes: &[u8], mode: u32) -> OsString {
        let path = directory.join(name);
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.into_os_string()
    }

    fn own_bytes() -> Vec<u8> {
        fs::read("/proc/self/exe").unwrap()
    }

    fn refused(command: &OsStr) -> (u8, String) {
        match find(command) {
            Err(Refusal::Code(code, line)) => (code, line),
            Err(Refusal::Usage(line)) => (2, line),
            Ok(path) => panic!("{} was accepted", path.display()),
        }
    }

    #[test]
    fn this_program_and_scripts_for_it_are_accepted() {
        let own = std::env::current_exe().unwrap();
        assert_eq!(find(own.as_os_str()), Ok(own.clone()));
        let directory = tempfile::tempdir().unwrap();
        let script = format!("#! {} -x\nanything", own.display());
        let script = file(directory.path(), "script", script.as_bytes(), 0o755);
        let outer = format!("#!{}\n", Path::new(&script).display());
        let outer = file(directory.path(), "outer", outer.as_bytes(), 0o755);
        assert!(find(&script).is_ok());
        assert!(find(&outer).is_ok());
    }

    #[test]
    fn what_is_missing_or_not_executable_has_the_status_of_shells() {
        let directory = tempfile::tempdir().unwrap();
        let plain = file(directory.path(), "plain", b"#!/bin/sh\n", 0o644);
        let text = file(directory.path(), "text", b"hello\n", 0o755);
        let orphan = file(directory.path(), "orphan", b"#!/no/such/one\n", 0o755);
        let looping = directory.path().join("loop");
        let looping_text = format!("#!{}\n", looping.display());
        let looping = file(directory.path(), "loop", looping_text.as_bytes(), 0o755);
        assert_eq!(refused(OsStr::new("no-such-command-here")).0, 127);
        assert_eq!(refused(OsStr::new("")).0, 127);
        assert_eq!(refused(OsStr::new("/no/such/file")).0, 127);
        assert_eq!(refused(&orphan).0, 127);
        assert_eq!(refused(directory.path().as_os_str()).0, 126);
        assert_eq!(refused(&text).0, 126);
        assert_eq!(refused(&looping).0, 126);
        assert_eq!(refused(&plain).0, 126);
    }

    #[test]
    fn a_program_without_a_loader_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let mut bytes = own_bytes();
        let elf = Elf::of(&bytes).unwrap();
        for index in 0..elf.count {
            let at = (elf.offset + index * elf.size) as usize;
            if word(&bytes, at) == Some(PT_INTERP) {
                bytes[at..at + 4].copy_from_slice(&0u32.to_ne_bytes());
            }
        }
        let program = file(directory.path(), "static", &bytes, 0o755);
        let (code, line) = refused(&program);
        assert_eq!(code, 2);
        assert!(line.contains("statically linked"), "{line}");
        let script = format!("#!{}\n", Path::new(&program).display());
        let script = file(directory.path(), "script", script.as_bytes(), 0o755);
        assert!(refused(&script).1.contains("statically linked"));
    }

    #[test]
    fn a_setuid_program_and_one_of_another_machine_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let bytes = own_bytes();
        let setuid = file(directory.path(), "setuid", &bytes, 0o4755);
        let (code, line) = refused(&setuid);
        assert_eq!((code, line.contains("setuid")), (2, true), "{line}");
        let mut other = bytes;
        other[18] ^= 0xFF;
        let other = file(directory.path(), "other", &other, 0o755);
        let (code, line) = refused(&other);
        assert_eq!((code, line.contains("machine")), (2, true), "{line}");
    }

    #[test]
    fn a_cut_off_program_is_refused_rather_than_read_beyond_its_end() {
        let directory = tempfile::tempdir().unwrap();
        for len in [4, 16, 63, 64, 100] {
            let name = format!("cut-{len}");
            let cut = file(directory.path(), &name, &own_bytes()[..len], 0o755);
            assert_eq!(refused(&cut).0, 2, "{len} bytes");
        }
    }
}
