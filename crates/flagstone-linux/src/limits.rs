//! How much memory this process may use, and how much address space it should ask for.
//!
//! Containers: the limit of the own control group and of every group above it counts, version 1
//! and 2; a group whose files are not visible here (a container without its own namespace) is
//! skipped, and the mount's root is always looked at.

use crate::filter;
use crate::sys;
use crate::text::{self, Path};
use core::ffi::c_uint;

/// Address space reserved where nothing limits it: 1 TiB.
const WISH: usize = 1 << 40;
/// The least worth claiming.
const CLAIM_MIN: usize = 64 << 30;
/// The least worth reserving.
const WISH_MIN: usize = 32 << 20;

/// One hierarchy of control groups: where it is mounted and how `/proc/self/cgroup` marks it.
struct Hierarchy {
    mount: &'static [u8],
    controller: &'static [u8],
    version: Version,
}

/// The two interfaces of control groups, which name their files differently.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// One hierarchy for each controller.
    One,
    /// One hierarchy for all.
    Two,
}

/// The control-group controllers asked about here.
#[derive(Clone, Copy)]
pub enum Controller {
    /// Memory limits.
    Memory,
    /// CPU bandwidth.
    Cpu,
}

impl Controller {
    const fn hierarchies(self) -> [Hierarchy; 3] {
        let (mount, controller): (&[u8], &[u8]) = match self {
            Self::Memory => (b"/sys/fs/cgroup/memory", b"memory"),
            Self::Cpu => (b"/sys/fs/cgroup/cpu", b"cpu"),
        };
        [
            Hierarchy {
                mount: b"/sys/fs/cgroup",
                controller: b"",
                version: Version::Two,
            },
            Hierarchy {
                mount: b"/sys/fs/cgroup/unified",
                controller: b"",
                version: Version::Two,
            },
            Hierarchy {
                mount,
                controller,
                version: Version::One,
            },
        ]
    }
}

/// Calls `each` with the directory of the own group and of every group above it, of every
/// hierarchy that may carry `controller`.
pub fn each_group(controller: Controller, mut each: impl FnMut(Version, &[u8])) {
    let mut buffer = [0; 2048];
    let own = Path::of(&[b"/proc/self/cgroup"])
        .read(&mut buffer)
        .unwrap_or_default();
    for hierarchy in controller.hierarchies() {
        for line in text::lines(own) {
            if let Some(group) = group_in(line, hierarchy.controller) {
                walk_up(hierarchy.mount, group, &mut |directory| {
                    each(hierarchy.version, directory);
                });
            }
        }
    }
}

/// The group path in a line `id:controllers:path`, if the line is about `controller`.
fn group_in<'t>(line: &'t [u8], controller: &[u8]) -> Option<&'t [u8]> {
    let mut fields = line.splitn(3, |&b| b == b':');
    let _id = fields.next()?;
    let controllers = fields.next()?;
    let path = fields.next()?;
    controllers
        .split(|&b| b == b',')
        .any(|name| name == controller)
        .then_some(path)
}

/// Calls `each` with `mount` + `group` and every directory above, down to the mount itself.
fn walk_up(mount: &[u8], group: &[u8], each: &mut impl FnMut(&[u8])) {
    let mut directory = [0; text::PATH_BYTES];
    let group = group.strip_suffix(b"/").unwrap_or(group);
    let len = mount.len() + group.len();
    if len > directory.len() {
        return each(mount);
    }
    directory[..mount.len()].copy_from_slice(mount);
    directory[mount.len()..len].copy_from_slice(group);
    let mut end = len;
    loop {
        each(&directory[..end]);
        if end <= mount.len() {
            return;
        }
        let parent = directory[..end].iter().rposition(|&b| b == b'/');
        end = parent.unwrap_or(0).max(mount.len());
    }
}

/// Bytes this process may use: physical memory, or the least limit of a control group.
///
/// Costs some tens of microseconds: ask once, and not at start-up.
pub fn memory_limit() -> usize {
    let mut limit = total_ram();
    each_group(Controller::Memory, |version, directory| {
        let file: &[u8] = match version {
            Version::One => b"/memory.limit_in_bytes",
            Version::Two => b"/memory.max",
        };
        if let Some(bytes) = text::read_number(&[directory, file]) {
            limit = limit.min(bytes);
        }
    });
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// Physical memory in bytes; the largest number where it is unknown.
pub fn physical_memory() -> usize {
    usize::try_from(total_ram()).unwrap_or(usize::MAX)
}

fn total_ram() -> u64 {
    // SAFETY: plain integers; all zeroes is a value.
    let mut info: libc::sysinfo = unsafe { core::mem::zeroed() };
    // SAFETY: the kernel fills one structure.
    let result = unsafe { sys::call(libc::SYS_sysinfo, [(&raw mut info) as usize, 0, 0, 0, 0, 0]) };
    if result != 0 || info.totalram == 0 {
        return u64::MAX;
    }
    info.totalram
        .saturating_mul(u64::from(info.mem_unit.max(1)))
}

/// Bytes of address space worth asking for, before halving at every refusal: 1 TiB, or half of
/// what a finite `RLIMIT_AS` leaves, so that stacks, mappings and libraries keep the other half.
///
/// Overcommit mode 2 needs no share of its own: a reservation is inaccessible memory, which is
/// not charged before it is committed.
#[must_use]
pub fn reservation_wish() -> usize {
    let Some(limit) = address_space_limit() else {
        return WISH;
    };
    let left = limit.saturating_sub(address_space_used());
    (left / 2).clamp(WISH_MIN.min(limit), WISH)
}

/// Bytes of pages worth claiming where address space is limited: four times the limit, which may be
/// raised later, and 64 GiB at least. A claim costs nothing, and what memory it takes follows its use.
#[must_use]
pub fn claim_wish() -> Option<usize> {
    let limit = address_space_limit()?;
    Some(limit.saturating_mul(4).clamp(CLAIM_MIN, WISH))
}

/// The limit on this process's address space in bytes, if there is one (`ulimit -v`); none as well beside a
/// filter, where the kernel alone keeps it.
fn address_space_limit() -> Option<usize> {
    let _permit = filter::permit()?;
    let mut limit = [0u64; 2];
    // SAFETY: the kernel fills two 64-bit words, which is what the structure is.
    let result = unsafe {
        let old = limit.as_mut_ptr().cast();
        prlimit(0, libc::RLIMIT_AS as c_uint, core::ptr::null(), old)
    };
    (result == 0 && limit[0] != u64::MAX).then(|| usize::try_from(limit[0]).unwrap_or(usize::MAX))
}

/// Address space in bytes that this process may still map, negative where a limit was lowered below
/// what is mapped; `None` where there is no limit, or nobody knows.
pub fn address_space_left() -> Option<isize> {
    let _permit = filter::permit()?;
    let limit = isize::try_from(address_space_limit()?).ok()?;
    match address_space_used() {
        0 => None,
        used => Some(limit - isize::try_from(used).ok()?),
    }
}

/// Sets a limit of process `pid` (zero: this one) and asks for the one before, as the system call of
/// that name; an error's number is negative.
///
/// # Safety
/// 1. Both pointers are null or valid for their use.
pub unsafe fn prlimit(
    pid: libc::pid_t,
    resource: c_uint,
    new: *const libc::rlimit,
    old: *mut libc::rlimit,
) -> isize {
    let [pid, resource] = [pid as usize, resource as usize];
    let [new, old] = [new.expose_provenance(), old.expose_provenance()];
    // SAFETY: obligation 1.
    unsafe { sys::call(libc::SYS_prlimit64, [pid, resource, new, old, 0, 0]) }
}

/// Whether a limit on address space forbids `bytes` more of committed memory. A limit above what is
/// mapped is the kernel's to keep. One that was lowered at run time, below what this library has
/// reserved, says nothing about commits any more: then what can be written or run counts.
pub fn address_space_forbids(bytes: usize) -> bool {
    let permit = filter::permit();
    let Some(limit) = permit.as_ref().and_then(|_| address_space_limit()) else {
        return false;
    };
    let mut buffer = [0; 128];
    let text = text::Path::of(&[b"/proc/self/statm"]).read(&mut buffer);
    let Some([mapped, _, _, code, _, data, ..]) = text.map(numbers) else {
        return false;
    };
    let page = crate::memory::page_size().bytes();
    let used = code.saturating_add(data).saturating_mul(page);
    mapped.saturating_mul(page) > limit && used.saturating_add(bytes) > limit
}

/// The first numbers of a line; zero for what is not there.
fn numbers(mut text: &[u8]) -> [usize; 7] {
    let mut found = [0; 7];
    for number in &mut found {
        let Some((value, rest)) = text::number(text) else {
            break;
        };
        *number = usize::try_from(value).unwrap_or(usize::MAX);
        text = rest.strip_prefix(b" ").unwrap_or(rest);
    }
    found
}

/// Address space in use, in bytes; zero when unknown.
fn address_space_used() -> usize {
    let pages = text::read_number(&[b"/proc/self/statm"]).unwrap_or(0);
    usize::try_from(pages)
        .unwrap_or(0)
        .saturating_mul(crate::memory::page_size().bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::String;
    use std::vec::Vec;

    #[test]
    fn a_line_of_numbers_is_read_as_far_as_it_goes() {
        assert_eq!(numbers(b"9 8 7 6 5 4 3\n"), [9, 8, 7, 6, 5, 4, 3]);
        assert_eq!(numbers(b"1 2"), [1, 2, 0, 0, 0, 0, 0]);
        assert_eq!(numbers(b"?"), [0; 7]);
    }

    #[test]
    fn the_own_group_is_found_in_either_version() {
        assert_eq!(group_in(b"0::/a/b", b""), Some(&b"/a/b"[..]));
        assert_eq!(
            group_in(b"4:cpu,memory:/x:y", b"memory"),
            Some(&b"/x:y"[..])
        );
        assert_eq!(group_in(b"9:name=systemd:/", b"memory"), None);
        assert_eq!(group_in(b"broken", b""), None);
    }

    #[test]
    fn every_group_up_to_the_mount_is_visited() {
        let visit = |group: &[u8]| {
            let mut seen = Vec::new();
            walk_up(b"/m", group, &mut |d| {
                seen.push(String::from_utf8(d.to_vec()).unwrap());
            });
            seen
        };
        assert_eq!(visit(b"/a/b"), ["/m/a/b", "/m/a", "/m"]);
        assert_eq!(visit(b"/"), ["/m"]);
        assert_eq!(visit(b""), ["/m"]);
        assert_eq!(visit(&[b'x'; 1000]), ["/m"]);
    }

    #[test]
    fn the_memory_limit_is_at_most_physical_memory_and_not_zero() {
        let limit = memory_limit();
        assert!(limit > 0);
        assert!(limit <= physical_memory());
    }

    #[test]
    fn the_reservation_wish_is_between_the_least_and_the_most() {
        assert!((WISH_MIN..=WISH).contains(&reservation_wish()));
    }
}
