//! Everything `host` reads, in one value; what could not be read is part of it.

use crate::exit::Failure;
use crate::source::meminfo::Meminfo;
use crate::source::slabinfo;
use crate::source::sys_slab;
use crate::source::topology::{self, Topology};
use crate::source::{Absent, Malformed, Tree, buddyinfo, cmdline, meminfo, zoneinfo};
use flagstone_core::base::PageSize;
use flagstone_core::policy::Cpus;

use super::population::{self, Cache};

/// Something that could not be read, and what the answer lacks because of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// Path below the root.
    pub path: String,
    /// Why, in a few words.
    pub reason: String,
    /// What is missing from the answer.
    pub lacks: &'static str,
}

/// How the page size was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageSizeFrom {
    /// The running system or the user said so.
    Told,
    /// Objects per slab, stride and order of the caches allow only this one.
    Slabs,
    /// Total memory divided by the zones' managed pages.
    Meminfo,
    /// Nothing tells; 4096 is assumed.
    Assumed,
}

/// Virtual-memory settings that move the marks; `None` where not readable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sysctls {
    /// `vm.percpu_pagelist_high_fraction`: 0, or at least 8 with tuning off.
    pub high_fraction: Option<u64>,
    /// `vm.min_free_kbytes`.
    pub min_free_kbytes: Option<u64>,
    /// `vm.watermark_scale_factor`, ten-thousandths.
    pub watermark_scale_factor: Option<u64>,
}

/// Where the settings of [`Sysctls`] are.
pub const SYSCTLS: [&str; 3] = [
    "proc/sys/vm/percpu_pagelist_high_fraction",
    "proc/sys/vm/min_free_kbytes",
    "proc/sys/vm/watermark_scale_factor",
];

/// A host, as read.
pub struct Host {
    /// Whether this is the running system rather than a capture.
    pub live: bool,
    /// `uname -r`, a label only: nothing is decided by it.
    pub release: Option<String>,
    /// Page size and how it was found.
    pub page_size: PageSize,
    /// How [`Host::page_size`] was found.
    pub page_size_from: PageSizeFrom,
    /// CPU counts for the rules.
    pub cpus: Cpus,
    /// CPUs, nodes, caches.
    pub topology: Topology,
    /// Population, largest first; empty when neither source is readable.
    pub caches: Vec<Cache>,
    /// Zones in the order of the file.
    pub zones: Vec<zoneinfo::Zone>,
    /// Free blocks per zone.
    pub buddy: Vec<buddyinfo::Row>,
    /// Totals.
    pub meminfo: Meminfo,
    /// Slab boot parameters.
    pub parameters: cmdline::SlabParameters,
    /// Settings that move the marks.
    pub sysctls: Sysctls,
    /// What could not be read.
    pub unread: Vec<Unread>,
}

/// Reads the host below `tree`. `page_size` overrides what would be found.
///
/// # Errors
/// [`Failure::Usage`] naming file and line of the first thing that is there but damaged, or
/// saying that nothing at all could be read.
pub fn gather(tree: &Tree, page_size: Option<PageSize>) -> Result<Host, Failure> {
    let mut reader = Reader {
        tree,
        unread: Vec::new(),
        read_any: false,
    };
    let rows = reader.parsed(
        "proc/slabinfo",
        "objects and slabs per cache",
        slabinfo::parse,
    )?;
    let layouts = reader.layouts()?;
    let zones = reader.parsed(
        "proc/zoneinfo",
        "zones, watermarks and pagesets",
        zoneinfo::parse,
    )?;
    let buddy = reader.parsed("proc/buddyinfo", "free blocks per order", buddyinfo::parse)?;
    let meminfo = reader.parsed("proc/meminfo", "total memory", meminfo::parse)?;
    let parameters = reader
        .parsed("proc/cmdline", "slab boot parameters", |text| {
            Ok(cmdline::parse(text))
        })?
        .unwrap_or_default();
    let topology = topology::read(tree).map_err(malformed)?;
    if topology.present.is_none() {
        reader.note(
            "sys/devices/system/cpu",
            &Absent::Missing,
            "CPU counts (zoneinfo's are used)",
        );
    }
    let sysctls = reader.sysctls()?;
    if !reader.read_any {
        return Err(Failure::Usage(
            "host: no proc/ or sys/ file could be read below the root; give --root the top of a \
             captured tree (the directory that holds proc and sys)"
                .into(),
        ));
    }

    let zones = zones.unwrap_or_default();
    let meminfo = meminfo.unwrap_or_default();
    let rows = rows.unwrap_or_default();
    let layouts = layouts.unwrap_or_default();
    let (page_size, page_size_from) =
        find_page_size(tree, page_size, &rows, &layouts, &zones, &meminfo)?;
    let caches = population::merge(rows, layouts, page_size).map_err(malformed)?;
    Ok(Host {
        live: tree.is_live(),
        release: tree
            .text("proc/sys/kernel/osrelease")
            .ok()
            .map(|text| text.trim().to_owned()),
        page_size,
        page_size_from,
        cpus: cpu_counts(&topology, &zones),
        topology,
        caches,
        zones,
        buddy: buddy.unwrap_or_default(),
        meminfo,
        parameters,
        sysctls,
        unread: reader.unread,
    })
}

fn malformed(error: Malformed) -> Failure {
    Failure::Usage(format!("host: {error}"))
}

struct Reader<'a> {
    tree: &'a Tree,
    unread: Vec<Unread>,
    read_any: bool,
}

impl Reader<'_> {
    fn note(&mut self, path: &str, absent: &Absent, lacks: &'static str) {
        self.unread.push(Unread {
            path: path.into(),
            reason: absent.reason().into(),
            lacks,
        });
    }

    fn parsed<T>(
        &mut self,
        path: &str,
        lacks: &'static str,
        parse: impl Fn(&str) -> Result<T, Malformed>,
    ) -> Result<Option<T>, Failure> {
        match self.tree.text(path) {
            Ok(text) => {
                self.read_any = true;
                parse(&text)
                    .map(Some)
                    .map_err(|error| malformed(error.in_file(path)))
            }
            Err(absent) => {
                self.note(path, &absent, lacks);
                Ok(None)
            }
        }
    }

    fn layouts(&mut self) -> Result<Option<Vec<sys_slab::Cache>>, Failure> {
        let lacks = "object sizes, aliases, limits, sheaves, alignment waste";
        match sys_slab::read(self.tree) {
            Ok(caches) => {
                self.read_any = true;
                Ok(Some(caches))
            }
            Err(sys_slab::Failure::Absent(path, absent)) => {
                // One line for the directory: all its files share its permissions.
                let dir = if path.starts_with(sys_slab::DIR) {
                    sys_slab::DIR
                } else {
                    &path
                };
                self.note(dir, &absent, lacks);
                Ok(None)
            }
            Err(sys_slab::Failure::Malformed(error)) => Err(malformed(error)),
        }
    }

    fn sysctls(&mut self) -> Result<Sysctls, Failure> {
        let [high_fraction, min_free_kbytes, watermark_scale_factor] = SYSCTLS;
        Ok(Sysctls {
            high_fraction: self.sysctl(high_fraction)?,
            min_free_kbytes: self.sysctl(min_free_kbytes)?,
            watermark_scale_factor: self.sysctl(watermark_scale_factor)?,
        })
    }

    /// A setting; its absence is not worth a note, the kernel may simply be older.
    fn sysctl(&mut self, path: &str) -> Result<Option<u64>, Failure> {
        let Ok(text) = self.tree.text(path) else {
            return Ok(None);
        };
        self.read_any = true;
        // The kernel keeps these in an int.
        let value = match crate::source::number(text.trim(), "the setting", 1) {
            Ok(value) if value > i32::MAX as u64 => Err(Malformed::at(
                1,
                format!("{value} is more than a setting can be"),
            )),
            parsed => parsed,
        };
        value
            .map(Some)
            .map_err(|error| malformed(error.in_file(path)))
    }
}

/// CPU counts for the rules: from sysfs, else from the pagesets, else one.
fn cpu_counts(topology: &Topology, zones: &[zoneinfo::Zone]) -> Cpus {
    let pagesets = zones
        .iter()
        .map(|zone| zone.pagesets.len() as u64)
        .max()
        .unwrap_or(0);
    let bounded = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    let online = topology.online.unwrap_or(pagesets).max(1);
    let present = topology.present.unwrap_or(online).max(1);
    let possible = topology.possible.unwrap_or(present).max(present);
    Cpus {
        possible: bounded(possible),
        present: bounded(present),
        online: bounded(online),
    }
}

fn find_page_size(
    tree: &Tree,
    told: Option<PageSize>,
    rows: &[slabinfo::Row],
    layouts: &[sys_slab::Cache],
    zones: &[zoneinfo::Zone],
    meminfo: &Meminfo,
) -> Result<(PageSize, PageSizeFrom), Failure> {
    if let Some(page_size) = told {
        return Ok((page_size, PageSizeFrom::Told));
    }
    if tree.is_live() {
        // SAFETY: sysconf reads a constant of the process and has no preconditions.
        let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        if let Some(page_size) = usize::try_from(bytes).ok().and_then(PageSize::new) {
            return Ok((page_size, PageSizeFrom::Told));
        }
    }
    if let Some(text) = tree.fact("page_size") {
        let page_size = text.parse().ok().and_then(PageSize::new).ok_or_else(|| {
            Failure::Usage(format!(
                "host: {}: page_size {text} is not a power of two",
                crate::source::MANIFEST
            ))
        })?;
        return Ok((page_size, PageSizeFrom::Told));
    }
    if let Some(page_size) = population::page_size(rows, layouts) {
        return Ok((page_size, PageSizeFrom::Slabs));
    }
    let managed: u64 = zones
        .iter()
        .map(|zone| zone.managed)
        .fold(0, u64::saturating_add);
    let from_total = meminfo.total.filter(|_| managed > 0).and_then(|total| {
        // Exact but for pages released after boot; the nearest power of two is it.
        let bytes = usize::try_from(total / managed).ok()?;
        let up = bytes.checked_next_power_of_two()?;
        PageSize::new(if up - bytes > bytes - up / 2 {
            up / 2
        } else {
            up
        })
    });
    Ok(match from_total {
        Some(page_size) => (page_size, PageSizeFrom::Meminfo),
        None => (PageSize::K4, PageSizeFrom::Assumed),
    })
}
