//! Turns a compact host description (`tests/data/hosts`) into a captured tree.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Where the descriptions are.
pub fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/hosts")
}

/// The capture of a real machine: a tar archive as `host --capture` wrote it.
pub fn captured() -> Vec<u8> {
    let packed = std::fs::read(directory().join("amd64-6.18-2cpu.tar.zst")).unwrap();
    zstd::decode_all(&packed[..]).unwrap()
}

/// Files and links of a tree, by path.
#[derive(Default)]
pub struct Files {
    pub files: Vec<(String, String)>,
    pub links: Vec<(String, String)>,
}

impl Files {
    /// The tree of the description called `name`.
    pub fn of(name: &str) -> Self {
        let path = directory().join(format!("{name}.txt"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path:?}: {e}"));
        expand(&text)
    }

    /// Replaces or adds a file.
    pub fn put(&mut self, path: &str, text: &str) {
        self.files.retain(|(known, _)| known != path);
        self.files.push((path.to_owned(), text.to_owned()));
    }

    /// Removes the file or everything below the directory `path`.
    pub fn remove(&mut self, path: &str) {
        let below = format!("{path}/");
        self.files
            .retain(|(known, _)| known != path && !known.starts_with(&below));
        self.links.retain(|(known, _)| !known.starts_with(&below));
    }

    /// The text of a file.
    pub fn text(&self, path: &str) -> &str {
        &self
            .files
            .iter()
            .find(|(known, _)| known == path)
            .unwrap_or_else(|| panic!("{path}"))
            .1
    }

    /// The tree as a tar archive.
    pub fn tar(&self) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (path, text) in &self.files {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(0o644);
            builder
                .append_data(&mut header, path, text.as_bytes())
                .unwrap();
        }
        for (path, target) in &self.links {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(tar::EntryType::Symlink);
            header.set_size(0);
            builder.append_link(&mut header, path, target).unwrap();
        }
        builder.into_inner().unwrap()
    }

    /// Writes the tree below `root`.
    pub fn write(&self, root: &Path) {
        for (path, text) in &self.files {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        for (path, target) in &self.links {
            std::os::unix::fs::symlink(target, root.join(path)).unwrap();
        }
    }
}

fn expand(text: &str) -> Files {
    let mut tree = Files::default();
    let mut slabinfo = String::from(
        "slabinfo - version: 2.1\n# name            <active_objs> <num_objs> <objsize> \
         <objperslab> <pagesperslab> : tunables <limit> <batchcount> <sharedfactor> : slabdata \
         <active_slabs> <num_slabs> <sharedavail>\n",
    );
    let mut zoneinfo = String::new();
    let mut in_caches = false;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if in_caches {
            cache(&mut tree, &mut slabinfo, line);
            continue;
        }
        let (key, rest) = line.split_once(' ').unwrap_or((line, ""));
        let words: Vec<&str> = rest.split_whitespace().collect();
        match key {
            "release" => tree.put("proc/sys/kernel/osrelease", &format!("{rest}\n")),
            "cmdline" => tree.put("proc/cmdline", &format!("quiet {rest}\n")),
            "sysctl" => tree.put(
                &format!("proc/sys/vm/{}", words[0]),
                &format!("{}\n", words[1]),
            ),
            "cpus" => cpus(&mut tree, &words),
            "zone" => zone(&mut zoneinfo, &words),
            "pageset" => pageset(&mut zoneinfo, &words),
            "cache" => in_caches = true,
            // The page size follows from the caches; readers must find it themselves.
            "page_size" | "nodes" => {}
            other => panic!("unknown line {other}"),
        }
    }
    tree.put("proc/slabinfo", &slabinfo);
    tree.put("proc/zoneinfo", &zoneinfo);
    nodes(&mut tree, text);
    tree
}

fn list(count: &str) -> String {
    match count.parse::<u32>().unwrap() {
        1 => "0\n".into(),
        n => format!("0-{}\n", n - 1),
    }
}

fn cpus(tree: &mut Files, counts: &[&str]) {
    for (file, count) in ["possible", "present", "online"].iter().zip(counts) {
        tree.put(&format!("sys/devices/system/cpu/{file}"), &list(count));
    }
}

/// Online CPUs are spread evenly over the nodes, as the machines were configured.
fn nodes(tree: &mut Files, text: &str) {
    let value = |key: &str, index: usize| -> u32 {
        let line = text.lines().find(|line| line.starts_with(key)).unwrap();
        line.split_whitespace().nth(index).unwrap().parse().unwrap()
    };
    let (count, online) = (value("nodes ", 1), value("cpus ", 3));
    for node in 0..count {
        let (first, last) = (node * online / count, (node + 1) * online / count - 1);
        let path = format!("sys/devices/system/node/node{node}/cpulist");
        tree.put(&path, &format!("{first}-{last}\n"));
    }
}

fn zone(out: &mut String, words: &[&str]) {
    let [
        node,
        name,
        spanned,
        present,
        managed,
        free,
        boost,
        min,
        low,
        high,
        promo,
        protection,
    ] = words
    else {
        panic!("zone {words:?}")
    };
    let _ = write!(
        out,
        "Node {node}, zone {name:>8}\n  pages free     {free}\n"
    );
    let marks = [
        ("boost", boost),
        ("min", min),
        ("low", low),
        ("high", high),
        ("promo", promo),
    ];
    let sizes = [
        ("spanned", spanned),
        ("present", present),
        ("managed", managed),
    ];
    for (key, value) in marks
        .iter()
        .chain(&sizes)
        .filter(|(_, value)| **value != "-")
    {
        let _ = writeln!(out, "        {key:<8} {value}");
    }
    let _ = writeln!(
        out,
        "        protection: ({})\n  pagesets",
        protection.replace(',', ", ")
    );
}

fn pageset(out: &mut String, words: &[&str]) {
    let keys = ["cpu", "count", "high", "batch", "high_min", "high_max"];
    for (key, value) in keys.iter().zip(words).filter(|(_, value)| **value != "-") {
        let indent = if *key == "cpu" { 4 } else { 14 };
        let _ = writeln!(out, "{:indent$}{key}: {value}", "");
    }
}

fn cache(tree: &mut Files, slabinfo: &mut String, line: &str) {
    let cells: Vec<&str> = line.split(',').collect();
    let [
        name,
        id,
        aliases,
        object_size,
        size,
        align,
        order,
        per_slab,
        cpu_partial,
        min_partial,
        sheaf,
        flags,
        active,
        objects,
        slabs,
    ] = cells[..]
    else {
        panic!("cache {line}")
    };
    let pages = 1u64 << order.parse::<u32>().unwrap();
    let _ = writeln!(
        slabinfo,
        "{name:<17} {active:>6} {objects:>6} {size:>6} {per_slab:>4} {pages:>4} : tunables    0    \
         0    0 : slabdata {slabs:>6} {slabs:>6}      0"
    );
    let dir = format!("sys/kernel/slab/{}", if id.is_empty() { name } else { id });
    let flag = |letter: char| if flags.contains(letter) { "1" } else { "0" };
    let files = [
        ("object_size", object_size),
        ("slab_size", size),
        ("align", align),
        ("order", order),
        ("objs_per_slab", per_slab),
        ("cpu_partial", cpu_partial),
        ("min_partial", min_partial),
        ("sheaf_capacity", sheaf),
        ("slabs", slabs),
        ("total_objects", objects),
        ("objects", active),
        ("destroy_by_rcu", flag('r')),
        ("hwcache_align", flag('h')),
        ("reclaim_account", flag('a')),
        ("red_zone", flag('Z')),
        ("poison", flag('P')),
        ("store_user", flag('U')),
        ("sanity_checks", flag('F')),
    ];
    for (file, value) in files.iter().filter(|(_, value)| !value.is_empty()) {
        tree.put(&format!("{dir}/{file}"), &format!("{value}\n"));
    }
    let ctor = if flags.contains('c') {
        "init_once+0x0/0x20\n"
    } else {
        ""
    };
    tree.put(&format!("{dir}/ctor"), ctor);
    if !id.is_empty() {
        for user in std::iter::once(name).chain(aliases.split(';').filter(|a| !a.is_empty())) {
            tree.links
                .push((format!("sys/kernel/slab/{user}"), id.to_owned()));
        }
    }
}
