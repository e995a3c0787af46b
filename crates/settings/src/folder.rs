//! Folders for what is kept from one process to the next and then loaded: nobody but this user may be able to put something there. Each is
//! the user's own and closed to others, and so is the way to it.

use std::ffi::OsString;
use std::fs::{DirBuilder, Metadata};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

const OTHERS_MAY_WRITE: u32 = 0o022;
/// In such a folder only the owner of a file may rename it.
const STICKY: u32 = 0o1000;

/// The user's folder for caches, by what environment variables say.
pub fn of_caches(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let path = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    path("XDG_CACHE_HOME").or_else(|| Some(path("HOME")?.join(".cache")))
}

/// The folder of what is kept: `OPENMPS_CACHE_DIR`, else the `usual` one, made and found to be this user's own. None where it is switched off,
/// there is none, or others could change what is in it; the log says that `what` is not kept, as a warning where somebody counts on the folder.
pub fn kept(what: &str, usual: impl FnOnce() -> Option<PathBuf>) -> Option<PathBuf> {
    let named = crate::CACHE_DIR.get();
    let is_named = named.is_some();
    match private(&named.unwrap_or_else(usual)?) {
        Ok(folder) => return Some(folder),
        Err(reason) if is_named => tracing::warn!("OPENMPS_CACHE_DIR is not used, {what} are not kept: {reason}"),
        Err(reason) => tracing::debug!("{what} are not kept: {reason}"),
    }
    None
}

/// Makes a folder where it is missing, and checks that only this user can change what is in it. Its absolute path, or why not.
pub fn private(folder: &Path) -> std::result::Result<PathBuf, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
    // The path without links: what a link of somebody else's leads to is checked where it is.
    let folder = folder.canonicalize().map_err(failed)?;
    let own = folder.symlink_metadata().map_err(failed)?;
    if own.uid() != user() {
        return Err(format!("{} belongs to user {}, not to user {}", folder.display(), own.uid(), user()));
    }
    if own.mode() & OTHERS_MAY_WRITE != 0 {
        return Err(format!("others may write to {} (mode {:o})", folder.display(), own.mode() & 0o7777));
    }
    for above in folder.ancestors().skip(1) {
        let found = above.symlink_metadata().map_err(failed)?;
        if !is_safe_above(&found) {
            let (path, mode) = (above.display(), found.mode() & 0o7777);
            return Err(format!(
                "{}: others may replace it, {path} is user {}'s with mode {mode:o}",
                folder.display(),
                found.uid()
            ));
        }
    }
    Ok(folder)
}

/// Whether nobody but this user and the system can rename what is in this folder.
fn is_safe_above(folder: &Metadata) -> bool {
    let ours = folder.uid() == user() || folder.uid() == 0;
    ours && (folder.mode() & OTHERS_MAY_WRITE == 0 || folder.mode() & STICKY != 0)
}

/// Whether a file is a plain one that only this user can change.
pub fn is_own_file(path: &Path) -> bool {
    let own = |data: Metadata| data.is_file() && data.uid() == user() && data.mode() & OTHERS_MAY_WRITE == 0;
    path.symlink_metadata().is_ok_and(own)
}

/// This process's user.
pub fn user() -> u32 {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::geteuid() }
}

/// The oldest files with this ending in a folder, beyond the `kept` newest.
pub fn beyond(folder: &Path, ending: &str, kept: usize) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().map_while(std::result::Result::ok);
    let files = entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == ending));
    let age = |path: &PathBuf| path.metadata().and_then(|data| data.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    let mut files: Vec<(SystemTime, PathBuf)> = files.map(|path| (age(&path), path)).collect();
    files.sort();
    files.truncate(files.len().saturating_sub(kept));
    files.into_iter().map(|(_, path)| path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    fn mode(path: &Path, mode: u32) {
        set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_new_folder_is_closed_to_others() {
        let place = tempfile::tempdir().unwrap();
        let folder = private(&place.path().join("a/b")).expect("made");
        assert_eq!(folder.metadata().unwrap().mode() & 0o777, 0o700);
        assert_eq!(private(&folder), Ok(folder.clone()));
        std::fs::write(folder.join("x"), "").unwrap();
        mode(&folder.join("x"), 0o600);
        assert!(is_own_file(&folder.join("x")));
        symlink(folder.join("x"), folder.join("y")).unwrap();
        mode(&folder.join("x"), 0o666);
        assert!(!is_own_file(&folder.join("x")) && !is_own_file(&folder.join("y")) && !is_own_file(&folder.join("z")));
    }

    #[test]
    fn what_others_can_change_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("open/folder");
        private(&folder).expect("made");
        mode(&folder, 0o777);
        assert!(private(&folder).unwrap_err().contains("others may write to"));
        mode(&folder, 0o700);
        mode(&place.path().join("open"), 0o777);
        assert!(private(&folder).unwrap_err().contains("others may replace it"));
        mode(&place.path().join("open"), 0o1777);
        private(&folder).expect("as in the folder for temporary files");
        std::fs::write(place.path().join("file"), "").unwrap();
        assert!(private(&place.path().join("file")).is_err());
        if user() == 0 {
            chown(&folder, Some(65534), None).unwrap();
            assert!(private(&folder).unwrap_err().contains("belongs to user 65534"));
            // A link that somebody else has put there leads to a folder of somebody else's.
            symlink(&folder, place.path().join("link")).unwrap();
            assert!(private(&place.path().join("link")).unwrap_err().contains("belongs to user 65534"));
        }
    }
}
