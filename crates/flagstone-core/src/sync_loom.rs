//! The core's atomics under loom: words in their own memory, of which a test names those to follow.
//!
//! ```text
//!   word ─┬─ not named   the word itself: nothing happens between two accesses
//!         └─ named       loom's atomic beside it, found by the word's address; the word has the
//!                        value stored last, for when all threads are joined and none is named
//! ```
//!
//! So a word may lie anywhere (mapped memory, a constant), a heap is built as fast as ever, and an
//! execution has as many choices as its test asks for. A word is named before a second thread knows
//! it: to loom, naming it is its first store.
//!
//! A named word may make a [`Mistake`], so that a test shows that it finds one.
//!
//! Loom runs all its threads on one of the system's, whose the table is.

#![allow(missing_docs, reason = "the language's")]

use Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic as own;
pub use core::sync::atomic::{Ordering, compiler_fence};
use loom::sync::atomic as checked;
use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// What a named word does wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mistake {
    /// Nothing.
    None,
    /// It orders nothing: every access is relaxed.
    Relaxed,
    /// A swap, with or without a comparison, is a load and then a store.
    Torn,
}

impl Mistake {
    fn order(self, order: Ordering) -> Ordering {
        match self {
            Self::Relaxed => Relaxed,
            Self::None | Self::Torn => order,
        }
    }
}

/// What a load of a read-modify-write of this order is, and what its store.
fn halves(order: Ordering) -> (Ordering, Ordering) {
    match order {
        AcqRel => (Acquire, Release),
        Acquire => (Acquire, Relaxed),
        Release => (Relaxed, Release),
        SeqCst => (SeqCst, SeqCst),
        _ => (Relaxed, Relaxed),
    }
}

#[derive(Clone)]
struct Named {
    word: Rc<dyn Any>,
    /// For words that are swapped: stored to before each load. To loom two loads commute, and of a word it
    /// knows the last access only, so a load and a swap by one thread would hide that the swap might
    /// have come before another's load.
    loads: Option<Rc<checked::AtomicU8>>,
    mistake: Mistake,
}

std::thread_local! {
    static NAMED: RefCell<HashMap<usize, Named>> = RefCell::default();
}

/// Follows no word any more: an execution begins, or its threads are joined.
pub fn forget() {
    NAMED.with_borrow_mut(HashMap::clear);
}

fn name(address: usize, named: Named) {
    NAMED.with_borrow_mut(|all| all.insert(address, named));
}

fn named(address: usize) -> Option<Named> {
    // A failed execution unwinds the stacks of its threads; loom answers nobody any more.
    match std::thread::panicking() {
        true => None,
        false => NAMED.with_borrow(|named| named.get(&address).cloned()),
    }
}

/// A load of the word at `address` comes.
fn note_load(address: usize) {
    if let Some(loads) = named(address).and_then(|named| named.loads) {
        loads.store(0, Relaxed);
    }
}

/// Loom's word for the one at `address`, if it was named.
fn find<W: 'static>(address: usize) -> Option<(Rc<W>, Mistake)> {
    let named = named(address)?;
    let word = named.word.downcast().expect("a word has one type");
    Some((word, named.mistake))
}

/// What every word can.
macro_rules! steps {
    ($checked:ty, $value:ty) => {
        fn followed(&self) -> Option<(Rc<$checked>, Mistake)> {
            find(core::ptr::from_ref(self).addr())
        }

        /// Has loom follow this word, which is loaded and stored, for the rest of the execution.
        pub fn follow(&self) {
            let named = Named {
                word: Rc::new(<$checked>::new(self.0.load(Relaxed))),
                loads: None,
                mistake: Mistake::None,
            };
            name(core::ptr::from_ref(self).addr(), named);
        }

        /// The same for a word that is swapped, and that may make a mistake.
        pub fn follow_swaps(&self, mistake: Mistake) {
            let named = Named {
                word: Rc::new(<$checked>::new(self.0.load(Relaxed))),
                loads: Some(Rc::default()),
                mistake,
            };
            name(core::ptr::from_ref(self).addr(), named);
        }

        pub fn load(&self, order: Ordering) -> $value {
            note_load(core::ptr::from_ref(self).addr());
            match self.followed() {
                Some((word, mistake)) => word.load(mistake.order(order)),
                None => self.0.load(order),
            }
        }

        pub fn store(&self, value: $value, order: Ordering) {
            match self.followed() {
                Some((word, mistake)) => {
                    word.store(value, mistake.order(order));
                    self.0.store(value, Relaxed);
                }
                None => self.0.store(value, order),
            }
        }

        pub fn swap(&self, value: $value, order: Ordering) -> $value {
            let Some((word, mistake)) = self.followed() else {
                return self.0.swap(value, order);
            };
            let old = if mistake == Mistake::Torn {
                let (load, store) = halves(order);
                let old = word.load(load);
                word.store(value, store);
                old
            } else {
                word.swap(value, mistake.order(order))
            };
            self.0.store(value, Relaxed);
            old
        }

        /// # Errors
        /// The value found, where it is not `current`.
        pub fn compare_exchange(
            &self,
            current: $value,
            new: $value,
            success: Ordering,
            failure: Ordering,
        ) -> Result<$value, $value> {
            let Some((word, mistake)) = self.followed() else {
                return self.0.compare_exchange(current, new, success, failure);
            };
            let old = if mistake == Mistake::Torn {
                let (load, store) = halves(success);
                let old = word.load(load);
                if old != current {
                    return Err(old);
                }
                word.store(new, store);
                old
            } else {
                let (success, failure) = (mistake.order(success), mistake.order(failure));
                word.compare_exchange(current, new, success, failure)?
            };
            self.0.store(new, Relaxed);
            Ok(old)
        }

        /// # Errors
        /// As of `compare_exchange`.
        pub fn compare_exchange_weak(
            &self,
            current: $value,
            new: $value,
            success: Ordering,
            failure: Ordering,
        ) -> Result<$value, $value> {
            self.compare_exchange(current, new, success, failure)
        }

        /// # Errors
        /// The value found, where `next` has none to follow it.
        pub fn fetch_update(
            &self,
            set: Ordering,
            fetch: Ordering,
            mut next: impl FnMut($value) -> Option<$value>,
        ) -> Result<$value, $value> {
            let mut now = self.load(fetch);
            while let Some(new) = next(now) {
                match self.compare_exchange(now, new, set, fetch) {
                    Ok(old) => return Ok(old),
                    Err(found) => now = found,
                }
            }
            Err(now)
        }
    };
}

/// What numbers can besides.
macro_rules! sums {
    ($value:ty: $($step:ident)*) => {$(
        pub fn $step(&self, value: $value, order: Ordering) -> $value {
            if let Some((word, mistake)) = self.followed() {
                word.$step(value, mistake.order(order));
            }
            self.0.$step(value, order)
        }
    )*};
}

macro_rules! numbers {
    ($($name:ident $value:ty),*) => {$(
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub struct $name(own::$name);

        impl $name {
            #[must_use]
            pub const fn new(value: $value) -> Self {
                Self(own::$name::new(value))
            }

            steps!(checked::$name, $value);
            sums!($value: fetch_add fetch_sub fetch_and fetch_or fetch_max fetch_min);
        }
    )*};
}

numbers!(AtomicU8 u8, AtomicU16 u16, AtomicU32 u32, AtomicU64 u64, AtomicUsize usize);

/// A word of two values.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct AtomicBool(own::AtomicBool);

impl AtomicBool {
    #[must_use]
    pub const fn new(value: bool) -> Self {
        Self(own::AtomicBool::new(value))
    }

    steps!(checked::AtomicBool, bool);
}

/// An address.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct AtomicPtr<T>(own::AtomicPtr<T>);

impl<T: 'static> AtomicPtr<T> {
    #[must_use]
    pub const fn new(value: *mut T) -> Self {
        Self(own::AtomicPtr::new(value))
    }

    steps!(checked::AtomicPtr<T>, *mut T);
}
