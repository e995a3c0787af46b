//! `cargo openmps patch-candle` where openmps-candle is not to be found: nothing is changed.

use std::fs;
use std::process::Command;

#[test]
fn a_workspace_that_would_not_resolve_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let manifest = folder.path().join("Cargo.toml");
    let text = "[package]\nname = \"app\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n[dependencies]\ncandle-nn = \"0.11\"\n\n[workspace]\n";
    fs::create_dir_all(folder.path().join("src")).unwrap();
    fs::write(folder.path().join("src/lib.rs"), "").unwrap();
    fs::write(&manifest, text).unwrap();
    // The versions of this repository, which cargo has on disk.
    let lock = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().join("Cargo.lock");
    fs::copy(lock, folder.path().join("Cargo.lock")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-openmps"));
    command.args(["openmps", "patch-candle", "--manifest-path"]).arg(&manifest).env("CARGO_NET_OFFLINE", "true");
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("openmps-candle") && said.contains("Nothing was changed"), "{said}");
    assert_eq!(fs::read_to_string(&manifest).unwrap(), text);
    assert!(!folder.path().join("openmps-patches").exists());
}
