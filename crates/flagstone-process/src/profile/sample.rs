//! One sample: whether it is taken, what it weighs, and where it is entered.

use super::area::{Area, area};
use super::live::{self, Taken};
use super::{marks, number, probes, stacks, switch, unwind};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use flagstone_linux::countdown;

/// Most frames of a stack. Doubling it makes a sample of deep recursion cost twice as much, and 1.6 KiB more of the
/// stack that it is taken on.
const FRAMES: usize = 200;

/// State of the generator that intervals are drawn from, shared: one draw in half a megabyte.
static RANDOM: AtomicU64 = AtomicU64::new(0);

/// Makes intervals those of this process.
pub fn seed(seed: u64) {
    RANDOM.store(seed, Relaxed);
}

fn draw() -> u64 {
    let state = RANDOM.fetch_add(0x9E37_79B9_7F4A_7C15, Relaxed);
    number::exponential(switch::mean(), number::mix(state))
}

/// Whether an allocation that the countdown found due is a sample, and the next countdown.
pub fn is_taken(size: usize) -> bool {
    let size = size as u64;
    let next = draw();
    // A thread's first one: its countdown begins here.
    if countdown::before(size) == 0 && next > size {
        countdown::set(next - size);
        return false;
    }
    countdown::set(draw());
    true
}

/// What one sample of `size` bytes stands for: objects in parts, and bytes.
fn weight(area: &Area, size: u64) -> (u64, u64) {
    let mean = area.head.mean.load(Relaxed).max(1) as f64;
    let size = size.max(1) as f64;
    let taken = number::taken(size / mean);
    ((stacks::PARTS / taken) as u64, (size / taken) as u64)
}

/// Enters a sampled block.
#[inline(never)]
pub fn note(block: NonNull<u8>, size: usize) {
    let Some(area) = area() else { return };
    switch::rebase(area);
    let mut frames = [0; FRAMES];
    let (depth, cut) = unwind::walk(area, &mut frames);
    let stack = stacks::number_of(area, &frames[..depth]);
    let size = size as u64;
    let (objects, bytes) = weight(area, size);
    let head = &area.head;
    head.samples.fetch_add(1, Relaxed);
    if cut {
        head.cut_stacks.fetch_add(1, Relaxed);
    }
    area.stacks.entries[stack as usize].add(objects, bytes);
    head.allocated.fetch_add(bytes, Relaxed);
    if live::put(area, block, Taken::now(size, stack)) {
        let live = head.live.fetch_add(bytes, Relaxed) + bytes;
        if live > head.live_peak.load(Relaxed) {
            head.live_peak.fetch_max(live, Relaxed);
        }
    } else {
        head.lost_live.fetch_add(1, Relaxed);
        area.stacks.entries[stack as usize].subtract(objects, bytes);
    }
    marks::look(area);
    probes::alloc(block.as_ptr(), size, bytes);
}

/// A block is no more, or is another now, of which the table knew this.
pub fn gone(block: NonNull<u8>, before: Option<Taken>) {
    let (Some(before), Some(area)) = (before, area()) else {
        return;
    };
    probes::free(block.as_ptr());
    if before.is_inherited() {
        return;
    }
    let (objects, bytes) = weight(area, before.size);
    area.stacks.entries[before.stack as usize].subtract(objects, bytes);
    area.head.live.fetch_sub(bytes, Relaxed);
    marks::look(area);
}
