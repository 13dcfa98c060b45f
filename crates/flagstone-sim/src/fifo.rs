//! Mailboxes between virtual CPUs: bounded queues in virtual time.
//!
//! A mailbox is the workload's own (a socket, a mail slot), not the allocator's: it charges one
//! shared line for each step, and a reader or writer that has to wait sleeps.

use crate::vm::Vm;
use core::cell::{Cell, RefCell};
use flagstone_core::platform::Access;
use std::collections::VecDeque;

/// A bounded queue with its own cache line.
#[derive(Debug)]
#[repr(align(64))]
pub struct Mailbox<T> {
    items: RefCell<VecDeque<T>>,
    /// The lines its items lie on, where these travel too: a ring.
    places: Vec<Places>,
    put: Cell<usize>,
    taken: Cell<usize>,
    capacity: usize,
    readers: RefCell<Vec<u32>>,
    writers: RefCell<Vec<u32>>,
}

/// A line of items: only where it is counts.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Places {
    _bytes: [u64; 8],
}

impl Places {
    /// `access` to any of its items.
    pub(crate) fn touch(&self, vm: &Vm, access: Access) {
        vm.use_line(core::ptr::from_ref(self).cast(), access);
    }
}

impl<T> Mailbox<T> {
    /// The same with items that travel: on lines of their own, each written by who puts it in and
    /// read by who takes it out.
    #[must_use]
    pub fn with_places(capacity: usize) -> Self {
        let lines = capacity.div_ceil(Self::EACH);
        Self {
            places: (0..lines).map(|_| Places::default()).collect(),
            ..Self::new(capacity)
        }
    }

    /// Items of a line.
    const EACH: usize = match size_of::<T>() {
        0 => 64,
        bytes => 64usize.div_ceil(bytes),
    };

    /// Touches the place of the item that is next on one side.
    fn place(&self, vm: &Vm, side: &Cell<usize>, access: Access) {
        if self.places.is_empty() {
            return;
        }
        let at = side.replace(side.get() + 1) % self.capacity;
        self.places[at / Self::EACH].touch(vm, access);
    }

    /// An empty mailbox for `capacity` items.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            items: RefCell::default(),
            places: Vec::new(),
            put: Cell::new(0),
            taken: Cell::new(0),
            capacity,
            readers: RefCell::default(),
            writers: RefCell::default(),
        }
    }

    fn touch(&self, vm: &Vm) {
        vm.use_line(core::ptr::from_ref(self).cast(), Access::Atomic);
    }

    /// Looks at how full it is without taking part: one read of its line.
    pub fn look(&self, vm: &Vm) {
        vm.use_line(core::ptr::from_ref(self).cast(), Access::Read);
    }

    /// Items in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.borrow().len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether no further item fits.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.len() >= self.capacity
    }

    /// Puts an item in, sleeping while it is full. `Err` hands the item back at the end of a run.
    ///
    /// # Errors
    /// The item, when the run is over.
    pub fn send(&self, vm: &Vm, item: T) -> Result<(), T> {
        self.touch(vm);
        while self.is_full() {
            if vm.stopping() {
                return Err(item);
            }
            self.writers.borrow_mut().push(vm.current());
            vm.park();
        }
        self.put(vm, item);
        Ok(())
    }

    /// Puts an item in if it fits.
    ///
    /// # Errors
    /// The item, when the mailbox is full.
    pub fn offer(&self, vm: &Vm, item: T) -> Result<(), T> {
        self.touch(vm);
        if self.is_full() {
            return Err(item);
        }
        self.put(vm, item);
        Ok(())
    }

    fn put(&self, vm: &Vm, item: T) {
        self.place(vm, &self.put, Access::Write);
        self.items.borrow_mut().push_back(item);
        wake_all(vm, &self.readers);
    }

    /// Takes an item, sleeping while there is none; `None` when the run is over and it is empty.
    pub fn receive(&self, vm: &Vm) -> Option<T> {
        loop {
            if let Some(item) = self.poll(vm) {
                return Some(item);
            }
            if vm.stopping() {
                return None;
            }
            self.readers.borrow_mut().push(vm.current());
            vm.park();
        }
    }

    /// Takes an item if there is one.
    pub fn poll(&self, vm: &Vm) -> Option<T> {
        self.touch(vm);
        let item = self.items.borrow_mut().pop_front()?;
        self.place(vm, &self.taken, Access::Read);
        if self.len() * 2 <= self.capacity {
            wake_all(vm, &self.writers);
        }
        Some(item)
    }
}

/// Wakes everybody on a list of sleepers.
fn wake_all(vm: &Vm, sleepers: &RefCell<Vec<u32>>) {
    // Waking lets nobody run yet: the borrow stays within this turn.
    for sleeper in sleepers.borrow_mut().drain(..) {
        vm.unpark(sleeper);
    }
}
