//! Any conversation between two ranks, changed underway and with strangers' bytes: results or errors.
#![no_main]

#[path = "../../crates/collective/tests/support/hostile.rs"]
mod hostile;

libfuzzer_sys::fuzz_target!(|seed: u64| {
    let outcome = hostile::round(seed);
    assert_eq!(outcome.fine + outcome.failed, 2);
});
