//! What is done for macOS: types and lints, linking, a look at the result, the page of Apple's calls, and the tests on a Mac.
//!
//! On a Mac cargo does it. Elsewhere the standard library for macOS is rustup's where that target is installed; on Debian the packages
//! `rustc-web`, `rust-web-src` and `rust-web-clippy` bring a compiler together with the source of its library, which is compiled first, once
//! for all steps. The linker is rustup's own `rust-lld`, over stubs that only list names. Nothing of Apple's is needed.

pub mod calls;
mod inspect;
pub mod link;
pub mod selftest;
mod settings;
mod stubs;

use crate::shell::{Result, cargo, command, output, root, run, say};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Apple Silicon.
pub const TARGET: &str = "aarch64-apple-darwin";
/// Where Debian's packages put the compiler and its lints.
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
const DEBIAN_CLIPPY: &str = "/usr/bin/clippy-driver";
/// The oldest macOS that openmps is for. What is newer stands behind `objc2::available!` in `crates/metal`; the result of linking, and every
/// Objective-C selector in it, is held against this.
pub const MINIMUM: &str = "13.0";

/// Whose standard library for macOS is used, and with it whose compiler and lints: each compiler reads only its own.
enum Library {
    /// That of the toolchain in use: on a Mac, or by `rustup target add`.
    Toolchain,
    /// Debian's, compiled from the source in this folder.
    Debian(String),
}

impl Library {
    fn find() -> Result<Library> {
        let folder = output(command("rustc").args(["--print", "target-libdir", "--target", TARGET]));
        if folder.is_some_and(|folder| Path::new(&folder).is_dir()) {
            return Ok(Library::Toolchain);
        }
        let root = output(command(DEBIAN_RUSTC).args(["--print", "sysroot"]));
        let source = root.map(|root| Path::new(&root).join("lib/rustlib/src/rust/library"));
        let source = source.filter(|source| source.join("std").is_dir()).ok_or(
            "compiling for macOS needs its standard library: `rustup target add aarch64-apple-darwin`, or on Debian \
             `apt-get install rustc-web rust-web-src rust-web-clippy`",
        )?;
        Ok(Library::Debian(source.display().to_string()))
    }
}

/// Checks types and lints of the workspace, and that the page of Apple's calls is up to date.
pub fn check() -> Result<()> {
    say(&format!("Types and lints for {TARGET}"));
    let library = Library::find()?;
    // What Candle's tests and benches need beyond the crate itself has parts in C, for which Linux has no compiler.
    let candle = ["--exclude", "openmps-candle"];
    check_packages(&library, &[&["--workspace", "--exclude", "xtask", "--all-targets"][..], &candle].concat())?;
    // With Candle's own Metal backend, as on a Mac.
    check_packages(&library, &["--package", "openmps-candle", "--lib", "--features", "metal"])?;
    calls::check()?;
    println!("\n==> Every crate type-checks for {TARGET}; nothing was run there");
    Ok(())
}

fn check_packages(library: &Library, packages: &[&str]) -> Result<()> {
    let mut check = cargo();
    let own_clippy = matches!(library, Library::Toolchain);
    check.arg(if own_clippy { "clippy" } else { "check" });
    check.args(packages).args(["--release", "--target", TARGET]);
    prepare(&mut check, library);
    if own_clippy {
        check.args(["--", "-D", "warnings"]);
    } else if Path::new(DEBIAN_CLIPPY).exists() {
        // What `cargo clippy` sets, with the lints that belong to the compiler in use.
        check.env("RUSTC_WORKSPACE_WRAPPER", DEBIAN_CLIPPY).env("CLIPPY_ARGS", "-Dwarnings__CLIPPY_HACKERY__");
    } else {
        println!("    without lints: rust-web-clippy is not installed");
    }
    run(&mut check)
}

/// Makes a cargo command compile for macOS: with its standard library, linker and flags, the same for every step.
fn prepare(command: &mut Command, library: &Library) {
    // The native module is made without an interpreter of that system.
    command
        .env("PYO3_NO_PYTHON", "1")
        .env("PYO3_CROSS_PYTHON_VERSION", "3.11")
        .env("MACOSX_DEPLOYMENT_TARGET", MINIMUM);
    if cfg!(target_os = "macos") {
        return;
    }
    if let Library::Debian(source) = library {
        println!("    with {DEBIAN_RUSTC} and {source}");
        command.arg("-Zbuild-std=std,panic_abort").env("RUSTC", DEBIAN_RUSTC);
        command.env_remove("RUSTC_WRAPPER").env_remove("RUSTUP_TOOLCHAIN");
    }
    // For the library, which uses unstable parts of its own release's compiler, and for the linker's flavor, which is one.
    command.env("RUSTC_BOOTSTRAP", "1");
    // In this form maturin hands the flags on as they are, so that its crates are those of the other steps.
    let flags = "-Clinker-flavor=darwin-lld\u{1f}-Zunstable-options";
    command.env("CARGO_ENCODED_RUSTFLAGS", flags).env("SDKROOT", folder().join("sdk"));
    command.env("CARGO_TARGET_AARCH64_APPLE_DARWIN_LINKER", folder().join(link::NAME));
}

/// Where the stubs and the linker's name lie.
fn folder() -> PathBuf {
    root().join("target").join("macos")
}
