//! The folder where things are kept for the next process: `OPENMPS_CACHE_DIR`, or that of macOS.

use crate::interface::Properties;
use std::path::PathBuf;

/// The file of a device, none where the folder is switched off. The version of openmps is part of its name, since kernels change with it.
pub fn file(device: &Properties, ending: &str) -> Option<PathBuf> {
    let folder = match openmps_settings::CACHE_DIR.get() {
        Some(folder) => folder?,
        None => PathBuf::from(std::env::var_os("HOME")?).join("Library/Caches/openmps"),
    };
    let name: String =
        device.name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect();
    Some(folder.join(format!("{name}-{}{ending}", env!("CARGO_PKG_VERSION"))))
}
