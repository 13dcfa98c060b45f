//! Buddy free areas: free blocks of 2^order pages, split and merged in place.
//!
//! ```text
//!   order      0   1   2  ...  10
//!   resident   ▪─▪ ▪   ·       ·      blocks with at least one resident page
//!   released   ·   ·   ▫       ▫─▫    blocks wholly given back (or never used): read as zero
//! ```
//!
//! An allocation takes the smallest sufficient resident block, then the smallest released one:
//! memory that is there already comes before memory that costs a page fault.
//!
//! Invariants
//! - `buddy.aligned`: a block of order `o` starts at a multiple of 2^o pages.
//! - `buddy.no-free-buddy-pair`: two free buddies of one order do not exist; they are merged.
//! - `buddy.counts`: every list holds as many blocks as its count says, and its mask bit is set
//!   exactly when it is not empty.
//! - `buddy.released`: a block on a released list has no resident bit; any other has one.
//! - `buddy.bare`: long released blocks whose descriptors were given back too are behind all
//!   others of their list, and their head claims no tails. Those of the largest order are on no list
//!   at all (`whole.rs`).
//! - `page.tails`: the first `pages` pages of any head (free or not) other than the head itself
//!   are tails that name it, so that a block allocated again at the same place needs no writes. Runs
//!   longer than [`TAILS_MAX`] name none: there `pages` is the length alone.
//!
//! Locking: the zone's. Cost: a list operation and two or three descriptors per step of order.

use super::descriptor::{Descriptor, PageKind, flag};
use super::list::PageList;
use super::memmap::Memmap;
use crate::base::{Order, PageCount, Pfn};
use crate::platform::{Access, Line, Platform, Work};
use crate::sync::Ordering::Relaxed;

/// Longest block in pages whose tails name their head. Why 64: no slab of the default policy is longer,
/// and longer runs are found by their head alone, so that a block of 4 MiB that the program never
/// touches costs one descriptor and not 32 KiB of them. Slabs that are longer name theirs themselves.
pub(crate) const TAILS_MAX: usize = 64;

/// Orders a zone keeps lists for.
pub const ORDERS: usize = Order::MAX.get() as usize + 1;

/// A free block out of the lists, on its way to an owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Taken {
    pub pfn: Pfn,
    pub order: Order,
    /// No page of it is resident.
    pub released: bool,
}

/// The free blocks of one kind (resident or released) by order.
#[derive(Debug)]
struct Area {
    lists: [PageList; ORDERS],
    counts: [u32; ORDERS],
    mask: u16,
}

impl Area {
    const fn new() -> Self {
        Self {
            lists: [PageList::new(); ORDERS],
            counts: [0; ORDERS],
            mask: 0,
        }
    }

    #[inline]
    fn smallest_from(&self, order: Order) -> Option<Order> {
        // None fits: sixteen, which is no order.
        let fitting = self.mask & (u16::MAX << order.get());
        Order::new(fitting.trailing_zeros())
    }
}

/// The free areas of one zone. Their lines are not the lock's, as in kernels: whoever waits for the
/// lock takes its line away from the holder, but not these.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct FreeAreas {
    areas: [Area; 2],
    bare_pages: usize,
    bare_blocks: usize,
    idle_blocks: usize,
    gone_blocks: usize,
    /// No idle block lies before this one.
    idle_from: Pfn,
    end: Pfn,
    pages: usize,
    resident: usize,
}

impl FreeAreas {
    /// Empty areas of a zone that begins at `start` and has not grown yet.
    pub(super) const fn new(start: Pfn) -> Self {
        Self {
            areas: [Area::new(), Area::new()],
            bare_pages: 0,
            bare_blocks: 0,
            idle_blocks: 0,
            gone_blocks: 0,
            idle_from: start,
            end: start,
            pages: 0,
            resident: 0,
        }
    }

    /// First page beyond what was ever added: the zone's frontier.
    pub(crate) const fn frontier(&self) -> Pfn {
        self.end
    }

    /// Free pages on all lists.
    pub(crate) const fn pages(&self) -> usize {
        self.pages
    }

    /// Free pages that are resident.
    pub(crate) const fn resident(&self) -> usize {
        self.resident
    }

    /// Blocks of `order` on the resident or the released list.
    pub(crate) fn count(&self, order: Order, released: bool) -> u32 {
        let listed = self.areas[usize::from(released)].counts[order.get() as usize];
        let idle = released && order == Order::MAX;
        listed + if idle { self.idle_blocks as u32 } else { 0 }
    }

    /// Free blocks of the largest order that are on no list.
    pub(crate) const fn idle_blocks(&self) -> usize {
        self.idle_blocks
    }

    /// The list of one order, for `verify`.
    pub(crate) const fn list(&self, order: Order, released: bool) -> PageList {
        self.areas[released as usize].lists[order.get() as usize]
    }

    /// Bit `o` set where the list of order `o` should not be empty, for `verify`.
    pub(crate) const fn mask(&self, released: bool) -> u16 {
        self.areas[released as usize].mask
    }

    /// Takes a block of `order`, splitting a larger one where needed. Of a larger one it takes as
    /// much as `most` at once: the blocks that would have been taken one after the other. What is
    /// longer than `order` is resident throughout or not at all.
    #[inline]
    pub(super) fn take_up_to<P: Platform>(
        &mut self,
        map: &Memmap,
        order: Order,
        most: Order,
    ) -> Option<Taken> {
        let (found, released) = match self.areas[0].smallest_from(order) {
            Some(found) => (found, false),
            None => match self.areas[1].smallest_from(order) {
                Some(found) => (found, true),
                None => {
                    let pfn = self.take_idle(map)?;
                    return Some(self.split_to::<P>(map, pfn, Order::MAX, most, true));
                }
            },
        };
        let pfn = self.areas[usize::from(released)].lists[found.get() as usize].head();
        self.unlink::<P>(map, pfn, found, released);
        let to = if found == order || most == order {
            order
        } else if released || map.resident().count(pfn, found.pages()) == found.pages().0 {
            found.min(most)
        } else {
            order
        };
        Some(self.split_to::<P>(map, pfn, found, to, released))
    }

    /// Takes the oldest resident block of the largest order, for giving back.
    pub(super) fn take_largest_resident<P: Platform>(&mut self, map: &Memmap) -> Option<Taken> {
        let order = Order::new(self.areas[0].mask.checked_ilog2()?)?;
        let pfn = self.areas[0].lists[order.get() as usize].tail();
        self.unlink::<P>(map, pfn, order, false);
        Some(Taken {
            pfn,
            order,
            released: false,
        })
    }

    /// Takes the free block that starts at `pfn` whole; it must be a free block's head.
    pub(super) fn take_at<P: Platform>(&mut self, map: &Memmap, pfn: Pfn) -> Taken {
        let page = map.descriptor(pfn);
        let (order, released) = (page.order(), page.has(flag::RELEASED));
        debug_assert_eq!(page.kind(), PageKind::Buddy);
        self.unlink::<P>(map, pfn, order, released);
        Taken {
            pfn,
            order,
            released,
        }
    }

    /// Adds a block of pages never used before; the frontier moves behind it.
    pub(super) fn grow<P: Platform>(&mut self, map: &Memmap, order: Order) {
        let pfn = self.end;
        self.end = pfn.plus(order.pages());
        if order == Order::MAX {
            self.put_idle(map, pfn);
            return;
        }
        map.descriptor(pfn).pages.store(1, Relaxed);
        self.free::<P>(map, pfn, order);
    }

    /// Adds a block of the largest order of which nothing is resident, its descriptors included.
    pub(super) fn put_idle(&mut self, map: &Memmap, pfn: Pfn) {
        map.whole().idle.set(pfn);
        self.idle_from = self.idle_from.min(pfn);
        self.idle_blocks += 1;
        self.pages += Order::MAX.pages().0;
    }

    /// Pages of blocks whose data is not mapped: neither free nor in use.
    pub(crate) const fn gone_pages(&self) -> usize {
        self.gone_blocks * Order::MAX.pages().0
    }

    /// Makes the block behind the frontier one whose data is not mapped.
    pub(super) fn grow_gone(&mut self, map: &Memmap) {
        map.whole().gone.set(self.end);
        self.gone_blocks += 1;
        self.end = self.end.plus(Order::MAX.pages());
    }

    /// Makes an idle block one whose data is not mapped.
    pub(super) fn idle_to_gone(&mut self, map: &Memmap, pfn: Pfn) {
        map.whole().gone.set(pfn);
        map.whole().idle.clear(pfn);
        self.gone_blocks += 1;
        self.idle_blocks -= 1;
        self.pages -= Order::MAX.pages().0;
    }

    /// Makes a block idle whose data is mapped again.
    pub(super) fn gone_to_idle(&mut self, map: &Memmap, pfn: Pfn) {
        map.whole().gone.clear(pfn);
        self.gone_blocks -= 1;
        self.put_idle(map, pfn);
    }

    /// Takes the lowest idle block.
    pub(super) fn take_idle(&mut self, map: &Memmap) -> Option<Pfn> {
        if self.idle_blocks == 0 {
            return None;
        }
        let pfn = map.whole().idle.first(self.idle_from, self.end)?;
        map.whole().idle.clear(pfn);
        self.idle_from = pfn.plus(Order::MAX.pages());
        self.idle_blocks -= 1;
        self.pages -= Order::MAX.pages().0;
        map.descriptor(pfn).pages.store(1, Relaxed);
        Some(pfn)
    }

    /// Takes a long released block whose descriptors are still resident, the longest first.
    pub(super) fn take_dense<P: Platform>(&mut self, map: &Memmap) -> Option<Taken> {
        for order in (BARE_ORDER_MIN..=Order::MAX.get()).rev() {
            let order = Order::new(order)?;
            let pfn = self.areas[1].lists[order.get() as usize].head();
            if !pfn.is_some() || map.descriptor(pfn).has(flag::BARE) {
                continue;
            }
            self.unlink::<P>(map, pfn, order, true);
            // Its descriptors are about to go: none of them may be claimed (`buddy.bare`).
            map.descriptor(pfn).pages.store(1, Relaxed);
            return Some(Taken {
                pfn,
                order,
                released: true,
            });
        }
        None
    }

    /// Adds a long released block whose descriptors are not resident. One whose buddy was freed
    /// while it was parked merges instead: the longer block's turn comes in the next round.
    pub(super) fn put_bare<P: Platform>(&mut self, map: &Memmap, pfn: Pfn, order: Order) {
        map.descriptor(pfn).pages.store(1, Relaxed);
        if self.is_buddy_free(map, pfn, order) {
            self.free::<P>(map, pfn, order);
            return;
        }
        self.link::<P>(map, pfn, order, true);
        let list = &mut self.areas[1].lists[order.get() as usize];
        list.remove(map, pfn);
        list.push_tail(map, pfn);
        map.descriptor(pfn).mark(flag::BARE, true);
        self.bare_pages += order.pages().0;
        self.bare_blocks += 1;
    }

    /// Pages of long released blocks whose descriptors, but for the head's, are not resident.
    pub(crate) const fn bare_pages(&self) -> usize {
        self.bare_pages
    }

    /// How many such blocks there are.
    pub(crate) const fn bare_blocks(&self) -> usize {
        self.bare_blocks
    }

    /// Whether a block's buddy is a free block of the same order.
    fn is_buddy_free(&self, map: &Memmap, pfn: Pfn, order: Order) -> bool {
        let buddy = pfn.buddy(order);
        if order == Order::MAX || buddy.plus(order.pages()) > self.end {
            return false;
        }
        let page = map.descriptor(buddy);
        page.kind() == PageKind::Buddy && page.order() == order
    }

    /// Frees a block, merging it with its buddies as far as they are free.
    ///
    /// The resident bits of its pages must say what is resident.
    #[inline]
    pub(super) fn free<P: Platform>(&mut self, map: &Memmap, pfn: Pfn, order: Order) {
        let mut released = !map.resident().any(pfn, order.pages());
        let (mut pfn, mut order) = (pfn, order);
        let mut steps = 1;
        while order < Order::MAX {
            let buddy = pfn.buddy(order);
            // Zones start at multiples of the largest block, so only the frontier bounds.
            if buddy.plus(order.pages()) > self.end {
                break;
            }
            let page = map.descriptor(buddy);
            touch::<P>(map, buddy, Access::Read);
            if page.kind() != PageKind::Buddy || page.order() != order {
                break;
            }
            let buddy_released = page.has(flag::RELEASED);
            self.unlink::<P>(map, buddy, order, buddy_released);
            released &= buddy_released;
            map.descriptor(pfn.max(buddy)).set_kind(PageKind::Tail);
            pfn = pfn.min(buddy);
            order = up(order);
            steps += 1;
        }
        P::work(Work::Blocks(steps));
        self.link::<P>(map, pfn, order, released);
    }

    /// Frees any run of pages as the largest aligned blocks it consists of.
    pub(super) fn free_range<P: Platform>(&mut self, map: &Memmap, pfn: Pfn, pages: PageCount) {
        let (mut at, mut left) = (pfn, pages.0);
        while left > 0 {
            let order = largest_block(at, left);
            let head = map.descriptor(at);
            let tails = if at == pfn { tails_of(head) } else { 1 };
            head.pages.store(tails.min(order.pages().0 as u32), Relaxed);
            self.free::<P>(map, at, order);
            at = at.plus(order.pages());
            left -= order.pages().0;
        }
    }

    /// Keeps the first `pages` of a taken block and frees the rest.
    pub(super) fn give_back_tail<P: Platform>(
        &mut self,
        map: &Memmap,
        block: Taken,
        pages: PageCount,
    ) {
        debug_assert!(0 < pages.0 && pages.0 <= block.order.pages().0);
        let rest = block.order.pages().0 - pages.0;
        if rest == 0 {
            return;
        }
        let head = map.descriptor(block.pfn);
        head.pages
            .store(head.pages.load(Relaxed).min(pages.0 as u32), Relaxed);
        let tail = block.pfn.plus(pages);
        map.descriptor(tail).pages.store(1, Relaxed);
        self.free_range::<P>(map, tail, PageCount(rest));
    }

    fn split_to<P: Platform>(
        &mut self,
        map: &Memmap,
        pfn: Pfn,
        from: Order,
        to: Order,
        released: bool,
    ) -> Taken {
        let (mut pfn, mut order, mut released) = (pfn, from, released);
        while order > to {
            order = down(order);
            let right = pfn.buddy(order);
            let head = map.descriptor(pfn);
            head.pages.store(
                head.pages.load(Relaxed).min(order.pages().0 as u32),
                Relaxed,
            );
            map.descriptor(right).pages.store(1, Relaxed);
            let resident = |half: Pfn| !released && map.resident().any(half, order.pages());
            let (left_resident, right_resident) = (resident(pfn), resident(right));
            // Stay with memory that is there.
            let (keep, keep_resident, give, give_resident) = if right_resident && !left_resident {
                (right, true, pfn, false)
            } else {
                (pfn, left_resident, right, right_resident)
            };
            self.link::<P>(map, give, order, !give_resident);
            pfn = keep;
            released = !keep_resident;
        }
        P::work(Work::Blocks(1 + from.get() - to.get()));
        Taken {
            pfn,
            order: to,
            released,
        }
    }

    fn link<P: Platform>(&mut self, map: &Memmap, pfn: Pfn, order: Order, released: bool) {
        debug_assert_eq!(pfn.0 & ((1 << order.get()) - 1), 0, "buddy.aligned");
        let page = map.descriptor(pfn);
        touch::<P>(map, pfn, Access::Write);
        page.set_kind(PageKind::Buddy);
        page.set_order(order);
        page.flags
            .store(if released { flag::RELEASED } else { 0 }, Relaxed);
        if !released {
            self.resident += map.resident().count(pfn, order.pages());
        }
        self.pages += order.pages().0;
        let area = &mut self.areas[usize::from(released)];
        let index = order.get() as usize;
        let list = (&raw const area.lists[index]).cast();
        P::touch(Line::FreeArea, list, Access::Write);
        touch::<P>(map, area.lists[index].head(), Access::Write);
        area.lists[index].push_head(map, pfn);
        area.counts[index] += 1;
        area.mask |= 1 << index;
    }

    fn unlink<P: Platform>(&mut self, map: &Memmap, pfn: Pfn, order: Order, released: bool) {
        let area = &mut self.areas[usize::from(released)];
        let index = order.get() as usize;
        let list = (&raw const area.lists[index]).cast();
        P::touch(Line::FreeArea, list, Access::Write);
        let page = map.descriptor(pfn);
        let [prev, next] = area.lists[index].remove(map, pfn);
        for changed in [pfn, prev, next] {
            touch::<P>(map, changed, Access::Write);
        }
        area.counts[index] -= 1;
        if page.has(flag::BARE) {
            page.mark(flag::BARE, false);
            self.bare_pages -= order.pages().0;
            self.bare_blocks -= 1;
        }
        if area.lists[index].is_empty() {
            area.mask &= !(1 << index);
        }
        if !released {
            self.resident -= map.resident().count(pfn, order.pages());
        }
        self.pages -= order.pages().0;
    }
}

/// Smallest order of a released block that gives its descriptors back: of 256 pages' descriptors
/// half, or three quarters where they are longer, are whole pages of their own. Smaller blocks come and go too often for a call.
const BARE_ORDER_MIN: u32 = 8;

/// The largest block that starts at `pfn`, aligned, and is no longer than `pages`.
pub(super) fn largest_block(pfn: Pfn, pages: usize) -> Order {
    let fits = crate::base::ilog2(pages as u64);
    let order = pfn.0.trailing_zeros().min(fits).min(Order::MAX.get());
    Order::new(order).unwrap_or(Order::ZERO)
}

/// A page's descriptor is accessed, where there is a page.
fn touch<P: Platform>(map: &Memmap, pfn: Pfn, access: Access) {
    if pfn.is_some() {
        P::touch(Line::Page, (&raw const *map.descriptor(pfn)).cast(), access);
    }
}

/// Pages that name the block's head, the head included.
fn tails_of(head: &Descriptor) -> u32 {
    let pages = head.pages.load(Relaxed);
    if pages as usize > TAILS_MAX { 1 } else { pages }
}

const fn up(order: Order) -> Order {
    match Order::new(order.get() + 1) {
        Some(up) => up,
        None => Order::MAX,
    }
}

const fn down(order: Order) -> Order {
    match Order::new(order.get().saturating_sub(1)) {
        Some(down) => down,
        None => Order::ZERO,
    }
}
