//! Programs on stacks of their own, and the step from one to another.
//!
//! ```text
//!   switch   callee-saved registers onto this stack · its end noted · the other's end · its registers
//!            back · return there
//! ```
//!
//! Written here because turns pass straight from one virtual CPU to the next. A coroutine of a library
//! goes back to whoever resumed it, so that a turn takes two such steps, and what the host's
//! processor foresees about returns is then the caller's path and no longer that of the virtual CPU
//! before, which mostly left in the same functions as the next one left in.
//!
//! A fiber ends by giving way for ever: nothing on its stack is dropped after that.

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the simulator switches stacks itself: write `switch` for this architecture");

use crate::stack::Shifted;
use core::arch::naked_asm;

/// Where a stack was left: the address of what [`switch`] saved last. Zero: nowhere.
pub(crate) type Place = usize;

/// Leaves the running stack, notes in `from` where, and goes on where `to` was left. Returns when
/// somebody goes on at what was noted.
///
/// Nothing but the registers that a function must keep is saved: no vector state, and not the modes of
/// floating point, which nobody here changes.
///
/// # Safety
/// 1. `from` may be written.
/// 2. `to` was noted by this function or made by [`begin`], was not gone on at since, and its stack
///    still lives.
/// 3. Both run on one operating-system thread.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn switch(from: *mut Place, to: Place) {
    naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov [rdi], rsp",
        "mov rsp, rsi",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    );
}

/// As on x86-64.
///
/// # Safety
/// 1. As on x86-64.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn switch(from: *mut Place, to: Place) {
    naked_asm!(
        "stp x29, x30, [sp, #-160]!",
        "stp x19, x20, [sp, #16]",
        "stp x21, x22, [sp, #32]",
        "stp x23, x24, [sp, #48]",
        "stp x25, x26, [sp, #64]",
        "stp x27, x28, [sp, #80]",
        "stp d8, d9, [sp, #96]",
        "stp d10, d11, [sp, #112]",
        "stp d12, d13, [sp, #128]",
        "stp d14, d15, [sp, #144]",
        "mov x9, sp",
        "str x9, [x0]",
        "mov sp, x1",
        "ldp x19, x20, [sp, #16]",
        "ldp x21, x22, [sp, #32]",
        "ldp x23, x24, [sp, #48]",
        "ldp x25, x26, [sp, #64]",
        "ldp x27, x28, [sp, #80]",
        "ldp d8, d9, [sp, #96]",
        "ldp d10, d11, [sp, #112]",
        "ldp d12, d13, [sp, #128]",
        "ldp d14, d15, [sp, #144]",
        "ldp x29, x30, [sp], #160",
        "ret",
    );
}

/// Words that [`switch`] takes off a stack before it goes on there, which of them says where, and
/// words above them: alignment as behind a call, and a return address of zero, at which walks over
/// the stack end.
#[cfg(target_arch = "x86_64")]
const SAVED: (usize, usize, usize) = (7, 6, 1);
#[cfg(target_arch = "aarch64")]
const SAVED: (usize, usize, usize) = (20, 1, 2);

/// Where a fiber on `stack` begins: in `entry`, which must not return.
///
/// # Safety
/// 1. Nobody uses the stack yet.
pub(crate) unsafe fn begin(stack: &Shifted, entry: extern "C" fn() -> !) -> Place {
    let (words, to, above) = SAVED;
    let top = stack.top().as_ptr();
    // SAFETY: a stack has room for far more than these words, its top is aligned for them, and
    // obligation 1.
    unsafe {
        let place = top.sub(words + above);
        place.write_bytes(0, words + above);
        place.add(to).write(entry as usize);
        place as Place
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;

    thread_local! {
        static PLACES: [Cell<Place>; 3] = const { [const { Cell::new(0) }; 3] };
        static SEEN: Cell<u64> = const { Cell::new(0) };
    }

    fn go(from: usize, to: usize) {
        let (from, to) = PLACES.with(|places| (places[from].as_ptr(), places[to].get()));
        // SAFETY: the test's places, each noted or made before it is gone on at, on one thread.
        unsafe { switch(from, to) };
    }

    fn rounds(me: usize, next: usize) -> ! {
        // More live values than there are registers to keep, of both kinds.
        let mut sums: [u64; 12] = core::array::from_fn(|n| (me * 100 + n) as u64);
        let mut share = 0.5 * me as f64;
        loop {
            go(me, next);
            for (n, sum) in sums.iter_mut().enumerate() {
                *sum = core::hint::black_box(*sum * 3 + n as u64);
            }
            share = core::hint::black_box(share * 1.25);
            let all = sums
                .iter()
                .fold(share.to_bits(), |all, sum| all.rotate_left(7) ^ sum);
            SEEN.set(SEEN.get().rotate_left(1) ^ all);
        }
    }

    extern "C" fn first() -> ! {
        rounds(1, 2)
    }

    extern "C" fn second() -> ! {
        // A function may take for granted how its stack is aligned.
        let aligned = core::hint::black_box(0u128);
        assert!((&raw const aligned).addr().is_multiple_of(16));
        rounds(2, 0)
    }

    fn model(rounds: u32) -> u64 {
        let mut sums: [[u64; 12]; 2] =
            core::array::from_fn(|m| core::array::from_fn(|n| ((m + 1) * 100 + n) as u64));
        let (mut shares, mut seen) = ([0.5f64, 1.0], 0u64);
        for _ in 0..rounds {
            for m in 0..2 {
                for (n, sum) in sums[m].iter_mut().enumerate() {
                    *sum = sum.wrapping_mul(3) + n as u64;
                }
                shares[m] *= 1.25;
                let all = sums[m]
                    .iter()
                    .fold(shares[m].to_bits(), |all, sum| all.rotate_left(7) ^ sum);
                seen = seen.rotate_left(1) ^ all;
            }
        }
        seen
    }

    #[test]
    fn turns_pass_from_stack_to_stack_and_every_value_stays() {
        let stacks = [Shifted::new(0), Shifted::new(1)];
        PLACES.with(|places| {
            // SAFETY: new stacks.
            places[1].set(unsafe { begin(&stacks[0], first) });
            // SAFETY: as above.
            places[2].set(unsafe { begin(&stacks[1], second) });
        });
        go(0, 1);
        (0..20).for_each(|_| go(0, 1));
        assert_eq!(SEEN.get(), model(20));
    }
}
