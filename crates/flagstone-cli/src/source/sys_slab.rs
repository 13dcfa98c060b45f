//! `/sys/kernel/slab`: one directory per cache, one small file per property.
//!
//! A merged cache has one directory under its id (`:0000064`, docs: linux-policies 8.2) and a
//! symlink per user of it; an unmergeable cache has a directory under its own name. Every
//! property is optional: a kernel without sheaves has no `sheaf_capacity`, one without per-CPU
//! partial lists may drop `cpu_partial`.

use super::{Absent, Malformed, Tree, number, quote};
use rayon::prelude::*;
use std::collections::BTreeMap;

/// Where the directories are.
pub const DIR: &str = "sys/kernel/slab";

/// Files a capture keeps for each cache: all that [`read`] looks at.
pub const FILES: [&str; 23] = [
    "object_size",
    "slab_size",
    "align",
    "order",
    "objs_per_slab",
    "cpu_partial",
    "min_partial",
    "sheaf_capacity",
    "slabs",
    "total_objects",
    "objects",
    "partial",
    "objects_partial",
    "cpu_slabs",
    "slabs_cpu_partial",
    "ctor",
    "destroy_by_rcu",
    "hwcache_align",
    "reclaim_account",
    "red_zone",
    "poison",
    "store_user",
    "sanity_checks",
];

/// Properties and population of one cache; `None` where the kernel has no such file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cache {
    /// Directory name: the cache's name, or its `:`-id when it is mergeable.
    pub id: String,
    /// Names that are symlinks to this directory, sorted.
    pub aliases: Vec<String>,
    /// Bytes the creator asked for.
    pub object_size: u64,
    /// Stride in bytes: object, metadata and padding. At least 1.
    pub size: u64,
    /// Alignment in bytes.
    pub align: Option<u64>,
    /// Order of the preferred slab.
    pub order: u64,
    /// Objects in a slab of the preferred shape, at least 1.
    pub objects_per_slab: u64,
    /// Per-CPU partial list: objects.
    pub cpu_partial: Option<u64>,
    /// Empty slabs kept per node before slabs are freed.
    pub min_partial: Option<u64>,
    /// Objects per sheaf; absent before sheaves, 0 where a cache has none.
    pub sheaf_capacity: Option<u64>,
    /// All slabs.
    pub slabs: Option<u64>,
    /// Objects in all slabs.
    pub total_objects: Option<u64>,
    /// Objects handed out or parked per CPU.
    pub objects: Option<u64>,
    /// Slabs on node partial lists.
    pub partial: Option<u64>,
    /// Allocated objects in those slabs.
    pub objects_partial: Option<u64>,
    /// Slabs owned by a CPU: the current one and those on its partial list.
    pub cpu_slabs: Option<u64>,
    /// Slabs on per-CPU partial lists.
    pub slabs_cpu_partial: Option<u64>,
    /// The cache runs a constructor.
    pub has_ctor: bool,
    /// Memory is type-stable under RCU.
    pub rcu: bool,
    /// Aligned to cache lines.
    pub hwcache_align: bool,
    /// Counted as reclaimable.
    pub reclaimable: bool,
    /// Debug: red zones around objects.
    pub red_zone: bool,
    /// Debug: freed objects are filled with a pattern.
    pub poison: bool,
    /// Debug: the last users' stacks are stored.
    pub store_user: bool,
    /// Debug: consistency checks on each operation.
    pub sanity_checks: bool,
}

impl Cache {
    /// Whether any debug flag is on, which turns off the per-CPU lists and sheaves.
    #[must_use]
    pub fn is_debug(&self) -> bool {
        self.red_zone || self.poison || self.store_user || self.sanity_checks
    }
}

/// Why the directory gave no caches.
#[derive(Debug)]
pub enum Failure {
    /// Not there, or not readable; the path that was.
    Absent(String, Absent),
    /// A file is damaged.
    Malformed(Malformed),
}

/// Reads every cache, in directory order.
///
/// A cache that disappears while it is read (a module being unloaded) is left out.
///
/// # Errors
/// [`Failure::Absent`] if the directory or a property that every kernel has cannot be read,
/// [`Failure::Malformed`] if a property is not what its format promises.
pub fn read(tree: &Tree) -> Result<Vec<Cache>, Failure> {
    let names = tree
        .list(DIR)
        .map_err(|absent| Failure::Absent(DIR.into(), absent))?;
    let mut aliases: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (name, target) in &names {
        if let Some(target) = target {
            let id = target.rsplit('/').next().unwrap_or(target);
            aliases.entry(id).or_default().push(name.clone());
        }
    }
    let directories: Vec<&String> = names
        .iter()
        .filter(|(_, target)| target.is_none())
        .map(|(name, _)| name)
        .collect();
    let read: Result<Vec<Option<Cache>>, Failure> = directories
        .par_iter()
        .map(|id| {
            let known = aliases.get(id.as_str()).cloned().unwrap_or_default();
            cache(tree, id, known)
        })
        .collect();
    read.map(|caches| caches.into_iter().flatten().collect())
}

/// One cache directory being read.
struct Directory<'a> {
    tree: &'a Tree,
    path: String,
}

impl Directory<'_> {
    /// The file's text without the final newline, or `None` if the kernel has no such file.
    fn text(&self, file: &str) -> Result<Option<String>, Failure> {
        let path = format!("{}/{file}", self.path);
        match self.tree.text(&path) {
            Ok(text) => Ok(Some(text.trim_end_matches('\n').to_owned())),
            Err(Absent::Missing) => Ok(None),
            Err(absent) => Err(Failure::Absent(path, absent)),
        }
    }

    /// The leading number of `123`, `123 N0=100 N1=23` or `6(3) C0=...`.
    fn count(&self, file: &str) -> Result<Option<u64>, Failure> {
        let Some(text) = self.text(file)? else {
            return Ok(None);
        };
        let first = text.split_whitespace().next().unwrap_or("");
        self.parse(file, first.split('(').next().unwrap_or(first))
            .map(Some)
    }

    fn parse(&self, file: &str, text: &str) -> Result<u64, Failure> {
        match number(text, file, 1) {
            Ok(value) if value <= 1 << 44 => Ok(value),
            Ok(value) => Err(self.refuse(file, format!("{file} {value} is not possible"))),
            Err(error) => Err(self.refuse(file, error.what)),
        }
    }

    fn refuse(&self, file: &str, what: String) -> Failure {
        Failure::Malformed(Malformed::at(1, what).in_file(&format!("{}/{file}", self.path)))
    }

    fn flag(&self, file: &str) -> Result<bool, Failure> {
        Ok(self.count(file)?.unwrap_or(0) != 0)
    }
}

fn cache(tree: &Tree, id: &str, aliases: Vec<String>) -> Result<Option<Cache>, Failure> {
    let dir = Directory {
        tree,
        path: format!("{DIR}/{id}"),
    };
    let Some(size) = dir.count("slab_size")? else {
        return Ok(None);
    };
    let Some(object_size) = dir.count("object_size")? else {
        return Ok(None);
    };
    let Some(order) = dir.count("order")? else {
        return Ok(None);
    };
    let Some(objects_per_slab) = dir.count("objs_per_slab")? else {
        return Ok(None);
    };
    if size == 0 || object_size > size {
        let what = format!("slab_size {size} cannot hold an object of {object_size} bytes");
        return Err(dir.refuse("slab_size", what));
    }
    if order > 20 {
        return Err(dir.refuse("order", format!("order {order} is not possible")));
    }
    if objects_per_slab == 0 || objects_per_slab > 1 << 24 {
        let what = format!("objs_per_slab {objects_per_slab} is not possible");
        return Err(dir.refuse("objs_per_slab", what));
    }
    Ok(Some(Cache {
        id: id.to_owned(),
        aliases,
        object_size,
        size,
        align: dir.count("align")?,
        order,
        objects_per_slab,
        cpu_partial: dir.count("cpu_partial")?,
        min_partial: dir.count("min_partial")?,
        sheaf_capacity: dir.count("sheaf_capacity")?,
        slabs: dir.count("slabs")?,
        total_objects: dir.count("total_objects")?,
        objects: dir.count("objects")?,
        partial: dir.count("partial")?,
        objects_partial: dir.count("objects_partial")?,
        cpu_slabs: dir.count("cpu_slabs")?,
        slabs_cpu_partial: slabs_cpu_partial(&dir)?,
        has_ctor: dir
            .text("ctor")?
            .is_some_and(|text| !text.trim().is_empty()),
        rcu: dir.flag("destroy_by_rcu")?,
        hwcache_align: dir.flag("hwcache_align")?,
        reclaimable: dir.flag("reclaim_account")?,
        red_zone: dir.flag("red_zone")?,
        poison: dir.flag("poison")?,
        store_user: dir.flag("store_user")?,
        sanity_checks: dir.flag("sanity_checks")?,
    }))
}

/// Slabs from `objects(slabs) C0=...`: the number in parentheses.
fn slabs_cpu_partial(dir: &Directory<'_>) -> Result<Option<u64>, Failure> {
    let file = "slabs_cpu_partial";
    let Some(text) = dir.text(file)? else {
        return Ok(None);
    };
    let first = text.split_whitespace().next().unwrap_or("");
    match first
        .split_once('(')
        .and_then(|(_, rest)| rest.strip_suffix(')'))
    {
        Some(slabs) => dir.parse(file, slabs).map(Some),
        None => Err(dir.refuse(file, format!("{} is not objects(slabs)", quote(first)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Tree) {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join(DIR).join(":0000064");
        fs::create_dir_all(&dir).unwrap();
        for (file, text) in files {
            fs::write(dir.join(file), text).unwrap();
        }
        std::os::unix::fs::symlink(":0000064", root.path().join(DIR).join("kmalloc-64")).unwrap();
        let tree = Tree::open(root.path()).unwrap();
        (root, tree)
    }

    const GOOD: [(&str, &str); 6] = [
        ("object_size", "60\n"),
        ("slab_size", "64\n"),
        ("order", "0\n"),
        ("objs_per_slab", "64\n"),
        ("total_objects", "2304 N0=2304\n"),
        ("slabs_cpu_partial", "256(8) C0=128(4) C1=128(4)\n"),
    ];

    #[test]
    fn a_merged_cache_is_read_once_with_its_aliases_and_absent_files_stay_none() {
        let (_root, tree) = tree(&GOOD);
        let caches = read(&tree).unwrap();
        assert_eq!(caches.len(), 1);
        let cache = &caches[0];
        assert_eq!(
            (cache.id.as_str(), cache.aliases.as_slice()),
            (":0000064", &["kmalloc-64".to_owned()][..])
        );
        assert_eq!(
            (cache.object_size, cache.size, cache.total_objects),
            (60, 64, Some(2304))
        );
        assert_eq!(
            (cache.slabs_cpu_partial, cache.sheaf_capacity),
            (Some(8), None)
        );
        assert!(!cache.has_ctor);
    }

    #[test]
    fn a_damaged_property_names_its_file() {
        for (file, text, expect) in [
            ("order", "three\n", "order is \"three\""),
            ("order", "99\n", "order 99"),
            ("slab_size", "\n", "slab_size is \"\""),
            ("slab_size", "59\n", "cannot hold"),
            ("objs_per_slab", "0\n", "objs_per_slab 0"),
            ("slabs_cpu_partial", "8\n", "objects(slabs)"),
        ] {
            let (_root, tree) = tree(&GOOD.map(|(f, t)| (f, if f == file { text } else { t })));
            let Failure::Malformed(error) = read(&tree).unwrap_err() else {
                panic!("{file}")
            };
            assert_eq!(error.file, format!("{DIR}/:0000064/{file}"));
            assert!(error.what.contains(expect), "{}", error.what);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn no_property_text_makes_the_reader_panic(which in 0..GOOD.len(), text in "[ -~\\n]{0,30}|[0-9]{1,25}[()=N0-9 ]{0,9}") {
            let mut files = GOOD;
            files[which].1 = &text;
            let (_root, tree) = tree(&files);
            let _ = read(&tree);
        }
    }
}
