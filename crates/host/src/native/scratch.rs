//! Working memory that threads keep between calls, because fresh pages cost more than most kernels that would use them.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::RefCell;

/// Bytes that one thread keeps at most when no kernel is running.
const KEPT_BYTES: usize = 256 << 20;
const ALIGN: usize = 64;

/// Memory aligned to a cache line, initialised.
pub(crate) struct Buffer {
    address: *mut u8,
    bytes: usize,
}

impl Buffer {
    fn new(bytes: usize) -> Buffer {
        let layout = Layout::from_size_align(bytes, ALIGN).expect("a scratch size below isize::MAX");
        // SAFETY: `take` asks for at least one aligned unit, so the size is not zero.
        let address = unsafe { alloc(layout) };
        if address.is_null() {
            handle_alloc_error(layout);
        }
        // Kernels may read lanes that they discard; initialised memory keeps that defined, and free of slow denormals.
        // SAFETY: the allocation holds `bytes` bytes.
        unsafe { address.write_bytes(0, bytes) };
        Buffer { address, bytes }
    }

    /// As float32.
    pub(crate) fn numbers(&self) -> &[f32] {
        // SAFETY: the memory is initialised, aligned for every number, and borrowed with `self`.
        unsafe { std::slice::from_raw_parts(self.address.cast(), self.bytes / size_of::<f32>()) }
    }

    /// As float32.
    pub(crate) fn numbers_mut(&mut self) -> &mut [f32] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.address.cast(), self.bytes / size_of::<f32>()) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let layout = Layout::from_size_align(self.bytes, ALIGN).expect("the layout it was made with");
        // SAFETY: `address` came from `alloc` with this layout and is freed once.
        unsafe { dealloc(self.address, layout) };
    }
}

thread_local! {
    static FREE: RefCell<Vec<Buffer>> = const { RefCell::new(Vec::new()) };
}

/// A number that may be made of any bytes.
///
/// # Safety
/// Every pattern of bytes is a value, and the alignment is at most [`ALIGN`].
pub unsafe trait Plain: Copy {}

// SAFETY: all bits of a float are a float.
unsafe impl Plain for f32 {}
// SAFETY: as above.
unsafe impl Plain for f64 {}
// SAFETY: all bits of an integer are one.
unsafe impl Plain for i32 {}

/// Calls `work` with `len` elements of initialised memory, 64-byte aligned, whose contents are left from earlier uses. Uses may nest; each
/// gets memory of its own.
pub(crate) fn with<T: Plain, R>(len: usize, work: impl FnOnce(&mut [T]) -> R) -> R {
    let buffer = take(len.checked_mul(size_of::<T>()).expect("a scratch size below isize::MAX"), usize::MAX);
    // SAFETY: the buffer holds at least `len` initialised elements, is aligned for every number, and belongs to this call until
    // it is given back below.
    let result = work(unsafe { std::slice::from_raw_parts_mut(buffer.address.cast::<T>(), len) });
    give(buffer);
    result
}

/// Memory of at least so many bytes, and of no more than `most` unless it is new, for as long as it is needed; its contents are left from earlier
/// uses.
pub(crate) fn take(bytes: usize, most: usize) -> Buffer {
    let bytes = bytes.max(1).checked_next_multiple_of(4096).expect("a scratch size below isize::MAX");
    let kept = FREE.with_borrow_mut(|free| {
        let fits =
            free.iter().enumerate().filter(|(_, buffer)| buffer.bytes >= bytes && buffer.bytes <= most.max(bytes));
        let best = fits.min_by_key(|(_, buffer)| buffer.bytes).map(|(i, _)| i);
        best.map(|i| free.swap_remove(i))
    });
    kept.unwrap_or_else(|| {
        // Where the largest free buffer is too small: replace it rather than keep both.
        FREE.with_borrow_mut(|free| {
            if let Some(i) = (0..free.len()).max_by_key(|&i| free[i].bytes).filter(|&i| free[i].bytes < bytes) {
                free.swap_remove(i);
            }
        });
        Buffer::new(bytes)
    })
}

/// Gives memory back to this thread's later uses.
pub(crate) fn give(buffer: Buffer) {
    // A thread that ends may have let go of its list already: then the memory is freed.
    let _ = FREE.try_with(|free| {
        let mut free = free.borrow_mut();
        if free.iter().map(|b| b.bytes).sum::<usize>() + buffer.bytes <= KEPT_BYTES {
            free.push(buffer);
        }
    });
}
