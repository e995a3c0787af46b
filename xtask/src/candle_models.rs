//! `candle-models`: a crate outside of this workspace, with dependencies as a user writes them, whose candle-nn `cargo openmps patch-candle`
//! has patched: unchanged models of candle-transformers and the documents' examples.

use crate::shell::{Result, cargo, root, run, say};
use std::fs;
use std::path::Path;

/// Where openmps's crates are, until a registry has them.
const UNPUBLISHED: [(&str, &str); 2] = [("openmps", "crates/openmps"), ("openmps-candle", "frontends/candle")];

/// The documents whose examples are run there.
const DOCUMENTS: [&str; 1] = ["docs/rust.md"];

/// Makes the crate anew, runs its tests on the patched candle-nn, and takes the patch back.
pub fn run_tests() -> Result<()> {
    let folder = root().join("target").join("candle-models");
    let manifest = folder.join("Cargo.toml");
    make(&folder)?;
    let as_written = read(&manifest)?;
    say("cargo openmps patch-candle");
    patch(&manifest, &[])?;
    say("Models of candle-transformers, and the documents' examples");
    let mut tests = cargo();
    tests.args(["test", "--release", "--manifest-path"]).arg(&manifest).args(["--", "--nocapture"]);
    // What is built for the workspace is built once.
    if std::env::var_os("CARGO_TARGET_DIR").is_none() {
        tests.env("CARGO_TARGET_DIR", root().join("target"));
    }
    run(&mut tests)?;
    say("cargo openmps patch-candle --undo");
    patch(&manifest, &["--undo"])?;
    if read(&manifest)? == as_written { Ok(()) } else { Err("--undo left another Cargo.toml".to_owned()) }
}

fn patch(manifest: &Path, more: &[&str]) -> Result<()> {
    let program = ["run", "--release", "-p", "cargo-openmps", "--", "openmps", "patch-candle", "--manifest-path"];
    run(cargo().args(program).arg(manifest).args(more))
}

/// The crate of tests/candle-models, with the documents' examples as tests of it.
fn make(folder: &Path) -> Result<()> {
    let _ = fs::remove_dir_all(folder);
    let from = root().join("tests").join("candle-models");
    for file in walkdir::WalkDir::new(&from).into_iter().filter_map(std::result::Result::ok) {
        let to = folder.join(file.path().strip_prefix(&from).map_err(|error| error.to_string())?);
        if file.file_type().is_file() {
            write(&to, &read(file.path())?)?;
        }
    }
    let patches = UNPUBLISHED.map(|(name, path)| format!("{name} = {{ path = {:?} }}\n", root().join(path)));
    let manifest = folder.join("Cargo.toml");
    write(&manifest, &format!("{}\n[patch.crates-io]\n{}", read(&manifest)?, patches.concat()))?;
    for document in DOCUMENTS {
        let name = Path::new(document).file_stem().unwrap_or_default().to_string_lossy().into_owned();
        write(&folder.join("tests").join(format!("example_{name}.rs")), &examples(&read(&root().join(document))?))?;
    }
    Ok(())
}

/// The blocks of Rust of a document, each as a test. Those that are marked otherwise need a file, or a Mac.
fn examples(document: &str) -> String {
    let blocks = document.split("\n```rust\n").skip(1).filter_map(|rest| rest.split("\n```").next());
    let tests = blocks.enumerate().map(|(number, block)| {
        format!(
            "#[test]\n#[allow(unused)]\nfn block_{number}() -> Result<(), Box<dyn std::error::Error>> {{\n{block}\nOk(())\n}}\n\n"
        )
    });
    tests.collect()
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).map_err(|error| format!("{} cannot be read: {error}", file.display()))
}

fn write(file: &Path, text: &str) -> Result<()> {
    let made = file.parent().map_or(Ok(()), fs::create_dir_all);
    made.and_then(|()| fs::write(file, text)).map_err(|error| format!("{} cannot be written: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_a_document_are_tests() {
        let document = "Text\n\n```rust\nlet x = 1;\n```\n\n```rust,ignore\nno\n```\n\n```rust\nlet y = 2;\n```\n";
        let tests = examples(document);
        assert_eq!(tests.matches("#[test]").count(), 2);
        assert!(tests.contains("fn block_1()") && tests.contains("let y = 2;") && !tests.contains("no\n"));
    }
}
