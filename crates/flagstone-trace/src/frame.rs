//! Frames of a file: an index record in a skippable zstd frame, then the payload in a zstd frame.
//!
//! ```text
//!   0  50 2A 4D 18 | 64 | record of 64 bytes      any zstd program skips this part
//!   72 28 B5 2F FD ...                            and unpacks this one
//! ```

/// Magic number of the skippable frame, then the record's length.
pub const SKIPPABLE: [u8; 8] = [0x5F, 0x2A, 0x4D, 0x18, 64, 0, 0, 0];

/// Bytes of a record with the skippable frame's head.
pub const RECORD_BYTES: usize = SKIPPABLE.len() + 64;

/// Version of the format.
pub const VERSION: u16 = 1;

/// Most bytes of an unpacked header.
pub const TEXT_BYTES_MAX: u32 = 1 << 20;

/// Most bytes of an unpacked process description. A file may have many of them.
pub const PROCESS_BYTES_MAX: u32 = 64 << 10;

const MAGIC: [u8; 4] = *b"FSTR";

/// What a frame holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The file's header: JSON.
    Header,
    /// A process begins: JSON.
    Process,
    /// Events of one thread.
    Chunk,
}

/// A frame's index record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// What the frame holds.
    pub kind: Kind,
    /// Number of the thread's stream within its process, from 1.
    pub stream: u32,
    /// The process.
    pub process: u32,
    /// Which program of the process: a number that changes with `exec`.
    pub image: u32,
    /// The thread as the system numbers it.
    pub thread: u32,
    /// Events in the chunk.
    pub events: u32,
    /// Bytes of the payload as it lies in the file.
    pub packed: u32,
    /// Bytes of the payload unpacked.
    pub raw: u32,
    /// Time of the first event.
    pub first: u64,
    /// Time of the last event.
    pub last: u64,
}

impl Record {
    /// The record with the skippable frame's head.
    #[must_use]
    pub fn bytes(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[..8].copy_from_slice(&SKIPPABLE);
        bytes[8..12].copy_from_slice(&MAGIC);
        bytes[12..14].copy_from_slice(&VERSION.to_le_bytes());
        let kind: u16 = match self.kind {
            Kind::Header => 0,
            Kind::Process => 1,
            Kind::Chunk => 2,
        };
        bytes[14..16].copy_from_slice(&kind.to_le_bytes());
        let words = [
            self.stream,
            self.process,
            self.image,
            self.thread,
            self.events,
            self.packed,
            self.raw,
        ];
        for (place, word) in bytes[16..44].chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes[44..52].copy_from_slice(&self.first.to_le_bytes());
        bytes[52..60].copy_from_slice(&self.last.to_le_bytes());
        let sum = checksum(&bytes[8..60]);
        bytes[60..64].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads a record with its head; `None` if it is none of this version, or its sum is wrong.
    #[must_use]
    pub fn read(bytes: &[u8; RECORD_BYTES]) -> Option<Self> {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let known = bytes[..8] == SKIPPABLE && bytes[8..12] == MAGIC;
        if !known || word(60) != checksum(&bytes[8..60]) {
            return None;
        }
        let kind = match (word(12) & 0xffff, word(12) >> 16) {
            (1, 0) => Kind::Header,
            (1, 1) => Kind::Process,
            (1, 2) => Kind::Chunk,
            _ => return None,
        };
        Some(Self {
            kind,
            stream: word(16),
            process: word(20),
            image: word(24),
            thread: word(28),
            events: word(32),
            packed: word(36),
            raw: word(40),
            first: long(44),
            last: long(52),
        })
    }
}

/// FNV-1a, 32 bits: notices a damaged record; no protection against a made one.
fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |sum, &byte| {
        (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: Record = Record {
        kind: Kind::Chunk,
        stream: 3,
        process: 4711,
        image: 9,
        thread: 4712,
        events: 1000,
        packed: 2500,
        raw: 6000,
        first: 1 << 40,
        last: (1 << 40) + 77,
    };

    #[test]
    fn a_record_comes_back() {
        assert_eq!(Record::read(&RECORD.bytes()), Some(RECORD));
    }

    #[test]
    fn every_damaged_byte_is_noticed() {
        for at in 0..64 {
            let mut bytes = RECORD.bytes();
            bytes[at] ^= 0x10;
            assert_eq!(Record::read(&bytes), None, "byte {at}");
        }
    }
}
