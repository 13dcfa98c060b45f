//! heaptrack's files: the raw ones of `heaptrack --raw`, and those its interpreter makes of them.
//!
//! ```text
//!   raw           + SIZE TRACE POINTER      - POINTER         each block by its address
//!   interpreted   a SIZE TRACE              + N     - N       blocks of one size and call site are one N
//!   both          c MILLISECONDS            X COMMAND         I PAGESIZE PAGES
//! ```
//!
//! All numbers are hexadecimal. Neither names threads: the trace has one stream. In an interpreted file any
//! of the live blocks of N may be the one that is freed; the youngest is taken. Times are those of the last
//! `c` line, some ten milliseconds apart; events between keep their order.

use crate::input::Source;
use crate::{About, Error, LIVE_MAX, Sink, What, packed};

/// Blocks that are the same to the interpreter: their size, and addresses of the live ones.
struct Same {
    size: u64,
    live: Vec<u64>,
}

struct Work<'s> {
    sink: &'s mut dyn Sink,
    about: About,
    same: Vec<Same>,
    live: usize,
    next: u64,
    ns: u64,
    /// Both forms were seen: the notes say which.
    raw: bool,
}

/// Hands on what the file tells.
pub fn read(source: &mut dyn Source, sink: &mut dyn Sink) -> Result<About, Error> {
    let mut work = Work {
        sink,
        about: About::default(),
        same: Vec::new(),
        live: 0,
        next: FIRST,
        ns: 0,
        raw: false,
    };
    let cut = packed::lines(source, |line| work.line(line))?;
    let mut about = work.about;
    about
        .notes
        .push("heaptrack does not name threads: all events are one stream.".into());
    if !work.raw {
        about.notes.push(
            "An interpreted heaptrack file does not name blocks: of live blocks with one size and call \
             site the youngest is freed first; addresses are made up (`heaptrack --raw` keeps them)."
                .into(),
        );
    }
    if cut {
        about
            .notes
            .push("The file is cut off; what was there is read.".into());
    }
    Ok(about)
}

/// The first address that is made up.
const FIRST: u64 = 1 << 20;

/// Whose events these are.
const STREAM: u32 = 0;

impl Work<'_> {
    fn line(&mut self, line: &[u8]) -> Result<(), Error> {
        let Ok(line) = std::str::from_utf8(line) else {
            self.about.others += 1;
            return Ok(());
        };
        let Some((kind, rest)) = line.split_once(' ') else {
            return Ok(());
        };
        let mut words = rest
            .split(' ')
            .map(|word| u64::from_str_radix(word, 16).ok());
        let mut word = || words.next().flatten();
        match (kind, word(), word(), word()) {
            ("+", Some(size), Some(_), Some(pointer)) => {
                self.raw = true;
                self.alloc(pointer, size)?;
            }
            ("-", Some(pointer), ..) if self.raw => self.free(pointer)?,
            ("a", Some(size), ..) => {
                if self.same.len() >= LIVE_MAX {
                    return Err(too_many());
                }
                let live = Vec::new();
                self.same.push(Same { size, live });
            }
            ("+", Some(number), None, _) => self.alloc_same(number)?,
            ("-", Some(number), ..) => self.free_same(number)?,
            ("c", Some(ms), ..) => {
                let ns = ms.saturating_mul(1_000_000);
                self.about.backwards += u64::from(ns + 1_000_000 < self.ns);
                self.ns = self.ns.max(ns);
            }
            ("I", Some(bytes), ..) => self.about.page_size = bytes,
            ("X", ..) => {
                self.about.command = rest.split(' ').take(1000).map(str::to_owned).collect();
            }
            ("+", ..) => self.about.others += 1,
            _ => {}
        }
        Ok(())
    }

    fn alloc(&mut self, pointer: u64, size: u64) -> Result<(), Error> {
        self.ns = self.ns.saturating_add(1);
        let what = What::Alloc {
            pointer,
            cache: None,
            requested: size,
            given: size,
        };
        self.sink.event(STREAM, self.ns, &what)
    }

    fn free(&mut self, pointer: u64) -> Result<(), Error> {
        self.ns = self.ns.saturating_add(1);
        let cache = None;
        self.sink
            .event(STREAM, self.ns, &What::Free { pointer, cache })
    }

    fn alloc_same(&mut self, number: u64) -> Result<(), Error> {
        let Some(same) = usize::try_from(number)
            .ok()
            .and_then(|at| self.same.get_mut(at))
        else {
            self.about.others += 1;
            return Ok(());
        };
        if self.live >= LIVE_MAX {
            return Err(too_many());
        }
        let (pointer, size) = (self.next, same.size);
        same.live.push(pointer);
        self.live += 1;
        // As far apart as blocks of a heap are; no two blocks have one address.
        self.next = self
            .next
            .wrapping_add(size.clamp(16, 1 << 20).next_multiple_of(16));
        self.alloc(pointer, size)
    }

    fn free_same(&mut self, number: u64) -> Result<(), Error> {
        let same = usize::try_from(number)
            .ok()
            .and_then(|at| self.same.get_mut(at));
        match same.and_then(|same| same.live.pop()) {
            Some(pointer) => {
                self.live -= 1;
                self.free(pointer)
            }
            None => {
                self.about.others += 1;
                Ok(())
            }
        }
    }
}

fn too_many() -> Error {
    Error::Foreign(format!("more than {LIVE_MAX} blocks live at once"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    #[derive(Default)]
    struct Told(Vec<(u64, bool, u64)>);

    impl Sink for Told {
        fn event(&mut self, _: u32, ns: u64, what: &What<'_>) -> Result<(), Error> {
            self.0.push(match *what {
                What::Alloc { pointer, .. } => (ns, true, pointer),
                What::Free { pointer, .. } => (ns, false, pointer),
                _ => unreachable!("heaptrack has blocks only"),
            });
            Ok(())
        }
    }

    fn told(text: &str) -> (Vec<(u64, bool, u64)>, About) {
        let mut sink = Told::default();
        let about = read(&mut Cursor::new(text.as_bytes().to_vec()), &mut sink).unwrap();
        (sink.0, about)
    }

    #[test]
    fn raw_files_keep_addresses() {
        let (events, about) = told("v 10400 3\nX sleep 1\nI 1000 5e\n+ 20 1 ff00\nc 2\n- ff00\n");
        assert_eq!(events, [(1, true, 0xff00), (2_000_001, false, 0xff00)]);
        assert_eq!((about.command.len(), about.page_size), (2, 4096));
    }

    #[test]
    fn interpreted_files_free_the_youngest() {
        let (events, about) = told("v 10400 3\na 20 1\na 8 2\n+ 0\n+ 0\n+ 1\n- 0\n- 0\n- 0\n+ 9\n");
        let (first, second, third) = (FIRST, FIRST + 32, FIRST + 64);
        let at: Vec<_> = events.iter().map(|(_, alloc, at)| (*alloc, *at)).collect();
        let wanted = [
            (true, first),
            (true, second),
            (true, third),
            (false, second),
            (false, first),
        ];
        assert_eq!(at, wanted);
        assert_eq!(
            about.others, 2,
            "a free too many, and a number that was not told"
        );
    }
}
