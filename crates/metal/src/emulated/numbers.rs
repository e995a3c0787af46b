//! Elements of any type as float64, and rounded.

pub use crate::numbers::{read, write};
use openmps_tile::{DType, bf16, f16};

/// A value as the type would hold it.
pub fn round(dtype: DType, value: f64) -> f64 {
    match dtype {
        DType::F32 => f64::from(value as f32),
        DType::F16 => f16::from_f64(value).to_f64(),
        DType::BF16 => bf16::from_f64(value).to_f64(),
        DType::Bool => f64::from(u8::from(value != 0.0)),
        DType::F64 => value,
        _ => value.trunc(),
    }
}
