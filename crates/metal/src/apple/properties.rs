//! What a device says about itself.

use super::{RawDevice, cores};
use crate::interface::Properties;
use objc2::available;
use objc2_metal::{MTLDevice, MTLGPUFamily};
use objc2_metal_performance_shaders::MPSSupportsMTLDevice;

/// The families from the newest on; their numbers are consecutive from `Apple1` = 1001 on.
const FAMILIES: [MTLGPUFamily; 4] =
    [MTLGPUFamily::Apple10, MTLGPUFamily::Apple9, MTLGPUFamily::Apple8, MTLGPUFamily::Apple7];

/// Asks a device.
pub fn of(device: &RawDevice) -> Properties {
    let threads = device.maxThreadsPerThreadgroup();
    let family = FAMILIES.iter().find(|&&family| device.supportsFamily(family));
    // macOS 15 brought both; the graph's classes are the same on every device.
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
        bfloat: available!(macos = 14.0),
        tensor_offsets: newer,
        attention: newer,
        long_convolutions: available!(macos = 15.1),
        // SAFETY: the device is alive.
        mps: unsafe { MPSSupportsMTLDevice(Some(device)) },
    }
}
