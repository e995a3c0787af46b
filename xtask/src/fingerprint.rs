//! Whether something is up to date: a hash of the contents that it was made from, kept beside it.

use crate::shell::{Result, root};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

/// The hash of files and folders, given relative to the repository's root, in the order of their names.
pub fn of(paths: &[&str]) -> Result<String> {
    let mut files = Vec::new();
    for path in paths {
        collect(&root().join(path), &mut files)?;
    }
    files.sort();
    let mut hasher = DefaultHasher::new();
    for file in files {
        file.strip_prefix(root()).unwrap_or(&file).hash(&mut hasher);
        std::fs::read(&file).map_err(|error| format!("{} cannot be read: {error}", file.display()))?.hash(&mut hasher);
    }
    Ok(format!("{:016x}", hasher.finish()))
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    if !path.is_dir() {
        files.push(path.to_path_buf());
        return Ok(());
    }
    let entries = std::fs::read_dir(path).map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    for entry in entries.map_while(std::result::Result::ok) {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !name.starts_with('.') && name != "__pycache__" && name != "target" && !name.ends_with(".so") {
            collect(&entry.path(), files)?;
        }
    }
    Ok(())
}

/// Whether the file `mark` holds this hash.
pub fn is_current(mark: &Path, hash: &str) -> bool {
    std::fs::read_to_string(mark).is_ok_and(|text| text.trim() == hash)
}

/// Writes the hash into the file `mark`.
pub fn keep(mark: &Path, hash: &str) -> Result<()> {
    std::fs::write(mark, hash).map_err(|error| format!("{} cannot be written: {error}", mark.display()))
}
