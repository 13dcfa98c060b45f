//! A profile in pprof's format: a protobuf message, compressed by gzip.
//!
//! Field numbers and meanings are those of `profile.proto` (github.com/google/pprof); `go tool pprof`, speedscope and
//! Pyroscope read it.

use super::sites::{Site, Sites};
use super::symbols::Symbols;
use flate2::{Compression, write::GzEncoder};
use prost::Message;
use std::collections::HashMap;
use std::io::Write as _;

#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    time_nanos: i64,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    period: i64,
    #[prost(int64, repeated, tag = "13")]
    comment: Vec<i64>,
    #[prost(int64, tag = "14")]
    default_sample_type: i64,
}

#[derive(Clone, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    label: Vec<Label>,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(int64, tag = "2")]
    str: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Mapping {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    memory_start: u64,
    #[prost(uint64, tag = "3")]
    memory_limit: u64,
    #[prost(uint64, tag = "4")]
    file_offset: u64,
    #[prost(int64, tag = "5")]
    filename: i64,
    #[prost(bool, tag = "7")]
    has_functions: bool,
    #[prost(bool, tag = "8")]
    has_filenames: bool,
    #[prost(bool, tag = "9")]
    has_line_numbers: bool,
    #[prost(bool, tag = "10")]
    has_inline_frames: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    mapping_id: u64,
    #[prost(uint64, tag = "3")]
    address: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<LineOf>,
}

#[derive(Clone, PartialEq, Message)]
struct LineOf {
    #[prost(uint64, tag = "1")]
    function_id: u64,
    #[prost(int64, tag = "2")]
    line: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "3")]
    system_name: i64,
    #[prost(int64, tag = "4")]
    filename: i64,
}

/// The message under construction.
#[derive(Default)]
struct Builder {
    profile: Profile,
    strings: HashMap<String, i64>,
    functions: HashMap<(String, String), u64>,
}

impl Builder {
    fn string(&mut self, text: &str) -> i64 {
        if let Some(&number) = self.strings.get(text) {
            return number;
        }
        let number = self.profile.string_table.len() as i64;
        self.profile.string_table.push(text.to_owned());
        self.strings.insert(text.to_owned(), number);
        number
    }

    fn value_type(&mut self, kind: &str, unit: &str) -> ValueType {
        ValueType {
            kind: self.string(kind),
            unit: self.string(unit),
        }
    }

    fn function(&mut self, name: &str, file: &str) -> u64 {
        let key = (name.to_owned(), file.to_owned());
        if let Some(&id) = self.functions.get(&key) {
            return id;
        }
        let id = self.profile.function.len() as u64 + 1;
        let name = self.string(name);
        let filename = self.string(file);
        self.profile.function.push(Function {
            id,
            name,
            system_name: name,
            filename,
        });
        self.functions.insert(key, id);
        id
    }

    fn mappings(&mut self, symbols: &Symbols, first: u64) {
        for (index, mapping) in symbols.mappings().iter().enumerate() {
            let filename = self.string(&mapping.name);
            self.profile.mapping.push(Mapping {
                id: first + index as u64,
                memory_start: mapping.start,
                memory_limit: mapping.end,
                file_offset: mapping.offset,
                filename,
                has_functions: true,
                has_filenames: true,
                has_line_numbers: true,
                has_inline_frames: true,
            });
        }
    }

    /// The samples of one process.
    fn add(&mut self, sites: &mut Sites, is_labelled: bool) {
        let first = self.profile.mapping.len() as u64 + 1;
        self.mappings(&sites.symbols, first);
        let mut known = HashMap::new();
        let label = is_labelled.then(|| Label {
            key: self.string("process"),
            str: self.string(&sites.title),
        });
        for site in std::mem::take(&mut sites.all) {
            let mut ids = Vec::new();
            for &address in &site.frames {
                let id = match known.get(&address) {
                    Some(&id) => id,
                    None => {
                        let id = self.location(&mut sites.symbols, address, first);
                        known.insert(address, id);
                        id
                    }
                };
                ids.push(id);
            }
            self.profile.sample.push(Sample {
                location_id: ids,
                value: values(&site),
                label: label.iter().cloned().collect(),
            });
            sites.done.push(site);
        }
        sites.all = std::mem::take(&mut sites.done);
    }

    fn location(&mut self, symbols: &mut Symbols, address: u64, first: u64) -> u64 {
        let place = symbols.place(address).clone();
        let line = place.lines.iter().map(|line| LineOf {
            function_id: self.function(&line.function, &line.file),
            line: line.line.into(),
        });
        let line = line.collect();
        let id = self.profile.location.len() as u64 + 1;
        self.profile.location.push(Location {
            id,
            mapping_id: place.mapping.map_or(0, |index| first + index as u64),
            address,
            line,
        });
        id
    }
}

fn values(site: &Site) -> Vec<i64> {
    let values = [
        site.allocated.objects,
        site.allocated.bytes,
        site.live.objects,
        site.live.bytes,
    ];
    values.map(|value| value.round() as i64).to_vec()
}

/// The processes' profiles as one file; each sample says which process it is of where there are several.
///
/// # Errors
/// If it cannot be compressed, which takes memory.
pub fn encode(processes: &mut [Sites]) -> std::io::Result<Vec<u8>> {
    let mut builder = Builder::default();
    builder.string("");
    for (kind, unit) in [
        ("alloc_objects", "count"),
        ("alloc_space", "bytes"),
        ("inuse_objects", "count"),
        ("inuse_space", "bytes"),
    ] {
        let kind = builder.value_type(kind, unit);
        builder.profile.sample_type.push(kind);
    }
    builder.profile.default_sample_type = builder.string("inuse_space");
    builder.profile.period_type = Some(builder.value_type("space", "bytes"));
    if let Some(first) = processes.first() {
        builder.profile.period = first.mean as i64;
        builder.profile.time_nanos = first.wall_ns;
        builder.profile.duration_nanos = first.duration_ns as i64;
    }
    let several = processes.len() > 1;
    for sites in processes.iter_mut() {
        builder.add(sites, several);
        for note in sites.notes() {
            let comment = builder.string(&note);
            builder.profile.comment.push(comment);
        }
    }
    let mut file = GzEncoder::new(Vec::new(), Compression::default());
    file.write_all(&builder.profile.encode_to_vec())?;
    file.finish()
}
