//! Without a clang the error says how to get one. A test binary of its own: the compiler is looked for once a process.
#![cfg(target_os = "linux")]

use openmps_emulator::{Error, Library};

#[test]
fn a_missing_compiler_says_how_to_get_one() {
    // SAFETY: this is the only test of this process, and it has started no other thread.
    unsafe { std::env::set_var("OPENMPS_CLANG", "/nonexistent/clang") };
    let Err(error @ Error::NoCompiler { .. }) = Library::compile("kernel void k() {}") else {
        panic!("compiled without a compiler")
    };
    let text = error.to_string();
    assert!(text.contains("cargo xtask setup") && text.contains("/nonexistent/clang"), "{text}");
}
