//! A captured population: which caches, how many objects, and what their slabs cost.

use crate::source::{Tree, slabinfo};
use flagstone_core::base::{Order, PageSize};
use flagstone_kernels::policy::{Population, estimated_live};
use std::io::Read;
use std::path::Path;

/// The text of a slabinfo: standard input, a file, or the one inside a tree that `host --capture` took.
fn read(path: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    if path == "-" {
        let read = std::io::stdin().lock().read_to_end(&mut bytes);
        read.map_err(|error| format!("--from -: {error}"))?;
        return Ok(bytes);
    }
    let file = Path::new(path);
    if !file.exists() {
        return Err(format!("--from {path}: no such file"));
    }
    let archive = file.is_file() && Tree::is_archive(file);
    if file.is_dir() || archive {
        let tree = Tree::open(file).map_err(|why| format!("--from {why}"))?;
        let text = tree
            .text("proc/slabinfo")
            .map_err(|absent| format!("--from {path}: proc/slabinfo in it: {}", absent.reason()))?;
        return Ok(text.into_bytes());
    }
    std::fs::read(file).map_err(|error| match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            format!("--from {path}: permission denied; only root reads /proc/slabinfo")
        }
        _ => format!("--from {path}: {error}"),
    })
}

/// Which objects of a capture a policy must find room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Count {
    /// Every object the slabs hold, free ones included.
    Slots,
    /// Objects counted as used.
    Active,
    /// Used objects less half a slab per CPU, which kernels count as used.
    Estimated,
}

impl Count {
    /// The count of this name.
    pub fn parse(name: &str) -> Result<Self, String> {
        match name {
            "slots" => Ok(Self::Slots),
            "active" => Ok(Self::Active),
            "estimated" => Ok(Self::Estimated),
            _ => Err(format!(
                "--population {name}: known are slots, active and estimated"
            )),
        }
    }
}

/// One cache of a capture.
pub struct Captured {
    /// Its name.
    pub name: String,
    /// Stride in bytes.
    pub size: usize,
    /// What its slabs cost where it was captured.
    pub here: Population,
    count: Count,
    active: u64,
    per_slab: u64,
}

impl Captured {
    /// Objects a policy must find room for on a machine with `online` CPUs running.
    pub fn objects(&self, online: u32) -> u64 {
        match self.count {
            Count::Slots => self.here.objects,
            Count::Active => self.active,
            Count::Estimated => estimated_live(self.active, self.here.slabs, self.per_slab, online),
        }
    }

    /// Reads a slabinfo file (`-` is standard input) of a machine with `page_size`.
    pub fn read(path: &str, page_size: PageSize, count: Count) -> Result<Vec<Self>, String> {
        let bytes = read(path)?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let line = error.as_bytes()[..error.utf8_error().valid_up_to()]
                .iter()
                .filter(|&&byte| byte == b'\n')
                .count();
            format!(
                "{path}:{}: not text; a capture of /proc/slabinfo is needed",
                line + 1
            )
        })?;
        let rows = slabinfo::parse(&text)
            .map_err(|wrong| format!("{path}:{}: {}", wrong.line, wrong.what))?;
        if rows.is_empty() {
            return Err(format!(
                "{path}: holds no cache; a capture of /proc/slabinfo has a line for each"
            ));
        }
        rows.into_iter()
            .map(|row| Self::of(row, path, page_size, count))
            .collect()
    }

    fn of(
        row: slabinfo::Row,
        path: &str,
        page_size: PageSize,
        count: Count,
    ) -> Result<Self, String> {
        let refuse = |what: String| format!("{path}:{}: {}: {what}", row.line, row.name);
        let slab = row.pages_per_slab.saturating_mul(page_size.bytes() as u64);
        let used = row.objects_per_slab.saturating_mul(row.size);
        if row.size > page_size.block_bytes(Order::MAX) as u64 {
            return Err(refuse(format!(
                "objsize {} is larger than the largest block",
                row.size
            )));
        }
        // A slab with room for twice its objects is one of larger pages than the capture's.
        let too_large = slab >= used.saturating_mul(2).saturating_add(row.size);
        if used > slab || too_large || row.slabs.checked_mul(slab).is_none() {
            return Err(refuse(format!(
                "{} objects of {} bytes do not fill {} pages of {} bytes; give the --page-size of \
                 the captured machine",
                row.objects_per_slab,
                row.size,
                row.pages_per_slab,
                page_size.bytes()
            )));
        }
        Ok(Self {
            name: row.name,
            size: row.size as usize,
            here: Population {
                slabs: row.slabs,
                bytes: row.slabs * slab,
                tail_bytes: row.slabs * (slab - used),
                objects: row.objects,
            },
            count,
            active: row.active_objects,
            per_slab: row.objects_per_slab,
        })
    }
}
