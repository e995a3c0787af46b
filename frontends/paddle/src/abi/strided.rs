//! Registering a kernel for layout STRIDED, so that Paddle hands strided inputs over instead of copying them first.
//!
//! The C interface refuses that layout. But the callback of the registration receives the very `phi::KernelKey` under which the kernel
//! is inserted afterwards, and its layout may be rewritten there.

use super::types::PdKernelKey;

/// `phi::DataLayout::STRIDED`.
const STRIDED: i32 = 9;
/// `phi::KernelKey` is backend, layout and type, an int each.
const LAYOUT_INDEX: usize = 1;
/// `phi::DataLayout::ALL_LAYOUT`, under which the C interface starts.
const ALL_LAYOUT: i32 = 0;

/// Rewrites the layout of the key. False, and the key untouched, when it does not look as expected: the kernel is then registered for
/// dense inputs, which is correct and slower.
///
/// # Safety
/// `key` is the key that `args_def_fn` of `PD_RegisterPhiKernel` received.
pub unsafe fn mark(key: *mut PdKernelKey, phi_dtype: i32) -> bool {
    let words = key.cast::<i32>();
    // SAFETY: the key has at least three ints (`paddle/phi/core/kernel_factory.h`); it is alive during the callback, and Paddle reads it
    // only after the callback returns.
    unsafe {
        if *words.add(LAYOUT_INDEX) != ALL_LAYOUT || *words.add(2) != phi_dtype {
            return false;
        }
        *words.add(LAYOUT_INDEX) = STRIDED;
    }
    true
}
