//! The folder where things are kept for the next process: `OPENMPS_CACHE_DIR`, or that of macOS. What is read there is run, so it is one that
//! nobody but this user can change.

use crate::interface::Properties;
use openmps_settings::folder::kept;
use std::path::PathBuf;

/// The file of a device, none where the folder is switched off or others may write to it. The version of openmps is part of its name, since
/// kernels change with it.
pub fn file(device: &Properties, ending: &str) -> Option<PathBuf> {
    Some(kept("pipelines", usual)?.join(name(device, ending)))
}

fn usual() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute())?;
    Some(home.join("Library/Caches/openmps"))
}

fn name(device: &Properties, ending: &str) -> String {
    let name: String =
        device.name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect();
    format!("{name}-{}{ending}", env!("CARGO_PKG_VERSION"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder;

    #[test]
    fn what_is_kept_is_of_one_gpu_and_one_version() {
        let device = |name: &str| Properties { name: name.to_owned(), ..recorder::properties() };
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(name(&device("Apple M4 Pro"), "-24B83.answers"), format!("Apple-M4-Pro-{version}-24B83.answers"));
        assert_ne!(name(&device("Apple M4"), ""), name(&device("Apple M5"), ""));
    }
}
