//! `.eh_frame_hdr` and `.eh_frame`: from an address to its row.
//!
//! ```text
//!   header: version, encodings, count │ sorted pairs: function's start, its FDE  (both from the header's start)
//!   FDE: length, distance to the CIE, start, bytes, instructions        CIE: what many functions share
//! ```

use super::cursor::Cursor;
use super::row::{Factors, Row, run};

/// Bytes that one record may have: a length beyond is no length.
const RECORD_MAX: usize = 1 << 24;
/// Addresses from the header's start, four bytes with a sign: the encoding that linkers write.
const FROM_HEADER: u8 = 0x3B;
/// Four bytes without a sign.
const COUNT: u8 = 0x03;

/// The row of `address` in the tables whose header lies at `header`: how its caller is found.
pub fn row_at(header: usize, address: u64) -> Option<Row> {
    fde_of(header, address).and_then(|fde| row_of(fde, address))
}

/// Where the FDE is that may hold `address`.
fn fde_of(header: usize, address: u64) -> Option<usize> {
    // SAFETY: the loader says that a header lies there, in a module that is mapped.
    let mut start = unsafe { Cursor::new(header, usize::MAX) };
    let (version, pointer) = (start.u8()?, start.u8()?);
    let (count, table) = (start.u8()?, start.u8()?);
    if (version, count, table) != (1, COUNT, FROM_HEADER) {
        return None;
    }
    start.pointer(pointer & 0x1F)?;
    let count = start.u32()? as usize;
    let entry = |index: usize| {
        // SAFETY: below the count, which the header says.
        let mut entry = unsafe { Cursor::new(start.at() + 8 * index, usize::MAX) };
        let mut next = || {
            let distance = entry.u32()? as i32;
            Some(header.wrapping_add_signed(distance as isize))
        };
        Some((next()? as u64, next()?))
    };
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low.midpoint(high);
        if entry(middle)?.0 <= address {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Some(entry(low.checked_sub(1)?)?.1)
}

/// A record's body.
fn record(at: usize) -> Option<Cursor> {
    // SAFETY: a record's place, as the tables say.
    let mut cursor = unsafe { Cursor::new(at, usize::MAX) };
    let length = cursor.u32()? as usize;
    if length == 0 || length > RECORD_MAX {
        return None;
    }
    cursor.part(length)
}

fn row_of(fde: usize, address: u64) -> Option<Row> {
    let mut body = record(fde)?;
    let here = body.at();
    let distance = body.u32()? as usize;
    let common = Common::read(here.checked_sub(distance)?)?;
    let begin = body.pointer(common.factors.encoding)?;
    let length = body.pointer(common.factors.encoding & 0x0F)?;
    if !(begin..begin.wrapping_add(length)).contains(&address) {
        return None;
    }
    if common.is_augmented {
        let skip = body.uleb()? as usize;
        body.part(skip)?;
    }
    let mut first = Row::new(common.is_signal);
    run(
        common.code,
        common.factors,
        None,
        &mut first,
        begin,
        u64::MAX,
    )?;
    let mut row = first.clone();
    run(body, common.factors, Some(&first), &mut row, begin, address)?;
    Some(row)
}

/// A CIE.
struct Common {
    factors: Factors,
    is_augmented: bool,
    is_signal: bool,
    code: Cursor,
}

impl Common {
    fn read(at: usize) -> Option<Self> {
        let mut body = record(at)?;
        let (id, version) = (body.u32()?, body.u8()?);
        if id != 0 || !matches!(version, 1 | 3) {
            return None;
        }
        let mut letters = [0; 8];
        let mut count = 0;
        loop {
            match body.u8()? {
                0 => break,
                letter => *letters.get_mut(count)? = letter,
            }
            count += 1;
        }
        let mut factors = Factors {
            code: body.uleb()?,
            data: body.sleb()?,
            encoding: 0,
        };
        match version {
            1 => {
                body.u8()?;
            }
            _ => {
                body.uleb()?;
            }
        }
        let is_augmented = letters[0] == b'z';
        let mut is_signal = false;
        if is_augmented {
            let length = body.uleb()? as usize;
            let mut data = body.part(length)?;
            for letter in &letters[1..count] {
                match letter {
                    b'R' => factors.encoding = data.u8()?,
                    b'P' => {
                        let encoding = data.u8()?;
                        data.pointer(encoding & 0x0F)?;
                    }
                    b'L' => {
                        data.u8()?;
                    }
                    b'S' => is_signal = true,
                    b'B' => {}
                    _ => break,
                }
            }
        } else if count != 0 {
            return None;
        }
        Some(Self {
            factors,
            is_augmented,
            is_signal,
            code: body,
        })
    }
}
