//! Small text files of the kernel, read on the stack.

use crate::sys;

/// Longest path built here, in bytes, its zero byte included.
pub const PATH_BYTES: usize = 512;

/// A zero-terminated path under construction.
pub struct Path {
    bytes: [u8; PATH_BYTES],
    len: usize,
    overflow: bool,
}

impl Path {
    /// The path made of `parts`, one after the other.
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut path = Self {
            bytes: [0; PATH_BYTES],
            len: 0,
            overflow: false,
        };
        for part in parts {
            path.push(part);
        }
        path
    }

    fn push(&mut self, part: &[u8]) {
        let end = self.len + part.len();
        if end >= PATH_BYTES {
            self.overflow = true;
            return;
        }
        self.bytes[self.len..end].copy_from_slice(part);
        self.len = end;
    }

    /// Reads the start of the file into `buffer`; what was read, or `None` if it cannot be opened.
    pub fn read<'b>(&self, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
        if self.overflow {
            return None;
        }
        let fd = sys::open(&self.bytes[..=self.len])?;
        let mut len = 0;
        while len < buffer.len() {
            let got = sys::read(fd, &mut buffer[len..]);
            if got == 0 {
                break;
            }
            len += got;
            // Everything read here ends in a line end; asking again would only say so.
            if buffer[len - 1] == b'\n' {
                break;
            }
        }
        sys::close(fd);
        Some(&buffer[..len])
    }
}

/// Opens the file at `parts` for reading.
#[must_use]
pub fn open(parts: &[&[u8]]) -> Option<i32> {
    let path = Path::of(parts);
    (!path.overflow)
        .then(|| sys::open(&path.bytes[..=path.len]))
        .flatten()
}

/// The file at `parts` as one number in decimal; `None` if it is missing or no number.
pub fn read_number(parts: &[&[u8]]) -> Option<u64> {
    let mut buffer = [0; 64];
    number(Path::of(parts).read(&mut buffer)?).map(|(value, _)| value)
}

/// A decimal number at the start of `text`, and what follows it. Too large counts as the largest.
pub fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
    if digits == 0 {
        return None;
    }
    let value = text[..digits].iter().fold(0u64, |value, digit| {
        value
            .saturating_mul(10)
            .saturating_add(u64::from(digit - b'0'))
    });
    Some((value, &text[digits..]))
}

/// Calls `each` with the bounds of every range in a list such as `0-3,7`; `None` if it is none.
pub fn each_range(list: &[u8], mut each: impl FnMut(u64, u64)) -> Option<()> {
    let mut rest = list;
    loop {
        let (first, after) = number(rest)?;
        let (last, after) = match after.split_first() {
            Some((b'-', tail)) => number(tail)?,
            _ => (first, after),
        };
        each(first, last);
        match after.split_first() {
            Some((b',', tail)) => rest = tail,
            None | Some((b'\n', _)) => return Some(()),
            Some(_) => return None,
        }
    }
}

/// The lines of `text`, without their ends.
pub fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&b| b == b'\n').filter(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn numbers_end_where_digits_end_and_never_overflow() {
        assert_eq!(number(b"42 rest"), Some((42, &b" rest"[..])));
        assert_eq!(number(b"max\n"), None);
        assert_eq!(number(b""), None);
        let (huge, _) = number(b"99999999999999999999999").unwrap();
        assert_eq!(huge, u64::MAX);
    }

    #[test]
    fn lists_of_cpus_are_read_range_by_range() {
        let read = |list: &[u8]| {
            let mut seen = Vec::new();
            each_range(list, |a, b| seen.push((a, b))).map(|()| seen)
        };
        assert_eq!(
            read(b"0-3,7,9-9\n"),
            Some(Vec::from([(0, 3), (7, 7), (9, 9)]))
        );
        assert_eq!(read(b"0\n"), Some(Vec::from([(0, 0)])));
        assert_eq!(read(b"\n"), None);
        assert_eq!(read(b"0-x"), None);
        assert_eq!(read(b"0;1"), None);
    }

    #[test]
    fn a_missing_file_and_an_overlong_path_are_none() {
        let mut buffer = [0; 16];
        assert!(Path::of(&[b"/nonexistent"]).read(&mut buffer).is_none());
        assert!(Path::of(&[&[b'/'; 600]]).read(&mut buffer).is_none());
        assert!(
            Path::of(&[b"/proc/self/", b"comm"])
                .read(&mut buffer)
                .is_some()
        );
    }
}
