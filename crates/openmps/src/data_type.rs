//! Element types: Rust's beside those of matrices, and the numbers that Apple gives them.

use half::{bf16, f16};
use openmps_tile::DType;

mod sealed {
    pub trait Sealed {}
}

/// A Rust number that can be an element. Any bytes are a value of it.
///
/// ```
/// use openmps::{DataType, Element};
/// assert_eq!(<f32 as Element>::DATA_TYPE, DataType::F32);
/// ```
pub trait Element: sealed::Sealed + Copy + Default + Send + Sync + 'static {
    /// The element type in memory.
    const DATA_TYPE: DType;
}

macro_rules! elements {
    ($($type:ty = $data_type:ident),*) => {$(
        impl sealed::Sealed for $type {}
        impl Element for $type {
            const DATA_TYPE: DType = DType::$data_type;
        }
    )*};
}
elements!(
    u8 = U8,
    u16 = U16,
    u32 = U32,
    u64 = U64,
    i8 = I8,
    i16 = I16,
    i32 = I32,
    i64 = I64,
    f16 = F16,
    bf16 = BF16,
    f32 = F32,
    f64 = F64
);

/// The number of `MPSDataType` (MPSCoreTypes.h); float64 has none, because Apple's GPUs do not have it.
///
/// ```
/// use openmps::{DataType, mps_data_type};
/// assert_eq!(mps_data_type(DataType::F32), Some(0x1000_0020));
/// assert_eq!(mps_data_type(DataType::F64), None);
/// ```
pub fn mps_data_type(data_type: DType) -> Option<u32> {
    const FLOAT: u32 = 0x1000_0000;
    const SIGNED: u32 = 0x2000_0000;
    const ALTERNATE: u32 = 0x8000_0000;
    Some(match data_type {
        DType::Bool => ALTERNATE | 8,
        DType::U8 => 8,
        DType::I8 => SIGNED | 8,
        DType::U16 => 16,
        DType::U32 => 32,
        DType::U64 => 64,
        DType::I16 => SIGNED | 16,
        DType::I32 => SIGNED | 32,
        DType::I64 => SIGNED | 64,
        DType::F16 => FLOAT | 16,
        DType::BF16 => ALTERNATE | FLOAT | 16,
        DType::F32 => FLOAT | 32,
        DType::F64 => return None,
    })
}

/// The bytes of a slice of elements.
pub(crate) fn bytes_of<T: Element>(values: &[T]) -> &[u8] {
    // SAFETY: elements are plain numbers without padding, and bytes have no alignment.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// The bytes of a slice of elements, to write.
pub(crate) fn bytes_of_mut<T: Element>(values: &mut [T]) -> &mut [u8] {
    // SAFETY: as above; any bytes are a value of an element.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
}
