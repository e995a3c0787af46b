//! Any text: the parser takes or refuses it.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    let _ = openmps_tile::parse(text);
});
