//! The crate written into a folder, the workspace told of it, and both taken back.

use crate::edits::{self, Edit};
use crate::manifest::{of_crate, with_patch, without_patch};
use crate::result::Result;
use crate::rewrite::rewrite;
use crate::source::Source;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The file by which a folder is known to be ours.
const MARK: &str = "written-by-cargo-openmps.txt";

/// What of a crate is copied: what is built, and whose it is.
const COPIED: [&str; 2] = ["src", "README.md"];

/// Writes the crate into `folder` beside the workspace's Cargo.toml and the patch into that. Nothing is changed where anything is amiss.
pub fn apply(manifest: &Path, source: &Source, folder: &Path) -> Result<String> {
    let edits = edits::of_version(&source.version)?;
    let into = of_ours(manifest, folder)?;
    let workspace = with_patch(&read(manifest)?, folder)?;
    let crate_manifest = of_crate(&read(&source.folder.join("Cargo.toml"))?, env!("CARGO_PKG_VERSION"))?;
    let changed = rewritten(&source.folder, edits)?;
    if into.exists() {
        fs::remove_dir_all(&into).map_err(|error| cannot("removed", &into, &error))?;
    }
    copy(&source.folder, &into)?;
    for (file, text) in changed {
        write(&into.join(file), &text)?;
    }
    write(&into.join("Cargo.toml"), &crate_manifest)?;
    let mark = format!("candle-nn {} with openmps's operators: `cargo openmps patch-candle`.\n", source.version);
    write(&into.join(MARK), &mark)?;
    write(manifest, &workspace)?;
    Ok(format!(
        "candle-nn {} with {} functions on openmps is in {}, and {} uses it. Back: cargo openmps patch-candle --undo",
        source.version,
        edits.len(),
        into.display(),
        manifest.display()
    ))
}

/// Takes the patch out of the workspace's Cargo.toml and removes the folder.
pub fn undo(manifest: &Path, folder: &Path) -> Result<String> {
    let into = of_ours(manifest, folder)?;
    write(manifest, &without_patch(&read(manifest)?, folder)?)?;
    if into.exists() {
        fs::remove_dir_all(&into).map_err(|error| cannot("removed", &into, &error))?;
        if folder.parent().is_some_and(|between| between.components().next().is_some()) {
            // It stays where there is something else in it.
            let _ = into.parent().map(fs::remove_dir);
        }
    }
    Ok(format!("{} uses Candle's own candle-nn again", manifest.display()))
}

/// The folder beside the workspace's Cargo.toml, unless it holds something else than what this program wrote.
fn of_ours(manifest: &Path, folder: &Path) -> Result<std::path::PathBuf> {
    let into = manifest.parent().unwrap_or(Path::new(".")).join(folder);
    let is_empty = || fs::read_dir(&into).is_ok_and(|mut entries| entries.next().is_none());
    if into.exists() && !into.join(MARK).exists() && !is_empty() {
        return Err(format!("{} is there already, and not of cargo openmps", into.display()));
    }
    Ok(into)
}

/// The changed files and their texts.
fn rewritten<'a>(from: &Path, edits: &'a [Edit]) -> Result<Vec<(&'a str, String)>> {
    let files: BTreeSet<&str> = edits.iter().map(|edit| edit.file).collect();
    let changed = |file: &'a str| {
        let text = read(&from.join(file))?;
        let text = rewrite(&text, edits.iter().filter(|edit| edit.file == file));
        Ok((file, text.map_err(|error| format!("candle-nn's {file}: {error}"))?))
    };
    files.into_iter().map(changed).collect()
}

fn copy(from: &Path, into: &Path) -> Result<()> {
    let files = COPIED.iter().flat_map(|name| walkdir::WalkDir::new(from.join(name)));
    for file in files.filter_map(std::result::Result::ok).filter(|file| file.file_type().is_file()) {
        let to = into.join(file.path().strip_prefix(from).unwrap_or(file.path()));
        fs::create_dir_all(to.parent().unwrap_or(into)).map_err(|error| cannot("made", &to, &error))?;
        fs::copy(file.path(), &to).map_err(|error| cannot("copied", &to, &error))?;
    }
    Ok(())
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).map_err(|error| cannot("read", file, &error))
}

fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).map_err(|error| cannot("written", file, &error))
}

fn cannot(done: &str, file: &Path, error: &std::io::Error) -> String {
    format!("{} cannot be {done}: {error}", file.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// The candle-nn of this repository's own Cargo.lock, as cargo has it.
    fn candle_nn() -> Source {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
        crate::source::candle_nn(&root.join("Cargo.toml")).unwrap()
    }

    fn app() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let manifest = folder.path().join("Cargo.toml");
        fs::write(&manifest, "[package]\nname = \"app\"\n").unwrap();
        (folder, manifest)
    }

    #[test]
    fn every_edit_fits_the_candle_of_this_repository() {
        let (_folder, manifest) = app();
        let (source, into) = (candle_nn(), Path::new("patches/candle-nn"));
        let said = apply(&manifest, &source, into).unwrap();
        assert!(said.contains("19 functions"), "{said}");
        let written = manifest.with_file_name("patches").join("candle-nn");
        let hooks = |file: &str| read(&written.join(file)).unwrap().matches("openmps_candle::hooks::").count();
        assert_eq!((hooks("src/ops.rs"), hooks("src/rotary_emb.rs"), hooks("src/linear.rs")), (6, 3, 1));
        assert!(!written.join("tests").exists() && written.join("src/attention/mod.rs").exists());
        // Once more is refused by the workspace's own patch; back, and all is as it was.
        assert!(apply(&manifest, &source, into).unwrap_err().contains("patches candle-nn already"));
        undo(&manifest, into).unwrap();
        assert!(!written.exists());
        assert_eq!(read(&manifest).unwrap(), "[package]\nname = \"app\"\n");
        assert!(undo(&manifest, into).is_err());
    }

    #[test]
    fn what_is_not_known_changes_nothing() {
        let into = Path::new("patches");
        let Source { folder, .. } = candle_nn();
        let (_folder, manifest) = app();
        let error = apply(&manifest, &Source { version: "0.9.1".into(), folder: folder.clone() }, into).unwrap_err();
        assert_eq!(error, "candle-nn 0.9.1 is not known here; versions that are: 0.11.0, 0.11.1");
        // A crate of that name and version with another text.
        let forged = tempfile::tempdir().unwrap();
        copy(&folder, forged.path()).unwrap();
        fs::copy(folder.join("Cargo.toml"), forged.path().join("Cargo.toml")).unwrap();
        let linear = forged.path().join("src/linear.rs");
        fs::write(&linear, read(&linear).unwrap().replace("x.matmul(&w)?", "x.matmul(&w)?.relu()?")).unwrap();
        let error =
            apply(&manifest, &Source { version: "0.11.1".into(), folder: forged.path().into() }, into).unwrap_err();
        assert!(error.starts_with("candle-nn's src/linear.rs: Linear::forward is not the text"), "{error}");
        // Somebody's own folder.
        fs::create_dir(manifest.with_file_name("patches")).unwrap();
        fs::write(manifest.with_file_name("patches").join("mine.txt"), "").unwrap();
        let error = apply(&manifest, &Source { version: "0.11.1".into(), folder }, into).unwrap_err();
        assert!(error.contains("not of cargo openmps"), "{error}");
        assert_eq!(read(&manifest).unwrap(), "[package]\nname = \"app\"\n");
    }
}
