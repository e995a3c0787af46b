//! Compiled kernels on disk, by content: NVIDIA's compiler takes 0.1 to 0.3 seconds for each. The driver is told no length and believes what it
//! is given, so that a file is held to the length and the digest at its beginning before it gets there.

use openmps_settings::folder;
use sha2::{Digest, Sha256};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// Kernels that are kept, of some 20 KB each, and how many are added before the oldest are looked for.
const KEPT: usize = 16384;
const ADDED: u64 = 64;

const ENDING: &str = "cubin";

/// Bytes of a digest.
const DIGEST: usize = 32;

/// One kernel's place on disk.
pub(super) struct Place(PathBuf);

impl Place {
    /// The place of what is compiled from these parts; none where nothing is kept.
    pub fn of(parts: &[&str]) -> Option<Place> {
        static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
        FOLDER.get_or_init(open).as_deref().map(|folder| Place::within(folder, parts))
    }

    fn within(folder: &Path, parts: &[&str]) -> Place {
        let mut digest = Sha256::new();
        for part in parts {
            digest.update(part.len().to_le_bytes());
            digest.update(part);
        }
        let name: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Place(folder.join(name).with_extension(ENDING))
    }

    /// What is kept there, whole. It counts as used: the oldest go first.
    pub fn read(&self) -> Option<Vec<u8>> {
        let bytes = folder::is_own_file(&self.0).then(|| std::fs::read(&self.0).ok()).flatten()?;
        let (digest, code) = bytes.split_at_checked(DIGEST)?;
        if code.is_empty() || Sha256::digest(code).as_slice() != digest {
            return None;
        }
        if let Ok(file) = File::options().append(true).open(&self.0) {
            // Where the time cannot be set it goes a little earlier.
            let _ = file.set_modified(SystemTime::now());
        }
        Some(code.to_vec())
    }

    /// Keeps a compiled kernel. What cannot be written is compiled again by the next process.
    pub fn keep(&self, code: &[u8]) {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let fresh = self.0.with_extension(unique(count));
        if let Err(error) = write(&fresh, code).and_then(|()| std::fs::rename(&fresh, &self.0)) {
            tracing::debug!("a compiled kernel is not kept: {}: {error}", self.0.display());
            // It may not even have been made.
            let _ = std::fs::remove_file(&fresh);
        }
        if count.is_multiple_of(ADDED) {
            let old = self.0.parent().map_or_else(Vec::new, |folder| folder::beyond(folder, ENDING, KEPT));
            // Another process may have removed it.
            old.iter().for_each(|path| drop(std::fs::remove_file(path)));
        }
    }
}

/// Part of a name that no other process has: numbers of processes repeat between containers.
fn unique(count: u64) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    format!("{}-{count}-{now}", std::process::id())
}

/// Writes a new file that only the user can change, whatever the process's mask.
fn write(path: &Path, code: &[u8]) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(&Sha256::digest(code))?;
    file.write_all(code)
}

/// The folder, which only this user can change: what lies in it is run on the GPU.
fn open() -> Option<PathBuf> {
    let usual = || Some(folder::of_caches(|name| std::env::var_os(name))?.join("openmps/cuda"));
    folder::kept("compiled kernels", usual)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_found_by_its_parts_while_its_file_is_whole() {
        let root = tempfile::tempdir().unwrap();
        let folder = folder::private(root.path()).unwrap();
        let place = Place::within(&folder, &["sm_90a", "text"]);
        assert_eq!(place.read(), None);
        place.keep(b"code");
        assert_eq!(Place::within(&folder, &["sm_90a", "text"]).read().as_deref(), Some(&b"code"[..]));
        for other in [["sm_80", "text"], ["sm_90at", "ext"]] {
            assert_eq!(Place::within(&folder, &other).read(), None, "{other:?}");
        }
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "nothing unfinished is left");
        let whole = std::fs::read(&place.0).unwrap();
        for length in 0..whole.len() {
            std::fs::write(&place.0, &whole[..length]).unwrap();
            assert_eq!(place.read(), None, "{length} bytes of {}", whole.len());
        }
        std::fs::write(&place.0, [&whole[..], b"more"].concat()).unwrap();
        assert_eq!(place.read(), None);
        place.keep(b"code");
        assert!(place.read().is_some(), "written anew");
    }
}
