//! `check-macos`: every crate type-checked for Apple Silicon.
//!
//! On a Mac that is `cargo check`. On Debian the packages `rustc-web` and `rust-web-src` bring a compiler together with the source of its
//! standard library, from which the library for macOS is checked first: nothing of Apple's is needed for types.

use crate::shell::{Result, cargo, command, output, run, say};
use std::path::Path;

const TARGET: &str = "aarch64-apple-darwin";
/// Debian's compiler, which lies where its source package puts the library's source.
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";

/// Checks the workspace.
pub fn check() -> Result<()> {
    say(&format!("Types for {TARGET}"));
    let mut check = cargo();
    check.args(["check", "--workspace", "--exclude", "xtask", "--target", TARGET]);
    if !cfg!(target_os = "macos") && !has_library("rustc") {
        let library = library_source().ok_or(
            "checking for macOS needs its standard library: `rustup target add aarch64-apple-darwin`, or on Debian \
             `apt-get install rustc-web rust-web-src`",
        )?;
        println!("    with {DEBIAN_RUSTC} and {library}");
        // The library is part of the compiler's own release, which its unstable parts need.
        check.arg("-Zbuild-std=std,panic_abort").env("RUSTC", DEBIAN_RUSTC).env("RUSTC_BOOTSTRAP", "1");
        check.env_remove("RUSTC_WRAPPER").env_remove("RUSTUP_TOOLCHAIN");
    }
    // The native module is checked without an interpreter of that system.
    check.env("PYO3_NO_PYTHON", "1").env("PYO3_CROSS_PYTHON_VERSION", "3.11");
    run(&mut check)?;
    println!("\n==> Every crate type-checks for {TARGET}; nothing was run there");
    Ok(())
}

/// Whether a compiler has the target's compiled library.
fn has_library(rustc: &str) -> bool {
    let folder = output(command(rustc).args(["--print", "target-libdir", "--target", TARGET]));
    folder.is_some_and(|folder| Path::new(&folder).is_dir())
}

/// Where Debian's compiler has its library's source.
fn library_source() -> Option<String> {
    let root = output(command(DEBIAN_RUSTC).args(["--print", "sysroot"]))?;
    let source = Path::new(&root).join("lib/rustlib/src/rust/library");
    source.join("std").is_dir().then(|| source.display().to_string())
}
