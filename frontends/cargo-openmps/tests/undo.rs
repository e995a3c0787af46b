//! `cargo openmps patch-candle --undo` in workspaces that cargo cannot resolve any more.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const WORKSPACE: &str = "# Mine.\n[workspace]\nmembers = [\"app\"]\nresolver = \"2\"\n";
const APP: &str =
    "[package]\nname = \"app\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n[dependencies]\ncandle-nn = \"0.11\"\n";
const PATCH: &str = "\n[patch.crates-io]\ncandle-nn = { path = \"openmps-patches/candle-nn\" }\n";

/// A patched workspace.
fn workspace() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let crate_folder = folder.path().join("openmps-patches/candle-nn");
    fs::create_dir_all(&crate_folder).unwrap();
    fs::create_dir_all(folder.path().join("app/src")).unwrap();
    fs::write(folder.path().join("app/src/lib.rs"), "").unwrap();
    fs::write(folder.path().join("app/Cargo.toml"), APP).unwrap();
    fs::write(folder.path().join("Cargo.toml"), format!("{WORKSPACE}{PATCH}")).unwrap();
    // A dependency that no registry has, as openmps-candle where it was never published.
    let manifest = "[package]\nname = \"candle-nn\"\nversion = \"0.11.1\"\n\n[dependencies]\nno-such-crate-of-openmps = { path = \"nowhere\" }\n";
    fs::write(crate_folder.join("Cargo.toml"), manifest).unwrap();
    fs::write(crate_folder.join("written-by-cargo-openmps.txt"), "").unwrap();
    folder
}

fn undo(manifest: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-openmps"));
    command.args(["openmps", "patch-candle", "--undo", "--manifest-path"]).arg(manifest);
    command.env("CARGO_NET_OFFLINE", "true").output().unwrap()
}

/// Taken back from the workspace's Cargo.toml and from a member's.
fn is_undone(folder: &Path, manifest: &Path) {
    let output = undo(manifest);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(fs::read_to_string(folder.join("Cargo.toml")).unwrap(), WORKSPACE);
    assert!(!folder.join("openmps-patches/candle-nn").exists());
    let output = undo(manifest);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("has no candle-nn of openmps-patches/candle-nn"), "{said}");
}

#[test]
fn a_crate_that_cannot_be_resolved() {
    for manifest in ["Cargo.toml", "app/Cargo.toml"] {
        let folder = workspace();
        is_undone(folder.path(), &folder.path().join(manifest));
    }
}

#[test]
fn a_folder_that_is_gone() {
    for manifest in ["Cargo.toml", "app/Cargo.toml"] {
        let folder = workspace();
        fs::remove_dir_all(folder.path().join("openmps-patches")).unwrap();
        is_undone(folder.path(), &folder.path().join(manifest));
    }
}

#[test]
fn a_folder_that_is_empty() {
    let folder = workspace();
    let crate_folder = folder.path().join("openmps-patches/candle-nn");
    fs::remove_dir_all(&crate_folder).unwrap();
    fs::create_dir(&crate_folder).unwrap();
    is_undone(folder.path(), &folder.path().join("Cargo.toml"));
}

#[test]
fn a_folder_of_somebody_else_stays() {
    let folder = workspace();
    fs::remove_file(folder.path().join("openmps-patches/candle-nn/written-by-cargo-openmps.txt")).unwrap();
    let output = undo(&folder.path().join("Cargo.toml"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("not of cargo openmps"), "{said}");
    assert_eq!(fs::read_to_string(folder.path().join("Cargo.toml")).unwrap(), format!("{WORKSPACE}{PATCH}"));
}
