//! The least run of the simulator that has rows.

/// Two of sixteen CPUs for 2 ms.
pub const LEAST: [&str; 7] = [
    "random-mix",
    "--machine",
    "x86-16",
    "--tasks",
    "2",
    "--window",
    "2ms",
];
