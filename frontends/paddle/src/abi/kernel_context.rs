//! Attributes of a `phi::KernelContext` as static programs pass them: PIR hands some Scalars and IntArrays over as tensors, which the C
//! interface throws on. The variant behind an attribute tells which it is.

use super::symbols::Symbols;
use super::types::{PdIntArray, PdKernelContext, PdScalar, PdTensor};

/// Byte offset of a `paddle::variant`'s index: after its storage, as large as the largest alternative.
const VARIANT_INDEX: usize = 48;
/// How many alternatives `phi::Attribute` has (`paddle/phi/core/attribute.h`).
const ALTERNATIVES: u64 = 20;
const SCALAR: u64 = 12;
const INT_ARRAY: u64 = 14;
const TENSOR_REF: u64 = 18;
const TENSOR_REFS: u64 = 19;

/// A Scalar or IntArray attribute.
pub enum Attribute<'a, T> {
    /// The value itself.
    Value(*mut T),
    /// One tensor that holds it.
    Tensor(*const PdTensor),
    /// A tensor per number.
    Tensors(&'a [*const PdTensor]),
    /// The variant holds another alternative: its number.
    Other(u64),
}

/// # Safety
/// `context` is the live context of the running kernel, which has an attribute `index`.
unsafe fn alternative(symbols: &Symbols, context: *mut PdKernelContext, index: usize) -> (*const u8, u64) {
    // SAFETY: the caller's promise; a variant is larger than its index's offset.
    unsafe {
        let variant = (symbols.context_attribute)(context, index);
        let number = variant.add(VARIANT_INDEX).cast::<u64>().read();
        // The index may be narrower than a word: its low byte says all.
        (variant, number & 0xff)
    }
}

/// # Safety
/// As for [`scalar`].
unsafe fn tensors<'a, T>(storage: *const u8, number: u64) -> Attribute<'a, T> {
    match number {
        // SAFETY: a TensorRef is one pointer; a vector of them begins with the pointers to its first and past its last.
        TENSOR_REF => Attribute::Tensor(unsafe { storage.cast::<*const PdTensor>().read() }),
        // SAFETY: the index says which member of the variant is there.
        TENSOR_REFS => unsafe {
            let [first, last] = storage.cast::<[*const *const PdTensor; 2]>().read();
            Attribute::Tensors(if first.is_null() {
                &[]
            } else {
                std::slice::from_raw_parts(first, last.offset_from(first) as usize)
            })
        },
        other => Attribute::Other(if other < ALTERNATIVES { other } else { u64::MAX }),
    }
}

/// The Scalar attribute `index`.
///
/// # Safety
/// `context` is the live context of the running kernel, which has an attribute `index`; the result is used while the kernel runs.
pub unsafe fn scalar<'a>(symbols: &Symbols, context: *mut PdKernelContext, index: usize) -> Attribute<'a, PdScalar> {
    // SAFETY: the caller's promise.
    unsafe {
        match alternative(symbols, context, index) {
            (_, SCALAR) => Attribute::Value((symbols.context_scalar)(context, index)),
            (storage, number) => tensors(storage, number),
        }
    }
}

/// The IntArray attribute `index`.
///
/// # Safety
/// As for [`scalar`].
pub unsafe fn int_array<'a>(
    symbols: &Symbols,
    context: *mut PdKernelContext,
    index: usize,
) -> Attribute<'a, PdIntArray> {
    // SAFETY: the caller's promise.
    unsafe {
        match alternative(symbols, context, index) {
            (_, INT_ARRAY) => Attribute::Value((symbols.context_int_array)(context, index)),
            (storage, number) => tensors(storage, number),
        }
    }
}
