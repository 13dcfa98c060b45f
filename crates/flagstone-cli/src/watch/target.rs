//! Finding the heap of a running process: by its beacon, in its memory.
//!
//! No symbol, no path and no file is asked: a beacon lies in a page that a file gave and the process has
//! written to since, which `pagemap` tells. So a library under another name, deleted, in another container, or
//! linked into the program is found alike, and no page is touched that the process has not.

use flagstone_linux::beacon::{GAUGES, LAYOUT, MAGIC, NAME};
use flagstone_linux::process::{Access, Mapping, Place};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes of a beacon.
const BEACON_BYTES: usize = 128;
/// Beacons lie at multiples of this.
const ALIGN: usize = 64;
/// Mappings longer than this are not searched: no program's data comes near.
const DATA_BYTES_MAX: usize = 256 << 20;

/// Bits of a word of `pagemap`.
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const OF_FILE: u64 = 1 << 61;

/// What a beacon says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beacon {
    /// The version of Flagstone in the process.
    pub version: String,
    /// 0 no heap yet, 1 restartable sequences, 2 locks.
    pub state: u32,
    pub cpus: u32,
    pub heap: u64,
    pub span: u64,
    pub span_bytes: u64,
    pub layout: u64,
    pub tables: u64,
    pub bell: u64,
    pub control: u64,
    pub gauges: u64,
}

impl Beacon {
    /// What the bytes say; `None` if they are damaged, `Err` with the version for another layout of beacons.
    fn of(bytes: &[u8; BEACON_BYTES]) -> Option<Result<Self, String>> {
        let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        let version = bytes[16..32].split(|&byte| byte == 0).next()?;
        let version = std::str::from_utf8(version).ok()?;
        let plain = |c: char| c.is_ascii_alphanumeric() || ".-+".contains(c);
        if version.is_empty() || !version.chars().all(plain) {
            return None;
        }
        if !bytes.starts_with(&MAGIC) {
            return Some(Err(version.to_owned()));
        }
        let (state, cpus) = (word(32) as u32, (word(32) >> 32) as u32);
        let beacon = Self {
            version: version.to_owned(),
            state,
            cpus,
            heap: word(40),
            span: word(48),
            span_bytes: word(56),
            layout: word(64),
            tables: word(72),
            bell: word(80),
            control: word(88),
            gauges: word(96),
        };
        let ordered = beacon.tables <= beacon.span && beacon.span_bytes < 1 << 56;
        (state <= 2 && ordered).then_some(Ok(beacon))
    }
}

/// A mapping with what the search needs besides.
#[derive(Debug)]
pub struct Region {
    /// Where, and what.
    pub mapping: Mapping,
    /// Whether the process may write there, and nobody else sees it.
    pub own: bool,
    /// Whether its pages are taken from huge pages set aside, which no resident size counts.
    pub set_aside: bool,
    /// The file's path, or a name in brackets; empty for anonymous memory.
    pub name: String,
}

impl Region {
    /// What a line of `maps` says.
    pub fn of(line: &str) -> Option<Self> {
        let mapping = Mapping::of(line.as_bytes())?;
        let rights = line.split(' ').nth(1)?;
        let name = line.splitn(6, ' ').nth(5).unwrap_or("").trim_start();
        Some(Self {
            mapping,
            own: rights.starts_with("rw") && rights.ends_with('p'),
            set_aside: line.contains("/anon_hugepage") || line.contains("hugetlb"),
            name: name.to_owned(),
        })
    }

    /// The file's name without its folders.
    pub fn file_name(&self) -> &str {
        self.name.rsplit('/').next().unwrap_or(&self.name)
    }
}

/// A process with a heap in it.
#[derive(Debug)]
pub struct Target {
    pub pid: u32,
    /// What the kernel calls it.
    pub program: String,
    pub regions: Vec<Region>,
    pub beacon: Beacon,
    /// Its memory.
    pub memory: File,
    /// Which of it is there.
    pub pagemap: File,
}

/// Why a process cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no heap of ours in it.
    NoHeap(String),
    /// It is gone, or another user's.
    Hidden(String),
    /// Anything else; one line.
    Line(String),
}

impl Refusal {
    /// One line for the user.
    pub fn line(self) -> String {
        match self {
            Self::NoHeap(line) | Self::Hidden(line) | Self::Line(line) => line,
        }
    }
}

impl Target {
    /// Finds the heap of process `pid`.
    ///
    /// # Errors
    /// One line: it is gone, another user's, has no heap of ours, or one of another version.
    pub fn find(pid: u32) -> Result<Self, Refusal> {
        let line = |error: &io::Error| Refusal::Hidden(refused(pid, error));
        let Looked {
            program,
            regions,
            memory,
            pagemap,
        } = Looked::at(pid)?;
        let mut ours = None;
        let mut other = None;
        let mut damaged = false;
        for (_, found) in search(&memory, &pagemap, &regions).map_err(|error| line(&error))? {
            match found {
                // No heap yet: another copy of the library may have one.
                Found::Ours(beacon) if beacon.state == 0 => {}
                Found::Ours(beacon) => ours = ours.or(Some(beacon)),
                Found::Other(version) => other = Some(version),
                Found::Damaged => damaged = true,
            }
        }
        let beacon = match (ours, other) {
            (Some(beacon), _) => beacon,
            (None, Some(version)) => return Err(Refusal::Line(another(pid, &version))),
            (None, None) if damaged => {
                return Err(Refusal::Line(format!(
                    "process {pid}: its beacon is damaged: the program wrote over it; nothing is read"
                )));
            }
            (None, None) => {
                return Err(Refusal::NoHeap(format!(
                    "process {pid} ({program}) has no heap of Flagstone; `flagstone check {pid}` says why"
                )));
            }
        };
        if beacon.layout != LAYOUT || beacon.version != env!("CARGO_PKG_VERSION") {
            return Err(Refusal::Line(another(pid, &beacon.version)));
        }
        Ok(Self {
            pid,
            program,
            regions,
            beacon,
            memory,
            pagemap,
        })
    }

    /// The process's figures beside its heap's own; zeroes where they cannot be read.
    pub fn gauges(&self) -> [u64; GAUGES] {
        let mut bytes = [0; GAUGES * 8];
        let read = self
            .owns(self.beacon.gauges, bytes.len())
            .then(|| self.memory.read_exact_at(&mut bytes, self.beacon.gauges));
        match read {
            Some(Ok(())) => {
                let (words, _) = bytes.as_chunks::<8>();
                std::array::from_fn(|at| u64::from_ne_bytes(words[at]))
            }
            _ => [0; GAUGES],
        }
    }

    /// Resident bytes as the kernel counts them.
    pub fn resident_bytes(&self) -> Option<u64> {
        resident_bytes(self.pid)
    }

    /// Whether `bytes` at `address` are the process's own data.
    pub fn owns(&self, address: u64, bytes: usize) -> bool {
        let (from, to) = (address as usize, (address as usize).saturating_add(bytes));
        let mut at = from;
        for region in self.regions.iter().filter(|region| region.own) {
            if region.mapping.start <= at && at < region.mapping.end {
                at = region.mapping.end;
            }
        }
        from < to && at >= to
    }
}

/// Resident bytes of a process as the kernel counts them.
pub fn resident_bytes(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * page_bytes() as u64)
}

/// All processes that can be seen.
pub fn processes() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut pids: Vec<u32> = numbers.collect();
    pids.sort_unstable();
    pids
}

/// Bytes of a page.
pub fn page_bytes() -> usize {
    // SAFETY: asks for a constant of the system.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(4096)
}

/// A process's files that are looked at.
struct Looked {
    program: String,
    regions: Vec<Region>,
    memory: File,
    pagemap: File,
}

impl Looked {
    fn at(pid: u32) -> Result<Self, Refusal> {
        let line = |error: &io::Error| Refusal::Hidden(refused(pid, error));
        let maps = fs::read(format!("/proc/{pid}/maps")).map_err(|error| line(&error))?;
        let maps = String::from_utf8_lossy(&maps);
        let regions: Vec<Region> = maps.lines().filter_map(Region::of).collect();
        let program = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if regions.is_empty() {
            let why = "has no memory of its own (it has ended, or is the kernel's)";
            return Err(Refusal::NoHeap(format!("process {pid} {why}")));
        }
        let open = |name: &str| File::open(format!("/proc/{pid}/{name}"));
        Ok(Self {
            program: program.trim_end().to_owned(),
            regions,
            memory: open("mem").map_err(|error| line(&error))?,
            pagemap: open("pagemap").map_err(|error| line(&error))?,
        })
    }
}

/// A heap in a process, of any version and built or not.
#[derive(Debug, PartialEq, Eq)]
pub struct Heap {
    /// The file it came from.
    pub file: String,
    /// The version of Flagstone in it.
    pub version: String,
    /// 0 no heap yet, 1 restartable sequences, 2 locks.
    pub state: u32,
}

/// What process `pid` has mapped, and the heaps in it: one, as a rule.
///
/// # Errors
/// One line: it is gone, another user's, or its beacon is damaged.
pub fn heaps(pid: u32) -> Result<(Vec<Region>, Vec<Heap>), String> {
    let looked = Looked::at(pid).map_err(Refusal::line)?;
    let found = search(&looked.memory, &looked.pagemap, &looked.regions)
        .map_err(|error| refused(pid, &error))?;
    let mut heaps = Vec::new();
    for (file, found) in found {
        let file = file.to_owned();
        heaps.push(match found {
            Found::Ours(beacon) => Heap {
                file,
                version: beacon.version,
                state: beacon.state,
            },
            // All versions say the state in the same place: not read here.
            Found::Other(version) => Heap {
                file,
                version,
                state: 1,
            },
            Found::Damaged => {
                return Err(format!("process {pid}: the beacon in {file} is damaged"));
            }
        });
    }
    Ok((looked.regions, heaps))
}

enum Found {
    Ours(Beacon),
    /// With its version.
    Other(String),
    Damaged,
}

/// The beacons in the pages that came from a file and were written to since, each with its file.
fn search<'r>(
    memory: &File,
    pagemap: &File,
    regions: &'r [Region],
) -> io::Result<Vec<(&'r str, Found)>> {
    let page = page_bytes();
    let mut all = Vec::new();
    let data = regions.iter().filter(|region| {
        let short = region.mapping.end - region.mapping.start <= DATA_BYTES_MAX;
        region.own && short && matches!(region.mapping.place, Place::File(_))
    });
    for region in data {
        let (start, end) = (region.mapping.start, region.mapping.end);
        let mut words = vec![0; (end - start) / page * 8];
        pagemap.read_exact_at(&mut words, (start / page * 8) as u64)?;
        let mut bytes = vec![0; page];
        for (at, word) in words.chunks_exact(8).enumerate() {
            let word = u64::from_ne_bytes(std::array::from_fn(|byte| word[byte]));
            if word & (PRESENT | SWAPPED) == 0 || word & OF_FILE != 0 {
                continue;
            }
            let address = (start + at * page) as u64;
            // What was unmapped meanwhile holds no beacon of a heap in use.
            if memory.read_exact_at(&mut bytes, address).is_ok() {
                all.extend(in_page(&bytes).map(|found| (&*region.name, found)));
            }
        }
    }
    Ok(all)
}

fn in_page(bytes: &[u8]) -> Option<Found> {
    let mut at = 0;
    while at + BEACON_BYTES <= bytes.len() {
        if bytes[at..].starts_with(&NAME) {
            let mut beacon = [0; BEACON_BYTES];
            beacon.copy_from_slice(&bytes[at..at + BEACON_BYTES]);
            return Some(match Beacon::of(&beacon) {
                Some(Ok(beacon)) => Found::Ours(beacon),
                Some(Err(version)) => Found::Other(version),
                None => Found::Damaged,
            });
        }
        at += ALIGN;
    }
    None
}

fn another(pid: u32, version: &str) -> String {
    let own = env!("CARGO_PKG_VERSION");
    if version == own {
        return format!(
            "process {pid} runs another build of flagstone {own} than this command; use the command that came with it"
        );
    }
    format!(
        "process {pid} runs flagstone {version} and this command is {own}; use the command that came with it"
    )
}

/// What it takes to look at a process that this one may not look at.
pub fn needed() -> &'static str {
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    needed_with(
        scope.as_deref().map_or("0", str::trim),
        crate::preload::user_id() == 0,
    )
}

/// The same for a value of `kernel.yama.ptrace_scope`, and for root or not.
fn needed_with(scope: &str, is_root: bool) -> &'static str {
    match (scope, is_root) {
        ("3", _) => {
            "it needs kernel.yama.ptrace_scope below 3, and that a new start of the machine"
        }
        (_, true) => {
            "it needs more than root may here: CAP_SYS_PTRACE in the namespace of that process"
        }
        ("0", _) => "it needs the same user, or root (ptrace rights)",
        _ => {
            "it needs root here: kernel.yama.ptrace_scope keeps users from looking into their own processes"
        }
    }
}

/// One line for a file of `/proc/PID` that is refused.
pub fn refused(pid: u32, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => format!("process {pid}: there is none"),
        io::ErrorKind::PermissionDenied => {
            format!("process {pid}: not yours to look at; {}", needed())
        }
        // A process that ends while it is read.
        _ if error.raw_os_error() == Some(libc::ESRCH) => format!("process {pid}: it has ended"),
        _ => format!("process {pid}: {error}"),
    }
}

/// Whether a mapping is reserved address space only.
pub fn is_bare(mapping: &Mapping) -> bool {
    mapping.access == Access::None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_not_look_is_told_what_it_takes() {
        assert!(needed_with("0", false).contains("same user, or root"));
        assert!(needed_with("1", false).starts_with("it needs root here"));
        assert!(needed_with("2", false).starts_with("it needs root here"));
        for is_root in [true, false] {
            let why = needed_with("3", is_root);
            assert!(!why.contains("root") && why.contains("below 3"), "{why}");
        }
        for scope in ["0", "1", "2"] {
            assert!(needed_with(scope, true).contains("CAP_SYS_PTRACE"));
        }
    }

    fn beacon() -> [u8; BEACON_BYTES] {
        let mut bytes = [0; BEACON_BYTES];
        bytes[..16].copy_from_slice(&MAGIC);
        bytes[16..21].copy_from_slice(b"1.2.3");
        bytes[32] = 1;
        bytes[36] = 8;
        bytes[64..72].copy_from_slice(&7_u64.to_ne_bytes());
        bytes
    }

    #[test]
    fn a_beacon_says_where_and_a_damaged_one_nothing() {
        let found = Beacon::of(&beacon()).unwrap().unwrap();
        assert_eq!((&*found.version, found.state, found.cpus), ("1.2.3", 1, 8));
        assert_eq!(found.layout, 7);
        for (at, value) in [(16, 0xff), (32, 9), (79, 1), (63, 0xff)] {
            let mut bytes = beacon();
            bytes[at] = value;
            assert_eq!(Beacon::of(&bytes), None, "byte {at}");
        }
        let mut bytes = beacon();
        bytes[15] = 1;
        assert_eq!(Beacon::of(&bytes), Some(Err("1.2.3".into())));
    }

    #[test]
    fn a_beacon_is_found_at_any_line_of_a_page_and_not_between() {
        let mut page = vec![0; 4096];
        page[1984..1984 + BEACON_BYTES].copy_from_slice(&beacon());
        assert!(matches!(in_page(&page), Some(Found::Ours(found)) if found.cpus == 8));
        page.rotate_right(8);
        assert!(in_page(&page).is_none());
    }

    #[test]
    fn regions_know_what_is_the_process_alone() {
        let own = Region::of("7f00-7f10 rw-p 00001000 08:01 42   /lib/x.so").unwrap();
        assert!(own.own && matches!(own.mapping.place, Place::File(_)));
        assert!(
            !Region::of("7f00-7f10 rw-s 00001000 08:01 42   /dev/shm/x")
                .unwrap()
                .own
        );
        assert!(
            !Region::of("7f00-7f10 r--p 00001000 08:01 42   /lib/x.so")
                .unwrap()
                .own
        );
        assert!(
            Region::of("7f00-7f10 rw-p 0 00:0f 1 /anon_hugepage (deleted)")
                .unwrap()
                .set_aside
        );
    }

    #[test]
    fn a_process_that_is_not_there_is_one_line() {
        let line = Target::find(u32::MAX >> 1).unwrap_err().line();
        assert!(line.ends_with("there is none"), "{line}");
    }
}
