//! Changes in Cargo.toml files that leave the rest of their text as it is.

use crate::result::Result;
use std::path::{Path, PathBuf};
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table};

/// What a crate is tested with and shows: it is not built where the crate is depended on, and its files are not copied.
const OF_ITS_OWN: [&str; 4] = ["example", "test", "bench", "dev-dependencies"];

/// The patched crate's Cargo.toml: openmps-candle among its dependencies, and with Candle's Metal backend its own.
pub fn of_crate(text: &str, openmps: &str) -> Result<String> {
    let mut document = parsed(text, "candle-nn's Cargo.toml")?;
    OF_ITS_OWN.iter().for_each(|name| drop(document.remove(name)));
    document["dependencies"]["openmps-candle"] = toml_edit::value(openmps);
    if let Some(metal) = document.get_mut("features").and_then(|features| features.get_mut("metal")).and_then(array) {
        metal.push("openmps-candle/metal");
    }
    Ok(document.to_string())
}

/// The workspace's Cargo.toml with candle-nn taken from a folder.
pub fn with_patch(text: &str, folder: &Path) -> Result<String> {
    let mut document = parsed(text, "the workspace's Cargo.toml")?;
    let patch = document.entry("patch").or_insert_with(implicit);
    let registry = patch.as_table_like_mut().map(|patch| patch.entry("crates-io").or_insert_with(toml_edit::table));
    let Some(registry) = registry.and_then(Item::as_table_like_mut) else {
        return Err("[patch.crates-io] of the workspace's Cargo.toml is no table".to_owned());
    };
    if let Some(other) = registry.get("candle-nn") {
        return Err(format!("the workspace patches candle-nn already: {}", other.to_string().trim()));
    }
    let mut from = InlineTable::new();
    from.insert("path", slashes(folder).into());
    registry.insert("candle-nn", toml_edit::value(from));
    Ok(document.to_string())
}

/// The workspace's Cargo.toml without that patch. One of another folder stays, and is an error.
pub fn without_patch(text: &str, folder: &Path) -> Result<String> {
    let mut document = parsed(text, "the workspace's Cargo.toml")?;
    let registry = document.get("patch").and_then(|patch| patch.get("crates-io"));
    let path = registry.and_then(|registry| registry.get("candle-nn")?.get("path")?.as_str());
    if path.map(PathBuf::from).as_deref() != Some(folder) {
        return Err(format!("the workspace's Cargo.toml has no candle-nn of {}", folder.display()));
    }
    let mut empty = false;
    if let Some(registry) = document["patch"]["crates-io"].as_table_like_mut() {
        registry.remove("candle-nn");
        empty = registry.is_empty();
    }
    if let Some(patch) = document["patch"].as_table_like_mut().filter(|_| empty) {
        patch.remove("crates-io");
        if patch.is_empty() {
            document.remove("patch");
        }
    }
    Ok(document.to_string())
}

fn parsed(text: &str, of: &str) -> Result<DocumentMut> {
    text.parse().map_err(|error| format!("{of}: {error}"))
}

/// A table without a line of its own, as `patch` in `[patch.crates-io]`.
fn implicit() -> Item {
    let mut table = Table::new();
    table.set_implicit(true);
    Item::Table(table)
}

fn array(item: &mut Item) -> Option<&mut Array> {
    item.as_array_mut()
}

/// Cargo.toml's paths have slashes on every system.
fn slashes(path: &Path) -> String {
    path.components().map(|part| part.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_goes_in_and_out() {
        let folder = Path::new("patches/candle-nn");
        for text in [
            "# Mine.\n[package]\nname = \"app\" # yes\n\n[dependencies]\ncandle-nn = \"0.11\"\n",
            "[workspace]\nmembers = []\n\n[patch.crates-io]\nother = { path = \"other\" }\n",
        ] {
            let patched = with_patch(text, folder).unwrap();
            let line = "candle-nn = { path = \"patches/candle-nn\" }\n";
            assert!(patched.starts_with(text.trim_end()) && patched.ends_with(line), "{patched}");
            assert_eq!(patched.matches("[patch.crates-io]").count(), 1);
            assert!(with_patch(&patched, folder).unwrap_err().contains("patches candle-nn already"));
            assert!(without_patch(&patched, Path::new("elsewhere")).is_err());
            assert_eq!(without_patch(&patched, folder).unwrap(), text);
            assert!(without_patch(text, folder).unwrap_err().contains("no candle-nn of patches/candle-nn"));
        }
    }

    #[test]
    fn the_crate_depends_on_openmps() {
        let text = "[package]\nname = \"candle-nn\"\n\n[features]\nmetal = [\"candle/metal\"]\n\n[[test]]\nname = \"t\"\n\n\
                    [dependencies.rayon]\nversion = \"1\"\n\n[dev-dependencies.clap]\nversion = \"4\"\n";
        let patched: DocumentMut = of_crate(text, "0.1.0").unwrap().parse().unwrap();
        assert_eq!(patched["dependencies"]["openmps-candle"].as_str(), Some("0.1.0"));
        assert_eq!(patched["dependencies"]["rayon"]["version"].as_str(), Some("1"));
        assert_eq!(patched["features"]["metal"].as_array().unwrap().len(), 2);
        assert!(patched.get("test").is_none() && patched.get("dev-dependencies").is_none());
    }
}
