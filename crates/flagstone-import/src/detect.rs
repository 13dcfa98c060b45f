//! Which format a file has, by its first bytes.

use crate::input::{Input, Source};
use crate::{Error, packed};

/// A format that is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Lines of kernel events: tracefs, `perf script`, `trace-cmd report`.
    Text,
    /// `perf record`.
    Perf,
    /// `trace-cmd record` and `trace-cmd extract`.
    Dat,
    /// heaptrack, raw or interpreted.
    Heaptrack,
}

impl Format {
    /// Its name for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "text of kernel events",
            Self::Perf => "perf.data",
            Self::Dat => "trace.dat",
            Self::Heaptrack => "heaptrack",
        }
    }

    /// Whether it tells of a kernel's objects.
    #[must_use]
    pub fn is_kernel(self) -> bool {
        self != Self::Heaptrack
    }

    /// What to say of a file that has no event.
    pub(crate) fn empty(self) -> &'static str {
        match self {
            Self::Text => {
                "no kmem event in it; `perf script` and `trace-cmd report` print such lines"
            }
            Self::Perf => "no kmem event in it; record with `perf record -e 'kmem:*' -a`",
            Self::Dat => "no kmem event in it; record with `trace-cmd record -e kmem`",
            Self::Heaptrack => "no allocation in it",
        }
    }

    /// Looks at the first bytes, unpacked where they are gzip or zstd.
    ///
    /// # Errors
    /// [`Error::Foreign`] for formats that are known and cannot be served.
    pub fn detect(source: &mut dyn Source) -> Result<Self, Error> {
        let mut input = Input::new(source)?;
        let length = input.left().min(LOOK as u64);
        let head = input.take(length, LOOK)?;
        drop(input);
        let found = match &head[..] {
            head if head.starts_with(b"PERFILE2") => Self::Perf,
            head if head.starts_with(b"2ELIFREP") => {
                return Err(Error::Foreign(
                    "a perf.data of a machine with the other byte order; import the text of \
                     `perf script` instead"
                        .into(),
                ));
            }
            head if head.starts_with(&crate::dat::MAGIC) => Self::Dat,
            head if head.starts_with(b"FSTR")
                || head.starts_with(&flagstone_trace::frame::SKIPPABLE) =>
            {
                return Err(Error::Foreign(
                    "a flagstone-trace/1 file already; `flagstone trace info` reads it".into(),
                ));
            }
            _ => {
                let mut start = Vec::new();
                packed::head(source, &mut start, LOOK)?;
                Self::of_text(&start)?
            }
        };
        Ok(found)
    }

    fn of_text(start: &[u8]) -> Result<Self, Error> {
        let text = String::from_utf8_lossy(start);
        let first = text.lines().next().unwrap_or("");
        if text.contains("\"dhatFileVersion\"") {
            return Err(Error::Foreign(
                "a DHAT file: it holds totals by call site, not the order of allocations and frees, so \
                 there is nothing to replay; record the program with `flagstone record -- CMD`"
                    .into(),
            ));
        }
        if first.starts_with("desc:") && text.contains("\ncmd:") {
            return Err(Error::Foreign(
                "a massif file: it holds snapshots of totals, not allocations and frees; record the \
                 program with `flagstone record -- CMD`"
                    .into(),
            ));
        }
        let mut words = first.split(' ');
        let heaptrack = words.next() == Some("v")
            && words.clone().count() == 2
            && words.all(|word| u64::from_str_radix(word, 16).is_ok());
        Ok(if heaptrack {
            Self::Heaptrack
        } else {
            Self::Text
        })
    }
}

/// Bytes that are looked at.
const LOOK: usize = 4 << 10;
