//! The load: every CPU allocates and frees blocks, objects and pages, its timer does on top of that, and
//! blocks change hands between CPUs. Twice all stop, and the invariants are looked at.
//!
//! ```text
//!   round    a block of 8 B to 40 KiB | an object of a cache with a constructor | 1 to 8 pages
//!            into a place of this CPU's table; what was there is checked and freed, or goes to the mail
//!   mail     one box for all: who puts a block in takes the one before out, and frees it
//!   tick     the same with a smaller table of the CPU's, on top of whatever was interrupted
//! ```

use crate::machine::Serial;
use crate::platform::Bare;
use crate::{HEAP, cpus};
use core::cell::UnsafeCell;
use core::fmt::Write;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering::*};
use flagstone_core::base::{CacheId, NodeId, Order, Pfn};
use flagstone_core::heap::Ready;
use flagstone_core::slab::{Cache, CacheRequest};
use flagstone_core::verify;

/// Rounds of each CPU in each of the two parts; more CPUs do fewer, because few may stand for many.
fn rounds() -> u32 {
    (60_000 / cpus::count()).clamp(2_000, 20_000)
}

/// Ticks each CPU waits for in each part: the interrupts must have had their turn.
const TICKS: u64 = 3;
const PLACES: usize = 96;
const TICK_PLACES: usize = 8;
const BOXES: usize = 64;
/// Bytes of the objects with a constructor, and what it leaves in them.
const OBJECT: usize = 608;
const MADE: u64 = 0x6d61_6465;

/// What lies in a place.
#[derive(Clone, Copy)]
enum Held {
    Nothing,
    Block(NonNull<u8>, usize),
    Object(NonNull<u8>),
    Pages(Pfn, Order),
}

#[repr(align(128))]
struct Share {
    places: UnsafeCell<[Held; PLACES]>,
    tick_places: UnsafeCell<[Held; TICK_PLACES]>,
    chance: [AtomicU64; 2],
    taken: AtomicU64,
    in_ticks: AtomicU64,
    passed_on: AtomicU64,
    refused: AtomicU64,
    ticks: AtomicU64,
}

// SAFETY: the tables are their CPU's: one the load's, one its timer's, which nothing interrupts.
unsafe impl Sync for Share {}

static SHARES: [Share; cpus::CPUS_MAX] = [const {
    Share {
        places: UnsafeCell::new([Held::Nothing; PLACES]),
        tick_places: UnsafeCell::new([Held::Nothing; TICK_PLACES]),
        chance: [const { AtomicU64::new(0) }; 2],
        taken: AtomicU64::new(0),
        in_ticks: AtomicU64::new(0),
        passed_on: AtomicU64::new(0),
        refused: AtomicU64::new(0),
        ticks: AtomicU64::new(0),
    }
}; cpus::CPUS_MAX];
static MAIL: [AtomicPtr<u8>; BOXES] = [const { AtomicPtr::new(core::ptr::null_mut()) }; BOXES];
static CACHE: AtomicU32 = AtomicU32::new(0);
static ARRIVED: AtomicU32 = AtomicU32::new(0);
static OPEN: AtomicU32 = AtomicU32::new(0);
static BAD: AtomicBool = AtomicBool::new(false);

unsafe extern "C" fn construct(object: *mut u8) {
    // SAFETY: objects have this many bytes, and their alignment.
    unsafe { object.cast::<u64>().write(MADE) };
}

fn ready() -> &'static Ready<Bare> {
    HEAP.ready_if_built().expect("built before the load")
}

fn cache() -> &'static Cache {
    ready().slabs().cache(CacheId(CACHE.load(Relaxed) as u16))
}

/// Makes the cache of objects.
pub fn prepare() {
    let mut request = CacheRequest::new("objects", OBJECT);
    request.ctor = Some(construct);
    let made = ready().slabs().create_cache(&request);
    CACHE.store(u32::from(made.expect("room for a cache").0), Relaxed);
}

fn complain(what: &str) {
    BAD.store(true, Relaxed);
    let _ = writeln!(Serial, "CPU {}: {what}", cpus::here().number);
}

impl Share {
    /// The next number of a chain (xorshift).
    fn draw(&self, chain: usize) -> u64 {
        let mut number = self.chance[chain].load(Relaxed);
        number ^= number << 13;
        number ^= number >> 7;
        number ^= number << 17;
        self.chance[chain].store(number, Relaxed);
        number
    }

    /// Something new.
    fn take(&self, draw: u64, in_tick: bool) -> Held {
        let got = match draw % 16 {
            0 if !in_tick => {
                let order = Order::new((draw >> 8) as u32 % 4).expect("a small order");
                let pages = ready().slabs().pages();
                pages.alloc_block(order, NodeId(0)).map(|block| {
                    let start = pages.address(block.pfn);
                    // SAFETY: the block is ours.
                    unsafe { start.cast::<u64>().write(!draw) };
                    Held::Pages(block.pfn, order)
                })
            }
            1..=5 => ready().alloc_object_of(cache()).map(|object| {
                // SAFETY: a live object of the cache.
                if unsafe { object.cast::<u64>().read() } != MADE {
                    complain("an object is not as its constructor left it");
                }
                Held::Object(object)
            }),
            kind => {
                let most = if kind == 6 { 40 << 10 } else { 512 };
                let size = 8 + (draw >> 16) as usize % most;
                HEAP.alloc(size).map(|block| {
                    // SAFETY: so many bytes are ours.
                    unsafe { block.write_bytes(block.addr().get() as u8 >> 3 | 1, size) };
                    Held::Block(block, size)
                })
            }
        };
        let counter = if in_tick { &self.in_ticks } else { &self.taken };
        match got {
            Some(held) => {
                counter.fetch_add(1, Relaxed);
                held
            }
            None => {
                self.refused.fetch_add(1, Relaxed);
                Held::Nothing
            }
        }
    }

    /// Checks and gives up what was held; a block may go to another CPU instead.
    fn drop(&self, held: Held, draw: u64) {
        match held {
            Held::Nothing => {}
            Held::Object(object) => {
                // SAFETY: live, of this cache, and not used again.
                unsafe { ready().free_object(cache(), object) };
            }
            Held::Pages(pfn, order) => {
                // SAFETY: a live block, not used again.
                unsafe { ready().slabs().pages().free_block(pfn, order) };
            }
            Held::Block(block, size) => {
                let wanted = block.addr().get() as u8 >> 3 | 1;
                // SAFETY: live, and so long.
                let bytes = unsafe { core::slice::from_raw_parts(block.as_ptr(), size) };
                if bytes.iter().any(|&byte| byte != wanted) {
                    complain("somebody else wrote to a block");
                }
                let mut out = block.as_ptr();
                if draw % 4 == 0 {
                    out = MAIL[(draw >> 40) as usize % BOXES].swap(out, AcqRel);
                    self.passed_on.fetch_add(1, Relaxed);
                }
                // SAFETY: whoever takes it out of a box, or keeps it out, is the one that frees it.
                unsafe { HEAP.free(out) };
            }
        }
    }

    fn round(&self) {
        let draw = self.draw(0);
        // SAFETY: only the load of this CPU uses this table.
        let place = unsafe { &mut (*self.places.get())[(draw >> 32) as usize % PLACES] };
        let old = core::mem::replace(place, Held::Nothing);
        self.drop(old, draw);
        *place = self.take(draw, false);
    }

    fn tick(&self) {
        for _ in 0..2 {
            let draw = self.draw(1);
            // SAFETY: only the timer of this CPU uses this table, and nothing interrupts it.
            let place =
                unsafe { &mut (*self.tick_places.get())[(draw >> 32) as usize % TICK_PLACES] };
            let old = core::mem::replace(place, Held::Nothing);
            self.drop(old, draw);
            *place = self.take(draw, true);
        }
        self.ticks.fetch_add(1, Relaxed);
    }

    /// Gives up all, the timer being silent.
    fn clear(&self) {
        for at in 0..PLACES {
            // SAFETY: as in `round`.
            let held = unsafe { core::mem::replace(&mut (*self.places.get())[at], Held::Nothing) };
            self.drop(held, 1);
        }
        for at in 0..TICK_PLACES {
            // SAFETY: the timer is silent.
            let held =
                unsafe { core::mem::replace(&mut (*self.tick_places.get())[at], Held::Nothing) };
            self.drop(held, 1);
        }
    }

    /// Blocks and objects held.
    fn live(&self) -> u64 {
        // SAFETY: asked while all CPUs stand still.
        let places = unsafe { (&*self.places.get(), &*self.tick_places.get()) };
        let all = places.0.iter().chain(places.1);
        all.filter(|held| matches!(held, Held::Object(_) | Held::Block(..)))
            .count() as u64
    }
}

/// The timer's part of the load.
pub fn tick() {
    SHARES[cpus::here().number as usize].tick();
}

/// All CPUs meet; the first one does `step` while the others wait, interrupts off.
fn meet(number: u32, step: impl FnOnce()) {
    let turn = OPEN.load(Acquire);
    ARRIVED.fetch_add(1, AcqRel);
    if number == 0 {
        while ARRIVED.load(Acquire) != cpus::count() {
            core::hint::spin_loop();
        }
        step();
        ARRIVED.store(0, Release);
        OPEN.store(turn + 1, Release);
    } else {
        while OPEN.load(Acquire) == turn {
            core::hint::spin_loop();
        }
    }
}

/// The load of one CPU.
pub fn run(number: u32) {
    let share = &SHARES[number as usize];
    for (chain, chance) in share.chance.iter().enumerate() {
        chance.store(
            u64::from(number * 2 + chain as u32 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15),
            Relaxed,
        );
    }
    for part in 1..=2 {
        cpus::timer(true);
        let mut done = 0;
        while done < rounds() || share.ticks.load(Relaxed) < part * TICKS {
            share.round();
            done += 1;
        }
        cpus::timer(false);
        if part == 2 {
            share.clear();
        }
        meet(number, || {
            look(if part == 1 { "under load" } else { "all freed" })
        });
    }
}

/// Checks every invariant, and that the caches' live objects are those of the tables and the mail.
fn look(when: &str) {
    let slabs = ready().slabs();
    if let Err(broken) = verify::check_heap(ready()) {
        complain("verify, heap:");
        let _ = writeln!(Serial, "{broken:?}");
    }
    if let Err(broken) = verify::check_slabs(slabs) {
        complain("verify, slabs:");
        let _ = writeln!(Serial, "{broken:?}");
    }
    if let Err(broken) = verify::check_pages(slabs.pages()) {
        complain("verify, pages:");
        let _ = writeln!(Serial, "{broken:?}");
    }
    if when == "all freed" {
        for parcel in &MAIL {
            // SAFETY: a live block in nobody else's hands, or null.
            unsafe { HEAP.free(parcel.swap(core::ptr::null_mut(), AcqRel)) };
        }
    }
    let all = SHARES.iter().take(cpus::count() as usize);
    let held: u64 = all.map(Share::live).sum();
    let mail = MAIL
        .iter()
        .filter(|parcel| !parcel.load(Acquire).is_null())
        .count() as u64;
    let caches = slabs
        .live_caches()
        .filter(|cache| cache.name().starts_with("malloc") || cache.name() == "objects");
    let live: u64 = caches
        .map(|cache| verify::live_objects(slabs, cache).unwrap_or(u64::MAX / 1024))
        .sum();
    // Blocks beyond the largest class are pages, no objects of a cache.
    let large = held + mail - live.min(held + mail);
    let _ = writeln!(Serial, "{when}: {live} objects live, {large} large blocks");
    if live > held + mail || large > (held + mail) / 8 + 8 {
        complain("more or fewer objects live than the load holds");
    }
}

/// The table, and the last line; whether all is well.
pub fn judge() -> bool {
    let _ = writeln!(
        Serial,
        "CPU  allocated  in ticks  ticks  passed on  refused"
    );
    let mut sums = [0_u64; 5];
    for number in 0..cpus::count() {
        let share = &SHARES[number as usize];
        let row = [
            &share.taken,
            &share.in_ticks,
            &share.ticks,
            &share.passed_on,
            &share.refused,
        ];
        let row = row.map(|counter| counter.load(Relaxed));
        let [taken, in_ticks, ticks, passed, refused] = row;
        let _ = writeln!(
            Serial,
            "{number:3}  {taken:9}  {in_ticks:8}  {ticks:5}  {passed:9}  {refused:7}"
        );
        for (sum, one) in sums.iter_mut().zip(row) {
            *sum += one;
        }
    }
    let [taken, in_ticks, ticks, passed, _] = sums;
    let busy = taken > 0 && in_ticks > 0 && passed > 0;
    let good = busy && !BAD.load(Relaxed);
    let verdict = if good { "verify: ok" } else { "verify: NOT ok" };
    let _ = writeln!(
        Serial,
        "{} CPUs, {taken} allocations, {in_ticks} more in {ticks} ticks, {passed} passed on; {verdict}",
        cpus::count()
    );
    good
}
