//! Memory in shared storage: heaps, and the host's own pages.

use super::RawDevice;
use super::residency::Residency;
use crate::error::{Error, Result};
use crate::limits;
use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::ProtocolObject;
use objc2_metal::{
    MTLAllocation, MTLBuffer, MTLDevice, MTLHazardTrackingMode, MTLHeap, MTLHeapDescriptor, MTLHeapType,
    MTLResourceOptions, MTLStorageMode,
};
use std::ptr::NonNull;
use std::sync::Arc;

pub(crate) type RawBuffer = ProtocolObject<dyn MTLBuffer>;

/// An `MTLBuffer`. Clones are the same; with the last of them the memory goes.
#[derive(Clone)]
pub struct Buffer {
    memory: Arc<Memory>,
}

struct Memory {
    raw: Retained<RawBuffer>,
    heap: Option<Retained<ProtocolObject<dyn MTLHeap>>>,
    /// The set that it is resident in.
    residency: Option<Arc<Residency>>,
}

// SAFETY: Apple documents Metal's resources and heaps as safe to use from several threads; only their contents need care, which the order of
// commands gives.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// What takes the memory: the heap, or the buffer itself.
    fn allocation(&self) -> &ProtocolObject<dyn MTLAllocation> {
        match &self.heap {
            Some(heap) => ProtocolObject::from_ref(&**heap),
            None => ProtocolObject::from_ref(&*self.raw),
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Some(residency) = &self.residency {
            autoreleasepool(|_| residency.remove(self.allocation()));
        }
    }
}

impl PartialEq for Buffer {
    fn eq(&self, other: &Buffer) -> bool {
        Arc::ptr_eq(&self.memory, &other.memory)
    }
}

impl Buffer {
    fn new(
        raw: Retained<RawBuffer>,
        heap: Option<Retained<ProtocolObject<dyn MTLHeap>>>,
        residency: Option<&Arc<Residency>>,
    ) -> Buffer {
        let memory = Memory { raw, heap, residency: residency.cloned() };
        if let Some(residency) = residency {
            residency.add(memory.allocation());
        }
        Buffer { memory: Arc::new(memory) }
    }

    /// Metal's own object.
    pub(crate) fn raw(&self) -> &RawBuffer {
        &self.memory.raw
    }

    /// The first address in the host's memory, and the length.
    pub fn contents(&self) -> (usize, usize) {
        (self.memory.raw.contents().as_ptr() as usize, self.memory.raw.length())
    }
}

/// Commands that share a buffer are kept in order by Metal, across encoders and command buffers.
const OPTIONS: MTLResourceOptions =
    MTLResourceOptions(MTLResourceOptions::StorageModeShared.0 | MTLResourceOptions::HazardTrackingModeTracked.0);

/// A heap of its own with one buffer over all of it; a plain buffer where the device refuses such a heap.
pub fn allocate(device: &RawDevice, residency: Option<&Arc<Residency>>, bytes: usize) -> Option<Buffer> {
    if let Some((raw, heap)) = in_heap(device, bytes) {
        return Some(Buffer::new(raw, Some(heap), residency));
    }
    let raw = device.newBufferWithLength_options(bytes.max(1), OPTIONS)?;
    Some(Buffer::new(raw, None, residency))
}

fn in_heap(device: &RawDevice, bytes: usize) -> Option<(Retained<RawBuffer>, Retained<ProtocolObject<dyn MTLHeap>>)> {
    let needed = device.heapBufferSizeAndAlignWithLength_options(bytes.max(1), OPTIONS);
    let descriptor = MTLHeapDescriptor::new();
    descriptor.setType(MTLHeapType::Placement);
    descriptor.setStorageMode(MTLStorageMode::Shared);
    descriptor.setHazardTrackingMode(MTLHazardTrackingMode::Tracked);
    descriptor.setSize(needed.size.next_multiple_of(needed.align.max(1)));
    let heap = device.newHeapWithDescriptor(&descriptor)?;
    // SAFETY: the heap is a placement heap of at least this size, and offset 0 has every alignment.
    let raw = unsafe { heap.newBufferWithLength_options_offset(bytes.max(1), OPTIONS, 0) }?;
    Some((raw, heap))
}

/// The host's pages as a buffer.
///
/// # Safety
/// As for `Metal::import`.
pub unsafe fn import(device: &RawDevice, address: NonNull<u8>, bytes: usize) -> Result<Buffer> {
    let page = limits::PAGE;
    if bytes == 0 || !bytes.is_multiple_of(page) || !address.addr().get().is_multiple_of(page) {
        return Err(Error::NotPageAligned { address: address.addr().get(), bytes, page });
    }
    // SAFETY: the range is made of whole pages, which the caller keeps valid; without a deallocator they stay the caller's.
    let raw =
        unsafe { device.newBufferWithBytesNoCopy_length_options_deallocator(address.cast(), bytes, OPTIONS, None) };
    let raw = raw.ok_or(Error::NotMade { what: "buffer over host memory" })?;
    Ok(Buffer::new(raw, None, None))
}
