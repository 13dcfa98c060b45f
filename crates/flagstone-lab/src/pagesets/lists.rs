//! The lists of all pagesets, page by page, and where each page is.

use flagstone_core::base::Order;
use std::collections::{HashMap, VecDeque};

/// Lists of a pageset: three migrate types of orders 0 to 3, and two of huge pages.
pub(super) const LISTS: usize = 14;

/// The order of a huge page where pages have 4 KiB.
const HUGE: u8 = 9;

/// The list of a block; none if it is kept by no pageset.
pub(super) fn place(order: u8, migratetype: u8) -> Option<usize> {
    let kind = usize::from(migratetype);
    match order {
        // What is none of the three is stored as movable.
        0..=3 => Some(3 * usize::from(order) + if kind < 3 { kind } else { 1 }),
        HUGE => Some(12 + usize::from(kind != 1)),
        _ => None,
    }
}

/// A list of a pageset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) set: usize,
    pub(super) list: usize,
}

impl Place {
    pub(super) fn order(self) -> Order {
        let order = match self.list {
            list if list < 12 => list as u32 / 3,
            _ => u32::from(HUGE),
        };
        Order::new(order).unwrap_or(Order::MAX)
    }

    /// Pages of one of its blocks.
    pub(super) fn pages(self) -> u32 {
        1 << self.order().get()
    }

    /// The list that a drain goes on with.
    pub(super) fn next_list(self) -> Self {
        Self {
            list: (self.list + 1) % LISTS,
            ..self
        }
    }
}

/// Invariant `lists.once`: a page is on one list at most, and `places` says on which.
pub(super) struct Lists {
    lists: Vec<[VecDeque<u64>; LISTS]>,
    places: HashMap<u64, Place>,
}

impl Lists {
    pub(super) fn new(sets: usize) -> Self {
        Self {
            lists: (0..sets).map(|_| Default::default()).collect(),
            places: HashMap::new(),
        }
    }

    fn list(&mut self, place: Place) -> &mut VecDeque<u64> {
        &mut self.lists[place.set][place.list]
    }

    pub(super) fn place_of(&self, pfn: u64) -> Option<Place> {
        self.places.get(&pfn).copied()
    }

    pub(super) fn front(&self, place: Place) -> Option<u64> {
        self.lists[place.set][place.list].front().copied()
    }

    pub(super) fn push_front(&mut self, place: Place, pfn: u64) {
        self.remove(pfn);
        self.places.insert(pfn, place);
        self.list(place).push_front(pfn);
    }

    pub(super) fn push_back(&mut self, place: Place, pfn: u64) {
        self.remove(pfn);
        self.places.insert(pfn, place);
        self.list(place).push_back(pfn);
    }

    pub(super) fn pop_front(&mut self, place: Place) -> Option<u64> {
        let pfn = self.list(place).pop_front()?;
        self.places.remove(&pfn);
        Some(pfn)
    }

    pub(super) fn pop_back(&mut self, place: Place) -> Option<u64> {
        let pfn = self.list(place).pop_back()?;
        self.places.remove(&pfn);
        Some(pfn)
    }

    /// Takes a page out of the middle: rare, and as long as the list.
    pub(super) fn remove(&mut self, pfn: u64) -> Option<Place> {
        let place = self.places.remove(&pfn)?;
        let list = self.list(place);
        if let Some(at) = list.iter().position(|held| *held == pfn) {
            list.remove(at);
        }
        Some(place)
    }
}
