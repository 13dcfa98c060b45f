//! The barn under loom: two CPUs trade sheaves, a full and an empty one in the barn.

use super::{Barn, Limits};
use crate::platform::world_loom::{Checked, explore};
use crate::slab::OwnSheaf;
use crate::sync::followed::{Mistake, forget};
use loom::thread;
use std::boxed::Box;
use std::ptr::NonNull;
use std::sync::Arc;
use std::vec::Vec;

const LIMITS: Limits = Limits {
    full: 2,
    objects: 100,
    empty: 2,
};

#[repr(align(64))]
struct Memory(#[expect(dead_code, reason = "memory")] [u64; 8]);

/// A sheaf of `len` objects, whose words loom follows, and its memory.
fn sheaf(len: usize) -> (OwnSheaf, Box<Memory>) {
    let mut memory = Box::new(Memory([0; 8]));
    // SAFETY: 64 bytes are enough for five slots, and outlive the sheaf.
    let mut sheaf = unsafe { OwnSheaf::create(NonNull::from(&mut *memory).cast(), 5) };
    for object in 1..=len {
        sheaf.put(NonNull::without_provenance(
            std::num::NonZero::new(16 * object).expect("not zero"),
        ));
    }
    sheaf.header().len.follow();
    sheaf.header().link.follow();
    (sheaf, memory)
}

/// One CPU brings an empty sheaf for a full one, the other a full one for an empty one.
fn two_trades(lock: Mistake) {
    explore(move || {
        let (sheaves, _memory): (Vec<_>, Vec<_>) = [3, 0, 2, 0].map(sheaf).into_iter().unzip();
        let mut addresses: Vec<_> = sheaves.iter().map(OwnSheaf::address).collect();
        let Ok([full, empty, filled, emptied]) = <[OwnSheaf; 4]>::try_from(sheaves) else {
            panic!("four sheaves")
        };
        let barn = Arc::new(Barn::new());
        assert!(barn.leave_full::<Checked>(full, LIMITS).is_ok());
        assert!(barn.leave_empty::<Checked>(empty, LIMITS).is_ok());
        barn.follow(lock);
        let other = Arc::clone(&barn);
        let thread = thread::spawn(move || {
            let empty = other
                .trade_for_empty::<Checked>(filled, LIMITS)
                .expect("room");
            empty.inspect(|sheaf| assert_eq!(sheaf.len(), 0))
        });
        let (got, left) = barn
            .trade_for_full::<Checked>(Some(emptied), LIMITS)
            .expect("a full one");
        assert!((2..=3).contains(&got.len()));
        let traded = thread.join().unwrap();
        forget();
        let mut seen: Vec<_> = [Some(got), left, traded]
            .into_iter()
            .flatten()
            .map(|sheaf| sheaf.address())
            .collect();
        let mut counted = [0, 0];
        barn.each::<Checked>(&mut |sheaf, is_full| {
            counted[usize::from(is_full)] += 1;
            seen.push(sheaf.as_ptr().cast_const().cast());
        });
        assert_eq!(counted, [barn.empty(), barn.full()], "barn.counted");
        assert_eq!(u64::from(barn.stored()), barn.objects::<Checked>());
        seen.sort_unstable();
        addresses.sort_unstable();
        assert_eq!(seen, addresses, "slot.one-home");
    });
}

#[test]
fn loom_two_cpus_trade_sheaves() {
    two_trades(Mistake::None);
}

#[test]
#[should_panic]
fn loom_finds_a_barn_lock_that_orders_nothing() {
    two_trades(Mistake::Relaxed);
}

#[test]
#[should_panic]
fn loom_finds_a_barn_lock_with_two_holders() {
    two_trades(Mistake::Torn);
}
