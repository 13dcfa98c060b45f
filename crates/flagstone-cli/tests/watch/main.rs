//! Running processes asked and told: real programs under load, from outside.

mod damage;
mod gaps;
mod maps;
mod metrics;
mod ours;
mod reach;
mod real;
mod told;
mod traces;
