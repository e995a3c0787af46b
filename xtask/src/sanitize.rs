//! `sanitize`: the tests of the unsafe core under the address sanitizer, on a stable toolchain, and under Miri where a nightly one has it.

use crate::shell::{Result, cargo, command, output, root, run, say};
use std::process::Command;

/// The crates in which `unsafe` does arithmetic on addresses, and what stands on them, with the tests of each that are run: all, or those named.
/// Every operator is run on the host device, in every layout, by `every_device`; graph's other tests are about GPUs.
const SANITIZED: [(&str, &[&str]); 6] = [
    ("openmps-settings", &[]),
    ("openmps-tile", &[]),
    ("openmps-host", &[]),
    ("openmps-runtime", &[]),
    ("openmps-graph", &["every_device", "movement"]),
    ("openmps", &[]),
];

/// The crates whose library tests Miri can run: it has no vector instructions beyond SSE2, and is some hundred times slower.
const INTERPRETED: [&str; 3] = ["openmps-settings", "openmps-tile", "openmps-graph"];

/// The one target for which the flag is given: build scripts and macros then stay without it.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Both, each with a folder of its own for what it builds.
pub fn tests() -> Result<()> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Err(format!("the address sanitizer is set up for {TARGET} only"));
    }
    say("Tests under the address sanitizer");
    for (package, tests) in SANITIZED {
        run(&mut sanitized(package, tests))?;
    }
    if output(command("cargo").args(["+nightly", "miri", "--version"])).is_none() {
        say("No tests under Miri: rustup +nightly component add miri rust-src");
        return Ok(());
    }
    say("Tests under Miri");
    run(&mut interpreted())
}

fn sanitized(package: &str, names: &[&str]) -> Command {
    let mut tests = cargo();
    tests.args(["test", "--release", "--target", TARGET, "--lib", "--no-fail-fast", "-p", package]);
    if names.is_empty() {
        tests.arg("--tests");
    }
    tests.args(names.iter().flat_map(|name| ["--test", name]));
    tests.env("CARGO_TARGET_DIR", root().join("target").join("sanitize"));
    // The sanitizer is part of every toolchain; only its flag is called unstable.
    tests.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", "-Zsanitizer=address");
    // Threads and caches of the process live until its end, and are no leaks.
    tests.env("ASAN_OPTIONS", "detect_leaks=0");
    // Sanitized code is slow to build: what makes it fast at last is left out.
    tests.env("CARGO_PROFILE_RELEASE_LTO", "off").env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "32");
    tests.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1");
    tests
}

fn interpreted() -> Command {
    let mut tests = command("cargo");
    tests.args(["+nightly", "miri", "test", "--lib", "--no-fail-fast"]);
    tests.args(INTERPRETED.iter().flat_map(|package| ["-p", package]));
    tests.env("CARGO_TARGET_DIR", root().join("target").join("miri"));
    // Tests read the environment; device memory is named by addresses, which are numbers; numbers are compared to the last digit.
    tests.env("MIRIFLAGS", "-Zmiri-disable-isolation -Zmiri-permissive-provenance -Zmiri-deterministic-floats");
    tests
}
