//! `shaders`: the Metal kernels that Candle and MLX publish, compiled and run on the emulator against float64. Candle's sources are cargo's,
//! MLX's are its repository's, fetched where they are missing; nothing of them is kept here.

use crate::setup;
use crate::shell::{Result, cargo, command, root, run, say};
use std::path::{Path, PathBuf};

/// The crate with the kernels, and where in it they lie.
const PACKAGE: &str = "candle-metal-kernels";
const VERSION: &str = "0.11.1";
const FOLDER: &str = "src/metal_src";

/// MLX's repository, and the commit that docs/emulator.md tells of. Its wheels have headers only, and not all kernels are in these.
const MLX: &str = "https://github.com/ml-explore/mlx";
const MLX_COMMIT: &str = "846d176227a0ac13d2667e58d2bb68b322109ab0";
/// What a name begins with that is one of MLX's families.
const OF_MLX: &str = "mlx/";

/// Prints the tables; an error where a kernel is refused or wrong. `mlx` is another place of MLX's source: a folder, or a repository.
pub fn run_published(only: Option<&str>, mlx: Option<&str>) -> Result<()> {
    setup::tools()?;
    let family = only.and_then(|only| only.strip_prefix(OF_MLX));
    let candle = if family.is_none() { run_candle(only) } else { Ok(()) };
    let mlx = if family.is_some() || only.is_none() { run_mlx(family, mlx) } else { Ok(()) };
    candle.and(mlx)
}

/// The example that runs kernels, with their folder.
fn example(folder: &Path) -> std::process::Command {
    let example =
        ["run", "--release", "--package", "openmps-emulator", "--features", "shaders", "--example", "shaders", "--"];
    let mut command = cargo();
    command.args(example).arg(folder);
    command
}

fn run_candle(only: Option<&str>) -> Result<()> {
    let sources = fetched()?.join(FOLDER);
    say(&format!("{PACKAGE} {VERSION} on the emulated GPU, in three schedules"));
    run(example(&sources).args(only))
}

fn run_mlx(family: Option<&str>, source: Option<&str>) -> Result<()> {
    let folder = source.map(Path::new).filter(|folder| folder.join("mlx").is_dir());
    let folder = match folder {
        Some(folder) => folder.to_path_buf(),
        None => checked_out(source.unwrap_or(MLX))?,
    };
    say(&format!("MLX's kernels from {} on the emulated GPU, in three schedules", folder.display()));
    run(example(&folder).arg("--mlx").args(family))
}

/// MLX's source at the commit, from a repository.
fn checked_out(repository: &str) -> Result<PathBuf> {
    let folder = root().join("target").join("shaders").join(format!("mlx-{}", &MLX_COMMIT[..12]));
    if folder.join("mlx").is_dir() {
        return Ok(folder);
    }
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let git = || {
        let mut git = command("git");
        git.arg("-C").arg(&folder);
        git
    };
    run(git().args(["init", "--quiet"]))?;
    run(git().args(["fetch", "--quiet", "--depth", "1", repository, MLX_COMMIT]))?;
    run(git().args(["checkout", "--quiet", MLX_COMMIT]))?;
    Ok(folder)
}

/// The crate's folder among cargo's sources.
fn fetched() -> Result<PathBuf> {
    let folder = root().join("target").join("shaders");
    std::fs::create_dir_all(folder.join("src")).map_err(|error| format!("{}: {error}", folder.display()))?;
    let manifest = format!(
        "[package]\nname = \"shaders\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[dependencies]\n{PACKAGE} = \"={VERSION}\"\n\n[workspace]\n"
    );
    for (name, text) in [("Cargo.toml", manifest.as_str()), ("src/lib.rs", "")] {
        std::fs::write(folder.join(name), text).map_err(|error| format!("{name}: {error}"))?;
    }
    let manifest = folder.join("Cargo.toml");
    run(cargo().arg("fetch").arg("--manifest-path").arg(&manifest))?;
    let mut metadata = cargo();
    metadata.args(["metadata", "--format-version", "1", "--offline", "--manifest-path"]).arg(&manifest);
    let output = metadata.output().map_err(|error| format!("cargo metadata: {error}"))?;
    place(&output.stdout).ok_or_else(|| format!("cargo metadata does not know {PACKAGE} {VERSION}"))
}

/// Where the package lies, by `cargo metadata`.
fn place(metadata: &[u8]) -> Option<PathBuf> {
    let metadata: serde_json::Value = serde_json::from_slice(metadata).ok()?;
    let package = metadata["packages"].as_array()?.iter().find(|package| package["name"] == PACKAGE)?;
    Some(Path::new(package["manifest_path"].as_str()?).parent()?.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_package_is_found_by_its_name() {
        let text = format!(
            "{{\"packages\": [{{\"name\": \"a\"}}, {{\"name\": \"{PACKAGE}\", \"manifest_path\": \"/x/y/Cargo.toml\"}}]}}"
        );
        assert_eq!(place(text.as_bytes()), Some(PathBuf::from("/x/y")));
        assert_eq!(place(b"{}"), None);
    }
}
