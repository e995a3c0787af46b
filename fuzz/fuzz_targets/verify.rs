//! A text that the parser takes: the verifier takes or refuses its kernel.
#![no_main]

use openmps_tile::{parse, verify};

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(kernel) = parse(text) {
        let _ = verify(&kernel);
    }
});
