//! CPUs, their last-level cache and memory nodes, from `/sys/devices/system`.

use super::{Malformed, Tree, quote};

/// What the slab and page allocators take from the machine's shape.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// CPUs that could ever appear (the kernel's `nr_cpu_ids`: highest possible id plus one).
    pub possible: Option<u64>,
    /// CPUs plugged in.
    pub present: Option<u64>,
    /// CPUs running.
    pub online: Option<u64>,
    /// Memory nodes with their online CPUs; empty without the node directory.
    pub nodes: Vec<Node>,
    /// The last cache level of the first CPU that tells it.
    pub last_cache: Option<LastCache>,
    /// Coherency line in bytes.
    pub line_bytes: Option<u64>,
}

/// One memory node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Number.
    pub id: u64,
    /// Online CPUs in it.
    pub online_cpus: u64,
}

/// A CPU's last data or unified cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastCache {
    /// Level, from 1.
    pub level: u64,
    /// Bytes.
    pub bytes: u64,
    /// CPUs that share it, at least 1.
    pub shared_by: u64,
}

impl Topology {
    /// Online CPUs of `node`; all online CPUs if the nodes are not known.
    #[must_use]
    pub fn cpus_of_node(&self, node: u64) -> Option<u64> {
        self.nodes
            .iter()
            .find(|n| n.id == node)
            .map(|n| n.online_cpus)
            .or(self.online)
    }
}

const CPU: &str = "sys/devices/system/cpu";
const NODE: &str = "sys/devices/system/node";

/// Files a capture keeps (beside each node's `cpulist` and the first CPU's caches).
pub const FILES: [&str; 3] = ["possible", "present", "online"];

/// Files a capture keeps of each cache of CPU 0.
pub const CACHE_FILES: [&str; 5] = [
    "level",
    "type",
    "size",
    "shared_cpu_list",
    "coherency_line_size",
];

/// Directory of CPU 0's caches.
pub const CACHE_DIR: &str = "sys/devices/system/cpu/cpu0/cache";

/// Paths of all files [`read`] looks at in `tree`.
#[must_use]
pub fn paths(tree: &Tree) -> Vec<String> {
    let mut paths: Vec<String> = FILES.iter().map(|file| format!("{CPU}/{file}")).collect();
    paths.extend(indexed(tree, NODE, "node").map(|(_, name)| format!("{NODE}/{name}/cpulist")));
    for (_, name) in indexed(tree, CACHE_DIR, "index") {
        paths.extend(
            CACHE_FILES
                .iter()
                .map(|file| format!("{CACHE_DIR}/{name}/{file}")),
        );
    }
    paths
}

/// Entries `prefixN` of a directory, by number.
fn indexed<'a>(
    tree: &Tree,
    dir: &str,
    prefix: &'a str,
) -> impl Iterator<Item = (u64, String)> + 'a {
    tree.list(dir)
        .unwrap_or_default()
        .into_iter()
        .filter_map(move |(name, _)| {
            let id = name.strip_prefix(prefix)?.parse().ok()?;
            Some((id, name))
        })
}

/// Reads the topology; what is not there stays `None`.
///
/// # Errors
/// [`Malformed`] when a file that is there is not a CPU list or size.
pub fn read(tree: &Tree) -> Result<Topology, Malformed> {
    let mut topology = Topology {
        possible: cpus(tree, &format!("{CPU}/possible"))?.map(|list| list.highest + 1),
        present: cpus(tree, &format!("{CPU}/present"))?.map(|list| list.count),
        online: cpus(tree, &format!("{CPU}/online"))?.map(|list| list.count),
        ..Topology::default()
    };
    for (id, name) in indexed(tree, NODE, "node") {
        if let Some(list) = node_cpus(tree, &format!("{NODE}/{name}/cpulist"))? {
            topology.nodes.push(Node {
                id,
                online_cpus: list,
            });
        }
    }
    topology.nodes.sort_by_key(|node| node.id);
    for (_, name) in indexed(tree, CACHE_DIR, "index") {
        let dir = format!("{CACHE_DIR}/{name}");
        if let Some((cache, line)) = cache(tree, &dir)? {
            topology.line_bytes = topology.line_bytes.or(line);
            if topology
                .last_cache
                .is_none_or(|last| cache.level >= last.level)
            {
                topology.last_cache = Some(cache);
            }
        }
    }
    Ok(topology)
}

/// One cache of CPU 0, unless it holds instructions only or its size is not told.
fn cache(tree: &Tree, dir: &str) -> Result<Option<(LastCache, Option<u64>)>, Malformed> {
    let text = |file: &str| tree.text(&format!("{dir}/{file}")).ok();
    if text("type").is_some_and(|kind| kind.trim() == "Instruction") {
        return Ok(None);
    }
    let (Some(level), Some(size)) = (text("level"), text("size")) else {
        return Ok(None);
    };
    let refuse = |file: &str, text: &str| {
        Malformed::at(1, format!("{} is not a {file}", quote(text.trim())))
            .in_file(&format!("{dir}/{file}"))
    };
    let Ok(level) = level.trim().parse() else {
        return Err(refuse("level", &level));
    };
    let Some(bytes) = cache_size(size.trim()) else {
        return Err(refuse("size", &size));
    };
    let shared_by = cpus(tree, &format!("{dir}/shared_cpu_list"))?.map_or(1, |list| list.count);
    let line = text("coherency_line_size").and_then(|text| text.trim().parse().ok());
    Ok(Some((
        LastCache {
            level,
            bytes,
            shared_by: shared_by.max(1),
        },
        line,
    )))
}

/// `32768K`, `2M` or plain bytes.
fn cache_size(text: &str) -> Option<u64> {
    let (digits, shift) = match text.strip_suffix('K') {
        Some(digits) => (digits, 10),
        None => text
            .strip_suffix('M')
            .map_or((text, 0), |digits| (digits, 20)),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

struct CpuList {
    count: u64,
    highest: u64,
}

fn cpus(tree: &Tree, path: &str) -> Result<Option<CpuList>, Malformed> {
    let Ok(text) = tree.text(path) else {
        return Ok(None);
    };
    cpu_list(text.trim())
        .map(Some)
        .map_err(|error| error.in_file(path))
}

/// CPUs of a node: an empty list is a node of memory only.
fn node_cpus(tree: &Tree, path: &str) -> Result<Option<u64>, Malformed> {
    let Ok(text) = tree.text(path) else {
        return Ok(None);
    };
    if text.trim().is_empty() {
        return Ok(Some(0));
    }
    cpu_list(text.trim())
        .map(|list| Some(list.count))
        .map_err(|error| error.in_file(path))
}

/// `0-3,8,10-11`.
fn cpu_list(text: &str) -> Result<CpuList, Malformed> {
    let bad = || Malformed::at(1, format!("{} is not a list of CPUs", quote(text)));
    let mut list = CpuList {
        count: 0,
        highest: 0,
    };
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: u32 = first.trim().parse().map_err(|_| bad())?;
        let last: u32 = last.trim().parse().map_err(|_| bad())?;
        if first > last || last > 1 << 20 {
            return Err(bad());
        }
        list.count += u64::from(last - first) + 1;
        list.highest = list.highest.max(u64::from(last));
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_cpu_list_is_counted() {
        let list = cpu_list("0-3,8,10-11").unwrap();
        assert_eq!((list.count, list.highest), (7, 11));
        for bad in ["", "a", "3-1", "1,", "-", "1-2-3", "99999999"] {
            assert!(cpu_list(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn cache_sizes_carry_units() {
        assert_eq!(
            ["32768K", "2M", "4096", "x"].map(cache_size),
            [Some(32 << 20), Some(2 << 20), Some(4096), None]
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_the_list_parser_panic(text in "[0-9,\\- a]{0,40}|\\PC{0,40}") {
            let _ = cpu_list(&text);
            let _ = cache_size(&text);
        }
    }
}
