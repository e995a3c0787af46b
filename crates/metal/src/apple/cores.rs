//! How many cores the GPU has: Metal does not tell, the registry of devices does.

use objc2_core_foundation::{CFNumber, CFString};
use objc2_io_kit::{IOObjectRelease, IORegistryEntrySearchCFProperty, IORegistryGetRootEntry};
use std::ffi::c_char;

/// The main port of the kernel (`kIOMainPortDefault`).
const MAIN_PORT: u32 = 0;
/// Children are searched, too (`kIORegistryIterateRecursively`).
const RECURSIVELY: u32 = 1;

/// The cores of Apple's GPU, 0 where the registry does not say.
pub fn count() -> usize {
    let root = IORegistryGetRootEntry(MAIN_PORT);
    if root == 0 {
        return 0;
    }
    let mut plane = [0; 128];
    for (to, from) in plane.iter_mut().zip(b"IOService") {
        *to = *from as c_char;
    }
    let key = CFString::from_static_str("gpu-core-count");
    // SAFETY: the root entry is released only below; plane and key are strings that end.
    let value = unsafe { IORegistryEntrySearchCFProperty(root, &raw mut plane, Some(&key), None, RECURSIVELY) };
    IOObjectRelease(root);
    let cores = value.and_then(|value| value.downcast_ref::<CFNumber>().and_then(CFNumber::as_i64));
    cores.and_then(|cores| cores.try_into().ok()).unwrap_or(0)
}
