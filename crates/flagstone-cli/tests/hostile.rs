//! A damaged heap profile, read as `flagstone profile` reads it: whatever the bytes, an answer.

#[path = "../../../fuzz/mutate.rs"]
mod mutate;
#[allow(
    dead_code,
    unreachable_pub,
    reason = "the command's own reader, of which one function is tried"
)]
#[path = "../src/cmd/profile/raw.rs"]
mod raw;

#[test]
fn no_mutation_of_a_profile_does_harm() {
    if !mutate::in_small_space("no_mutation_of_a_profile_does_harm", 300) {
        return;
    }
    mutate::each_read("profile", 15_000, 100, |bytes| {
        raw::of_file(bytes).map(drop)
    });
}
