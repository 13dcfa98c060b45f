//! Names for addresses: which file each lies in, and what that file's symbols and debug information say.
//!
//! ```text
//!   address ─► mapping ─► file, offset ─► address in the file ─► functions (inlined ones too), source lines
//! ```
//!
//! An address behind a call is looked up one byte before, in the call. Files are those of the process's own view of
//! the file system where it still runs.

use addr2line::Loader;
use object::{Object, ObjectSegment, ReadCache};
use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;

/// A mapped file, or a named piece of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address beyond.
    pub end: u64,
    /// What the first address is in the file.
    pub offset: u64,
    /// The file's path, or a name in brackets.
    pub name: String,
    is_code: bool,
}

/// One function at an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Line {
    /// Its name, readable.
    pub function: String,
    /// Its source file; empty if unknown.
    pub file: String,
    /// The line; zero if unknown.
    pub line: u32,
}

/// What there is at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of the mapping.
    pub mapping: Option<usize>,
    /// Functions, the innermost inlined one first; never empty.
    pub lines: Vec<Line>,
}

/// Files and what was found in them.
pub struct Symbols {
    mappings: Vec<Mapping>,
    /// What paths begin with for us.
    root: PathBuf,
    files: HashMap<String, Option<Module>>,
    places: HashMap<u64, Place>,
}

struct Module {
    loader: Loader,
    /// Pieces: offset in the file, bytes, address.
    segments: Vec<(u64, u64, u64)>,
}

/// The mappings in a text of `/proc/PID/maps`.
pub fn mappings(text: &str) -> Vec<Mapping> {
    let mapping = |line: &str| {
        let mut words = line.splitn(6, ' ');
        let (start, end) = words.next()?.split_once('-')?;
        let hexadecimal = |text| u64::from_str_radix(text, 16).ok();
        let is_code = words.next()?.contains('x');
        let offset = hexadecimal(words.next()?)?;
        Some(Mapping {
            start: hexadecimal(start)?,
            end: hexadecimal(end)?,
            offset,
            name: words.nth(2).unwrap_or("").trim_start().to_owned(),
            is_code,
        })
    };
    let all = text.lines().filter_map(mapping);
    all.filter(|mapping| mapping.is_code).collect()
}

impl Symbols {
    /// For these mappings; files lie below `root`.
    pub fn new(mappings: Vec<Mapping>, root: PathBuf) -> Self {
        Self {
            mappings,
            root,
            files: HashMap::new(),
            places: HashMap::new(),
        }
    }

    /// The mappings with code.
    pub fn mappings(&self) -> &[Mapping] {
        &self.mappings
    }

    /// What is at the call before a return address.
    pub fn place(&mut self, address: u64) -> &Place {
        if !self.places.contains_key(&address) {
            let place = self.find(address.saturating_sub(1));
            self.places.insert(address, place);
        }
        &self.places[&address]
    }

    fn find(&mut self, address: u64) -> Place {
        let holds = |mapping: &Mapping| (mapping.start..mapping.end).contains(&address);
        let Some(number) = self.mappings.iter().position(holds) else {
            return Place {
                mapping: None,
                lines: vec![unknown(format!("{address:#x}"))],
            };
        };
        let mapping = &self.mappings[number];
        let offset = address - mapping.start + mapping.offset;
        let name = mapping.name.clone();
        let short = name.rsplit('/').next().unwrap_or(&name);
        let lines = match self.module(&name) {
            Some(module) => module.lines(offset),
            None => Vec::new(),
        };
        let fallback = match short {
            "" => "[generated code]".to_owned(),
            name if name.starts_with('[') => name.to_owned(),
            name => format!("{name}+{offset:#x}"),
        };
        Place {
            mapping: Some(number),
            lines: match lines.is_empty() {
                true => vec![unknown(fallback)],
                false => lines,
            },
        }
    }

    fn module(&mut self, name: &str) -> Option<&Module> {
        if !self.files.contains_key(name) {
            let path = name.strip_suffix(" (deleted)").unwrap_or(name);
            let inside = self.root.join(path.trim_start_matches('/'));
            let module = path.starts_with('/').then(|| Module::open(&inside));
            self.files.insert(name.to_owned(), module.flatten());
        }
        self.files[name].as_ref()
    }
}

fn unknown(function: String) -> Line {
    Line {
        function,
        file: String::new(),
        line: 0,
    }
}

impl Module {
    fn open(path: &PathBuf) -> Option<Self> {
        let cache = ReadCache::new(File::open(path).ok()?);
        let file = object::File::parse(&cache).ok()?;
        let segments = file.segments().map(|segment| {
            let (offset, bytes) = segment.file_range();
            (offset, bytes, segment.address())
        });
        let segments = segments.collect();
        Some(Self {
            loader: Loader::new(path).ok()?,
            segments,
        })
    }

    fn lines(&self, offset: u64) -> Vec<Line> {
        let holds =
            |&&(start, bytes, _): &&(u64, u64, u64)| (start..start + bytes).contains(&offset);
        let Some(&(start, _, address)) = self.segments.iter().find(holds) else {
            return Vec::new();
        };
        let probe = offset - start + address;
        let mut lines = Vec::new();
        if let Ok(mut frames) = self.loader.find_frames(probe) {
            while let Ok(Some(frame)) = frames.next() {
                let Some(name) = frame.function.as_ref() else {
                    continue;
                };
                let name = name
                    .demangle()
                    .unwrap_or_else(|_| name.raw_name().unwrap_or_default());
                let location = frame.location.as_ref();
                lines.push(Line {
                    function: name.into_owned(),
                    file: location.and_then(|l| l.file).unwrap_or("").to_owned(),
                    line: location.and_then(|l| l.line).unwrap_or(0),
                });
            }
        }
        if lines.is_empty()
            && let Some(name) = self.loader.find_symbol(probe)
        {
            let name = addr2line::demangle_auto(name.into(), None);
            lines.push(unknown(name.into_owned()));
        }
        lines
    }
}

/// Whether a function is the allocator's own, or one that its callers see as the allocation itself.
pub fn is_allocator(line: &Line, mapping: Option<&Mapping>) -> bool {
    let file = mapping.map_or("", |mapping| mapping.name.rsplit('/').next().unwrap_or(""));
    if file.starts_with("libflagstone") {
        return true;
    }
    let name = line.function.trim_start_matches('<');
    [
        "flagstone",
        "__rust_alloc",
        "__rust_realloc",
        "__rdl_",
        "__rg_",
        "alloc::alloc::",
    ]
    .iter()
    .any(|own| name.starts_with(own) || name.starts_with(&format!("_{own}")))
        || name.contains("core::alloc::global::GlobalAlloc")
        || [
            "malloc",
            "calloc",
            "realloc",
            "operator new",
            "posix_memalign",
            "aligned_alloc",
            "memalign",
        ]
        .contains(&name.split('(').next().unwrap_or(name))
            && line.file.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_program_have_names() {
        let text = std::fs::read_to_string("/proc/self/maps").unwrap();
        let mut symbols = Symbols::new(mappings(&text), PathBuf::from("/"));
        let address = mappings as *const () as u64 + 2;
        let place = symbols.place(address).clone();
        let outer = place.lines.last().unwrap();
        // With line tables alone a function has no path.
        assert!(outer.function.ends_with("mappings"), "{place:?}");
        let nowhere = symbols.place(0x10).clone();
        assert_eq!(
            (nowhere.mapping, &*nowhere.lines[0].function),
            (None, "0xf")
        );
    }
}
