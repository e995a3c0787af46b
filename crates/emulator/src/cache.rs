//! Compiled objects on disk, by content: `<recipe>/<text>.so` with the text beside it, in a folder of the user's. Bounded: the oldest go.

use crate::error::{Error, Result};
use crate::{folder::root, prelude};
use openmps_settings::folder;
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Objects of one recipe that are kept: every operator in every layout makes some six thousand. An object takes some 20 KB.
const KEPT: usize = 16384;
/// How many are added before the oldest are looked for: that is a walk over all.
const ADDED: u64 = 64;

/// The folder of one recipe: tool chain, flags and stand-in library.
pub(crate) struct Cache {
    folder: PathBuf,
}

/// One text's place.
pub(crate) struct Entry {
    stem: PathBuf,
}

/// A folder for intermediate files, removed at the end.
pub(crate) struct Workplace {
    folder: PathBuf,
}

impl Cache {
    pub(crate) fn open(recipe: &str) -> Result<Cache> {
        let folder = root()?.join(name(recipe));
        let folder = folder::private(&folder).map_err(|reason| Error::UntrustedCache { reason })?;
        Ok(Cache { folder })
    }

    pub(crate) fn entry(&self, text: &str) -> Entry {
        Entry { stem: self.folder.join(name(text)) }
    }

    /// The precompiled header.
    pub(crate) fn header(&self) -> PathBuf {
        self.folder.join("prelude.pch")
    }

    /// The folder of the headers that a text may include.
    pub(crate) fn headers(&self) -> PathBuf {
        self.folder.join("include")
    }

    /// Writes the stand-in library and the headers that name it; returns the library's file.
    pub(crate) fn write_headers(&self, text: &str) -> Result<PathBuf> {
        self.write_empty_headers()?;
        let library = self.folder.join("prelude.h");
        let fresh = self.temporary("prelude.h");
        std::fs::write(&fresh, text).map_err(|error| failed(&fresh, &error))?;
        self.take(&fresh, &library)?;
        Ok(library)
    }

    /// Writes the headers that a text may include, which say nothing, where they are missing; returns their folder.
    pub(crate) fn write_empty_headers(&self) -> Result<PathBuf> {
        for path in prelude::HEADERS.map(|name| self.headers().join(name)) {
            if !path.is_file() {
                std::fs::create_dir_all(path.parent().unwrap_or(&path)).map_err(|error| failed(&path, &error))?;
                std::fs::write(&path, "").map_err(|error| failed(&path, &error))?;
            }
        }
        Ok(self.headers())
    }

    /// A name in this folder that no other process or thread uses.
    pub(crate) fn temporary(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{}-{name}", unique()))
    }

    /// Gives a finished file its name, in one step.
    pub(crate) fn take(&self, fresh: &Path, name: &Path) -> Result<()> {
        std::fs::rename(fresh, name).map_err(|error| failed(name, &error))
    }
}

impl Entry {
    /// The shared object.
    pub(crate) fn object(&self) -> PathBuf {
        self.stem.with_extension("so")
    }

    /// Whether the object was made from this very text.
    pub(crate) fn is_present(&self, text: &str) -> bool {
        let same = std::fs::read(self.stem.with_extension("metal")).is_ok_and(|kept| kept == text.as_bytes());
        same && folder::is_own_file(&self.object())
    }

    pub(crate) fn workplace(&self) -> Result<Workplace> {
        let folder = self.stem.with_extension(unique());
        std::fs::create_dir_all(&folder).map_err(|error| failed(&folder, &error))?;
        Ok(Workplace { folder })
    }

    /// Takes a finished object in, and lets the oldest go where there are too many.
    pub(crate) fn keep(&self, text: &str, object: &Path) -> Result<()> {
        let words = object.with_extension("metal");
        std::fs::write(&words, text).map_err(|error| failed(&words, &error))?;
        for (from, to) in [(object, self.object()), (&words, self.stem.with_extension("metal"))] {
            std::fs::rename(from, &to).map_err(|error| failed(&to, &error))?;
        }
        static COUNT: AtomicU64 = AtomicU64::new(0);
        if COUNT.fetch_add(1, Ordering::Relaxed).is_multiple_of(ADDED) {
            prune(self.stem.parent().unwrap_or(&self.stem), KEPT);
        }
        Ok(())
    }
}

impl Workplace {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(crate) fn write(&self, path: &Path, text: &str) -> Result<()> {
        std::fs::write(path, text).map_err(|error| failed(path, &error))
    }
}

impl Drop for Workplace {
    fn drop(&mut self) {
        // What remains is found and removed with the build's own folder.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn prune(folder: &Path, kept: usize) {
    for path in folder::beyond(folder, "so", kept) {
        // Another process may have removed it; loaded objects live on without their file.
        let _ = std::fs::remove_file(&path);
        let _ = std::fs::remove_file(path.with_extension("metal"));
    }
}

/// Part of a file name that occurs once.
pub(crate) fn unique() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// The name of a content.
fn name(content: &str) -> String {
    let mut name = String::with_capacity(64);
    for byte in Sha256::digest(content) {
        // A string takes everything.
        let _ = write!(name, "{byte:02x}");
    }
    name
}

fn failed(path: &Path, error: &std::io::Error) -> Error {
    Error::Toolchain { program: path.display().to_string(), reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_objects_go() {
        let folder = std::env::temp_dir().join(format!("openmps-emulator-{}", unique()));
        std::fs::create_dir_all(&folder).unwrap();
        for name in ["a", "b", "c"] {
            std::fs::write(folder.join(name).with_extension("so"), name).unwrap();
            std::fs::write(folder.join(name).with_extension("metal"), name).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        prune(&folder, 2);
        let mut left: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["b.metal", "b.so", "c.metal", "c.so"]);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
