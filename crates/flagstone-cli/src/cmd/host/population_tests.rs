use super::*;
use proptest::prelude::*;

fn row(
    name: &str,
    active: u64,
    objects: u64,
    size: u64,
    per: u64,
    pages: u64,
    slabs: u64,
) -> slabinfo::Row {
    slabinfo::Row {
        name: name.into(),
        line: 7,
        active_objects: active,
        objects,
        size,
        objects_per_slab: per,
        pages_per_slab: pages,
        slabs,
    }
}

fn layout(id: &str, aliases: &[&str], object_size: u64, size: u64) -> sys_slab::Cache {
    sys_slab::Cache {
        id: id.into(),
        aliases: aliases.iter().map(|&name| name.to_owned()).collect(),
        object_size,
        size,
        order: 0,
        objects_per_slab: 4096 / size,
        ..sys_slab::Cache::default()
    }
}

#[test]
fn the_parts_of_a_ledger_are_the_published_ones() {
    let rows = vec![row("skb", 100, 105, 192, 21, 1, 5)];
    let cache = merge(rows, vec![layout("skb", &[], 180, 192)], PageSize::K4)
        .unwrap()
        .remove(0);
    let expected = Ledger {
        total: 5 * 4096,
        live: 100 * 180,
        alignment: 100 * 12,
        free: 5 * 192,
        tail: 5 * 64,
    };
    assert_eq!(cache.ledger(PageSize::K4), expected);
}

#[test]
fn a_merged_cache_takes_the_name_slabinfo_shows_and_keeps_the_others() {
    let rows = vec![row("kmalloc-64", 1, 64, 64, 64, 1, 1)];
    let layouts = vec![layout(
        ":0000064",
        &["fs_cache", "kmalloc-64", "pid"],
        64,
        64,
    )];
    let cache = merge(rows, layouts.clone(), PageSize::K4)
        .unwrap()
        .remove(0);
    assert_eq!(cache.name, "kmalloc-64");
    assert_eq!(cache.aliases, ["fs_cache", "pid"]);
    // Without slabinfo the first link names it.
    let cache = merge(Vec::new(), layouts, PageSize::K4).unwrap().remove(0);
    assert_eq!((cache.name.as_str(), cache.aliases.len()), ("fs_cache", 2));
}

#[test]
fn slabs_of_the_fallback_shape_are_counted_at_their_own_size() {
    // Order 3 holds 16 objects of 2048 bytes; the fallback is one page with two of them.
    let cache = merge(
        vec![row("c", 52, 52, 2048, 16, 8, 5)],
        Vec::new(),
        PageSize::K4,
    )
    .unwrap()
    .remove(0);
    assert_eq!(cache.fallback_slabs(PageSize::K4), 2);
    assert_eq!(cache.total_bytes(PageSize::K4), 3 * 32768 + 2 * 4096);
    assert_eq!(cache.ledger(PageSize::K4).tail, 0);
}

#[test]
fn the_page_size_follows_from_the_shapes() {
    let rows = [
        row("mm_struct", 1, 42, 1536, 42, 1, 1),
        row("x", 1, 1, 40960, 1, 1, 1),
    ];
    assert_eq!(page_size(&rows, &[]), Some(PageSize::K64));
    assert_eq!(
        page_size(&[], &[layout("a", &[], 60, 64)]),
        Some(PageSize::K4)
    );
    assert_eq!(page_size(&[], &[]), None);
}

#[test]
fn objects_that_do_not_fit_their_slab_name_the_line() {
    let error = merge(
        vec![row("c", 1, 30, 192, 30, 1, 1)],
        Vec::new(),
        PageSize::K4,
    )
    .unwrap_err();
    assert_eq!((error.file.as_str(), error.line), ("proc/slabinfo", 7));
}

proptest! {
    #[test]
    fn the_parts_always_add_up_to_the_whole(
        active in 0u64..1 << 44, objects in 0u64..1 << 44, slabs in 0u64..1 << 44,
        size in 1u64..70000, order in 0u32..11, object_size in 0u64..70000
    ) {
        let per = ((4096u64 << order) / size).max(1);
        let mut sys = layout("c", &[], object_size.min(size), size);
        sys.objects_per_slab = per;
        let caches = merge(vec![row("c", active, objects, size, per, 1 << order, slabs)], vec![sys], PageSize::K4);
        if let Ok(caches) = caches {
            let l = caches[0].ledger(PageSize::K4);
            prop_assert_eq!(l.live + l.alignment + l.free + l.tail, l.total);
        }
    }
}
