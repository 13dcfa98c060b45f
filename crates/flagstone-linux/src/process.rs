//! What the kernel says about this process: resident size, peak, mappings.

use crate::sys;
use crate::text;

/// Resident bytes as the kernel's counters say: cheap, and behind by some pages per CPU.
#[must_use]
pub fn resident_quick() -> Option<u64> {
    let mut buffer = [0; 128];
    let text = text::Path::of(&[b"/proc/self/statm"]).read(&mut buffer)?;
    let (_, rest) = text::number(text)?;
    let (pages, _) = text::number(rest.strip_prefix(b" ")?)?;
    Some(pages * crate::memory::page_size().bytes() as u64)
}

/// The largest resident size of this program so far, in bytes.
#[must_use]
pub fn resident_peak() -> Option<u64> {
    let mut buffer = [0; 2048];
    let text = text::Path::of(&[b"/proc/self/status"]).read(&mut buffer)?;
    text::lines(text).find_map(|line| kibibytes(line, b"VmHWM:"))
}

/// The name of this program as the kernel keeps it: at most 15 bytes.
pub fn name(buffer: &mut [u8; 16]) -> &[u8] {
    // SAFETY: the kernel writes 16 bytes, the last of them zero.
    let result = unsafe {
        sys::call(
            libc::SYS_prctl,
            [
                libc::PR_GET_NAME as usize,
                buffer.as_mut_ptr().expose_provenance(),
                0,
                0,
                0,
                0,
            ],
        )
    };
    let len = buffer.iter().position(|&b| b == 0).unwrap_or(buffer.len());
    if result == 0 { &buffer[..len] } else { &[] }
}

/// The process's number, asked of the kernel each time: a child that shares memory with its
/// parent has another one.
#[inline(always)]
#[must_use]
pub fn id() -> i32 {
    // SAFETY: the call has no arguments and no effects.
    unsafe { sys::call(libc::SYS_getpid, [0; 6]) as i32 }
}

/// The number of the process's parent.
#[must_use]
pub fn parent() -> i32 {
    // SAFETY: the call has no arguments and no effects.
    unsafe { sys::call(libc::SYS_getppid, [0; 6]) as i32 }
}

/// Whether this thread is the only one left; `false` also where that cannot be seen.
#[must_use]
pub fn is_alone() -> bool {
    let mut found = core::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the path ends in a zero byte, and the kernel writes at most one `stat`.
    let result = unsafe {
        sys::call(
            libc::SYS_newfstatat,
            [
                libc::AT_FDCWD as usize,
                c"/proc/self/task".as_ptr().expose_provenance(),
                found.as_mut_ptr().expose_provenance(),
                0,
                0,
                0,
            ],
        )
    };
    // SAFETY: all zeroes are a `stat` too.
    let links = unsafe { found.assume_init() }.st_nlink;
    // Two of a folder's links are its own; the others are its folders, here one for each thread.
    result == 0 && links == 3
}

/// One mapping of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: usize,
    /// First address beyond.
    pub end: usize,
    /// Resident bytes.
    pub resident: u64,
    /// Those of them that another process maps too, such as a child after a fork.
    pub shared: u64,
    /// What is mapped.
    pub place: Place,
    /// What the process may do with it.
    pub access: Access,
}

impl Mapping {
    /// The mapping that a line of `maps` or `smaps` begins, its sizes still unknown.
    #[must_use]
    pub fn of(line: &[u8]) -> Option<Self> {
        let (start, end) = header(line)?;
        let (place, access) = place(line);
        Some(Self {
            start,
            end,
            resident: 0,
            shared: 0,
            place,
            access,
        })
    }
}

/// What a mapping maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A file; equal numbers mean the same file.
    File(u64),
    /// Memory without a file, named or not.
    Anonymous,
    /// The main thread's stack.
    Stack,
    /// A page the kernel provides, such as `[vdso]`.
    Kernel,
}

/// What a process may do with a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Nothing: a guard, or a reservation.
    None,
    /// Read, perhaps write.
    Data,
    /// Execute.
    Code,
}

/// Visits every mapping with its resident size (`/proc/self/smaps`). `buffer` holds a part of
/// the file at a time. `false` if the file cannot be read.
pub fn each_mapping(buffer: &mut [u8], mut visit: impl FnMut(Mapping)) -> bool {
    let mut current: Option<Mapping> = None;
    each_line_of(b"/proc/self/smaps\0", buffer, |line| {
        if let Some(mapping) = Mapping::of(line) {
            current = Some(mapping);
        } else if let Some(mapping) = &mut current {
            if let Some(bytes) = kibibytes(line, b"Rss:") {
                mapping.resident = bytes;
            } else if let Some(bytes) = kibibytes(line, b"Shared_Clean:") {
                mapping.shared = bytes;
            } else if let Some(bytes) = kibibytes(line, b"Shared_Dirty:") {
                mapping.shared += bytes;
                visit(*mapping);
            }
        }
    })
}

/// Visits every mapping with its line, its sizes unknown (`/proc/self/maps`); otherwise as [`each_mapping`].
pub(crate) fn each_map(buffer: &mut [u8], mut visit: impl FnMut(Mapping, &[u8])) -> bool {
    each_line_of(b"/proc/self/maps\0", buffer, |line| {
        if let Some(mapping) = Mapping::of(line) {
            visit(mapping, line);
        }
    })
}

fn each_line_of(path: &[u8], buffer: &mut [u8], visit: impl FnMut(&[u8])) -> bool {
    let Some(fd) = sys::open(path) else {
        return false;
    };
    each_line(buffer, |rest| sys::read(fd, rest), visit);
    sys::close(fd);
    true
}

/// Calls `visit` for every line; of a line longer than the buffer only the beginning.
fn each_line(
    buffer: &mut [u8],
    mut fill: impl FnMut(&mut [u8]) -> usize,
    mut visit: impl FnMut(&[u8]),
) {
    let (mut len, mut cut) = (0, false);
    loop {
        let got = fill(&mut buffer[len..]);
        if got == 0 {
            return;
        }
        len += got;
        let mut start = 0;
        while let Some(end) = buffer[start..len].iter().position(|&b| b == b'\n') {
            if !cut {
                visit(&buffer[start..start + end]);
            }
            cut = false;
            start += end + 1;
        }
        if start == 0 && len == buffer.len() {
            if !cut {
                visit(&buffer[..len]);
            }
            (len, cut) = (0, true);
        } else {
            buffer.copy_within(start..len, 0);
            len -= start;
        }
    }
}

/// The bounds in a mapping's first line: `start-end perms ...` in hexadecimal.
fn header(line: &[u8]) -> Option<(usize, usize)> {
    let (start, rest) = hexadecimal(line)?;
    let (end, rest) = hexadecimal(rest.strip_prefix(b"-")?)?;
    rest.starts_with(b" ").then_some((start, end))
}

/// What the first line says of a mapping: `start-end perms offset device inode name`.
fn place(line: &[u8]) -> (Place, Access) {
    let mut words = line.split(|&b| b == b' ').filter(|word| !word.is_empty());
    let access = match words.nth(1) {
        Some([_, _, b'x', ..]) => Access::Code,
        Some([b'-', b'-', ..]) => Access::None,
        _ => Access::Data,
    };
    let (device, inode) = (words.nth(1).unwrap_or(&[]), words.next().unwrap_or(&[]));
    let place = match words.next() {
        Some(b"[stack]") => Place::Stack,
        Some(name) if name.starts_with(b"[heap]") || name.starts_with(b"[anon") => Place::Anonymous,
        Some(name) if name.starts_with(b"[") => Place::Kernel,
        Some(_) => Place::File(fingerprint(&[device, inode])),
        None => Place::Anonymous,
    };
    (place, access)
}

/// FNV-1a over the words: equal for equal words.
fn fingerprint(words: &[&[u8]]) -> u64 {
    let bytes = words.iter().flat_map(|word| word.iter().chain(b" "));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

pub(crate) fn hexadecimal(text: &[u8]) -> Option<(usize, &[u8])> {
    let digits = text.iter().take_while(|b| b.is_ascii_hexdigit()).count();
    let value = core::str::from_utf8(&text[..digits]).ok()?;
    let value = usize::from_str_radix(value, 16).ok()?;
    Some((value, &text[digits..]))
}

/// The bytes in a line such as `Rss:      12 kB`.
pub(crate) fn kibibytes(line: &[u8], key: &[u8]) -> Option<u64> {
    let value = line.strip_prefix(key)?.trim_ascii_start();
    text::number(value).map(|(kib, _)| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn mappings_cover_this_function_and_sum_to_the_resident_size() {
        let here = name as *const () as usize;
        let (mut found, mut sum) = (false, 0);
        assert!(each_mapping(&mut [0; 4096], |m| {
            found |= m.start <= here && here < m.end;
            sum += m.resident;
        }));
        assert!(found);
        let quick = resident_quick().unwrap();
        assert!(sum.abs_diff(quick) < 8 << 20, "{sum} and {quick}");
        assert!(resident_peak().unwrap() > 0);
    }

    #[test]
    fn lines_survive_any_cut_of_the_file() {
        let text = b"10-20 r--p path\nRss:  4 kB\nno-header\nx\n".to_vec();
        for chunk in 1..9 {
            let mut rest = &text[..];
            let mut lines = Vec::new();
            each_line(
                &mut [0; 18],
                |buffer| {
                    let n = chunk.min(rest.len()).min(buffer.len());
                    buffer[..n].copy_from_slice(&rest[..n]);
                    rest = &rest[n..];
                    n
                },
                |line| lines.push(line.to_vec()),
            );
            let expected: [&[u8]; 4] = [b"10-20 r--p path", b"Rss:  4 kB", b"no-header", b"x"];
            assert_eq!(lines, expected);
        }
    }

    #[test]
    fn a_line_longer_than_the_buffer_is_cut_and_the_next_one_is_whole() {
        let text = b"7f00-7f10 rw-p 0 00:00 0 /a/very/long/path/indeed\nRss: 8 kB\n";
        let mut rest = &text[..];
        let mut lines = Vec::new();
        each_line(
            &mut [0; 16],
            |buffer| {
                let n = rest.len().min(buffer.len());
                buffer[..n].copy_from_slice(&rest[..n]);
                rest = &rest[n..];
                n
            },
            |line| lines.push(line.to_vec()),
        );
        assert_eq!(lines[0], b"7f00-7f10 rw-p 0");
        assert_eq!(header(&lines[0]), Some((0x7f00, 0x7f10)));
        assert_eq!(kibibytes(&lines[1], b"Rss:"), Some(8192));
    }

    #[test]
    fn a_mapping_is_a_file_anonymous_the_stack_or_the_kernels() {
        let of = |text: &str| place(text.as_bytes());
        let code = of("7f00-7f10 r-xp 00026000 fe:01 1234    /usr/lib/libc.so.6");
        let data = of("7f10-7f20 rw-p 00026000 fe:01 1234    /usr/lib/libc.so.6");
        let other = of("7f20-7f30 r--p 00000000 fe:01 1235    /var/lib/a file (deleted)");
        assert_eq!((code.1, data.1), (Access::Code, Access::Data));
        assert_eq!(code.0, data.0);
        assert!(matches!(other.0, Place::File(_)) && other.0 != code.0);
        for anonymous in ["", "[heap]", "[anon:arena]", "[anon_shmem:x]"] {
            let line = std::format!("7f30-7f40 rw-p 00000000 00:00 0 {anonymous}");
            assert_eq!(of(&line), (Place::Anonymous, Access::Data), "{line}");
        }
        assert_eq!(
            of("7f40-7f50 ---p 00000000 00:00 0").1,
            Access::None,
            "a guard"
        );
        assert_eq!(
            of("7ffc-7ffd rw-p 00000000 00:00 0 [stack]").0,
            Place::Stack
        );
        assert_eq!(
            of("7ffd-7ffe r-xp 00000000 00:00 0 [vdso]").0,
            Place::Kernel
        );
    }

    #[test]
    fn fields_of_a_mapping_are_no_headers() {
        assert_eq!(header(b"Rss:                   4 kB"), None);
        assert_eq!(header(b"FilePmdMapped:         0 kB"), None);
        assert_eq!(header(b"a-b"), None);
    }
}
