//! Reading unwind tables byte by byte.

/// A place in mapped tables and their end.
#[derive(Clone, Copy, Debug)]
pub struct Cursor {
    at: usize,
    end: usize,
}

impl Cursor {
    /// From `at` to `end`.
    ///
    /// # Safety
    /// 1. The bytes between are mapped and stay so while the cursor is used.
    pub unsafe fn new(at: usize, end: usize) -> Self {
        Self { at, end }
    }

    /// Where the next byte is.
    pub fn at(&self) -> usize {
        self.at
    }

    /// The bytes up to `length` further.
    pub fn part(&mut self, length: usize) -> Option<Self> {
        let end = self.at.checked_add(length).filter(|&end| end <= self.end)?;
        let part = Self { at: self.at, end };
        self.at = end;
        Some(part)
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.at >= self.end
    }

    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let part = self.part(N)?;
        // SAFETY: inside what `new` was given.
        Some(unsafe { core::ptr::with_exposed_provenance::<[u8; N]>(part.at).read() })
    }

    /// The next byte.
    pub fn u8(&mut self) -> Option<u8> {
        self.bytes::<1>().map(|[byte]| byte)
    }

    /// The next two bytes.
    pub fn u16(&mut self) -> Option<u16> {
        self.bytes().map(u16::from_ne_bytes)
    }

    /// The next four bytes.
    pub fn u32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_ne_bytes)
    }

    /// The next eight bytes.
    pub fn u64(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_ne_bytes)
    }

    /// A number of groups of seven bits.
    pub fn uleb(&mut self) -> Option<u64> {
        self.leb().map(|(value, _, _)| value)
    }

    /// The same with a sign.
    pub fn sleb(&mut self) -> Option<i64> {
        let (value, shift, last) = self.leb()?;
        let sign = if shift < 64 && last & 0x40 != 0 {
            u64::MAX << shift
        } else {
            0
        };
        Some((value | sign) as i64)
    }

    fn leb(&mut self) -> Option<(u64, u32, u8)> {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = self.u8()?;
            if shift < 64 {
                value |= u64::from(byte & 0x7F) << shift;
            }
            shift += 7;
            if byte & 0x80 == 0 {
                return Some((value, shift, byte));
            }
        }
    }

    /// An address in an encoding of `.eh_frame`; `None` for one that is not known or means none.
    pub fn pointer(&mut self, encoding: u8) -> Option<u64> {
        let here = self.at as u64;
        let value = match encoding & 0x0F {
            0x00 | 0x04 | 0x0C => self.u64()?,
            0x01 => self.uleb()?,
            0x02 => u64::from(self.u16()?),
            0x03 => u64::from(self.u32()?),
            0x09 => self.sleb()? as u64,
            0x0A => i64::from(self.u16()? as i16) as u64,
            0x0B => i64::from(self.u32()? as i32) as u64,
            _ => return None,
        };
        match encoding & 0x70 {
            0x00 => Some(value),
            0x10 => Some(here.wrapping_add(value)),
            _ => None,
        }
    }
}
