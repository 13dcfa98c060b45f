//! Taking sheaves out of the slots of any CPUs: `Platform::seize` in both forms.
//!
//! Under sequences, step by step:
//!
//! 1. close all indexes, and fence: no `exchange` happens any more, so each slot keeps its sheaf or
//!    none; `pop` and `push` go on. (A caller whose exchange is refused keeps its sheaf in hand and
//!    finds another place for it.)
//! 2. swap each word to absent, and fence. A `pop` or `push` that starts after the swap finds no
//!    sheaf. One that read the old word before has committed or will restart and read the new
//!    one; a preempted one restarts before its next instruction.
//! 3. what committed after the swap put its word over ours: the sheaf is back in its slot, one
//!    object more or less. So swap again, until a fence has passed and nothing came back.
//! 4. open the indexes, hand out: nobody but the caller knows the sheaves any more.
//!
//! So two fences are enough for all CPUs, if no step lies across its swap. What was taken is noted on the
//! stack, or in memory mapped for the time where that is too small.
//!
//! Without the fence (Linux before 5.10, or beside a filter, [`crate::filter`]) nothing of another CPU may
//! be handed out, so nothing is swapped; the caller's own CPU gives up its sheaves by `exchange`.

use crate::slots::{fast, locked_on};
use crate::{filter, membarrier, memory, rseq, seizing};
use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::Ordering;
use flagstone_core::base::CpuId;
use flagstone_core::platform::percpu::each_slot;
use flagstone_core::platform::{CpuArea, MAX_CACHES, SheafWord, Slot};

/// A sheaf that was in a slot.
#[derive(Clone, Copy)]
struct Taken {
    cpu: CpuId,
    slot: Slot,
    word: SheafWord,
}

impl Taken {
    const NONE: Self = Self {
        cpu: CpuId(0),
        slot: Slot::main(0),
        word: SheafWord::ABSENT,
    };
}

/// Sheaves that are noted on the stack: 4 KiB. Two CPUs with sixty caches each have that many at most.
const NEAR: usize = 256;

const _: () = assert!(
    size_of::<[Taken; NEAR]>() <= 4096,
    "threads have small stacks"
);

/// Rounds of swapping before what comes back in every one of them is given up. Each round too many
/// takes a step that lay across its swap; three in a row were never seen.
const ROUNDS: u32 = 100;

/// `Platform::seize` in either form.
///
/// # Safety
/// 1. As for `Platform::seize`.
pub unsafe fn seize(
    area: CpuArea,
    cpus: Range<u32>,
    caches: Range<u32>,
    take: &mut dyn FnMut(Slot, SheafWord),
) {
    if fast() {
        // SAFETY: obligation 1.
        unsafe { seize_fenced(area, cpus, caches, take) }
    } else {
        // SAFETY: obligation 1.
        unsafe { seize_locked(area, cpus, caches, take) }
    }
}

/// `Platform::seize` beside restartable sequences; hands out nothing without the kernel's fence.
///
/// # Safety
/// 1. As for `Platform::seize`.
pub unsafe fn seize_fenced(
    area: CpuArea,
    cpus: Range<u32>,
    caches: Range<u32>,
    take: &mut dyn FnMut(Slot, SheafWord),
) {
    // SAFETY: obligation 1.
    let there = unsafe { note(area, cpus.clone(), caches.clone(), &mut []) };
    if there == 0 {
        return;
    }
    if filter::permit().is_none() || !membarrier::ready() {
        if cpus.contains(&rseq::index()) {
            // SAFETY: obligation 1; sequences are ready.
            unsafe { take_own(area, caches, take) };
        }
        return;
    }
    if !seizing::begin() {
        return;
    }
    let mut near = [Taken::NONE; NEAR];
    let mut far = if there > NEAR { Far::new(there) } else { None };
    let room = far.as_mut().map_or(&mut near[..], Far::room);
    loop {
        // SAFETY: obligation 1.
        let taken = unsafe { take_settled(area, cpus.clone(), caches.clone(), room) };
        hand_out(&room[..taken], take);
        if taken < room.len() {
            break;
        }
    }
    seizing::end();
}

/// What the caller's own CPU has of `caches`, without a fence: by steps that belong to this CPU. Where the
/// caller moves on meanwhile, the rest is another CPU's.
///
/// # Safety
/// 1. As for `Platform::seize`.
/// 2. Sequences are ready.
unsafe fn take_own(area: CpuArea, caches: Range<u32>, take: &mut dyn FnMut(Slot, SheafWord)) {
    for (_, slot) in each_slot(0..1, caches) {
        // SAFETY: obligations 1 and 2.
        let word = unsafe { rseq::exchange(area, slot, SheafWord::ABSENT) };
        if !word.is_absent() {
            take(slot, word);
        }
    }
}

/// Steps 1 to 3, as far as `room` goes; how many places were noted there. What does not settle is
/// lost, which is the safe side; then and without a fence it is none.
///
/// # Safety
/// 1. As for `Platform::seize`.
unsafe fn take_settled(
    area: CpuArea,
    cpus: Range<u32>,
    caches: Range<u32>,
    room: &mut [Taken],
) -> usize {
    let Some(_permit) = filter::permit() else {
        return 0;
    };
    rseq::close();
    let mut noted = 0;
    let mut settled = false;
    for round in 0..ROUNDS {
        if !membarrier::fence() {
            break;
        }
        if round == 0 {
            // SAFETY: obligation 1.
            let there = unsafe { note(area, cpus.clone(), caches.clone(), room) };
            noted = there.min(room.len());
        }
        // SAFETY: obligation 1.
        if !unsafe { swap_out(area, &mut room[..noted]) } {
            settled = true;
            break;
        }
    }
    rseq::open();
    if settled { noted } else { 0 }
}

/// Notes the places that have a sheaf, as far as `room` goes; answers how many there are. Only reads, so
/// that looking at an untouched CPU costs no memory.
///
/// # Safety
/// 1. As for `Platform::seize`.
#[inline(never)]
unsafe fn note(area: CpuArea, cpus: Range<u32>, caches: Range<u32>, room: &mut [Taken]) -> usize {
    let mut there = 0;
    for cpu in cpus.map(CpuId) {
        for first in [0, MAX_CACHES as u32] {
            for slot in (first + caches.start..first + caches.end).map(Slot::from_index) {
                // SAFETY: obligation 1.
                if unsafe { area.word(cpu, slot) }.load(Ordering::Relaxed) == 0 {
                    continue;
                }
                if let Some(place) = room.get_mut(there) {
                    let word = SheafWord::ABSENT;
                    *place = Taken { cpu, slot, word };
                }
                there += 1;
            }
        }
    }
    there
}

/// Swaps the words of `places` with absent; whether any was there.
///
/// # Safety
/// 1. As for `Platform::seize`.
#[inline(never)]
unsafe fn swap_out(area: CpuArea, places: &mut [Taken]) -> bool {
    let mut any = false;
    for place in places {
        // SAFETY: obligation 1.
        let word = unsafe { area.word(place.cpu, place.slot) };
        if word.load(Ordering::Relaxed) != 0 {
            let old = SheafWord(word.swap(0, Ordering::AcqRel));
            if !old.is_absent() {
                place.word = old;
                any = true;
            }
        }
    }
    any
}

/// `Platform::seize` beside the locked form.
///
/// # Safety
/// 1. As for `Platform::seize`.
pub unsafe fn seize_locked(
    area: CpuArea,
    cpus: Range<u32>,
    caches: Range<u32>,
    take: &mut dyn FnMut(Slot, SheafWord),
) {
    if !seizing::begin() {
        return;
    }
    let mut room = [Taken::NONE; NEAR];
    for cpu in cpus {
        loop {
            let noted = locked_on(CpuId(cpu), |cpu| {
                // SAFETY: obligation 1; the CPU's lock is held.
                unsafe {
                    let there = note(area, cpu.0..cpu.0 + 1, caches.clone(), &mut room);
                    let noted = there.min(room.len());
                    swap_out(area, &mut room[..noted]);
                    noted
                }
            });
            let noted = noted.unwrap_or(0);
            hand_out(&room[..noted], take);
            if noted < room.len() {
                break;
            }
        }
    }
    seizing::end();
}

#[inline(never)]
fn hand_out(taken: &[Taken], take: &mut dyn FnMut(Slot, SheafWord)) {
    for one in taken.iter().filter(|one| !one.word.is_absent()) {
        take(one.slot, one.word);
    }
}

/// Memory for notes that the stack has no room for, given back when dropped.
struct Far {
    start: NonNull<Taken>,
    len: usize,
}

impl Far {
    /// Room for `there` notes and an eighth more, for sheaves that come meanwhile.
    fn new(there: usize) -> Option<Self> {
        let len = there + there / 8;
        let start = memory::map_usable(Self::bytes(len))?.cast();
        Some(Self { start, len })
    }

    fn bytes(len: usize) -> usize {
        (len * size_of::<Taken>()).next_multiple_of(memory::page_size().bytes())
    }

    fn room(&mut self) -> &mut [Taken] {
        // SAFETY: mapped by `new`, and zeroes are `Taken::NONE`; borrowed with `self`.
        unsafe { core::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`; the notes are plain values.
        unsafe { memory::release(self.start.cast(), Self::bytes(self.len)) };
    }
}
