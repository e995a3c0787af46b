//! The documents say what the table says. `UPDATE_DOCUMENTS=1` writes them.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Compares a file with what it should be, or writes it.
fn is(path: &Path, expected: &str) {
    if std::env::var_os("UPDATE_DOCUMENTS").is_some() {
        std::fs::write(path, expected).expect("the file can be written");
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(written == expected, "{} is out of date: run this test with UPDATE_DOCUMENTS=1", path.display());
}

#[test]
fn the_document_is_the_table() {
    is(&root().join("docs/settings.md"), &openmps_settings::document());
}

#[test]
fn the_readme_has_the_table_of_what_is_needed_first() {
    let path = root().join("README.md");
    let text = std::fs::read_to_string(&path).expect("README");
    let (before, after) = text.split_once("## Settings\n\n").expect("a heading");
    let (_, after) = after.split_once("\n\n").expect("something behind the table");
    let table = openmps_settings::table_for_readme();
    is(&path, &format!("{before}## Settings\n\n{table}\n{after}"));
}

/// Files of these kinds name no setting that the table lacks, and those in Rust read the environment through it.
#[test]
fn every_name_in_the_sources_is_in_the_table() {
    let (mut files, mut found) = (Vec::new(), 0);
    for folder in ["crates", "frontends", "xtask", "tests", "benches", "docs"] {
        walk(&root().join(folder), &mut files);
    }
    files.extend(["README.md", "README.zh-CN.md", "README.ja.md"].map(|name| root().join(name)));
    for path in files.iter().filter(|path| !path.starts_with(root().join("crates/settings"))) {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        for (at, _) in text.match_indices("OPENMPS_") {
            let end = |letter: char| !(letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == '_');
            let name = text[at..].split(end).next().unwrap_or_default();
            let prefixes = ["OPENMPS_", "OPENMPS_SWIZZLES_"];
            let known =
                openmps_settings::named(name).is_some() || prefixes.contains(&name.trim_end_matches(char::is_numeric));
            assert!(known, "{}: {name} is not in crates/settings/src/table.rs", path.display());
            found += 1;
        }
        let reads = ["env::var(\"OPENMPS_", "env::var_os(\"OPENMPS_"].iter().any(|read| text.contains(read));
        assert!(!reads, "{} reads a variable past the table", path.display());
    }
    assert!(found > 50, "{found} names: are the folders still there?");
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().map_while(Result::ok) {
        let path = entry.path();
        let kept = path.extension().is_some_and(|end| ["rs", "py", "md", "toml"].iter().any(|kind| end == *kind));
        if path.is_dir() && !path.ends_with("target") {
            walk(&path, files);
        } else if kept {
            files.push(path);
        }
    }
}
