//! Reading what strangers wrote: every length is compared with what is left of the file, and with a
//! bound of its own, before memory is taken.

use crate::Error;
use std::io::{BufReader, Read, Seek, SeekFrom};

/// A file, or bytes in memory.
pub trait Source: Read + Seek {}

impl<T: Read + Seek> Source for T {}

/// A source with its length and place.
pub struct Input<'a> {
    source: BufReader<&'a mut dyn Source>,
    at: u64,
    len: u64,
}

impl<'a> Input<'a> {
    /// From the source's first byte.
    ///
    /// # Errors
    /// The system's.
    pub fn new(source: &'a mut dyn Source) -> Result<Self, Error> {
        let len = source.seek(SeekFrom::End(0))?;
        source.seek(SeekFrom::Start(0))?;
        Ok(Self {
            source: BufReader::with_capacity(64 << 10, source),
            at: 0,
            len,
        })
    }

    /// Byte of the file that is read next.
    #[must_use]
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Bytes to the end.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.len - self.at
    }

    /// An error at this place.
    #[must_use]
    pub fn damage(&self, what: impl Into<String>) -> Error {
        let at = self.at;
        let what = what.into();
        Error::Damaged { at, what }
    }

    /// Goes to a byte of the file.
    ///
    /// # Errors
    /// [`Error::Damaged`] for a place behind the end.
    pub fn seek(&mut self, to: u64) -> Result<(), Error> {
        if to > self.len {
            return Err(self.damage(format!("it points to byte {to}, which is behind its end")));
        }
        // Stays in the buffer where it can.
        match i64::try_from(i128::from(to) - i128::from(self.at)) {
            Ok(distance) => self.source.seek_relative(distance)?,
            Err(_) => drop(self.source.seek(SeekFrom::Start(to))?),
        }
        self.at = to;
        Ok(())
    }

    /// Skips bytes.
    ///
    /// # Errors
    /// [`Error::Damaged`] if there are not so many.
    pub fn skip(&mut self, bytes: u64) -> Result<(), Error> {
        match self.at.checked_add(bytes) {
            Some(to) => self.seek(to),
            None => Err(self.damage("a length of more than 64 bits")),
        }
    }

    /// Reads so many bytes, at most `most`.
    ///
    /// # Errors
    /// [`Error::Damaged`] if there are not so many, or they are more than `most`.
    pub fn take(&mut self, bytes: u64, most: usize) -> Result<Vec<u8>, Error> {
        let mut read = Vec::new();
        self.take_into(&mut read, bytes, most)?;
        Ok(read)
    }

    /// As [`Input::take`], into a buffer that is used again.
    ///
    /// # Errors
    /// As there.
    pub fn take_into(&mut self, to: &mut Vec<u8>, bytes: u64, most: usize) -> Result<(), Error> {
        if bytes > self.left() {
            return Err(self.damage(format!("it ends {} bytes early", bytes - self.left())));
        }
        if bytes > most as u64 {
            return Err(self.damage(format!("a part of {bytes} bytes where {most} are the most")));
        }
        to.resize(bytes as usize, 0);
        self.source.read_exact(to)?;
        self.at += bytes;
        Ok(())
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        if self.left() < N as u64 {
            return Err(self.damage("it ends in the middle of a number"));
        }
        let mut bytes = [0; N];
        self.source.read_exact(&mut bytes)?;
        self.at += N as u64;
        Ok(bytes)
    }

    /// A number of one byte.
    ///
    /// # Errors
    /// [`Error::Damaged`] at the end of the file; so for the others.
    pub fn u8(&mut self) -> Result<u8, Error> {
        Ok(self.array::<1>()?[0])
    }

    /// A number of two bytes, little-endian.
    ///
    /// # Errors
    /// As for [`Input::u8`].
    pub fn u16(&mut self) -> Result<u16, Error> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// A number of four bytes.
    ///
    /// # Errors
    /// As for [`Input::u8`].
    pub fn u32(&mut self) -> Result<u32, Error> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// A number of eight bytes.
    ///
    /// # Errors
    /// As for [`Input::u8`].
    pub fn u64(&mut self) -> Result<u64, Error> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A string that ends with a zero byte, of at most `most` bytes.
    ///
    /// # Errors
    /// [`Error::Damaged`] where no zero byte is found.
    pub fn string(&mut self, most: usize) -> Result<String, Error> {
        let mut bytes = Vec::new();
        loop {
            match self.u8()? {
                0 => return Ok(String::from_utf8_lossy(&bytes).into_owned()),
                _ if bytes.len() == most => {
                    return Err(self.damage(format!("a name of more than {most} bytes")));
                }
                byte => bytes.push(byte),
            }
        }
    }
}

/// A little-endian number of up to eight bytes inside `bytes`; `None` where they end.
#[must_use]
pub fn number(bytes: &[u8], at: usize, size: usize) -> Option<u64> {
    let part = bytes.get(at..at.checked_add(size)?)?;
    (size <= 8).then(|| {
        part.iter()
            .rev()
            .fold(0, |value, byte| value << 8 | u64::from(*byte))
    })
}
