//! The part of Paddle's device interface that is memory: the device's, the host's, and copies.

use super::{call, device, is_live, queue};
use crate::abi::device_ext::{CDevice, CStream, DeviceInterface};
use crate::abi::types::{FAILED, SUCCESS, Status};
use openmps_runtime::{Error, Queue, Result};
use std::alloc::Layout;
use std::os::raw::c_void;

/// Paddle asks for memory in multiples of this many bytes.
const MIN_CHUNK: usize = 256;
/// Alignment of host memory, a cache line.
const HOST_ALIGNMENT: usize = 64;

/// Fills these members of the interface.
pub(super) fn fill(interface: &mut DeviceInterface) {
    interface.device_memory_allocate = Some(device_memory_allocate);
    interface.device_memory_deallocate = Some(device_memory_deallocate);
    interface.device_memory_set = Some(device_memory_set);
    interface.host_memory_allocate = Some(host_memory_allocate);
    interface.host_memory_deallocate = Some(host_memory_deallocate);
    interface.memory_copy_h2d = Some(copy_h2d);
    interface.memory_copy_d2h = Some(copy_d2h);
    interface.memory_copy_d2d = Some(copy_d2d);
    interface.memory_copy_p2p = Some(copy_p2p);
    interface.async_memory_copy_h2d = Some(async_copy_h2d);
    interface.async_memory_copy_d2h = Some(async_copy_d2h);
    interface.async_memory_copy_d2d = Some(async_copy_d2d);
    interface.async_memory_copy_p2p = Some(async_copy_p2p);
    interface.device_memory_stats = Some(device_memory_stats);
    interface.device_min_chunk_size = Some(device_min_chunk_size);
}

unsafe extern "C-unwind" fn device_memory_allocate(
    at: *const CDevice,
    address: *mut *mut c_void,
    bytes: usize,
) -> Status {
    call("device_memory_allocate", || {
        // SAFETY: see `init_device`.
        let allocated = unsafe { device(at) }?.allocate_address(bytes);
        // Success with a null pointer is how Paddle is told that memory is out: it then frees what it has cached and tries again, or
        // raises MemoryError with the figures. A status of failure would be neither.
        let allocated = match allocated {
            Err(Error::OutOfMemory { .. }) => 0,
            other => other?,
        };
        // SAFETY: see `init_device`.
        unsafe { *address = allocated as *mut c_void };
        Ok(())
    })
}

unsafe extern "C-unwind" fn device_memory_deallocate(at: *const CDevice, address: *mut c_void, _: usize) -> Status {
    // SAFETY: see `init_device`; Paddle frees what `device_memory_allocate` gave it, once, after its streams' commands.
    call("device_memory_deallocate", || unsafe { device(at)?.free_address(address as usize) })
}

unsafe extern "C-unwind" fn device_memory_set(
    at: *const CDevice,
    address: *mut c_void,
    byte: u8,
    bytes: usize,
) -> Status {
    call("device_memory_set", || {
        // SAFETY: see `init_device`.
        let queue = unsafe { device(at) }?.queue();
        // SAFETY: Paddle's own memory, which it has set in the order of its streams.
        unsafe { queue.fill(address as usize, byte, bytes)? };
        queue.synchronize()
    })
}

fn host_layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes.max(1), HOST_ALIGNMENT).ok()
}

unsafe extern "C-unwind" fn host_memory_allocate(_: *const CDevice, address: *mut *mut c_void, bytes: usize) -> Status {
    // SAFETY: the layout has at least one byte; the pointer is Paddle's to fill.
    unsafe { *address = host_layout(bytes).map_or(std::ptr::null_mut(), |layout| std::alloc::alloc(layout).cast()) };
    // SAFETY: as above.
    if unsafe { (*address).is_null() } { FAILED } else { SUCCESS }
}

unsafe extern "C-unwind" fn host_memory_deallocate(_: *const CDevice, address: *mut c_void, bytes: usize) -> Status {
    if let (Some(layout), false) = (host_layout(bytes), address.is_null()) {
        // SAFETY: allocated by `host_memory_allocate` with this size.
        unsafe { std::alloc::dealloc(address.cast(), layout) };
    }
    SUCCESS
}

/// One way to copy so many bytes from the second address to the first.
type Way = unsafe fn(&Queue, *mut c_void, *const c_void, usize) -> Result<()>;

/// # Safety
/// Unless there are no bytes, `source` is host memory of this many bytes, and `destination` memory of Paddle's own in the order of its
/// streams.
unsafe fn write(queue: &Queue, destination: *mut c_void, source: *const c_void, bytes: usize) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    // SAFETY: the caller's promise.
    unsafe { queue.write(destination as usize, std::slice::from_raw_parts(source.cast(), bytes)) }
}

/// # Safety
/// Unless there are no bytes, `destination` is host memory of this many bytes, and `source` memory of Paddle's own in the order of its
/// streams.
unsafe fn read(queue: &Queue, destination: *mut c_void, source: *const c_void, bytes: usize) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    // SAFETY: the caller's promise.
    unsafe { queue.read(std::slice::from_raw_parts_mut(destination.cast(), bytes), source as usize) }
}

/// # Safety
/// Both are memory of Paddle's own of this many bytes, in the order of its streams.
unsafe fn copy(queue: &Queue, destination: *mut c_void, source: *const c_void, bytes: usize) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { queue.copy(destination as usize, source as usize, bytes) }
}

/// A copy that has ended when this returns.
///
/// # Safety
/// As for the way; see `init_device`.
unsafe fn at_once(at: *const CDevice, to: *mut c_void, from: *const c_void, bytes: usize, way: Way) -> Result<()> {
    // SAFETY: see `init_device`.
    let queue = unsafe { device(at) }?.queue();
    // SAFETY: the caller's promise.
    unsafe { way(&queue, to, from, bytes)? };
    queue.synchronize()
}

/// A copy in the order of a stream. Where the stream is none, after all that the device has to do: CPU kernels of Paddle's that copy a tensor
/// of the device, as `paddle.sparse.cast` does, take their context for the device's, and hand over what lies where that would have its stream.
///
/// # Safety
/// As for the way; see `init_device`.
unsafe fn in_order(
    at: *const CDevice,
    stream: CStream,
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    way: Way,
) -> Result<()> {
    if is_live(stream) {
        // SAFETY: the stream is one; the rest is the caller's promise.
        return unsafe { way(queue(stream), to, from, bytes) };
    }
    // SAFETY: the caller's promise.
    unsafe {
        device(at)?.synchronize()?;
        at_once(at, to, from, bytes, way)
    }
}

unsafe extern "C-unwind" fn copy_h2d(at: *const CDevice, to: *mut c_void, from: *const c_void, bytes: usize) -> Status {
    // SAFETY: see `init_device`.
    call("memory_copy_h2d", || unsafe { at_once(at, to, from, bytes, write) })
}

unsafe extern "C-unwind" fn copy_d2h(at: *const CDevice, to: *mut c_void, from: *const c_void, bytes: usize) -> Status {
    // SAFETY: see `init_device`.
    call("memory_copy_d2h", || unsafe { at_once(at, to, from, bytes, read) })
}

unsafe extern "C-unwind" fn copy_d2d(at: *const CDevice, to: *mut c_void, from: *const c_void, bytes: usize) -> Status {
    // SAFETY: see `init_device`.
    call("memory_copy_d2d", || unsafe { at_once(at, to, from, bytes, copy) })
}

unsafe extern "C-unwind" fn copy_p2p(
    _: *const CDevice,
    at: *const CDevice,
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
) -> Status {
    // SAFETY: see `init_device`; the source's device copies, and addresses of every device resolve.
    unsafe { copy_d2d(at, to, from, bytes) }
}

unsafe extern "C-unwind" fn async_copy_h2d(
    at: *const CDevice,
    stream: CStream,
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
) -> Status {
    // SAFETY: see `init_device`.
    call("async_memory_copy_h2d", || unsafe { in_order(at, stream, to, from, bytes, write) })
}

unsafe extern "C-unwind" fn async_copy_d2h(
    at: *const CDevice,
    stream: CStream,
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
) -> Status {
    // SAFETY: see `init_device`.
    call("async_memory_copy_d2h", || unsafe { in_order(at, stream, to, from, bytes, read) })
}

unsafe extern "C-unwind" fn async_copy_d2d(
    at: *const CDevice,
    stream: CStream,
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
) -> Status {
    // SAFETY: see `init_device`.
    call("async_memory_copy_d2d", || unsafe { in_order(at, stream, to, from, bytes, copy) })
}

unsafe extern "C-unwind" fn async_copy_p2p(
    _: *const CDevice,
    at: *const CDevice,
    stream: CStream,
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
) -> Status {
    // SAFETY: see `init_device`.
    unsafe { async_copy_d2d(at, stream, to, from, bytes) }
}

unsafe extern "C-unwind" fn device_memory_stats(at: *const CDevice, total: *mut usize, free: *mut usize) -> Status {
    call("device_memory_stats", || {
        // SAFETY: see `init_device`.
        unsafe {
            let device = device(at)?;
            *total = device.memory_limit();
            *free = device.memory_limit().saturating_sub(device.statistics().allocated);
        }
        Ok(())
    })
}

unsafe extern "C-unwind" fn device_min_chunk_size(_: *const CDevice, bytes: *mut usize) -> Status {
    // SAFETY: see `init_device`.
    unsafe { *bytes = MIN_CHUNK };
    SUCCESS
}
