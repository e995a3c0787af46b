//! Elements of any type as float64: read from memory, and written back rounded.

use openmps_tile::{DType, bf16, f16};

/// The elements at these addresses.
///
/// # Safety
/// Each address holds an element of the type.
pub unsafe fn read(dtype: DType, addresses: impl Iterator<Item = usize>) -> Vec<f64> {
    // SAFETY: the caller's.
    addresses.map(|address| unsafe { load(dtype, address) }).collect()
}

/// Writes each value to its address, rounded to the type.
///
/// # Safety
/// Each address has room for an element of the type, and nobody else uses it now.
pub unsafe fn write(dtype: DType, addresses: impl Iterator<Item = usize>, values: &[f64]) {
    for (address, &value) in addresses.zip(values) {
        // SAFETY: the caller's.
        unsafe { store(dtype, address, value) };
    }
}

unsafe fn load(dtype: DType, address: usize) -> f64 {
    // SAFETY: the caller's; the address is aligned to the element, as the operands' check demands.
    unsafe {
        match dtype {
            DType::Bool | DType::U8 => f64::from(*(address as *const u8)),
            DType::I8 => f64::from(*(address as *const i8)),
            DType::U16 => f64::from(*(address as *const u16)),
            DType::U32 => f64::from(*(address as *const u32)),
            DType::U64 => *(address as *const u64) as f64,
            DType::I16 => f64::from(*(address as *const i16)),
            DType::I32 => f64::from(*(address as *const i32)),
            DType::I64 => *(address as *const i64) as f64,
            DType::F16 => (*(address as *const f16)).to_f64(),
            DType::BF16 => (*(address as *const bf16)).to_f64(),
            DType::F32 => f64::from(*(address as *const f32)),
            DType::F64 => *(address as *const f64),
        }
    }
}

unsafe fn store(dtype: DType, address: usize, value: f64) {
    // SAFETY: as above.
    unsafe {
        match dtype {
            DType::Bool => *(address as *mut u8) = u8::from(value != 0.0),
            DType::U8 => *(address as *mut u8) = value as u8,
            DType::I8 => *(address as *mut i8) = value as i8,
            DType::U16 => *(address as *mut u16) = value as u16,
            DType::U32 => *(address as *mut u32) = value as u32,
            DType::U64 => *(address as *mut u64) = value as u64,
            DType::I16 => *(address as *mut i16) = value as i16,
            DType::I32 => *(address as *mut i32) = value as i32,
            DType::I64 => *(address as *mut i64) = value as i64,
            DType::F16 => *(address as *mut f16) = f16::from_f64(value),
            DType::BF16 => *(address as *mut bf16) = bf16::from_f64(value),
            DType::F32 => *(address as *mut f32) = value as f32,
            DType::F64 => *(address as *mut f64) = value,
        }
    }
}
