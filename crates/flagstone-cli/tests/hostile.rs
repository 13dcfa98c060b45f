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
    let (mut read, mut refused) = (0, 0);
    mutate::each("profile", 15_000, |bytes| match raw::of_file(bytes) {
        Ok(_) => read += 1,
        Err(_) => refused += 1,
    });
    assert!(
        read > 100 && refused > 1000,
        "{read} read, {refused} refused"
    );
}
