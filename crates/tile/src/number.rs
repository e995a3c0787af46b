//! A number of any element type: a kernel's constant, an operator's attribute.

use crate::dtype::DType;

/// A number that keeps all 64 bits of an integer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// For integer types and booleans.
    Integer(i64),
    /// For floating-point types.
    Float(f64),
}

impl Number {
    /// The nearest float64: exact but for integers beyond 2^53.
    pub fn to_f64(self) -> f64 {
        match self {
            Number::Integer(value) => value as f64,
            Number::Float(value) => value,
        }
    }

    /// As an integer, truncated.
    pub fn to_i64(self) -> i64 {
        match self {
            Number::Integer(value) => value,
            Number::Float(value) => value as i64,
        }
    }

    /// As an integer without a sign: of a float truncated, of an integer its bits.
    fn to_u64(self) -> u64 {
        match self {
            Number::Integer(value) => value as u64,
            Number::Float(value) => value as u64,
        }
    }

    /// The element of this type as it lies in memory; the bytes after its size are zero.
    pub fn element(self, dtype: DType) -> [u8; 8] {
        let mut bytes = [0; 8];
        let mut put = |value: &[u8]| bytes[..value.len()].copy_from_slice(value);
        match dtype {
            DType::Bool => put(&[u8::from(self.to_f64() != 0.0)]),
            DType::U8 => put(&(self.to_i64() as u8).to_ne_bytes()),
            DType::I8 => put(&(self.to_i64() as i8).to_ne_bytes()),
            DType::U16 => put(&(self.to_i64() as u16).to_ne_bytes()),
            DType::U32 => put(&(self.to_i64() as u32).to_ne_bytes()),
            DType::U64 => put(&self.to_u64().to_ne_bytes()),
            DType::I16 => put(&(self.to_i64() as i16).to_ne_bytes()),
            DType::I32 => put(&(self.to_i64() as i32).to_ne_bytes()),
            DType::I64 => put(&self.to_i64().to_ne_bytes()),
            DType::F16 => put(&half::f16::from_f64(self.to_f64()).to_ne_bytes()),
            DType::BF16 => put(&half::bf16::from_f64(self.to_f64()).to_ne_bytes()),
            DType::F32 => put(&(self.to_f64() as f32).to_ne_bytes()),
            DType::F64 => put(&self.to_f64().to_ne_bytes()),
        }
        bytes
    }
}
