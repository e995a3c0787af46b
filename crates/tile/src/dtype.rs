//! The element types of tensors, shared by every layer.

use std::fmt;

/// The type of one element in memory. `Bool` is one byte, 0 or 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum DType {
    Bool,
    U8,
    I8,
    I16,
    I32,
    I64,
    F16,
    BF16,
    F32,
    F64,
    U16,
    U32,
    U64,
}

use DType::*;

/// Every element type, in the order of [`DType`].
pub const EVERY: &[DType] = &[Bool, U8, I8, I16, I32, I64, F16, BF16, F32, F64, U16, U32, U64];
/// The types that operators compute in. Of the others, unsigned integers of more than 8 bits, elements are moved and converted.
pub const ALL: &[DType] = &[Bool, U8, I8, I16, I32, I64, F16, BF16, F32, F64];
/// The floating-point types.
pub const FLOATS: &[DType] = &[F16, BF16, F32, F64];
/// The integer types, without `Bool`.
pub const INTEGERS: &[DType] = &[U8, I8, I16, I32, I64];
/// The types that have arithmetic: all but `Bool`.
pub const NUMBERS: &[DType] = &[U8, I8, I16, I32, I64, F16, BF16, F32, F64];

impl DType {
    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            Bool | U8 | I8 => 1,
            I16 | U16 | F16 | BF16 => 2,
            I32 | U32 | F32 => 4,
            I64 | U64 | F64 => 8,
        }
    }

    /// Whether this is one of [`FLOATS`].
    pub const fn is_float(self) -> bool {
        matches!(self, F16 | BF16 | F32 | F64)
    }

    /// Whether this is one of [`INTEGERS`].
    pub const fn is_integer(self) -> bool {
        matches!(self, U8 | I8 | I16 | I32 | I64)
    }

    /// Whether this is an integer without a sign of more than 8 bits, which is moved and converted only.
    pub const fn is_only_moved(self) -> bool {
        matches!(self, U16 | U32 | U64)
    }

    /// The type in which arithmetic on this type is done: half precision computes in float32.
    pub const fn compute(self) -> DType {
        match self {
            F16 | BF16 => F32,
            other => other,
        }
    }

    /// The integer type of this size, as which elements are moved: every device has it, and no bit of a NaN is lost.
    pub const fn bits(self) -> DType {
        match self.size() {
            1 => I8,
            2 => I16,
            4 => I32,
            _ => I64,
        }
    }

    /// The least and the greatest number of the type.
    pub const fn bounds(self) -> (f64, f64) {
        match self {
            Bool => (0.0, 1.0),
            U8 => (0.0, u8::MAX as f64),
            I8 => (i8::MIN as f64, i8::MAX as f64),
            U16 => (0.0, u16::MAX as f64),
            U32 => (0.0, u32::MAX as f64),
            U64 => (0.0, u64::MAX as f64),
            I16 => (i16::MIN as f64, i16::MAX as f64),
            I32 => (i32::MIN as f64, i32::MAX as f64),
            I64 => (i64::MIN as f64, i64::MAX as f64),
            F16 | BF16 | F32 | F64 => (f64::NEG_INFINITY, f64::INFINITY),
        }
    }

    /// The name that Python and error messages use.
    pub const fn name(self) -> &'static str {
        match self {
            Bool => "bool",
            U8 => "uint8",
            I8 => "int8",
            U16 => "uint16",
            U32 => "uint32",
            U64 => "uint64",
            I16 => "int16",
            I32 => "int32",
            I64 => "int64",
            F16 => "float16",
            BF16 => "bfloat16",
            F32 => "float32",
            F64 => "float64",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
