//! Slabs of a made-up kernel: what is inferred, and where it is put.

use super::*;

/// Pages between an object's page and its page frame: a direct map at 0xffff_8880_0000_0000.
const APART: u64 = 0x000f_fff8_8800_0000;

const CPU: [StreamId; 2] = [
    StreamId {
        process: 0,
        image: 0,
        stream: 1,
    },
    StreamId {
        process: 0,
        image: 0,
        stream: 2,
    },
];

/// Two objects of 2048 bytes to a slab of a page.
const SHAPE: Shape = Shape {
    object_size: 2048,
    objects: 2,
    pages: 1,
    levels: None,
};

/// Object `at` of page frame `pfn`.
fn object(pfn: u64, at: u64) -> u64 {
    ((APART + pfn) << PAGE_SHIFT) + at * 2048
}

#[test]
fn the_offset_is_found_by_votes_and_not_among_hashed_addresses() {
    let mut offset = Offset::default();
    for pfn in [7, 90, 0x4_1000] {
        offset.pages(0, pfn, 1);
        offset.object(0, object(pfn + 1, 1));
        offset.object(1, object(3, 0));
    }
    assert_eq!(offset.found(), Some(APART));
    let mut hashed = Offset::default();
    let mut address = 0x1234_5678_9abc_u64;
    for pfn in 0..10_000 {
        address = address.wrapping_mul(6_364_136_223_846_793_005) | 1;
        hashed.pages(0, pfn * 8, 0);
        hashed.object(0, address >> 16);
    }
    assert_eq!(hashed.found(), None);
}

#[test]
fn a_page_that_is_given_back_frees_what_lives_on_it() {
    let mut slabs = Slabs::new(Some(APART));
    slabs.pages(10, CPU[0], 5, 0, false);
    slabs.alloc(20, CPU[0], object(5, 0), 1);
    slabs.alloc(30, CPU[0], object(5, 1), 1);
    slabs.free(40, CPU[0], object(5, 1), 1);
    slabs.pages(120, CPU[1], 5, 0, true);
    let found = slabs.finish(&[SHAPE]);
    let free = Insert {
        ns: 70,
        stream: CPU[1],
        event: Event::Free {
            address: object(5, 0),
        },
    };
    assert_eq!(found.inserts, [free], "in the middle between 20 and 120");
    assert_eq!((found.counts.emptied, found.counts.reused), (1, 0));
    assert!(found.start.is_empty(), "the slab is the trace's own");
}

#[test]
fn an_address_that_is_allocated_again_was_freed_half_way() {
    let mut slabs = Slabs::new(None);
    slabs.alloc(20, CPU[0], object(5, 0), 1);
    slabs.alloc(40, CPU[1], object(5, 0), 1);
    let found = slabs.finish(&[Shape::default()]);
    assert_eq!((found.inserts[0].ns, found.inserts.len()), (30, 1));
    assert_eq!(found.counts.reused, 1);
}

#[test]
fn what_a_slab_of_the_trace_frees_unasked_was_allocated_in_bulk() {
    let mut slabs = Slabs::new(Some(APART));
    slabs.pages(10, CPU[0], 5, 0, false);
    slabs.alloc(20, CPU[0], object(5, 0), 1);
    slabs.free(30, CPU[0], object(5, 1), 0);
    let found = slabs.finish(&[SHAPE]);
    let Event::Alloc { address, request } = found.inserts[0].event else {
        panic!("an allocation");
    };
    assert_eq!((address, request.site), (object(5, 1), 1));
    assert_eq!((found.inserts[0].ns, found.counts.bulk), (29, 1));
}

#[test]
fn frames_times_and_shapes_that_lie_do_no_harm() {
    let mut slabs = Slabs::new(Some(APART));
    for pfn in [
        0,
        u64::MAX,
        u64::MAX >> PAGE_SHIFT,
        (u64::MAX >> PAGE_SHIFT) - APART,
    ] {
        for order in [0, 10, 255] {
            slabs.pages(u64::MAX, CPU[0], pfn, order, false);
            slabs.pages(u64::MAX, CPU[0], pfn, order, true);
        }
        slabs.alloc(u64::MAX, CPU[0], u64::MAX - 4096, 1);
        slabs.alloc(u64::MAX, CPU[0], u64::MAX - 4096, 1);
    }
    slabs.free(0, CPU[0], object(3, 0), 1);
    let lies = Shape {
        object_size: u64::MAX,
        objects: u32::MAX,
        pages: u32::MAX,
        levels: Some((
            Level {
                active: u64::MAX,
                objects: u64::MAX,
                slabs: 0,
            },
            Level::default(),
        )),
    };
    let found = slabs.finish(&[lies]);
    assert!(found.start.iter().all(|slab| slab.objects.len() <= 2));
    let mut slabs = Slabs::new(None);
    slabs.free(0, CPU[0], object(3, 0), 1);
    let large = Shape { objects: 9, ..lies };
    assert_eq!(slabs.finish(&[large]).start[0].objects.len(), 9);
}

#[test]
fn frees_that_only_slabinfo_shows_are_spread_over_what_lives() {
    let mut slabs = Slabs::new(Some(APART));
    for pfn in 0..10 {
        slabs.pages(pfn * 10, CPU[0], pfn, 0, false);
        slabs.alloc(pfn * 10 + 1, CPU[0], object(pfn, 0), 1);
        slabs.alloc(pfn * 10 + 2, CPU[1], object(pfn, 1), 1);
    }
    slabs.free(1000, CPU[0], object(9, 0), 1);
    // Of three slabs that no event tells of four objects are in use: with nineteen of the trace there are 23.
    let level = |active, objects| Level {
        active,
        objects,
        slabs: objects / 2,
    };
    let shape = Shape {
        levels: Some((level(4, 6), level(18, 26))),
        ..SHAPE
    };
    let found = slabs.finish(&[shape]);
    assert_eq!((found.counts.excess, found.inserts.len()), (5, 5));
    assert!(found.inserts.is_sorted_by_key(|insert| insert.ns));
    let first = found.inserts[0];
    assert_eq!(
        (first.event, first.stream),
        (
            Event::Free {
                address: object(0, 0)
            },
            CPU[0]
        )
    );
    assert_eq!(first.ns, u64::midpoint(1, 1000));
}

#[test]
fn older_slabs_are_made_whole_with_what_was_free_on_them() {
    let mut slabs = Slabs::new(Some(APART));
    // Page 8: used, and free; CPU 1 goes on with page 9, whose second object no event tells of.
    slabs.alloc(10, CPU[1], object(8, 1), 1);
    slabs.free(20, CPU[0], object(8, 0), 0);
    slabs.alloc(30, CPU[1], object(9, 0), 1);
    // Page 7: given back, so its second object was free.
    slabs.free(40, CPU[0], object(7, 0), 1);
    slabs.pages(50, CPU[0], 7, 0, true);
    let found = slabs.finish(&[SHAPE]);
    let told: Vec<_> = found
        .start
        .iter()
        .map(|slab| (slab.stream, slab.objects.len(), slab.free.clone()))
        .collect();
    let expected = [
        (CPU[0], 2, vec![object(7, 1)]),
        (CPU[1], 2, vec![object(9, 0), object(9, 1)]),
        (CPU[1], 2, vec![object(8, 1)]),
    ];
    assert_eq!(told, expected, "what is used first is made last");
    assert!(found.inserts.is_empty());
}
