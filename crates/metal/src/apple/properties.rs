//! What a device says about itself.

use super::{RawDevice, cores};
use crate::interface::Properties;
use objc2::available;
use objc2_metal::{MTLDevice, MTLGPUFamily};
use objc2_metal_performance_shaders::MPSSupportsMTLDevice;
use std::ffi::{c_char, c_int, c_void};

/// The families from the newest on; their numbers are consecutive from `Apple1` = 1001 on.
const FAMILIES: [MTLGPUFamily; 4] =
    [MTLGPUFamily::Apple10, MTLGPUFamily::Apple9, MTLGPUFamily::Apple8, MTLGPUFamily::Apple7];

/// Asks a device.
pub fn of(device: &RawDevice) -> Properties {
    let threads = device.maxThreadsPerThreadgroup();
    let family = FAMILIES.iter().find(|&&family| device.supportsFamily(family));
    // macOS 15 brought these; the graph's classes are the same on every device.
    let newer = available!(macos = 15.0);
    Properties {
        name: device.name().to_string(),
        registry: device.registryID(),
        unified_memory: device.hasUnifiedMemory(),
        working_set: device.recommendedMaxWorkingSetSize() as usize,
        max_buffer: device.maxBufferLength(),
        max_threads: [threads.width, threads.height, threads.depth],
        max_threadgroup_memory: device.maxThreadgroupMemoryLength(),
        cores: cores::count(),
        family: family.map_or(0, |family| (family.0 - MTLGPUFamily::Apple1.0 + 1) as u32),
        architecture: architecture(device),
        bfloat: available!(macos = 14.0),
        coherence: newer,
        tensor_offsets: newer,
        attention: newer,
        long_products: available!(macos = 14.4),
        long_convolutions: available!(macos = 15.1),
        tensor_operations: available!(macos = 26.2),
        os_build: os_build(),
        // SAFETY: the device is alive.
        mps: unsafe { MPSSupportsMTLDevice(Some(device)) },
    }
}

/// What Metal calls the GPU's architecture; nothing before macOS 14.
fn architecture(device: &RawDevice) -> String {
    if available!(macos = 14.0) { device.architecture().name().to_string() } else { String::new() }
}

/// What `sysctl kern.osversion` says.
fn os_build() -> String {
    let mut text = [0_u8; 64];
    let mut length = text.len();
    let (name, value) = (c"kern.osversion".as_ptr(), text.as_mut_ptr().cast());
    // SAFETY: the name is a string that ends, the value has room for `length` bytes, and nothing is set.
    let status = unsafe { sysctlbyname(name, value, &mut length, std::ptr::null_mut(), 0) };
    let text = text.get(..length).filter(|_| status == 0).unwrap_or_default();
    text.iter().take_while(|&&letter| letter.is_ascii_alphanumeric()).map(|&letter| char::from(letter)).collect()
}

unsafe extern "C" {
    fn sysctlbyname(
        name: *const c_char,
        value: *mut c_void,
        length: *mut usize,
        new: *mut c_void,
        bytes: usize,
    ) -> c_int;
}
