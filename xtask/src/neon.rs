//! `test-neon`: the host device's tests and every operator for 64-bit Arm, on such a machine or under qemu's emulation of its programs.

use crate::shell::{Result, cargo, command, output, root, run, say};
use std::process::Command;

/// What is built where the machine is another one.
const TARGET: &str = "aarch64-unknown-linux-gnu";

/// The emulator of programs, and the linker with the C library's folder. Debian has them in `qemu-user` and `gcc-aarch64-linux-gnu`.
const EMULATOR: &str = "qemu-aarch64";
const LINKER: &str = "aarch64-linux-gnu-gcc";
const LIBRARIES: &str = "/usr/aarch64-linux-gnu";

/// The crates whose code depends on the vector level, with the tests of each that are run beside the library's. Not among them is `fork` of
/// openmps-host: qemu's emulation of programs ends in a process that was forked from one with several threads.
const TESTED: [(&str, &[&str]); 2] =
    [("openmps-host", &["programs"]), ("openmps-graph", &["every_device", "movement"])];

/// Runs them one crate after the other.
pub fn tests() -> Result<()> {
    let is_native = cfg!(target_arch = "aarch64");
    if !is_native {
        needed()?;
    }
    say(&format!("Tests for NEON{}", if is_native { "" } else { ", emulated" }));
    for (package, names) in TESTED {
        let mut tests = of_package(package, is_native);
        tests.args(names.iter().flat_map(|name| ["--test", name]));
        if !is_native {
            tests.args(["--", "--skip", STARTS_ITSELF]);
        }
        run(&mut tests)?;
    }
    if is_native {
        return Ok(());
    }
    let mut without_spinning = of_package("openmps-host", is_native);
    without_spinning.env("OPENMPS_SPIN", "0").args(["--", "threads::pool::tests::", "--skip", STARTS_ITSELF]);
    run(&mut without_spinning)
}

/// A test that starts its own program again, with a setting: a program for another processor starts only where the kernel knows of the emulator, so
/// that setting has a run of its own here.
const STARTS_ITSELF: &str = "threads_that_do_not_spin";

fn of_package(package: &str, is_native: bool) -> Command {
    let mut tests = cargo();
    tests.args(["test", "--release", "--lib", "--no-fail-fast", "--package", package]);
    if !is_native {
        emulate(&mut tests);
    }
    tests
}

fn emulate(tests: &mut Command) {
    tests.args(["--target", TARGET]).env("CARGO_TARGET_DIR", root().join("target").join("neon"));
    tests.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER);
    tests.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", format!("{EMULATOR} -L {LIBRARIES}"));
    // The tests take longer than a build that makes less of them.
    tests.env("CARGO_PROFILE_RELEASE_LTO", "off").env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "32");
}

/// Says what is missing, all at once.
fn needed() -> Result<()> {
    let is_there = |program: &str| output(command(program).arg("--version")).is_some();
    let targets = output(command("rustup").args(["target", "list", "--installed"])).unwrap_or_default();
    let missing: Vec<&str> = [
        (is_there(EMULATOR), "qemu-user"),
        (is_there(LINKER), "gcc-aarch64-linux-gnu"),
        (targets.lines().any(|line| line == TARGET), "`rustup target add aarch64-unknown-linux-gnu`"),
    ]
    .into_iter()
    .filter_map(|(found, name)| (!found).then_some(name))
    .collect();
    if missing.is_empty() { Ok(()) } else { Err(format!("for emulated tests install {}", missing.join(", "))) }
}
