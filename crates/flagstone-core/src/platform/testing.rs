//! A world for tests: memory from the heap, chosen CPUs, a clock moved by hand, refusals.
//!
//! ```text
//!   World ── Arc ──► one per test; a thread enters it and says which CPU it is on
//!     reservations   heap memory with one state per page: reserved, committed
//!     budget         bytes that may be committed at once
//!     refusals       the n-th commit from now fails, or the n-th call for memory of any kind
//! ```
//!
//! Memory that is not committed holds [`POISON`]; committing zeroes it, decommitting zeroes it
//! again, so that reading what was given back is seen as lost contents.
//!
//! Feature `testing`; the only part of the crate that uses `std`.

use super::percpu::{each_slot, exchange_owned, pop_owned, push_owned};
use super::{
    CpuArea, Fault, Held, LockKind, NotMapped, OutOfMemory, Platform, RawLock, SheafWord,
    SheavesOnly, Slot,
};
use crate::base::{CpuId, NodeId, PageSize};
use core::marker::PhantomData;
use core::ptr::NonNull;
use std::alloc::Layout;
use std::cell::{Cell, RefCell};
use std::string::String;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::vec::Vec;

/// What pages hold that are reserved but not committed, in worlds that poison.
pub const POISON: u8 = 0xA5;

/// How a world is made.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Page size.
    pub page_size: PageSize,
    /// CPUs; CPU `c` is near node `c % nodes`.
    pub cpus: u32,
    /// Memory nodes.
    pub nodes: u8,
    /// What `memory_limit` answers, and how much may be committed.
    pub memory_limit: usize,
    /// Largest reservation granted.
    pub reserve_limit: usize,
    /// Fill reserved memory with [`POISON`] (touches all of it: for small worlds).
    pub poison: bool,
    /// Bytes of data cache for each CPU.
    pub cache_slice: usize,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            page_size: PageSize::K4,
            cpus: 2,
            nodes: 1,
            memory_limit: 1 << 30,
            reserve_limit: 1 << 30,
            poison: false,
            cache_slice: 1 << 20,
        }
    }
}

struct Reservation {
    start: NonNull<u8>,
    layout: Layout,
    pages: Vec<State>,
    /// Bytes that are reserved or committed.
    left: usize,
}

/// What the allocator has of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Nothing, and it never had it: it is claimed only.
    Claimed,
    /// Nothing any more.
    Free,
    Reserved,
    Committed,
}

// SAFETY: plain memory; the world's mutex guards the states.
unsafe impl Send for Reservation {}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: `reserve` allocated it with this layout.
        unsafe { std::alloc::dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// Which of a world's calls for memory (reserve, commit, map, unmap, remap) fail, counted from zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Refusal {
    /// None.
    #[default]
    Never,
    /// This one alone.
    Only(usize),
    /// This one and all after it.
    From(usize),
}

/// The state of one test's world.
pub struct World {
    setup: Setup,
    reservations: Mutex<Vec<Reservation>>,
    committed: AtomicUsize,
    decommitted: AtomicUsize,
    decommit_calls: AtomicUsize,
    budget: AtomicUsize,
    memory_limit: AtomicUsize,
    address_space: AtomicUsize,
    refuse_after: AtomicI64,
    refusal: Mutex<Refusal>,
    memory_calls: AtomicUsize,
    clock: AtomicU64,
    warnings: Mutex<Vec<String>>,
    slot_locks: Vec<RawLock>,
}

std::thread_local! {
    static WORLD: RefCell<Option<Arc<World>>> = const { RefCell::new(None) };
    static PAUSES: Cell<u32> = const { Cell::new(0) };
    static SLOW_VISITS: Cell<u64> = const { Cell::new(0) };
    static CPU: Cell<u32> = const { Cell::new(0) };
    static ON_TOP: Cell<bool> = const { Cell::new(false) };
    static HELD: Held = const { Held::new() };
    static TOKEN: u64 = {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        NEXT.fetch_add(1, Relaxed)
    };
}

/// From now on the calling thread stands for a signal handler on top of a holder of locks, or not.
pub fn stand_on_top(of_a_holder: bool) {
    ON_TOP.set(of_a_holder);
}

/// Rounds of waiting of the calling thread so far.
#[must_use]
pub fn pauses() -> u32 {
    PAUSES.get()
}

/// Visits of slow paths of sheaves by the calling thread so far.
#[must_use]
pub fn slow_visits() -> u64 {
    SLOW_VISITS.get()
}

impl World {
    /// A world, entered by the calling thread on CPU 0.
    #[must_use]
    pub fn enter_new(setup: Setup) -> Arc<Self> {
        let world = Arc::new(Self {
            setup,
            reservations: Mutex::new(Vec::new()),
            committed: AtomicUsize::new(0),
            decommitted: AtomicUsize::new(0),
            decommit_calls: AtomicUsize::new(0),
            budget: AtomicUsize::new(setup.memory_limit),
            memory_limit: AtomicUsize::new(setup.memory_limit),
            address_space: AtomicUsize::new(usize::MAX),
            refuse_after: AtomicI64::new(-1),
            refusal: Mutex::new(Refusal::Never),
            memory_calls: AtomicUsize::new(0),
            clock: AtomicU64::new(1_000_000_000),
            warnings: Mutex::new(Vec::new()),
            slot_locks: (0..setup.cpus)
                .map(|_| RawLock::new(LockKind::Local))
                .collect(),
        });
        world.enter(CpuId(0));
        world
    }

    /// Makes this the calling thread's world and puts the thread on `cpu`.
    pub fn enter(self: &Arc<Self>, cpu: CpuId) {
        WORLD.with(|slot| *slot.borrow_mut() = Some(Arc::clone(self)));
        self.run_on(cpu);
    }

    /// Moves the calling thread to `cpu`.
    pub fn run_on(&self, cpu: CpuId) {
        assert!(cpu.0 < self.setup.cpus, "{cpu:?} does not exist");
        CPU.with(|slot| slot.set(cpu.0));
    }

    /// Moves the clock.
    pub fn advance(&self, nanoseconds: u64) {
        self.clock.fetch_add(nanoseconds, Relaxed);
    }

    /// From now on at most `bytes` may be committed at once.
    pub fn set_budget(&self, bytes: usize) {
        self.budget.store(bytes, Relaxed);
    }

    /// Changes what `memory_limit` answers, as a container's owner may at any time.
    pub fn set_memory_limit(&self, bytes: usize) {
        self.memory_limit.store(bytes, Relaxed);
    }

    /// Changes how much may be reserved at once, as a program may for itself at any time.
    pub fn limit_address_space(&self, bytes: usize) {
        self.address_space.store(bytes, Relaxed);
    }

    /// Bytes reserved now.
    #[must_use]
    pub fn reserved_bytes(&self) -> usize {
        self.reservations().iter().map(|r| r.left).sum()
    }

    /// Lets `commits` calls succeed and refuses those after them; `None` refuses nothing.
    pub fn refuse_after(&self, commits: Option<u32>) {
        self.refuse_after
            .store(commits.map_or(-1, i64::from), Relaxed);
    }

    /// From now on refuses calls for memory as `refusal` says, by their number in this world.
    pub fn refuse(&self, refusal: Refusal) {
        *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = refusal;
    }

    /// Calls for memory so far, refused ones included.
    #[must_use]
    pub fn memory_calls(&self) -> usize {
        self.memory_calls.load(Relaxed)
    }

    /// Counts a call for memory; whether it may succeed.
    fn allows_call(&self) -> bool {
        let call = self.memory_calls.fetch_add(1, Relaxed);
        match *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) {
            Refusal::Never => true,
            Refusal::Only(refused) => call != refused,
            Refusal::From(first) => call < first,
        }
    }

    /// Bytes committed now; decommitting does not lower it (the range stays usable).
    #[must_use]
    pub fn committed_bytes(&self) -> usize {
        self.committed.load(Relaxed)
    }

    /// Bytes given back in all, and by how many calls.
    #[must_use]
    pub fn decommitted(&self) -> (usize, usize) {
        (
            self.decommitted.load(Relaxed),
            self.decommit_calls.load(Relaxed),
        )
    }

    /// The lines reported so far.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.warnings
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn reservations(&self) -> MutexGuard<'_, Vec<Reservation>> {
        self.reservations
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn now_in<T>(step: impl FnOnce(&Self) -> T) -> T {
        WORLD.with(|slot| {
            let slot = slot.borrow();
            step(slot.as_ref().expect("the thread has entered a world"))
        })
    }

    fn on_cpu<T>(cpu: CpuId, step: impl FnOnce() -> T) -> T {
        // The world lives in the thread's slot until the thread enters another one.
        let world = WORLD.with(|slot| slot.borrow().clone()).expect("a world");
        let lock = &world.slot_locks[cpu.index()];
        assert!(
            Testing::acquire(lock).is_ok(),
            "a slot step inside a slot step"
        );
        let out = step();
        Testing::release_lock(lock);
        out
    }

    /// Charges a commit against refusals and budget.
    fn may_commit(&self, fresh_bytes: usize) -> bool {
        if self.refuse_after.load(Relaxed) >= 0 && self.refuse_after.fetch_sub(1, Relaxed) <= 0 {
            self.refuse_after.store(0, Relaxed);
            return false;
        }
        let budget = self.budget.load(Relaxed);
        self.committed
            .fetch_update(Relaxed, Relaxed, |now| {
                Some(now + fresh_bytes).filter(|&then| then <= budget)
            })
            .is_ok()
    }
}

impl Reservation {
    /// The pages of a range, by index, if the range is inside.
    fn pages(
        &self,
        start: NonNull<u8>,
        bytes: usize,
        page: usize,
    ) -> Option<core::ops::Range<usize>> {
        let offset = start.addr().get().checked_sub(self.start.addr().get())?;
        if offset + bytes > self.layout.size() {
            return None;
        }
        assert_eq!(
            (offset % page, bytes % page),
            (0, 0),
            "the range is whole pages"
        );
        Some(offset / page..(offset + bytes) / page)
    }
}

/// The platform of tests: every function speaks of the world the calling thread has entered. Its
/// slabs are served by the engine `E` besides the sheaf engine.
#[derive(Debug)]
pub struct TestingWith<E>(PhantomData<E>);

/// The platform of tests for the product.
pub type Testing = TestingWith<SheavesOnly>;

// SAFETY: 1. reservations are heap memory of their own; `commit` zeroes pages that were not
// committed and `decommit` zeroes pages. 2. CPU counts are constants of a world and `run_on`
// checks. 3. each CPU's slot steps run under that CPU's lock. 4. the default locks. 5. `fatal`
// panics.
unsafe impl<E: 'static> Platform for TestingWith<E> {
    fn page_size() -> PageSize {
        World::now_in(|world| world.setup.page_size)
    }

    fn reserve(bytes: usize, align: usize) -> Option<NonNull<u8>> {
        World::now_in(|world| {
            let limit = world.address_space.load(Relaxed);
            let left = limit.saturating_sub(world.reserved_bytes());
            if !world.allows_call() {
                return None;
            }
            if bytes == 0 || bytes > world.setup.reserve_limit.min(left) {
                return None;
            }
            let align = align.max(world.setup.page_size.bytes());
            let layout = Layout::from_size_align(bytes, align).ok()?;
            // SAFETY: the layout is not empty.
            let start = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })?;
            if world.setup.poison {
                // SAFETY: just allocated, this long.
                unsafe { start.write_bytes(POISON, bytes) };
            }
            world.reservations().push(Reservation {
                start,
                layout,
                pages: std::vec![State::Reserved; bytes / world.setup.page_size.bytes()],
                left: bytes,
            });
            Some(start)
        })
    }

    fn claim_span() -> Option<usize> {
        World::now_in(|world| {
            let limited = world.address_space.load(Relaxed) != usize::MAX;
            limited.then_some(world.setup.reserve_limit / 2)
        })
    }

    fn claim(bytes: usize, align: usize) -> Option<NonNull<u8>> {
        World::now_in(|world| {
            let limit = world.address_space.swap(usize::MAX, Relaxed);
            let start = Self::reserve(bytes, align);
            world.address_space.store(limit, Relaxed);
            let start = start?;
            let mut all = world.reservations();
            let claim = all.last_mut().expect("reserved just now");
            claim.pages.fill(State::Claimed);
            claim.left = 0;
            Some(start)
        })
    }

    unsafe fn map(start: NonNull<u8>, bytes: usize) -> Result<(), NotMapped> {
        World::now_in(|world| {
            let left = world.address_space.load(Relaxed) as isize;
            let left = left.wrapping_sub(world.reserved_bytes() as isize);
            let limited = world.address_space.load(Relaxed) != usize::MAX;
            if !world.allows_call() || (limited && left < bytes as isize) {
                return Err(NotMapped::Refused);
            }
            let page = world.setup.page_size.bytes();
            let mut all = world.reservations();
            let (reservation, pages) = all
                .iter_mut()
                .find_map(|r| r.pages(start, bytes, page).map(|pages| (r, pages)))
                .expect("the range is inside one reservation");
            let states = &mut reservation.pages[pages];
            assert!(
                states
                    .iter()
                    .all(|&s| matches!(s, State::Free | State::Claimed)),
                "only what is not mapped is mapped"
            );
            if !world.may_commit(bytes) {
                return Err(NotMapped::Refused);
            }
            let used = world.setup.poison || states.contains(&State::Free);
            states.fill(State::Committed);
            reservation.left += bytes;
            if used {
                // SAFETY: inside the reservation, and nobody uses it yet.
                unsafe { start.write_bytes(0, bytes) };
            }
            Ok(())
        })
    }

    unsafe fn unmap(start: NonNull<u8>, bytes: usize) -> bool {
        if !World::now_in(World::allows_call) {
            return false;
        }
        // SAFETY: as the caller's.
        unsafe { Self::release(start, bytes) };
        true
    }

    unsafe fn commit(start: NonNull<u8>, bytes: usize) -> Result<(), OutOfMemory> {
        World::now_in(|world| {
            let page = world.setup.page_size.bytes();
            let mut all = world.reservations();
            let (reservation, pages) = all
                .iter_mut()
                .find_map(|r| r.pages(start, bytes, page).map(|pages| (r, pages)))
                .expect("the range is inside one reservation");
            let states = &mut reservation.pages[pages];
            assert!(
                states
                    .iter()
                    .all(|&s| matches!(s, State::Reserved | State::Committed)),
                "only what is reserved is committed"
            );
            let fresh = states.iter().filter(|&&s| s == State::Reserved).count() * page;
            if !world.allows_call() || !world.may_commit(fresh) {
                return Err(OutOfMemory);
            }
            for (index, state) in states.iter_mut().enumerate() {
                if *state == State::Reserved && world.setup.poison {
                    // SAFETY: this page of the reservation was not usable before.
                    unsafe { start.byte_add(index * page).write_bytes(0, page) };
                }
                *state = State::Committed;
            }
            Ok(())
        })
    }

    unsafe fn decommit(start: NonNull<u8>, bytes: usize) {
        World::now_in(|world| {
            let page = world.setup.page_size.bytes();
            let all = world.reservations();
            let (reservation, pages) = all
                .iter()
                .find_map(|r| r.pages(start, bytes, page).map(|pages| (r, pages)))
                .expect("the range is inside one reservation");
            assert!(
                reservation.pages[pages]
                    .iter()
                    .all(|&s| s == State::Committed),
                "only committed pages are given back"
            );
            // SAFETY: committed, and the caller says nobody uses what it held.
            unsafe { start.write_bytes(0, bytes) };
            world.decommitted.fetch_add(bytes, Relaxed);
            world.decommit_calls.fetch_add(1, Relaxed);
        });
    }

    unsafe fn release(start: NonNull<u8>, bytes: usize) {
        World::now_in(|world| {
            let page = world.setup.page_size.bytes();
            let mut all = world.reservations();
            let (index, pages) = all
                .iter()
                .enumerate()
                .find_map(|(at, r)| r.pages(start, bytes, page).map(|pages| (at, pages)))
                .expect("the range is inside one reservation");
            let states = &mut all[index].pages[pages];
            assert!(
                states
                    .iter()
                    .all(|&s| matches!(s, State::Reserved | State::Committed)),
                "no byte is released twice"
            );
            let done = states.iter().filter(|&&s| s == State::Committed).count();
            states.fill(State::Free);
            world.committed.fetch_sub(done * page, Relaxed);
            if world.setup.poison {
                // SAFETY: inside the reservation, and the caller says nobody uses it again.
                unsafe { start.write_bytes(POISON, bytes) };
            }
            all[index].left -= bytes;
            if all[index].left == 0 {
                all.swap_remove(index);
            }
        });
    }

    /// As a system does it: shorter in place, longer elsewhere.
    unsafe fn remap(start: NonNull<u8>, old: usize, new: usize) -> Option<NonNull<u8>> {
        // SAFETY: as the caller's; the new reservation is whole and nobody else's.
        unsafe {
            if new <= old {
                if !World::now_in(World::allows_call) {
                    return None;
                }
                Self::release(start.byte_add(new), old - new);
                return Some(start);
            }
            let moved = Self::reserve(new, 1)?;
            if Self::commit(moved, new).is_err() {
                Self::release(moved, new);
                return None;
            }
            moved.copy_from_nonoverlapping(start, old);
            Self::release(start, old);
            Some(moved)
        }
    }

    fn address_space_left() -> Option<isize> {
        World::now_in(|world| {
            let limit = world.address_space.load(Relaxed);
            (limit != usize::MAX).then(|| limit as isize - world.reserved_bytes() as isize)
        })
    }

    fn memory_limit() -> usize {
        World::now_in(|world| world.memory_limit.load(Relaxed))
    }

    fn cpu_count() -> u32 {
        World::now_in(|world| world.setup.cpus)
    }

    fn current_cpu() -> CpuId {
        CpuId(CPU.with(Cell::get))
    }

    fn node_count() -> u8 {
        World::now_in(|world| world.setup.nodes)
    }

    fn node_of(cpu: CpuId) -> NodeId {
        NodeId((cpu.0 % u32::from(Self::node_count())) as u8)
    }

    fn cache_slice_bytes() -> usize {
        World::now_in(|world| world.setup.cache_slice)
    }

    unsafe fn pop(area: CpuArea, slot: Slot) -> Option<NonNull<u8>> {
        let cpu = Self::current_cpu();
        // SAFETY: as the caller's; the CPU's lock is held.
        World::on_cpu(cpu, || unsafe { pop_owned(area, cpu, slot) })
    }

    unsafe fn push(area: CpuArea, slot: Slot, object: NonNull<u8>) -> bool {
        let cpu = Self::current_cpu();
        // SAFETY: as the caller's; the CPU's lock is held.
        World::on_cpu(cpu, || unsafe { push_owned(area, cpu, slot, object) })
    }

    unsafe fn exchange(area: CpuArea, slot: Slot, new: SheafWord) -> SheafWord {
        let cpu = Self::current_cpu();
        // SAFETY: as the caller's; the CPU's lock is held.
        World::on_cpu(cpu, || unsafe { exchange_owned(area, cpu, slot, new) })
    }

    unsafe fn seize(
        area: CpuArea,
        cpus: core::ops::Range<u32>,
        caches: core::ops::Range<u32>,
        take: &mut dyn FnMut(Slot, SheafWord),
    ) {
        for (cpu, slot) in each_slot(cpus, caches) {
            // SAFETY: as the caller's; the CPU's lock is held.
            let word = World::on_cpu(cpu, || unsafe {
                exchange_owned(area, cpu, slot, SheafWord::ABSENT)
            });
            if !word.is_absent() {
                take(slot, word);
            }
        }
    }

    fn token() -> u64 {
        TOKEN.with(|token| *token)
    }

    fn note_taking(kind: LockKind) {
        HELD.with(|held| held.add(kind));
    }

    fn note_given_back(kind: LockKind) {
        HELD.with(|held| held.remove(kind));
    }

    fn holds_from(kind: LockKind) -> bool {
        ON_TOP.get() || HELD.with(|held| held.has_from(kind))
    }

    fn pause(_round: u32) {
        PAUSES.set(PAUSES.get() + 1);
        std::thread::yield_now();
    }

    fn work(work: super::Work) {
        if matches!(work, super::Work::Slow) {
            SLOW_VISITS.set(SLOW_VISITS.get() + 1);
        }
    }

    fn now() -> u64 {
        World::now_in(|world| world.clock.load(Relaxed))
    }

    fn seed() -> u64 {
        0x9e37_79b9_7f4a_7c15
    }

    fn fatal(fault: Fault, address: *const u8) -> ! {
        panic!("{} ({address:p})", fault.sentence())
    }

    fn warn(line: &str) {
        World::now_in(|world| {
            world
                .warnings
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(String::from(line));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_world_commits_within_its_budget_and_zeroes_what_is_given_back() {
        let world = World::enter_new(Setup {
            memory_limit: 8192,
            poison: true,
            ..Setup::default()
        });
        let start = Testing::reserve(16384, 4096).expect("granted");
        // SAFETY: inside the reservation, and nobody else uses it.
        unsafe {
            assert_eq!(start.read(), POISON);
            assert_eq!(Testing::commit(start, 8192), Ok(()));
            assert_eq!(
                Testing::commit(start.byte_add(8192), 4096),
                Err(OutOfMemory)
            );
            assert_eq!(start.read(), 0);
            start.write(7);
            Testing::decommit(start, 4096);
            assert_eq!(start.read(), 0);
        }
        assert_eq!(
            (world.committed_bytes(), world.decommitted()),
            (8192, (4096, 1))
        );
    }
}
