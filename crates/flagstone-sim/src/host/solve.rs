//! Prices of the core's work, from loops that were run in both worlds.
//!
//! Bounded least squares of relative errors, loops far off weighing less, by descent along one price at a time; where loops
//! say nothing about a price, a weak pull keeps it at its usual value.

use super::loops::Loop;
use super::steps::{self, Row};
use crate::machine::Machine;

/// What a loop's misfit of its whole size costs, beside a price that is off by its whole size.
const PULL: f64 = 0.002;

/// The relative misfit at which a loop pulls half as much as its place says: a loop of one object has
/// each store read again by the next step, which no price says.
const FAR: f64 = 0.15;

/// Rounds of the descent: it settles in a few dozen.
const ROUNDS: usize = 400;

/// A figure of the profile that is solved for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Price {
    /// `latency_ns.l1`
    Own,
    /// `work_ns.slot`
    Slot,
    /// `work_ns.fast`
    Fast,
    /// `work_ns.fast_free`
    FastFree,
    /// `work_ns.slow`
    Slow,
    /// `work_ns.object`
    Object,
    /// `work_ns.slab`
    Slab,
    /// `work_ns.slab_page`
    SlabPage,
    /// `work_ns.block`
    Block,
    /// `work_ns.local`
    Local,
    /// `work_ns.pageset`
    Pageset,
}

/// All of them, with their usual values in ns.
pub const PRICES: [(Price, f64); 11] = [
    (Price::Own, 0.5),
    (Price::Slot, 1.0),
    (Price::Fast, 1.5),
    (Price::FastFree, 1.5),
    (Price::Slow, 10.0),
    (Price::Object, 1.0),
    (Price::Slab, 100.0),
    (Price::SlabPage, 20.0),
    (Price::Block, 5.0),
    (Price::Local, 4.0),
    (Price::Pageset, 4.0),
];

impl Price {
    /// Where the figure is in a profile.
    pub fn of(self, machine: &mut Machine) -> &mut f64 {
        match self {
            Self::Own => &mut machine.latency_ns.l1,
            Self::Slot => &mut machine.work_ns.slot,
            Self::Fast => &mut machine.work_ns.fast,
            Self::FastFree => machine.work_ns.fast_free.get_or_insert(0.0),
            Self::Slow => &mut machine.work_ns.slow,
            Self::Object => &mut machine.work_ns.object,
            Self::Slab => &mut machine.work_ns.slab,
            Self::SlabPage => &mut machine.work_ns.slab_page,
            Self::Block => &mut machine.work_ns.block,
            Self::Local => &mut machine.work_ns.local,
            Self::Pageset => machine.work_ns.pageset.get_or_insert(0.0),
        }
    }
}

/// The part of a loop's turn that an equation is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// All of it.
    Whole,
    /// Taking the objects.
    Taking,
    /// Giving them back.
    Giving,
}

impl core::fmt::Display for Part {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.write_str(match self {
            Self::Whole => "taken and freed",
            Self::Taking => "taken",
            Self::Giving => "freed",
        })
    }
}

impl Part {
    /// Of a figure of the taking and one of the giving.
    fn of(self, [taking, giving]: [f64; 2]) -> f64 {
        match self {
            Self::Whole => taking + giving,
            Self::Taking => taking,
            Self::Giving => giving,
        }
    }
}

/// One loop: what it pays, what it took, what the prices found make of it.
#[derive(Clone, Debug)]
pub struct Equation {
    /// The loop.
    pub row: Row,
    /// The part of its turns.
    pub part: Part,
    /// Times each price is paid.
    pub paid: [f64; PRICES.len()],
    /// Nanoseconds that fixed figures cost.
    pub fixed: f64,
    /// Nanoseconds on the host.
    pub measured: f64,
}

impl Equation {
    /// Nanoseconds under `prices`.
    #[must_use]
    pub fn predicted(&self, prices: &[f64; PRICES.len()]) -> f64 {
        let paid = self.paid.iter().zip(prices).map(|(n, price)| n * price);
        self.fixed + paid.sum::<f64>()
    }
}

/// A machine like `machine` on which nothing takes time.
fn free_of_charge(machine: &Machine) -> Machine {
    let mut free = machine.clone();
    let (line, work) = (&mut free.latency_ns, &mut free.work_ns);
    for figure in [
        &mut line.l1,
        &mut line.sibling,
        &mut line.socket,
        &mut line.remote,
        &mut line.dram,
        &mut line.atomic,
        &mut work.slot,
        &mut work.fast,
        &mut work.slow,
        &mut work.object,
        &mut work.slab,
        &mut work.slab_page,
        &mut work.block,
        &mut work.page,
        &mut work.local,
        &mut work.seize,
        &mut work.wake,
    ] {
        *figure = 0.0;
    }
    work.pageset = Some(0.0);
    work.fast_free = Some(0.0);
    work.mispredict = None;
    free
}

/// Runs every loop on the virtual machine too. `machine` gives the figures that are not solved for, and
/// the pace at which all of them are to be.
#[must_use]
pub fn equations(machine: &Machine, loops: &[Loop]) -> Vec<Equation> {
    let each = |one| equations_of(machine, one);
    loops.iter().flat_map(each).collect()
}

/// Those of one loop.
fn equations_of(machine: &Machine, one: &Loop) -> Vec<Equation> {
    /// High enough that rounding to picoseconds does not show.
    const UNIT_NS: f64 = 1000.0;
    let row = one.row;
    let paid = PRICES.map(|(price, _)| {
        let mut priced = free_of_charge(machine);
        *price.of(&mut priced) = UNIT_NS;
        steps::simulated(&priced, row).map(|ns| ns / UNIT_NS)
    });
    let mut fixed = free_of_charge(machine);
    fixed.latency_ns.atomic = machine.latency_ns.atomic;
    fixed.work_ns.mispredict = machine.work_ns.mispredict;
    let fixed = steps::simulated(&fixed, row);
    let (found, taking) = one.took();
    let work = &machine.work_ns;
    let whole = found.at(
        work.pace.unwrap_or(found.pace),
        work.pace_power.unwrap_or(1.0),
    );
    let measured = [whole * taking, whole * (1.0 - taking)];
    let parts: &[Part] = if row.step.is_halved() {
        &[Part::Taking, Part::Giving]
    } else {
        &[Part::Whole]
    };
    let equation = |part: &Part| Equation {
        row,
        part: *part,
        paid: paid.map(|paid| part.of(paid)),
        fixed: part.of(fixed),
        measured: part.of(measured),
    };
    parts.iter().map(equation).collect()
}

/// The prices that fit best; `own_line_most` bounds the price of a line that is here by the
/// latency of a load from the second cache that nothing else overlaps.
#[must_use]
pub fn solve(equations: &[Equation], own_line_most: f64) -> [f64; PRICES.len()] {
    let usual = PRICES.map(|(_, usual)| usual);
    let mut prices = usual;
    prices[Price::Own as usize] = prices[Price::Own as usize].min(own_line_most);
    for _ in 0..ROUNDS {
        for index in 0..PRICES.len() {
            let (mut above, mut below) = (PULL / usual[index], PULL / usual[index].powi(2));
            for equation in equations {
                // A loop that something else rules pulls little.
                let off = equation.predicted(&prices) / equation.measured - 1.0;
                let weight = 1.0 / (1.0 + (off / FAR).powi(2));
                let share = equation.paid[index] / equation.measured;
                let others = equation.predicted(&prices) - equation.paid[index] * prices[index];
                above += weight * share * (1.0 - others / equation.measured);
                below += weight * share * share;
            }
            let most = if index == Price::Own as usize {
                own_line_most
            } else {
                f64::INFINITY
            };
            prices[index] = (above / below).clamp(usual[index] / 20.0, most);
        }
    }
    prices
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::steps::Step;

    fn equation(paid: &[(Price, f64)], measured: f64) -> Equation {
        let mut row = [0.0; PRICES.len()];
        paid.iter().for_each(|(price, n)| row[*price as usize] = *n);
        Equation {
            row: Row {
                policy: "flagstone",
                step: Step::Stack { size: 64, count: 1 },
            },
            part: Part::Whole,
            paid: row,
            fixed: 0.0,
            measured,
        }
    }

    #[test]
    fn prices_that_made_the_figures_are_found_again() {
        let found = solve(
            &[
                equation(&[(Price::Fast, 2.0)], 6.0),
                equation(&[(Price::Fast, 2.0), (Price::Slow, 0.1)], 9.0),
                equation(&[(Price::Fast, 2.0), (Price::Slab, 0.05)], 26.0),
            ],
            1.0,
        );
        assert!((found[Price::Fast as usize] - 3.0).abs() < 0.1, "{found:?}");
        // The pull towards usual values takes a seventh of what two loops say so weakly.
        assert!((found[Price::Slow as usize] - 30.0).abs() < 6.0);
        assert!((found[Price::Slab as usize] - 400.0).abs() < 40.0);
        let unknown = found[Price::Block as usize];
        assert!((unknown - 5.0).abs() < 1e-6, "nothing was said: as usual");
    }

    #[test]
    fn counts_of_a_loop_do_not_depend_on_prices() {
        let machine = Machine::named("this-machine").unwrap();
        let row = steps::rows()[0];
        let mut priced = free_of_charge(&machine);
        *Price::Fast.of(&mut priced) = 10.0;
        let ten = Part::Whole.of(steps::simulated(&priced, row));
        *Price::Fast.of(&mut priced) = 30.0;
        let thirty = Part::Whole.of(steps::simulated(&priced, row));
        assert!(ten > 0.0 && (thirty / ten - 3.0).abs() < 1e-6);
    }

    #[test]
    fn halves_of_a_loop_price_taking_and_giving_apart() {
        let machine = Machine::named("this-machine").unwrap();
        let row = steps::rows().into_iter().find(|row| row.step.is_halved());
        let row = row.unwrap();
        let paid = |price: Price| {
            let mut priced = free_of_charge(&machine);
            *price.of(&mut priced) = 1000.0;
            steps::simulated(&priced, row).map(|ns| ns / 1000.0)
        };
        let [taking, giving] = paid(Price::Fast);
        assert!(taking >= 1.0 && giving < 0.5, "{taking} {giving}");
        let [taking, giving] = paid(Price::FastFree);
        assert!(taking < 0.5 && giving >= 1.0, "{taking} {giving}");
        let found = solve(
            &[
                equation(&[(Price::Fast, 1.0), (Price::Slot, 1.0)], 3.0),
                equation(&[(Price::FastFree, 1.0), (Price::Slot, 1.0)], 7.0),
            ],
            1.0,
        );
        let [fast, free] = [Price::Fast, Price::FastFree].map(|price| found[price as usize]);
        assert!((free - fast - 4.0).abs() < 0.3, "{fast} {free}");
    }
}
