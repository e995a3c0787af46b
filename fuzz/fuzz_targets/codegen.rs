//! A text all the way: parser, verifier, both code generators.
#![no_main]

use openmps_codegen::{Target, compile};
use openmps_tile::{parse, verify};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let Ok(kernel) = parse(text) else { return };
    let Ok(verified) = verify(&kernel) else { return };
    for target in [Target::metal(128), Target::cuda(128)] {
        let _ = compile(verified, &target);
    }
});
