//! `sanitize`: the tests of the unsafe core under the address sanitizer, on a stable toolchain.

use crate::shell::{Result, cargo, root, run, say};

/// The crates in which `unsafe` does arithmetic on addresses, and what stands on them.
const PACKAGES: [&str; 4] = ["openmps-tile", "openmps-host", "openmps-runtime", "openmps"];

/// The one target for which the flag is given: build scripts and macros then stay without it.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Builds the packages with the sanitizer in a folder of their own, and runs their tests.
pub fn tests() -> Result<()> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Err(format!("the address sanitizer is set up for {TARGET} only"));
    }
    say("Tests under the address sanitizer");
    let mut tests = cargo();
    tests.args(["test", "--release", "--target", TARGET, "--lib", "--tests", "--no-fail-fast"]);
    tests.args(PACKAGES.iter().flat_map(|package| ["-p", package]));
    tests.env("CARGO_TARGET_DIR", root().join("target").join("sanitize"));
    // The sanitizer is part of every toolchain; only its flag is called unstable.
    tests.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", "-Zsanitizer=address");
    // Threads and caches of the process live until its end, and are no leaks.
    tests.env("ASAN_OPTIONS", "detect_leaks=0");
    run(&mut tests)
}
