//! Compiled kernels on disk, by content: NVIDIA's compiler takes 0.1 to 0.3 seconds for each.

use openmps_settings::folder;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Kernels that are kept, of some 20 KB each, and how many are added before the oldest are looked for.
const KEPT: usize = 8192;
const ADDED: u64 = 64;

const ENDING: &str = "cubin";

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

    /// What is kept there.
    pub fn read(&self) -> Option<Vec<u8>> {
        folder::is_own_file(&self.0).then(|| std::fs::read(&self.0).ok()).flatten()
    }

    /// Keeps a compiled kernel. What cannot be written is compiled again by the next process.
    pub fn keep(&self, code: &[u8]) {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        // In one step: another process never sees a half of it.
        let fresh = self.0.with_extension(format!("{}-{count}", std::process::id()));
        let written = std::fs::write(&fresh, code).and_then(|()| std::fs::rename(&fresh, &self.0));
        if let Err(error) = written {
            tracing::debug!("a compiled kernel is not kept: {}: {error}", self.0.display());
        }
        if count.is_multiple_of(ADDED) {
            let old = self.0.parent().map_or_else(Vec::new, |folder| folder::beyond(folder, ENDING, KEPT));
            // Another process may have removed it.
            old.iter().for_each(|path| drop(std::fs::remove_file(path)));
        }
    }

    /// Removes what turned out to be no kernel.
    pub fn forget(&self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The folder, which only this user can change: what lies in it is run on the GPU.
fn open() -> Option<PathBuf> {
    let named = match openmps_settings::CACHE_DIR.get() {
        Some(folder) => folder?,
        None => folder::of_caches(|name| std::env::var_os(name))?.join("openmps/cuda"),
    };
    folder::private(&named).inspect_err(|reason| tracing::debug!("compiled kernels are not kept: {reason}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_found_by_its_parts_until_it_is_forgotten() {
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
        place.forget();
        assert_eq!(place.read(), None);
    }
}
