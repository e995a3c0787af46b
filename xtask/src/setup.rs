//! `setup`: .venv with pinned packages, and the wheel built from this source in it.

use crate::shell::{self, Result, command, root, say};
use crate::{fingerprint, python};
use std::path::PathBuf;

/// Pinned packages, and those that are wanted for their models alone.
const REQUIREMENTS: &str = "requirements.txt";
pub const MODELS: &str = "requirements-models.txt";
/// What the wheel is made from.
const WHEEL_SOURCES: &[&str] =
    &["Cargo.toml", "Cargo.lock", ".cargo", "crates", "frontends/paddle", "frontends/python"];

/// With which features of its dependencies a wheel is built.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Wheel {
    /// Those that it needs.
    AsReleased,
    /// Those that the tests in Rust have them built with: soon done after these.
    AsTested,
}

/// Brings .venv up to date.
pub fn run() -> Result<()> {
    with(Wheel::AsReleased)
}

/// As [`run`], with a wheel that may be made of what the tests have built.
pub fn with(wheel: Wheel) -> Result<()> {
    let installed = tools()?;
    let built = install_wheel(wheel)?;
    if !(installed || built) {
        say(".venv is up to date");
    }
    Ok(())
}

/// Brings .venv up to date but for the wheel: the tests in Rust find their clang there. Says whether anything was done.
pub fn tools() -> Result<bool> {
    let made = make_environment()?;
    Ok(install_requirements()? || made)
}

/// Makes .venv where there is none.
pub fn make_environment() -> Result<bool> {
    if python::program("python").exists() && python::program("pip").exists() {
        return Ok(false);
    }
    let interpreter = python::system()?;
    say(&format!("Making .venv with {}", interpreter.display()));
    shell::run(command(interpreter).args(["-m", "venv", "--clear"]).arg(python::environment()))?;
    Ok(true)
}

fn install_requirements() -> Result<bool> {
    let (hash, mark) = (fingerprint::of(&[REQUIREMENTS, MODELS])?, python::environment().join("openmps-requirements"));
    if fingerprint::is_current(&mark, &hash) {
        return Ok(false);
    }
    say("Installing PaddlePaddle and the tools");
    shell::run(python::pip_install(python::venv_python()).args(["--requirement", REQUIREMENTS]))?;
    shell::run(python::pip_install(python::venv_python()).args(["--no-deps", "--requirement", MODELS]))?;
    fingerprint::keep(&mark, &hash)?;
    Ok(true)
}

/// The pinned PaddlePaddle, as pip takes it.
pub fn paddlepaddle() -> Result<String> {
    let pins =
        std::fs::read_to_string(root().join(REQUIREMENTS)).map_err(|error| format!("{REQUIREMENTS}: {error}"))?;
    let pin = pins.lines().find(|line| line.starts_with("paddlepaddle=="));
    pin.map(str::to_owned).ok_or_else(|| format!("{REQUIREMENTS} pins no paddlepaddle"))
}

fn install_wheel(wheel: Wheel) -> Result<bool> {
    let (hash, mark) = (fingerprint::of(WHEEL_SOURCES)?, python::environment().join("openmps-wheel"));
    if fingerprint::is_current(&mark, &hash) {
        return Ok(false);
    }
    say("Building the wheel (the first time some fifteen minutes on two cores)");
    let out = root().join("target").join("wheels");
    // Wheels of earlier builds have the same name or an older one; only the new one is to be installed.
    let _ = std::fs::remove_dir_all(&out);
    let maturin = ["-m", "maturin", "build", "--release", "--manifest-path", "frontends/python/Cargo.toml", "--out"];
    let features: &[&str] = if wheel == Wheel::AsTested { &["--features", "as-tested"] } else { &[] };
    let mut build = python::venv_python();
    shell::run(build.args(maturin).arg(&out).args(features).arg("--interpreter").arg(python::program("python")))?;
    let wheel = wheel_in(&out)?;
    say(&format!("Installing {}", wheel.file_name().unwrap_or_default().to_string_lossy()));
    shell::run(python::pip_install(python::venv_python()).args(["--force-reinstall", "--no-deps"]).arg(wheel))?;
    fingerprint::keep(&mark, &hash)?;
    Ok(true)
}

/// The one wheel in a folder.
pub fn wheel_in(folder: &std::path::Path) -> Result<PathBuf> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{} cannot be read: {error}", folder.display()))?;
    let mut wheels = entries.map_while(std::result::Result::ok).map(|entry| entry.path());
    wheels
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .ok_or_else(|| format!("maturin left no wheel in {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use crate::shell::{cargo, output};
    use std::collections::{BTreeMap, BTreeSet};

    /// For each package the sets of features that it is built with.
    fn features(selection: &[&str]) -> BTreeMap<String, BTreeSet<String>> {
        let tree = ["tree", "--prefix", "none", "--format", "{p} {f}"];
        let text = output(cargo().args(tree).args(selection)).expect("cargo tree");
        let mut packages: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for line in text.lines().map(|line| line.trim_end_matches("(*)").trim_end()) {
            let words: Vec<&str> = line.split(' ').collect();
            // Behind name and version of a package here is its path.
            let (name, version, features) = match words[..] {
                [name, version] => (name, version, ""),
                [name, version, last] => (name, version, if last.starts_with('(') { "" } else { last }),
                [name, version, _, features] => (name, version, features),
                _ => continue,
            };
            packages.entry(format!("{name} {version}")).or_default().insert(features.to_owned());
        }
        packages
    }

    /// Where one differs, it is built a second time, with all that depend on it: most of the wheel's time.
    #[test]
    fn the_wheel_of_the_tests_is_made_of_what_they_have_built() {
        let edges = ["--edges", "normal,build,dev"];
        let tests = features(&[&["--workspace", "--features", "openmps/emulated"], &edges[..]].concat());
        let wheel = ["--package", "openmps-python", "--features", "as-tested", "--edges", "normal,build"];
        let differ = features(&wheel).into_iter().filter(|(package, features)| {
            !package.starts_with("openmps-python ")
                && tests.get(package).is_some_and(|of_tests| !features.is_subset(of_tests))
        });
        let differ: Vec<_> = differ.map(|(package, features)| format!("{package}: {features:?}")).collect();
        assert!(
            differ.is_empty(),
            "`as-tested` of frontends/python/Cargo.toml has to give these the tests' features: {differ:#?}"
        );
    }
}
