//! Where a workspace is, and which candle-nn its Cargo.lock names: asked of cargo itself, which for the latter fetches what is missing.

use crate::result::Result;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What of `cargo metadata` is read.
#[derive(Deserialize)]
struct Workspace {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    /// None for a crate in a folder of the user's.
    source: Option<String>,
    manifest_path: PathBuf,
}

/// A candle-nn as a registry has it.
#[derive(Debug)]
pub struct Source {
    /// Its version.
    pub version: String,
    /// Where cargo unpacked it.
    pub folder: PathBuf,
}

/// What of `cargo locate-project` is read.
#[derive(Deserialize)]
struct Project {
    root: PathBuf,
}

/// The Cargo.toml where patches belong: that of the workspace of this one. No dependency needs to be there.
pub fn manifest_of_workspace(manifest: &Path) -> Result<PathBuf> {
    asked(&["locate-project", "--workspace"], manifest).map(|project: Project| project.root)
}

/// The one candle-nn from a registry that this workspace uses.
pub fn candle_nn(manifest: &Path) -> Result<Source> {
    asked::<Workspace>(&["metadata", "--format-version", "1"], manifest)?.candle_nn()
}

/// Whether cargo finds all that the workspace needs; what it says where it does not.
pub fn resolves(manifest: &Path) -> Result<()> {
    asked::<serde::de::IgnoredAny>(&["metadata", "--format-version", "1"], manifest).map(drop)
}

/// What cargo prints for this command, as JSON.
fn asked<T: DeserializeOwned>(command: &[&str], manifest: &Path) -> Result<T> {
    let of = command[0];
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut cargo = Command::new(cargo);
    cargo.args(command).arg("--manifest-path").arg(manifest);
    let output = cargo.output().map_err(|error| format!("cargo {of} cannot be run: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo {of} failed: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("what cargo {of} prints: {error}"))
}

impl Workspace {
    fn candle_nn(&self) -> Result<Source> {
        let found: Vec<&Package> = self.packages.iter().filter(|package| package.name == "candle-nn").collect();
        let versions = || found.iter().map(|package| package.version.as_str()).collect::<Vec<_>>().join(" and ");
        match found[..] {
            [] => Err("no crate of this workspace depends on candle-nn".to_owned()),
            [package] if package.source.is_none() => Err(format!(
                "candle-nn is taken from {} already: --undo, or the workspace's own patch, comes first",
                package.manifest_path.display()
            )),
            [package] => Ok(Source {
                version: package.version.clone(),
                folder: package.manifest_path.parent().unwrap_or(Path::new(".")).to_path_buf(),
            }),
            _ => Err(format!(
                "the workspace uses candle-nn {}: openmps's operators know one Candle at a time",
                versions()
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace_of(candles: &[(&str, Option<&str>)]) -> Workspace {
        let package = |&(version, source): &(&str, Option<&str>)| Package {
            name: "candle-nn".to_owned(),
            version: version.to_owned(),
            source: source.map(str::to_owned),
            manifest_path: PathBuf::from("/registry/candle-nn/Cargo.toml"),
        };
        Workspace { packages: candles.iter().map(package).collect() }
    }

    #[test]
    fn exactly_one_candle_nn_of_a_registry_is_taken() {
        let registry = Some("registry+index");
        let source = workspace_of(&[("0.11.1", registry)]).candle_nn().unwrap();
        assert_eq!((source.version.as_str(), source.folder.as_path()), ("0.11.1", Path::new("/registry/candle-nn")));
        let refusals: [(&[(&str, Option<&str>)], &str); 3] = [
            (&[], "no crate of this workspace depends on candle-nn"),
            (&[("0.11.1", None)], "candle-nn is taken from /registry/candle-nn/Cargo.toml already"),
            (&[("0.9.2", registry), ("0.11.1", registry)], "uses candle-nn 0.9.2 and 0.11.1"),
        ];
        for (candles, expected) in refusals {
            let error = workspace_of(candles).candle_nn().unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
