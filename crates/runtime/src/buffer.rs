//! A buffer: device memory that is freed when its owner goes.

use crate::device::Device;

/// A range of device memory, aligned to 256 bytes, that belongs to its holder. Share it as `Arc<Buffer>`.
#[derive(Debug)]
pub struct Buffer {
    device: Device,
    address: usize,
    bytes: usize,
    /// The queue whose commands use it; its memory may be reused in that queue's order.
    queue: u64,
}

impl Buffer {
    pub(crate) fn new(device: Device, address: usize, bytes: usize, queue: u64) -> Buffer {
        Buffer { device, address, bytes, queue }
    }

    /// The address of the first byte.
    pub fn address(&self) -> usize {
        self.address
    }

    /// The length in bytes that was asked for.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether the length is zero; the address is unique all the same.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The device that holds it.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The bytes as the host sees them, for a device with unified memory. Commands may be writing them: wait first.
    pub fn contents(&self) -> *mut u8 {
        self.address as *mut u8
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Err(error) = self.device.allocator().free(self.address, self.queue) {
            tracing::error!("a buffer was freed behind its back: {error}");
        }
    }
}
