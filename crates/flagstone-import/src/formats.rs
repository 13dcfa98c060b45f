//! Event formats as tracefs describes them, and raw records read by them.
//!
//! ```text
//!   name: kmem_cache_free
//!   ID: 656
//!   format:
//!     field:unsigned short common_type; offset:0; size:2; signed:0;
//!     field:const void * ptr; offset:16; size:8; signed:0;
//!     field:__data_loc char[] name; offset:24; size:4; signed:0;
//! ```
//!
//! A record begins with its format's number. Fields are found by name, so kernels that add, move or widen
//! fields are read too.

use crate::input::{Input, number};
use crate::{Error, What, kmalloc};
use flagstone_trace::Move;
use std::collections::HashMap;

/// Most bytes of one format's text. The longest of Linux 6.18 has 17 KiB.
const TEXT_BYTES_MAX: usize = 256 << 10;

/// Most bytes of a system's name.
const NAME_BYTES_MAX: usize = 256;

/// Where a record has a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Field {
    offset: usize,
    size: usize,
    /// The number says where in the record the text lies.
    text: bool,
    /// That place is counted from the field's end.
    relative: bool,
}

/// What an event is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    CacheAlloc,
    Kmalloc,
    Free,
    PageAlloc,
    PageFree,
    Refill,
    Drain,
    Batched,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Layout {
    kind: Kind,
    fields: HashMap<&'static str, Field>,
}

/// Fields that are looked at.
const FIELDS: [&str; 9] = [
    "ptr",
    "name",
    "bytes_req",
    "bytes_alloc",
    "gfp_flags",
    "pfn",
    "order",
    "migratetype",
    "percpu_refill",
];

/// The formats of allocation events, by number.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Formats(HashMap<u16, Layout>);

impl Formats {
    /// Whether no allocation event is among them.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a format; one of another event, or one that lacks a field, is left out.
    pub fn add(&mut self, text: &str) {
        if let Some((id, layout)) = layout(text) {
            self.0.insert(id, layout);
        }
    }

    /// Reads the lists of systems and formats, as perf and trace-cmd write them.
    pub fn read(&mut self, input: &mut Input<'_>) -> Result<(), Error> {
        for _ in 0..input.u32()? {
            let system = input.string(NAME_BYTES_MAX)?;
            for _ in 0..input.u32()? {
                let bytes = input.u64()?;
                if system == "kmem" {
                    let text = input.take(bytes, TEXT_BYTES_MAX)?;
                    self.add(&String::from_utf8_lossy(&text));
                } else {
                    input.skip(bytes)?;
                }
            }
        }
        Ok(())
    }

    /// What a record tells; `None` for one of another event, or one that is too short.
    pub fn decode<'r>(&self, record: &'r [u8]) -> Option<What<'r>> {
        let layout = self.0.get(&(number(record, 0, 2)? as u16))?;
        let get = |name: &str| {
            let field = layout.fields.get(name)?;
            number(record, field.offset, field.size)
        };
        let order = |get: Option<u64>| get.map(|order| order.min(15) as u8);
        Some(match layout.kind {
            Kind::CacheAlloc => What::Alloc {
                pointer: pointer(get("ptr")?)?,
                cache: Some(
                    layout
                        .fields
                        .get("name")
                        .and_then(|field| text(record, field))
                        .unwrap_or("?"),
                ),
                requested: get("bytes_req")?,
                given: get("bytes_alloc")?,
            },
            Kind::Kmalloc => {
                let given = get("bytes_alloc")?;
                What::Alloc {
                    pointer: pointer(get("ptr")?)?,
                    cache: kmalloc::name(given, get("gfp_flags").unwrap_or(0)),
                    requested: get("bytes_req")?,
                    given,
                }
            }
            Kind::Free => What::Free {
                pointer: pointer(get("ptr")?)?,
                cache: layout
                    .fields
                    .get("name")
                    .and_then(|field| text(record, field)),
            },
            Kind::PageAlloc => What::PageAlloc {
                // A request that failed has no frame.
                pfn: get("pfn").filter(|pfn| *pfn != u64::MAX)?,
                order: order(get("order"))?,
                migratetype: get("migratetype").unwrap_or(0).min(255) as u8,
            },
            Kind::PageFree => What::PageFree {
                pfn: get("pfn")?,
                order: order(get("order")).unwrap_or(0),
            },
            Kind::Refill | Kind::Drain | Kind::Batched => What::PageMove {
                what: match layout.kind {
                    Kind::Refill if get("percpu_refill") == Some(1) => Move::Refill,
                    Kind::Refill => Move::Zone,
                    Kind::Drain => Move::Drain,
                    _ => Move::Batched,
                },
                pfn: get("pfn").filter(|pfn| *pfn != u64::MAX)?,
                order: order(get("order")).unwrap_or(0),
                migratetype: get("migratetype").unwrap_or(0).min(255) as u8,
            },
        })
    }
}

/// A pointer that is one: null, and the error values of the kernel's small-block marker, are no objects.
fn pointer(value: u64) -> Option<u64> {
    (value > 4096).then_some(value)
}

fn text<'r>(record: &'r [u8], field: &Field) -> Option<&'r str> {
    let word = number(record, field.offset, 4)?;
    let base = match field.relative {
        true => field.offset + field.size,
        false => 0,
    };
    let bytes = match field.text {
        true => {
            let start = (word as usize & 0xffff) + base;
            record.get(start..start + (word as usize >> 16))?
        }
        false => record.get(field.offset..field.offset.checked_add(field.size)?)?,
    };
    let end = bytes
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(bytes.len());
    std::str::from_utf8(&bytes[..end])
        .ok()
        .filter(|name| !name.is_empty())
}

fn layout(text: &str) -> Option<(u16, Layout)> {
    let line = |key: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(key))
            .map(str::trim)
    };
    let id = line("ID:")?.parse().ok()?;
    let (kind, needed): (_, &[&str]) = match line("name:")? {
        "kmem_cache_alloc" | "kmem_cache_alloc_node" => {
            (Kind::CacheAlloc, &["ptr", "bytes_req", "bytes_alloc"])
        }
        "kmalloc" | "kmalloc_node" => (Kind::Kmalloc, &["ptr", "bytes_req", "bytes_alloc"]),
        "kmem_cache_free" | "kfree" => (Kind::Free, &["ptr"]),
        "mm_page_alloc" => (Kind::PageAlloc, &["pfn", "order"]),
        "mm_page_free" => (Kind::PageFree, &["pfn"]),
        // A page freed in a batch is told by `mm_page_free` as well.
        "mm_page_free_batched" => (Kind::Batched, &["pfn"]),
        "mm_page_pcpu_drain" => (Kind::Drain, &["pfn"]),
        "mm_page_alloc_zone_locked" => (Kind::Refill, &["pfn"]),
        _ => return None,
    };
    let fields: HashMap<_, _> = text.lines().filter_map(field).collect();
    needed
        .iter()
        .all(|name| fields.contains_key(name))
        .then_some((id, Layout { kind, fields }))
}

/// A line `field:TYPE NAME; offset:N; size:N; ...`.
fn field(line: &str) -> Option<(&'static str, Field)> {
    let rest = line.trim_start().strip_prefix("field:")?;
    let mut parts = rest.split(';').map(str::trim);
    let declared = parts.next()?;
    let called = declared.rsplit([' ', '*']).next()?;
    let called = called.split('[').next()?;
    let name = FIELDS.into_iter().find(|name| *name == called)?;
    let figure = |part: Option<&str>, key: &str| part?.strip_prefix(key)?.parse::<u16>().ok();
    let offset = usize::from(figure(parts.next(), "offset:")?);
    let size = usize::from(figure(parts.next(), "size:")?);
    Some((
        name,
        Field {
            offset,
            size,
            text: declared.starts_with("__data_loc") || declared.starts_with("__rel_loc"),
            relative: declared.starts_with("__rel_loc"),
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: &str = "name: kmem_cache_free\nID: 656\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:const void * ptr;\toffset:16;\tsize:8;\tsigned:0;\n\
        \tfield:__data_loc char[] name;\toffset:24;\tsize:4;\tsigned:0;\n\nprint fmt: \"ptr=%p\"\n";

    fn record(pointer: u64, name: &[u8]) -> Vec<u8> {
        let mut record = vec![0; 28];
        record[..2].copy_from_slice(&656_u16.to_le_bytes());
        record[16..24].copy_from_slice(&pointer.to_le_bytes());
        record[24..28].copy_from_slice(&((name.len() as u32) << 16 | 28).to_le_bytes());
        record.extend_from_slice(name);
        record
    }

    #[test]
    fn a_record_is_read_by_its_format() {
        let mut formats = Formats::default();
        formats.add(FREE);
        let free = |cache| {
            Some(What::Free {
                pointer: 0x1_0000,
                cache,
            })
        };
        assert_eq!(
            formats.decode(&record(0x1_0000, b"dentry\0")),
            free(Some("dentry"))
        );
        assert_eq!(
            formats.decode(&record(0, b"dentry\0")),
            None,
            "kfree of null"
        );
        let whole = record(0x1_0000, b"dentry\0");
        assert_eq!(
            formats.decode(&whole[..30]),
            free(None),
            "its name is cut off"
        );
        for length in 0..24 {
            assert_eq!(formats.decode(&whole[..length]), None, "{length}");
        }
    }

    #[test]
    fn formats_that_lack_a_field_or_lie_are_left_out() {
        let mut formats = Formats::default();
        for text in [
            "",
            "name: kfree\n",
            "name: kfree\nID: 7\n",
            "name: kfree\nID: 99999\n\tfield:void * ptr;\toffset:8;\tsize:8;\n",
            "name: kfree\nID: 7\n\tfield:void * ptr;\toffset:-8;\tsize:8;\n",
            "name: sched_switch\nID: 7\n\tfield:void * ptr;\toffset:8;\tsize:8;\n",
        ] {
            formats.add(text);
        }
        assert!(formats.is_empty());
        formats.add("name: kfree\nID: 7\n\tfield:void * ptr;\toffset:8;\tsize:60000;\n");
        assert_eq!(formats.decode(&[7; 64]), None, "a number of 60000 bytes");
    }
}
