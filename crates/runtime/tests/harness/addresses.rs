//! The calls that take addresses, for tests: each uses its own buffers, in order.

#![allow(dead_code, reason = "no test uses all of it")]

use openmps_runtime::{CommandBuffer, Device, Queue, Result};

pub trait ByAddress {
    fn write_at(&self, to: usize, bytes: &[u8]) -> Result<()>;
    fn read_at(&self, bytes: &mut [u8], from: usize) -> Result<()>;
    fn copy_at(&self, to: usize, from: usize, bytes: usize) -> Result<()>;
    fn fill_at(&self, to: usize, byte: u8, bytes: usize) -> Result<()>;
}

impl ByAddress for Queue {
    fn write_at(&self, to: usize, bytes: &[u8]) -> Result<()> {
        // SAFETY: the ranges are of the test's own buffers, which it uses for one thing at a time.
        unsafe { self.write(to, bytes) }
    }

    fn read_at(&self, bytes: &mut [u8], from: usize) -> Result<()> {
        // SAFETY: the ranges are of the test's own buffers, which it uses for one thing at a time.
        unsafe { self.read(bytes, from) }
    }

    fn copy_at(&self, to: usize, from: usize, bytes: usize) -> Result<()> {
        // SAFETY: the ranges are of the test's own buffers, which it uses for one thing at a time.
        unsafe { self.copy(to, from, bytes) }
    }

    fn fill_at(&self, to: usize, byte: u8, bytes: usize) -> Result<()> {
        // SAFETY: the ranges are of the test's own buffers, which it uses for one thing at a time.
        unsafe { self.fill(to, byte, bytes) }
    }
}

pub trait Encoded {
    fn copy_at(&self, to: usize, from: usize, bytes: usize) -> Result<()>;
    fn fill_at(&self, to: usize, byte: u8, bytes: usize) -> Result<()>;
}

impl Encoded for CommandBuffer {
    fn copy_at(&self, to: usize, from: usize, bytes: usize) -> Result<()> {
        // SAFETY: the ranges are of the test's own buffers, which it uses for one thing at a time.
        unsafe { self.copy(to, from, bytes) }
    }

    fn fill_at(&self, to: usize, byte: u8, bytes: usize) -> Result<()> {
        // SAFETY: the ranges are of the test's own buffers, which it uses for one thing at a time.
        unsafe { self.fill(to, byte, bytes) }
    }
}

pub fn free_at(device: &Device, address: usize) -> Result<()> {
    // SAFETY: what `allocate_address` gave the test, or what nobody gave.
    unsafe { device.free_address(address) }
}
