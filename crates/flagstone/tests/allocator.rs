//! Rust's collections, threads and processes on the global allocator.

use flagstone::{Cache, Constructed, Flagstone};
use std::alloc::{GlobalAlloc, Layout};
use std::collections::BTreeMap;

#[global_allocator]
static ALLOCATOR: Flagstone = Flagstone;

#[test]
fn collections_and_threads_work_and_the_statistics_count_them() {
    let block = vec![1u8; 10 << 20];
    assert!(flagstone::statistics().in_use >= block.len());
    let threads: Vec<_> = (0..4u64)
        .map(|t| {
            std::thread::spawn(move || {
                let map: BTreeMap<u64, String> =
                    (0..5000).map(|n| (n ^ t, format!("{n}"))).collect();
                map.values().map(String::len).sum::<usize>()
            })
        })
        .collect();
    for thread in threads {
        assert_eq!(thread.join().unwrap(), 18890);
    }
    drop(block);
}

#[test]
fn blocks_have_the_alignment_of_their_layout_and_keep_their_content_when_resized() {
    for align in [1, 16, 64, 4096, 1 << 16] {
        let layout = Layout::from_size_align(300, align).unwrap();
        // SAFETY: the layout has a size; each block is freed once, with its layout of then.
        unsafe {
            let block = ALLOCATOR.alloc_zeroed(layout);
            assert!(block.addr().is_multiple_of(align));
            assert_eq!(block.add(299).read(), 0);
            block.write_bytes(7, 300);
            let grown = ALLOCATOR.realloc(block, layout, 100_000);
            assert!(grown.addr().is_multiple_of(align));
            assert_eq!((grown.read(), grown.add(299).read()), (7, 7));
            let layout = Layout::from_size_align(100_000, align).unwrap();
            ALLOCATOR.dealloc(grown, layout);
        }
    }
}

#[test]
fn an_impossible_size_is_refused_without_ending_the_program() {
    let mut vector: Vec<u8> = Vec::new();
    assert!(vector.try_reserve(1 << 60).is_err());
}

#[test]
fn the_exported_malloc_is_the_c_librarys() {
    unsafe extern "C" {
        safe fn malloc(size: usize) -> *mut u8;
        fn free(block: *mut u8);
    }
    let before = flagstone::statistics().in_use;
    let block = malloc(32 << 20);
    let after = flagstone::statistics().in_use;
    assert!(!block.is_null() && after < before + (32 << 20));
    // SAFETY: live, and not used again.
    unsafe { free(block) };
}

#[test]
fn a_child_of_fork_allocates_while_other_threads_of_the_parent_do() {
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, Ordering};
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    std::hint::black_box(vec![0u8; 3000]);
                }
            });
        }
        for _ in 0..100 {
            use std::os::unix::process::CommandExt;
            let mut command = Command::new("true");
            // SAFETY: forks instead of spawning; the child allocates, which the heap's handlers
            // make safe.
            unsafe {
                command.pre_exec(|| {
                    let words: Vec<String> = (0..50).map(|n| n.to_string()).collect();
                    (words.len() == 50)
                        .then_some(())
                        .ok_or(std::io::ErrorKind::Other.into())
                })
            };
            assert!(command.status().unwrap().success());
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_cache_drops_its_values_on_any_thread_and_keeps_its_limit() {
    static CACHE: Cache<String> = Cache::with_limit("strings", 100);
    let objects: Vec<_> = (0..100)
        .map(|n| CACHE.alloc(n.to_string()).unwrap())
        .collect();
    assert_eq!(CACHE.alloc("more".into()).unwrap_err(), "more");
    std::thread::spawn(move || drop(objects)).join().unwrap();
    let object = CACHE.alloc("again".into()).unwrap();
    assert_eq!(flagstone::Object::into_inner(object), "again");
}

#[test]
fn what_is_prefilled_cannot_be_refused_and_bulk_is_all_or_nothing() {
    static CACHE: Cache<[u64; 5]> = Cache::with_limit("reserved", 10);
    let mut aside = CACHE.prefill::<8>().unwrap();
    assert!(CACHE.alloc_bulk([[1; 5]; 3]).is_err());
    let pair = CACHE.alloc_bulk([[1; 5]; 2]).ok().unwrap();
    assert!(CACHE.alloc([0; 5]).is_err());
    let kept: Vec<_> = (0..8).map(|n| aside.alloc([n; 5]).unwrap()).collect();
    assert!(aside.is_empty() && aside.alloc([9; 5]).is_err());
    assert_eq!(kept.iter().map(|k| k[4]).sum::<u64>() + pair[1][0], 29);
}

#[test]
fn a_constructed_object_keeps_its_state_between_owners() {
    #[derive(Clone, Copy)]
    struct Marked(u32);
    impl Default for Marked {
        fn default() -> Self {
            Self(77)
        }
    }
    let cache: Constructed<Marked> = Constructed::new("marked");
    let mut objects: Vec<_> = (0..1000).map(|_| cache.alloc().unwrap()).collect();
    assert!(objects.iter().all(|object| object.0 == 77));
    objects[500].0 = 78;
    drop(objects);
    let again: Vec<_> = (0..1000).map(|_| cache.alloc().unwrap()).collect();
    assert_eq!(again.iter().filter(|object| object.0 == 78).count(), 1);
}
