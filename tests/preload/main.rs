//! Real programs with the library preloaded, as a user would run them. A program that is not
//! installed is named with the package that has it.

mod conditions;
mod confined;
mod drift;
mod footprint;
mod hostile;
mod languages;
mod launcher;
mod lifecycle;
mod pressure;
mod profiles;
mod programs;
mod python;
mod services;
mod settings;
mod swings;

/// Where compiled programs go.
const SCRATCH: &str = env!("CARGO_TARGET_TMPDIR");
