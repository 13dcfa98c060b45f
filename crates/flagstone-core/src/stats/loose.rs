//! What the memmap does not tell: objects in sheaves and barns, huge blocks, the heap's own data.

use super::cached::Cached;
use super::counts::CacheSurvey;
use super::ledger::{Ledger, Line};
use super::residency::{PageBits, Residency};
use crate::base::{CpuId, PageCount};
use crate::heap::Ready;
use crate::platform::{
    CpuArea, MAX_CACHES, SHEAF_FRAME_BYTES, SHEAF_HEADER_BYTES, SheafWord, Slot,
};
use crate::slab::{Cache, CpuHeld, Engines, Part, SHEAF_BYTES_MAX, SHEAF_CACHES, Slabs};
use crate::sync::{
    AtomicPtr,
    Ordering::{Acquire, Relaxed},
};
use core::ptr::NonNull;

/// Counts the objects that lie in sheaves of CPUs and in barns, by cache and by slab.
pub(super) fn objects<P: Engines>(
    slabs: &Slabs<P>,
    bits: &PageBits<P>,
    cached: &mut Cached<P>,
    caches: &mut [CacheSurvey; MAX_CACHES],
) {
    for cache in slabs
        .live_caches()
        .filter(|c| c.id().index() > SHEAF_CACHES)
    {
        let id = cache.id().index();
        let found = &mut caches[id];
        // What the other engines keep for CPUs counts as sheaves.
        found.in_sheaves = in_hands(slabs, cache);
        found.sheaf_bytes = found.in_sheaves * cache.geometry().size() as u64;
        each_in_sheaves(slabs, cache, &mut |object| {
            cached.note(slabs.pages(), object);
            found.in_sheaves += 1;
            found.sheaf_bytes += resident_bytes(slabs, bits, cache, object);
        });
        each_in_barns(slabs, cache, &mut |object| {
            cached.note(slabs.pages(), object);
            found.in_barns += 1;
            found.barn_bytes += resident_bytes(slabs, bits, cache, object);
        });
    }
}

/// Free objects of `cache` that left their slabs, whatever its engine keeps them in.
pub(super) fn count_out_and_free<P: Engines>(slabs: &Slabs<P>, cache: &Cache) -> u64 {
    let mut objects = in_hands(slabs, cache);
    each_in_sheaves(slabs, cache, &mut |_| objects += 1);
    each_in_barns(slabs, cache, &mut |_| objects += 1);
    objects
}

/// Free objects that CPUs keep outside slabs and sheaves.
fn in_hands<P: Engines>(slabs: &Slabs<P>, cache: &Cache) -> u64 {
    let held = CpuHeld::of(slabs, cache);
    held.private_objects + held.deferred_objects
}

/// Visits the objects in the sheaves of CPUs.
fn each_in_sheaves<P: Engines>(
    slabs: &Slabs<P>,
    cache: &Cache,
    visit: &mut dyn FnMut(NonNull<u8>),
) {
    let id = cache.id().index();
    for cpu in 0..P::cpu_count() {
        for slot in [Slot::main(id), Slot::spare(id)] {
            each_in_slot(slabs, CpuId(cpu), slot, visit);
        }
    }
}

/// Visits the objects in barns.
fn each_in_barns<P: Engines>(slabs: &Slabs<P>, cache: &Cache, visit: &mut dyn FnMut(NonNull<u8>)) {
    Part::all(slabs, cache).for_each(|part| part.node.barn.each_object::<P>(visit));
}

/// Visits the objects of the sheaf in a CPU's slot, while the CPU may be using it.
fn each_in_slot<P: Engines>(
    slabs: &Slabs<P>,
    cpu: CpuId,
    slot: Slot,
    visit: &mut dyn FnMut(NonNull<u8>),
) {
    // SAFETY: the CPU exists.
    let word = SheafWord(unsafe { slabs.area().word(cpu, slot) }.load(Acquire));
    if word.is_absent() {
        return;
    }
    let entry = slabs.area().entry(word);
    let Some((sheaf, room)) = sheaf_around(slabs, entry) else {
        return;
    };
    let into = entry.addr().get() - sheaf.addr().get();
    let len = (into.saturating_sub(SHEAF_HEADER_BYTES) / size_of::<usize>()).min(room);
    for index in 0..len {
        // SAFETY: slots up to `room` lie inside the object that holds the sheaf, in a page of
        // the heap, which stays readable whatever becomes of the sheaf.
        let cell = unsafe {
            sheaf
                .byte_add(SHEAF_HEADER_BYTES)
                .cast::<AtomicPtr<u8>>()
                .add(index)
                .as_ref()
        };
        if let Some(object) = NonNull::new(cell.load(Relaxed)) {
            visit(object);
        }
    }
}

/// Where the sheaf with this entry starts and how many slots its memory has, if the entry does
/// lie in a slab of sheaves. A sheaf starts at a multiple of its memory.
fn sheaf_around<P: Engines>(
    slabs: &Slabs<P>,
    entry: NonNull<*mut u8>,
) -> Option<(NonNull<u8>, usize)> {
    let pfn = slabs.pages().pfn_of(entry.as_ptr().cast())?;
    let cache = slabs.cache_of_page(pfn)?;
    let bytes = cache.geometry().size();
    if cache.id().index() > SHEAF_CACHES || bytes > SHEAF_BYTES_MAX {
        return None;
    }
    let into = entry.addr().get() & (bytes - 1);
    // SAFETY: objects of these caches lie at multiples of their size, which is a power of two.
    let sheaf = unsafe { entry.cast::<u8>().byte_sub(into) };
    Some((sheaf, (bytes - SHEAF_FRAME_BYTES) / size_of::<usize>()))
}

/// Resident bytes of an object of `cache` at an address that may be stale.
fn resident_bytes<P: Engines>(
    slabs: &Slabs<P>,
    bits: &PageBits<P>,
    cache: &Cache,
    object: NonNull<u8>,
) -> u64 {
    let Some(pfn) = slabs.pages().pfn_of(object.as_ptr()) else {
        return 0;
    };
    let offset = object.addr().get() & (P::page_size().bytes() - 1);
    bits.bytes_in(pfn, offset, cache.geometry().size()) as u64
}

/// Counts the heap's own data outside its pages: descriptors, maps, zones.
pub(super) fn own<P: Engines>(
    slabs: &Slabs<P>,
    residency: &mut dyn Residency,
    ledger: &mut Ledger,
) {
    let page_size = P::page_size();
    let mut count = |start: NonNull<u8>, bytes: usize| {
        let pages = page_size.pages_for(bytes);
        PageCount(residency.count(start, pages)).bytes(page_size) as u64
    };
    let mut memmap = 0;
    slabs
        .pages()
        .each_memmap_part(|start, bytes| memmap += count(start, bytes));
    ledger.add(Line::Memmap, memmap);
    let (control, bytes) = slabs.pages().control_part();
    ledger.add(Line::Own, count(control, bytes));
    // With very many CPUs the slots lie in a reservation of their own.
    let area = slabs.area().base();
    if slabs.pages().pfn_of(area.as_ptr()).is_none() {
        ledger.add(Line::Own, count(area, CpuArea::bytes_for(P::cpu_count())));
    }
}

/// Counts huge blocks and their table.
pub(super) fn huge<P: Engines>(
    heap: &Ready<P>,
    residency: &mut dyn Residency,
    ledger: &mut Ledger,
) {
    let page_size = P::page_size();
    heap.each_huge(|block| {
        let Some(start) = NonNull::new(block.address as *mut u8) else {
            return;
        };
        let (mut asked, mut resident) = (0, 0);
        let pages = page_size.pages_for(block.bytes);
        residency.resident_runs(start, pages, &mut |first, run| {
            let (from, to) = (first * page_size.bytes(), (first + run) * page_size.bytes());
            resident += to - from;
            asked += block.requested.clamp(from, to) - from;
        });
        ledger.add(Line::Huge, asked as u64);
        ledger.add(Line::HugeRounding, (resident - asked) as u64);
        ledger.untouched += (block.bytes - resident.min(block.bytes)) as u64;
    });
    heap.each_kept(|block| {
        if let Some(start) = NonNull::new(block.address as *mut u8) {
            let resident = residency.count(start, page_size.pages_for(block.bytes));
            let resident = PageCount(resident).bytes(page_size) as u64;
            ledger.add(Line::FreePages, resident);
            ledger.released += block.bytes as u64 - resident;
        }
    });
    if let Some((start, bytes)) = heap.huge_table_memory() {
        let pages = page_size.pages_for(bytes);
        let resident = PageCount(residency.count(start, pages)).bytes(page_size);
        ledger.add(Line::Own, resident as u64);
    }
}

/// Visits the parts of `start..start + bytes` that are the heap's, as start and bytes: parts of
/// its reservation, of its huge blocks, and of their table.
pub fn each_owned_part<P: Engines>(
    heap: &Ready<P>,
    start: usize,
    bytes: usize,
    visit: &mut dyn FnMut(usize, usize),
) {
    let end = start + bytes;
    let mut part = |from: usize, to: usize| {
        let (from, to) = (from.max(start), to.min(end));
        if from < to {
            visit(from, to - from);
        }
    };
    heap.slabs().pages().each_reserved_part(&mut part);
    if let Some((table, bytes)) = heap.huge_table_memory() {
        part(table.addr().get(), table.addr().get() + bytes);
    }
    heap.each_huge(|block| part(block.address, block.address + block.bytes));
    heap.each_kept(|block| part(block.address, block.address + block.bytes));
}
