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
        let names = self.bytes.split_last_mut().map(|(_, names)| names);
        match names.and_then(|names| names.get_mut(self.len..)?.get_mut(..part.len())) {
            Some(room) => {
                room.copy_from_slice(part);
                self.len += part.len();
            }
            None => self.overflow = true,
        }
    }

    /// Reads the start of the file into `buffer`; what was read, or `None` if it cannot be opened.
    pub fn read<'b>(&self, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
        let fd = self.open()?;
        let mut len = 0;
        while let Some(rest) = buffer.get_mut(len..).filter(|rest| !rest.is_empty()) {
            let got = sys::read(fd, rest);
            len += got;
            // Everything read here ends in a line end; asking again would only say so.
            if got == 0 || rest.get(got - 1) == Some(&b'\n') {
                break;
            }
        }
        sys::close(fd);
        buffer.get(..len)
    }

    /// Every byte after `len` is zero, and there is one at least.
    fn open(&self) -> Option<i32> {
        (!self.overflow).then(|| sys::open(&self.bytes)).flatten()
    }
}

/// Opens the file at `parts` for reading.
#[must_use]
pub fn open(parts: &[&[u8]]) -> Option<i32> {
    Path::of(parts).open()
}

/// The file at `parts` as one number in decimal; `None` if it is missing or no number.
pub fn read_number(parts: &[&[u8]]) -> Option<u64> {
    let mut buffer = [0; 64];
    number(Path::of(parts).read(&mut buffer)?).map(|(value, _)| value)
}

/// A decimal number at the start of `text`, and what follows it. Too large counts as the largest.
pub fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let count = text.iter().take_while(|b| b.is_ascii_digit()).count();
    let (digits, rest) = text.split_at_checked(count).filter(|_| count > 0)?;
    let value = digits.iter().fold(0u64, |value, digit| {
        value
            .saturating_mul(10)
            .saturating_add(u64::from(digit - b'0'))
    });
    Some((value, rest))
}

/// A number in decimal, at the end of `digits`.
pub fn decimal(number: u64, digits: &mut [u8; 20]) -> &[u8] {
    let (mut rest, mut start) = (number, digits.len());
    for digit in digits.iter_mut().rev() {
        (*digit, rest, start) = (b'0' + (rest % 10) as u8, rest / 10, start - 1);
        if rest == 0 {
            break;
        }
    }
    digits.get(start..).unwrap_or_default()
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
    fn numbers_are_written_as_they_are_read() {
        for value in [0, 7, 10, 4_294_967_296, u64::MAX] {
            let mut digits = [0; 20];
            assert_eq!(number(decimal(value, &mut digits)), Some((value, &b""[..])));
        }
    }

    #[test]
    fn a_path_without_room_for_its_zero_byte_opens_nothing() {
        let slashes = [b'/'; PATH_BYTES];
        let file = |slashes: &[u8]| open(&[slashes, b"proc/self/stat"]);
        assert_eq!(file(&slashes[..PATH_BYTES - 14]), None);
        let fd = file(&slashes[..PATH_BYTES - 15]).expect("the longest path there is");
        sys::close(fd);
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
