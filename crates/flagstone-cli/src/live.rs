//! Heaps of running processes, seen from outside.
//!
//! ```text
//!   /proc/PID/maps ─► mapped files ─► magic in the file? ─► its address ─► /proc/PID/mem: the beacon
//! ```
//!
//! The library and every program with the heap linked in carry a beacon: bytes with a
//! magic, the version, and whether there is a heap (`flagstone_linux::beacon`), the first 64 of which are
//! the same in all versions. Reading stops
//! nobody and leaves no trace. It needs the rights of a debugger of the same user.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// What a beacon of any version begins with.
const MAGIC: [u8; 15] = flagstone_linux::beacon::NAME;
/// The bytes of it that are looked at.
const BEACON_BYTES: usize = 64;
/// Files beyond this size are not searched: no program that has the heap linked in comes near.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// One line of `/proc/PID/maps`.
#[derive(Debug, PartialEq, Eq)]
pub struct Mapping {
    start: u64,
    end: u64,
    offset: u64,
    writable: bool,
    inode: u64,
    /// The file's path, or a name in brackets; empty for anonymous memory.
    pub name: String,
}

impl Mapping {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.splitn(6, ' ');
        let (start, end) = words.next()?.split_once('-')?;
        let hexadecimal = |text| u64::from_str_radix(text, 16).ok();
        let rights = words.next()?;
        let offset = hexadecimal(words.next()?)?;
        let _device = words.next()?;
        let inode = words.next()?.parse().ok()?;
        Some(Self {
            start: hexadecimal(start)?,
            end: hexadecimal(end)?,
            offset,
            writable: rights.contains('w'),
            inode,
            name: words.next().unwrap_or("").trim_start().to_owned(),
        })
    }

    fn is_file(&self) -> bool {
        self.inode != 0 && self.name.starts_with('/')
    }

    /// The file's name without its folders.
    pub fn file_name(&self) -> &str {
        self.name.rsplit('/').next().unwrap_or(&self.name)
    }
}

/// A running process.
#[derive(Debug)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// What it has mapped.
    pub mappings: Vec<Mapping>,
}

/// A heap in a process.
#[derive(Debug, PartialEq, Eq)]
pub struct Heap {
    /// The file it came from.
    pub file: String,
    /// The version of Flagstone in it.
    pub version: String,
    /// How its slots are reached; `None` while there is no heap yet.
    pub slots: Option<Slots>,
    /// CPUs it has slots for.
    pub cpus: u32,
}

/// How a heap's per-CPU slots are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slots {
    /// By restartable sequences.
    Sequences,
    /// By one lock per CPU.
    Locks,
}

impl Process {
    /// Looks at process `pid`.
    ///
    /// # Errors
    /// One line: it is gone, or another user's.
    pub fn open(pid: u32) -> Result<Self, String> {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps"));
        let maps = maps.map_err(|error| refusal(pid, &error))?;
        let mappings: Vec<Mapping> = maps.lines().filter_map(Mapping::parse).collect();
        if mappings.is_empty() {
            return Err(format!(
                "process {pid} has no memory of its own (ended, or the kernel's)"
            ));
        }
        Ok(Self { pid, mappings })
    }

    /// The heaps in it: one, as a rule.
    ///
    /// # Errors
    /// One line: its memory may not be read.
    pub fn heaps(&self) -> Result<Vec<Heap>, String> {
        let mut heaps = Vec::new();
        for file in self
            .mappings
            .iter()
            .filter(|mapping| self.may_carry(mapping))
        {
            let bytes = self.file_bytes(file);
            for offset in find_all(&bytes, &MAGIC) {
                heaps.extend(self.heap_at(file, offset as u64)?);
            }
        }
        Ok(heaps)
    }

    /// Addresses of what begins with these bytes in writable memory of a file that may carry a heap.
    pub fn places_of(&self, magic: &[u8; 16]) -> Vec<u64> {
        let carriers = self.mappings.iter().filter(|file| self.may_carry(file));
        let in_file = |file: &Mapping| {
            let offsets = find_all(&self.file_bytes(file), magic);
            let places = offsets
                .into_iter()
                .filter_map(|offset| self.writable_at(file, offset as u64));
            places.collect::<Vec<_>>()
        };
        carriers.flat_map(in_file).collect()
    }

    /// Where this offset of a file is writable.
    fn writable_at(&self, file: &Mapping, offset: u64) -> Option<u64> {
        let holds = |m: &&Mapping| {
            m.inode == file.inode
                && m.name == file.name
                && m.writable
                && (m.offset..m.offset + (m.end - m.start)).contains(&offset)
        };
        let mapping = self.mappings.iter().find(holds)?;
        Some(mapping.start + (offset - mapping.offset))
    }

    /// Files that are looked into: the program itself, and libraries of our name. Each once: what a
    /// beacon lies in begins with the file's first mapping.
    fn may_carry(&self, mapping: &Mapping) -> bool {
        let program = fs::read_link(format!("/proc/{}/exe", self.pid));
        let program = program.is_ok_and(|path| path.to_string_lossy() == mapping.name);
        mapping.is_file()
            && mapping.offset == 0
            && (program || mapping.file_name().starts_with("libflagstone"))
    }

    /// The file's bytes, also where it was deleted or lies in another container.
    fn file_bytes(&self, mapping: &Mapping) -> Vec<u8> {
        let (pid, start, end) = (self.pid, mapping.start, mapping.end);
        let inside = PathBuf::from(format!("/proc/{pid}/map_files/{start:x}-{end:x}"));
        let rooted = PathBuf::from(format!("/proc/{pid}/root{}", mapping.name));
        let small =
            |path: &PathBuf| fs::metadata(path).is_ok_and(|file| file.len() <= FILE_BYTES_MAX);
        [inside, rooted]
            .iter()
            .filter(|path| small(path))
            .find_map(|path| fs::read(path).ok())
            .unwrap_or_default()
    }

    /// The heap whose beacon lies at `offset` of a file: where that is writable. The page may be mapped
    /// once more, as the end of the code.
    fn heap_at(&self, file: &Mapping, offset: u64) -> Result<Option<Heap>, String> {
        let holds = |m: &&Mapping| {
            m.inode == file.inode
                && m.name == file.name
                && m.writable
                && (m.offset..m.offset + (m.end - m.start)).contains(&offset)
        };
        let Some(mapping) = self.mappings.iter().find(holds) else {
            return Ok(None);
        };
        let mut beacon = [0; BEACON_BYTES];
        let address = mapping.start + (offset - mapping.offset);
        File::open(format!("/proc/{}/mem", self.pid))
            .and_then(|memory| memory.read_exact_at(&mut beacon, address))
            .map_err(|error| refusal(self.pid, &error))?;
        Heap::of(&beacon, &file.name).map(Some).ok_or_else(|| {
            let pid = self.pid;
            format!("process {pid}: the beacon in {} is damaged", file.name)
        })
    }
}

impl Heap {
    fn of(beacon: &[u8; BEACON_BYTES], file: &str) -> Option<Self> {
        let word = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|byte| beacon[at + byte]));
        let version = beacon[16..32].split(|&byte| byte == 0).next()?;
        let version = std::str::from_utf8(version).ok()?;
        let plain = |c: char| c.is_ascii_alphanumeric() || ".-+".contains(c);
        let slots = match word(32) {
            0 => None,
            1 => Some(Slots::Sequences),
            2 => Some(Slots::Locks),
            _ => return None,
        };
        let whole = beacon.starts_with(&MAGIC) && !version.is_empty() && version.chars().all(plain);
        whole.then(|| Self {
            file: file.to_owned(),
            version: version.to_owned(),
            slots,
            cpus: word(36),
        })
    }
}

/// Why a process cannot be looked at.
pub(crate) fn refusal(pid: u32, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => format!("process {pid}: there is none"),
        io::ErrorKind::PermissionDenied => format!(
            "process {pid}: not yours to look at; it needs the same user, or root (ptrace rights)"
        ),
        // A process that ends while it is read.
        _ if error.raw_os_error() == Some(libc::ESRCH) => format!("process {pid}: it has ended"),
        _ => format!("process {pid}: {error}"),
    }
}

fn find_all(bytes: &[u8], what: &[u8]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = bytes[from..].iter().position(|&byte| byte == what[0]) {
        from += at;
        if bytes[from..].starts_with(what) {
            found.push(from);
        }
        from += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beacon(state: u32) -> [u8; BEACON_BYTES] {
        let mut bytes = [0; BEACON_BYTES];
        bytes[..15].copy_from_slice(&MAGIC);
        bytes[16..21].copy_from_slice(b"1.2.3");
        bytes[32..36].copy_from_slice(&state.to_ne_bytes());
        bytes[36] = 8;
        bytes
    }

    #[test]
    fn a_beacon_says_its_version_and_its_slots_and_a_damaged_one_nothing() {
        let heap = Heap::of(&beacon(1), "/lib/x.so").unwrap();
        assert_eq!((&*heap.version, heap.cpus), ("1.2.3", 8));
        assert_eq!(heap.slots, Some(Slots::Sequences));
        assert_eq!(Heap::of(&beacon(0), "x").unwrap().slots, None);
        assert_eq!(Heap::of(&beacon(7), "x"), None);
        for at in [0, 14, 16] {
            let mut bytes = beacon(1);
            bytes[at] = 0xff;
            assert_eq!(Heap::of(&bytes, "x"), None, "byte {at}");
        }
    }

    #[test]
    fn mappings_are_read_with_names_that_hold_blanks() {
        let line = "7f00-7f10 rw-p 00001000 08:01 42                 /a b/lib x.so (deleted)";
        let mapping = Mapping::parse(line).unwrap();
        assert_eq!(
            (mapping.start, mapping.end, mapping.offset),
            (0x7f00, 0x7f10, 0x1000)
        );
        assert_eq!(mapping.name, "/a b/lib x.so (deleted)");
        assert_eq!(Mapping::parse("7f00-7f10 rw-p 0 0:0 0").unwrap().name, "");
        assert!(Mapping::parse("no mapping").is_none());
    }

    #[test]
    fn every_place_of_the_magic_is_found() {
        let mut bytes = vec![MAGIC[0]; 40];
        bytes[3..18].copy_from_slice(&MAGIC);
        bytes[24..39].copy_from_slice(&MAGIC);
        assert_eq!(find_all(&bytes, &MAGIC), [3, 24]);
    }

    #[test]
    fn a_process_that_is_not_there_is_one_line() {
        let line = Process::open(u32::MAX >> 1).unwrap_err();
        assert!(line.ends_with("there is none"), "{line}");
    }
}
