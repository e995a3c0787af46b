//! `shaders`: the Metal kernels that Candle publishes, compiled and run on the emulator against float64. Their sources are cargo's, fetched
//! where they are missing; nothing of them is kept here.

use crate::setup;
use crate::shell::{Result, cargo, root, run, say};
use std::path::{Path, PathBuf};

/// The crate with the kernels, and where in it they lie.
const PACKAGE: &str = "candle-metal-kernels";
const VERSION: &str = "0.11.1";
const FOLDER: &str = "src/metal_src";

/// Prints the table; an error where a kernel is refused or wrong.
pub fn run_published(only: Option<&str>) -> Result<()> {
    setup::tools()?;
    let sources = fetched()?.join(FOLDER);
    say(&format!("{PACKAGE} {VERSION} on the emulated GPU, in three schedules"));
    let example =
        ["run", "--release", "--package", "openmps-emulator", "--features", "shaders", "--example", "shaders", "--"];
    run(cargo().args(example).arg(sources).args(only))
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
