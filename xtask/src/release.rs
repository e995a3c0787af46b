//! `release`: every step of a release up to the point of publishing: the crates packaged and built from their packages, the wheel built and
//! tried in an environment of its own. Publishing itself is a person's step; what to type is printed at the end.

use crate::shell::{Result, cargo, command, root, run, say};
use crate::{python, setup};
use std::path::PathBuf;

/// What stays here: this program, and the two halves of the wheel.
const PRIVATE: [&str; 3] = ["xtask", "openmps-paddle", "openmps-python"];

/// What is made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Parts {
    Everything,
    Crates,
    Wheel,
}

/// Makes and checks what a release consists of; uploads nothing.
pub fn dry_run(parts: Parts) -> Result<()> {
    check_changelog()?;
    if parts != Parts::Wheel {
        package_crates()?;
    }
    if parts != Parts::Crates {
        let wheel = build_wheel()?;
        try_wheel(&wheel)?;
    }
    println!("\n==> Ready. What a person does now:");
    println!("    git tag v{0} && git push origin v{0}", env!("CARGO_PKG_VERSION"));
    println!("    cargo publish {}", packages().join(" "));
    println!("    maturin upload target/release-wheels/*.whl");
    Ok(())
}

/// A release says what it brings: CHANGELOG.md has a section for the version.
fn check_changelog() -> Result<()> {
    let changelog = std::fs::read_to_string(root().join("CHANGELOG.md")).map_err(|error| error.to_string())?;
    let heading = format!("## {}", env!("CARGO_PKG_VERSION"));
    if changelog.lines().any(|line| line.starts_with(&heading)) {
        return Ok(());
    }
    Err(format!("CHANGELOG.md has no section \"{heading}\""))
}

/// All crates that are published; cargo finds the order among them.
fn packages() -> Vec<&'static str> {
    std::iter::once("--workspace").chain(PRIVATE.iter().flat_map(|name| ["--exclude", *name])).collect()
}

/// Packages the crates and builds each from its package, as somebody who depends on it would get it.
fn package_crates() -> Result<()> {
    say("Crates");
    run(cargo().arg("package").args(packages()))
}

fn build_wheel() -> Result<PathBuf> {
    say("The wheel");
    setup::tools()?;
    let out = root().join("target").join("release-wheels");
    let _ = std::fs::remove_dir_all(&out);
    let maturin = ["-m", "maturin", "build", "--release", "--manifest-path", "frontends/python/Cargo.toml", "--out"];
    run(python::venv_python().args(maturin).arg(&out).arg("--interpreter").arg(python::program("python")))?;
    setup::wheel_in(&out)
}

/// Installs the wheel where nothing else is, and has it compile a kernel: `openmps info` would miss Paddle there.
fn try_wheel(wheel: &std::path::Path) -> Result<()> {
    say("The wheel in an environment of its own");
    let environment = root().join("target").join("release-environment");
    run(python::venv_python().args(["-m", "venv", "--clear"]).arg(&environment))?;
    let bin = environment.join("bin");
    run(python::pip_install(command(bin.join("python"))).arg(wheel))?;
    run(command(bin.join("openmps")).arg("compile").arg(root().join("crates/tile/tests/ttir/softmax.ttir")))
}
