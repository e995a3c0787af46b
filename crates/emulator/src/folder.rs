//! Where compiled objects may lie. They are loaded into the process, so the folder is one that nobody but this user can change.

use crate::error::{Error, Result};
use openmps_settings::folder::{of_caches, private, user};
use std::ffi::OsString;
use std::path::PathBuf;

/// The folder of all compiled objects: what `OPENMPS_EMULATOR_CACHE` names, else one of the user's own.
pub(crate) fn root() -> Result<PathBuf> {
    if let Some(named) = openmps_settings::EMULATOR_CACHE.get() {
        return private(&named).map_err(|reason| untrusted(&reason));
    }
    let mut reasons = Vec::new();
    for folder in candidates(|name| std::env::var_os(name)) {
        match private(&folder) {
            Ok(folder) => return Ok(folder),
            Err(reason) => reasons.push(reason),
        }
    }
    Err(untrusted(&reasons.join("; ")))
}

/// The user's folder for caches, and one of the user's in the folder for temporary files.
fn candidates(variable: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let temporary = absolute("TMPDIR").unwrap_or_else(|| "/tmp".into()).join(format!("openmps-emulator-{}", user()));
    let cache = of_caches(&variable);
    cache.map(|folder| folder.join("openmps/emulator")).into_iter().chain([temporary]).collect()
}

fn untrusted(reason: &str) -> Error {
    Error::UntrustedCache { reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_the_user_s_own() {
        let found = |variables: &'static [(&str, &str)]| {
            let value =
                |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into());
            candidates(value).iter().map(|path| path.display().to_string()).collect::<Vec<_>>()
        };
        let temporary = format!("/tmp/openmps-emulator-{}", user());
        assert_eq!(found(&[("HOME", "/home/a")]), ["/home/a/.cache/openmps/emulator".to_owned(), temporary.clone()]);
        assert_eq!(found(&[("XDG_CACHE_HOME", "/c"), ("HOME", "/h")])[0], "/c/openmps/emulator");
        // Relative ones would be the working folder's.
        assert_eq!(found(&[("XDG_CACHE_HOME", "cache")]), [temporary]);
    }
}
