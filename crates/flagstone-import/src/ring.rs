//! Pages of the kernel's ring buffer, as `trace_pipe_raw` gives them and trace-cmd stores them.
//!
//! ```text
//!   page    time of its start, 8 bytes | bytes used, flags | events ...
//!   event   5 bits: length or kind; 27 bits: time since the event before | data
//! ```

use crate::input::number;

/// What a page's head says: where its parts lie, by the file's `header_page`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageLayout {
    commit: (usize, usize),
    data: usize,
}

impl PageLayout {
    /// From `header_page`; `None` if it lacks a field.
    pub fn parse(text: &str) -> Option<Self> {
        let of = |name: &str| {
            let line = text.lines().find(|line| {
                let declared = line.split(';').next().unwrap_or("");
                declared.ends_with(name) && declared.contains("field:")
            })?;
            let figure = |key: &str| {
                let rest = line.split_once(key)?.1;
                rest.split(';').next()?.trim().parse::<u16>().ok()
            };
            Some((
                usize::from(figure("offset:")?),
                usize::from(figure("size:")?),
            ))
        };
        Some(Self {
            commit: of(" commit").filter(|(_, size)| *size <= 8)?,
            data: of(" data")?.0,
        })
    }
}

/// Kinds of an event's head; smaller numbers are lengths in words.
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;

/// The page's flag: events before it were lost.
const MISSED: u64 = 1 << 31;

/// Bits of the bytes used.
const USED: u64 = (1 << 20) - 1;

/// Hands on every event of a page with its time; answers whether events before it were lost.
pub fn page<E>(
    layout: PageLayout,
    page: &[u8],
    mut event: impl FnMut(u64, &[u8]) -> Result<(), E>,
) -> Result<bool, E> {
    let (Some(mut time), Some(commit)) = (
        number(page, 0, 8),
        number(page, layout.commit.0, layout.commit.1),
    ) else {
        return Ok(false);
    };
    let rest = page.get(layout.data..).unwrap_or(&[]);
    let used = &rest[..rest.len().min((commit & USED) as usize)];
    let mut at = 0;
    while let Some(head) = number(used, at, 4) {
        at += 4;
        let (kind, since) = (head as u32 & 0x1f, head >> 5);
        let word = |at: usize| number(used, at, 4);
        let length = match kind {
            // Padding without a length fills the page.
            PADDING if since == 0 => break,
            PADDING => {
                time = time.wrapping_add(since);
                at += word(at).unwrap_or(u64::from(u32::MAX)) as usize;
                continue;
            }
            TIME_EXTEND | TIME_STAMP => {
                let Some(high) = word(at) else { break };
                let told = high << 27 | since;
                at += 4;
                time = match kind {
                    TIME_EXTEND => time.wrapping_add(told),
                    // The upper five bits of a time are those of the page.
                    _ => told | time & (0x1f << 59),
                };
                continue;
            }
            0 => {
                let Some(length) = word(at).and_then(|length| length.checked_sub(4)) else {
                    break;
                };
                at += 4;
                length as usize
            }
            words => words as usize * 4,
        };
        time = time.wrapping_add(since);
        let Some(data) = used.get(at..at.saturating_add(length)) else {
            break;
        };
        event(time, data)?;
        at += length.next_multiple_of(4);
    }
    Ok(commit & MISSED != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    const LAYOUT: PageLayout = PageLayout {
        commit: (8, 8),
        data: 16,
    };

    fn made(words: &[u32], commit: u64) -> Vec<u8> {
        let mut bytes = 1000_u64.to_le_bytes().to_vec();
        bytes.extend(commit.to_le_bytes());
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        bytes
    }

    fn events(bytes: &[u8]) -> (Vec<(u64, usize)>, bool) {
        let mut found = Vec::new();
        let missed = page(LAYOUT, bytes, |time, data| {
            found.push((time, data.len()));
            Ok::<_, Infallible>(())
        });
        (found, missed.unwrap())
    }

    #[test]
    fn heads_of_all_kinds_are_read() {
        let text = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
            \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
            \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
            \tfield: char data;\toffset:16;\tsize:4080;\tsigned:1;\n";
        assert_eq!(PageLayout::parse(text), Some(LAYOUT));
        assert_eq!(
            PageLayout::parse("field: u64 timestamp; offset:0; size:8;"),
            None
        );
        #[rustfmt::skip]
        let words = [
            2 | 5 << 5, 7, 7,     // two words, five later
            30 | 1 << 5, 1,       // 2^27 + 1 later
            3 << 5, 8, 9,         // a length of its own, its word among it: four bytes
            29 | 1 << 5, 8, 0,    // padding of eight bytes, its word among them
            1, 7,
            29, 1, 1,             // the rest is padding
        ];
        let (found, missed) = events(&made(&words, (1 << 31) | (words.len() as u64 * 4)));
        let late = 1006 + (1 << 27);
        assert_eq!(found, [(1005, 8), (late + 3, 4), (late + 4, 4)]);
        assert!(missed);
    }

    #[test]
    fn pages_that_lie_end_early() {
        assert_eq!(events(&made(&[28], 4)).0, []);
        assert_eq!(events(&made(&[1, 0], 1 << 19)).0, [(1000, 4)]);
        assert_eq!(events(&made(&[0, u32::MAX], 8)).0, []);
        assert_eq!(events(&made(&[0, 2], 8)).0, []);
        assert_eq!(events(&made(&[29 | 1 << 5, u32::MAX], 8)).0, []);
        assert_eq!(events(&[0; 3]).0, []);
    }
}
