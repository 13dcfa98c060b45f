//! Samples of `perf.data`: which fields they have is what their event's attribute says.

use crate::input::number;
use std::collections::HashMap;

/// Bits of an attribute's `sample_type`, in the order in which fields lie in a sample.
mod has {
    pub const IP: u64 = 1 << 0;
    pub const TID: u64 = 1 << 1;
    pub const TIME: u64 = 1 << 2;
    pub const ADDR: u64 = 1 << 3;
    pub const READ: u64 = 1 << 4;
    pub const CALLCHAIN: u64 = 1 << 5;
    pub const ID: u64 = 1 << 6;
    pub const CPU: u64 = 1 << 7;
    pub const PERIOD: u64 = 1 << 8;
    pub const STREAM_ID: u64 = 1 << 9;
    pub const RAW: u64 = 1 << 10;
    pub const IDENTIFIER: u64 = 1 << 16;
}

/// Bits of an attribute's `read_format`.
mod reads {
    pub const TIME_ENABLED: u64 = 1 << 0;
    pub const TIME_RUNNING: u64 = 1 << 1;
    pub const ID: u64 = 1 << 2;
    pub const GROUP: u64 = 1 << 3;
    pub const LOST: u64 = 1 << 4;
}

/// What of an attribute decides where a sample's fields lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Attr {
    sample: u64,
    read: u64,
}

impl Attr {
    /// Reads an attribute; `None` if it is cut off.
    pub fn read(text: &[u8]) -> Option<Self> {
        Some(Self {
            sample: number(text, 24, 8)?,
            read: number(text, 32, 8)?,
        })
    }
}

/// A sample's parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample<'r> {
    pub cpu: u32,
    pub ns: u64,
    pub raw: &'r [u8],
}

/// Attributes by the numbers of their events.
#[derive(Default)]
pub struct Samples {
    by_id: HashMap<u64, Attr>,
    first: Option<Attr>,
}

impl Samples {
    /// Adds an attribute with the numbers of its events, eight bytes each.
    pub fn add(&mut self, attr: Attr, ids: &[u8]) {
        self.first.get_or_insert(attr);
        for id in ids.chunks_exact(8) {
            self.by_id.insert(number(id, 0, 8).unwrap_or(0), attr);
        }
    }

    /// The parts of a sample that a tracepoint's has; `None` if it lacks one, or is cut off.
    pub fn read<'r>(&self, body: &'r [u8]) -> Option<Sample<'r>> {
        let first = self.first?;
        let attr = match first.sample & has::IDENTIFIER {
            0 => first,
            _ => self
                .by_id
                .get(&number(body, 0, 8)?)
                .copied()
                .unwrap_or(first),
        };
        let mut at = 0;
        let mut field = |bit: u64| {
            if attr.sample & bit == 0 {
                return Some(None);
            }
            let value = number(body, at, 8)?;
            at += 8;
            Some(Some(value))
        };
        for bit in [has::IDENTIFIER, has::IP, has::TID] {
            field(bit)?;
        }
        let ns = field(has::TIME)?;
        for bit in [has::ADDR, has::ID, has::STREAM_ID] {
            field(bit)?;
        }
        let cpu = field(has::CPU)?;
        field(has::PERIOD)?;
        if attr.sample & has::READ != 0 {
            at = at.checked_add(read_bytes(attr.read, body, at)?)?;
        }
        if attr.sample & has::CALLCHAIN != 0 {
            let entries = usize::try_from(number(body, at, 8)?).ok()?;
            at = at.checked_add(8)?.checked_add(entries.checked_mul(8)?)?;
        }
        if attr.sample & has::RAW == 0 {
            return None;
        }
        let length = number(body, at, 4)? as usize;
        let raw = body.get(at + 4..(at + 4).checked_add(length)?)?;
        // Threads that are followed on one CPU each have no field for it: all are one stream then.
        let cpu = cpu.unwrap_or(0) as u32;
        Some(Sample { cpu, ns: ns?, raw })
    }
}

/// Bytes of the counters in a sample.
fn read_bytes(format: u64, body: &[u8], at: usize) -> Option<usize> {
    let words = |bits: &[u64]| bits.iter().filter(|bit| format & **bit != 0).count();
    let times = words(&[reads::TIME_ENABLED, reads::TIME_RUNNING]);
    let each = 1 + words(&[reads::ID, reads::LOST]);
    let words = match format & reads::GROUP {
        0 => times + each,
        _ => {
            let events = usize::try_from(number(body, at, 8)?).ok()?;
            (1 + times).checked_add(events.checked_mul(each)?)?
        }
    };
    words.checked_mul(8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn fields_lie_where_the_attribute_says() {
        let mut samples = Samples::default();
        assert_eq!(samples.read(&[0; 64]), None, "no attribute yet");
        let sample = has::IP | has::TID | has::TIME | has::CPU | has::PERIOD | has::RAW;
        samples.add(Attr { sample, read: 0 }, &[]);
        let mut body = words(&[1, 2, 77, 3, 1]);
        body.extend(4_u32.to_le_bytes());
        body.extend([9, 9, 9, 9]);
        let raw = &[9, 9, 9, 9][..];
        assert_eq!(
            samples.read(&body),
            Some(Sample {
                cpu: 3,
                ns: 77,
                raw
            })
        );
        for length in 0..body.len() {
            assert_eq!(samples.read(&body[..length]), None, "{length}");
        }
    }

    #[test]
    fn counters_and_call_chains_are_stepped_over() {
        let mut samples = Samples::default();
        let sample = has::IDENTIFIER | has::TIME | has::READ | has::CALLCHAIN | has::RAW;
        let read = reads::GROUP | reads::ID;
        samples.add(Attr { sample, read }, &words(&[42]));
        let mut body = words(&[42, 77, 2, 1, 1, 1, 1, 3, 5, 5, 5]);
        body.extend([2, 0, 0, 0, 8, 8]);
        let raw = &[8, 8][..];
        assert_eq!(
            samples.read(&body),
            Some(Sample {
                cpu: 0,
                ns: 77,
                raw
            })
        );
        let hostile = words(&[42, 77, u64::MAX, 1]);
        assert_eq!(samples.read(&hostile), None);
    }
}
