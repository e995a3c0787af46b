//! Any kernel: the verifier takes or refuses it, and what it takes the code generator takes or refuses.
#![no_main]

#[path = "../../crates/codegen/examples/fuzz/kernels.rs"]
mod kernels;

use openmps_codegen::{Target, compile};
use openmps_tile::verify;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(verified) = verify(&kernels::changed(None, bytes)) {
        for target in [Target::metal(128), Target::cuda(128)] {
            let _ = compile(verified, &target);
        }
    }
});
