//! Random programs that check every byte they can (programs.c): threads, exchanges, forks, handlers, limits.

use crate::SCRATCH;
use flagstone_tests::{LIMIT, compile, preloaded, succeed};

/// What the letters mean stands in programs.c.
#[test]
fn random_programs_find_their_bytes_as_they_left_them() {
    let program = compile(SCRATCH, "preload/programs.c");
    for seed in 1..=3_u32 {
        for letters in ["xhd", "xhsd", "xhfstcd", "xhftcd", "xlhd", "xshlcd"] {
            let (seed, threads) = (seed.to_string(), (1 + 2 * seed).to_string());
            succeed(
                preloaded(&program).args([&*seed, &*threads, "40000", letters]),
                LIMIT,
            );
        }
    }
}
