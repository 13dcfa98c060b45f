//! The allowance: what giving memory back may cost a program.
//!
//! ```text
//!   wanted again  ──► charge what the madvise and the fault cost ──► debt ──┐
//!   time          ──► pays a share of itself                       ◄───────┘
//!   debt paid?    yes: memory below the bound may go back     no: it stays
//! ```
//!
//! Memory that was in use for seconds goes at once, since no debt is left by then. Memory that is freed and taken
//! again within milliseconds makes debts and stays. An allowance may have a credit: debts up to it are as good
//! as paid, so that only a program that goes on swinging meets its end.
//!
//! Only pages that are wanted again are charged. A page that stays away cost one `madvise`, less than its fault.
//!
//! Plain arithmetic, racy on purpose: a lost charge gives back a little too eagerly.
#![forbid(unsafe_code)]

use crate::sync::{AtomicU64, Ordering::Relaxed};

/// Nanoseconds that a page costs which was given back and is wanted again: its part of the `madvise`, and the fault.
/// Why 2000: a fault of zeroed memory takes 0.5 to 1 µs on bare machines, 2 to 4 µs under nested page tables (4 KiB
/// pages). Halving it lets programs that swing give back twice as often.
pub const PAGE_NS: u64 = 2000;

/// The same for a page inside a slab, which costs more to find. Doubling it makes programs whose sizes drift 5 % larger.
pub const HOLE_NS: u64 = 2500;

/// Nanoseconds that looking through one slab for pages to give back costs.
pub const SLAB_NS: u64 = 100;

/// Nanoseconds that emptying all caches costs, and filling them again.
pub const SHRINK_NS: u64 = 300_000;

/// Per cent of all time that pay. Why three: less than what differs between two runs of most programs. Halving
/// it keeps memory of programs that swing twice as long.
const PERCENT: u64 = 3;

/// Nanoseconds ahead in which all debts are paid: what a program that rests keeps goes back a second later. With
/// a credit four times that, or a program of long swings would have one for nothing each second.
const DEBT_NS: u64 = 1_000_000_000;

/// When giving back may cost something again.
#[derive(Debug)]
pub struct Allowance {
    /// Per cent of all time that pay, from 1 to 100: a knob.
    pub percent: AtomicU64,
    /// The moment at which every charge is paid.
    paid: AtomicU64,
    /// Nanoseconds by which that may lie ahead.
    credit: u64,
}

impl Allowance {
    /// An allowance without debts, and with a credit of `cost` nanoseconds.
    pub(crate) const fn new(cost: u64) -> Self {
        Self {
            percent: AtomicU64::new(PERCENT),
            paid: AtomicU64::new(0),
            credit: cost * (100 / PERCENT),
        }
    }

    /// Whether all charges are paid at `now`, or within the credit.
    #[must_use]
    pub fn affords(&self, now: u64) -> bool {
        now + self.credit >= self.paid.load(Relaxed)
    }

    /// Takes all charges for paid.
    pub fn forgive(&self) {
        self.paid.store(0, Relaxed);
    }

    /// Charges `cost` nanoseconds.
    pub fn charge(&self, cost: u64, now: u64) {
        let paid = self.paid.load(Relaxed).max(now);
        let then =
            paid.saturating_add(cost.saturating_mul(100 / self.percent.load(Relaxed).max(1)));
        self.paid
            .store(then.min(now + DEBT_NS.max(4 * self.credit)), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_charge_is_paid_by_three_hundredths_of_the_time() {
        let allowance = Allowance::new(0);
        assert!(allowance.affords(0));
        allowance.charge(MS, 5 * MS);
        assert!(!allowance.affords(37 * MS));
        assert!(allowance.affords(38 * MS));
    }

    #[test]
    fn charges_add_up_to_a_second_at_most() {
        let allowance = Allowance::new(0);
        allowance.charge(MS, 0);
        allowance.charge(MS, 0);
        assert!(!allowance.affords(65 * MS) && allowance.affords(66 * MS));
        allowance.charge(u64::MAX, 0);
        assert!(!allowance.affords(DEBT_NS - 1) && allowance.affords(DEBT_NS));
    }

    #[test]
    fn a_credit_lasts_as_long_as_charges_come_faster_than_they_are_paid() {
        let allowance = Allowance::new(10 * MS);
        allowance.charge(10 * MS, 0);
        assert!(allowance.affords(0));
        allowance.charge(MS, 0);
        assert!(!allowance.affords(32 * MS) && allowance.affords(33 * MS));
        allowance.charge(100 * DEBT_NS, 0);
        assert!(!allowance.affords(989 * MS) && allowance.affords(990 * MS));
    }

    #[test]
    fn idle_time_is_no_credit() {
        let allowance = Allowance::new(0);
        allowance.charge(MS, 1000 * DEBT_NS);
        assert!(!allowance.affords(1000 * DEBT_NS + MS));
    }
}
