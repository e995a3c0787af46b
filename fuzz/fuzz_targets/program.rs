//! Any bytes: the reader of inference programs takes or refuses them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = openmps_inference::read_program(bytes);
});
