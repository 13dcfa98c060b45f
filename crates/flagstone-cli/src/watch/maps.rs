//! The mappings of a process, each with what it is: the kernel's list, cut where parts of the heap begin and end.
//!
//! ```text
//!   /proc/PID/maps   [ rw-p ............. ][ ---p ... ]   [ rw-p .......................... ]
//!   the heap says      tables │ pages        pages          huge block │ kept │ huge block
//! ```
//!
//! The kernel joins neighbours and has no names for what is mapped after the start, so the heap's own tables say
//! where a huge block begins. The list of mappings is older than the copy of the heap: what was mapped between is
//! missing, and nothing is in it twice.

use super::reader::bytes_at;
use super::target::{Region, Target, is_bare};
use super::world::Copied;
use flagstone_core::heap::Ready;
use flagstone_linux::process::{Access, Place};
use flagstone_linux::residency::Resident;
use serde::{Deserialize, Serialize};
use std::ptr::NonNull;

/// The mappings of a process: `flagstone.maps/1`.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Maps {
    pub schema: String,
    pub pid: u32,
    pub program: String,
    /// By address.
    pub maps: Vec<Mapped>,
}

impl Maps {
    const SCHEMA: &'static str = "flagstone.maps/1";
}

/// A mapping, or the part of one that has one purpose.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Mapped {
    pub start: u64,
    pub end: u64,
    pub resident_bytes: u64,
    pub what: What,
    /// What the kernel calls it: a path, or a name in brackets.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// What the program asked for, of a huge block in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_bytes: Option<u64>,
}

/// What a mapping is.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// Page descriptors, the page map, zones and pagesets.
    Tables,
    /// Slabs and runs of pages, in use or free.
    Pages,
    /// Address space for them.
    Room,
    /// A block above 4 MiB that the program holds.
    HugeBlock,
    /// One that it freed, kept for the next request.
    KeptBlock,
    /// Where huge blocks are listed.
    HugeTable,
    File,
    Stack,
    Anonymous,
    /// Address space that another than the heap set aside, or a guard.
    NoAccess,
    Kernel,
}

impl What {
    /// In words of readers.
    pub fn words(self) -> &'static str {
        match self {
            Self::Tables => "heap: tables",
            Self::Pages => "heap: pages",
            Self::Room => "heap: address space",
            Self::HugeBlock => "heap: huge block",
            Self::KeptBlock => "heap: kept huge block",
            Self::HugeTable => "heap: list of huge blocks",
            Self::File => "file",
            Self::Stack => "stack of the main thread",
            Self::Anonymous => "anonymous",
            Self::NoAccess => "no access",
            Self::Kernel => "the kernel's",
        }
    }

    /// Of a mapping in which nothing is the heap's.
    fn outside(region: &Region) -> Self {
        match region.mapping.place {
            Place::File(_) => Self::File,
            Place::Stack => Self::Stack,
            Place::Kernel => Self::Kernel,
            Place::Anonymous if region.mapping.access == Access::None => Self::NoAccess,
            Place::Anonymous => Self::Anonymous,
        }
    }
}

/// A part of the heap.
#[derive(Clone, Copy, Debug)]
struct Part {
    start: usize,
    end: usize,
    what: What,
    requested: Option<u64>,
}

/// The mappings of the process whose heap `ready` is a copy of.
pub fn of(target: &Target, ready: &Ready<Copied>, resident: &mut Resident) -> Maps {
    let mut maps = cut(&target.regions, &parts(ready));
    for (region, pieces) in &mut maps {
        // No resident size counts the kernel's pages and those set aside.
        let uncounted = region.mapping.place == Place::Kernel || region.set_aside;
        if uncounted || is_bare(&region.mapping) && !resident.scans() {
            continue;
        }
        for piece in pieces {
            let bytes = (piece.end - piece.start) as usize;
            let start = NonNull::new(piece.start as *mut u8);
            piece.resident_bytes = start.map_or(0, |start| bytes_at(resident, start, bytes));
        }
    }
    Maps {
        schema: Maps::SCHEMA.to_owned(),
        pid: target.pid,
        program: target.program.clone(),
        maps: maps.into_iter().flat_map(|(_, pieces)| pieces).collect(),
    }
}

/// The heap's parts by address.
fn parts(ready: &Ready<Copied>) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut part = |start: usize, end: usize, what, requested| {
        parts.push(Part {
            start,
            end,
            what,
            requested,
        });
    };
    let pages = ready.slabs().pages();
    let base = pages.base().addr().get();
    pages.each_reserved_part(|start, end| {
        let what = if start < base {
            What::Tables
        } else {
            What::Pages
        };
        part(start, end, what, None);
    });
    if let Some((table, bytes)) = ready.huge_table_memory() {
        let start = table.addr().get();
        part(start, start.saturating_add(bytes), What::HugeTable, None);
    }
    ready.each_huge(|block| {
        let end = block.address.saturating_add(block.bytes);
        let requested = Some(block.requested as u64);
        part(block.address, end, What::HugeBlock, requested);
    });
    ready.each_kept(|block| {
        let end = block.address.saturating_add(block.bytes);
        part(block.address, end, What::KeptBlock, None);
    });
    parts.sort_unstable_by_key(|part| part.start);
    parts
}

/// Every region, in pieces where parts begin and end in it.
fn cut<'r>(regions: &'r [Region], parts: &[Part]) -> Vec<(&'r Region, Vec<Mapped>)> {
    let pieces = |region: &Region| {
        let (mut at, end) = (region.mapping.start, region.mapping.end);
        let mut pieces = Vec::new();
        let first = parts.partition_point(|part| part.end <= at);
        for part in parts[first..].iter().take_while(|part| part.start < end) {
            if at < part.start {
                pieces.push(piece(region, at, part.start, None));
            }
            // A torn copy may have two parts in one place: the first has it.
            let (from, to) = (at.max(part.start), end.min(part.end));
            if from < to {
                pieces.push(piece(region, from, to, Some(part)));
                at = to;
            }
        }
        if at < end {
            pieces.push(piece(region, at, end, None));
        }
        pieces
    };
    regions
        .iter()
        .map(|region| (region, pieces(region)))
        .collect()
}

fn piece(region: &Region, start: usize, end: usize, part: Option<&Part>) -> Mapped {
    let bare = region.mapping.access == Access::None;
    let what = match part.map(|part| part.what) {
        Some(What::Tables | What::Pages) if bare => What::Room,
        Some(what) => what,
        None => What::outside(region),
    };
    Mapped {
        start: start as u64,
        end: end as u64,
        resident_bytes: 0,
        what,
        name: region.name.clone(),
        requested_bytes: part.and_then(|part| part.requested),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(line: &str) -> Region {
        Region::of(line).expect("a line of maps")
    }

    fn part(start: usize, end: usize, what: What) -> Part {
        Part {
            start,
            end,
            what,
            requested: None,
        }
    }

    #[test]
    fn neighbours_that_the_kernel_joined_are_told_apart() {
        let regions = [
            region("1000-9000 rw-p 00000000 00:00 0 "),
            region("9000-a000 ---p 00000000 00:00 0 "),
            region("a000-b000 r-xp 00000000 08:01 42 /lib/x.so"),
        ];
        let parts = [
            part(0x2000, 0x4000, What::HugeBlock),
            part(0x4000, 0x5000, What::KeptBlock),
            part(0x8000, 0xa000, What::Pages),
        ];
        let cut = cut(&regions, &parts);
        let found: Vec<_> = cut
            .iter()
            .flat_map(|(_, pieces)| pieces)
            .map(|piece| (piece.start, piece.end, piece.what))
            .collect();
        let expected = [
            (0x1000, 0x2000, What::Anonymous),
            (0x2000, 0x4000, What::HugeBlock),
            (0x4000, 0x5000, What::KeptBlock),
            (0x5000, 0x8000, What::Anonymous),
            (0x8000, 0x9000, What::Pages),
            (0x9000, 0xa000, What::Room),
            (0xa000, 0xb000, What::File),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn parts_of_a_torn_copy_that_overlap_cover_a_place_once() {
        let regions = [region("1000-9000 rw-p 00000000 00:00 0 ")];
        let parts = [
            part(0x1000, 0x6000, What::HugeBlock),
            part(0x2000, 0x3000, What::KeptBlock),
            part(0x4000, 0x7000, What::KeptBlock),
        ];
        let cut = cut(&regions, &parts);
        let (mut at, pieces) = (0x1000, &cut[0].1);
        for piece in pieces {
            assert_eq!(piece.start, at);
            at = piece.end;
        }
        assert_eq!(at, 0x9000);
    }
}
