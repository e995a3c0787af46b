//! Element types: bytes to and from float64.

use half::{bf16, f16};

/// An element type by the name that kernels have it under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    F32,
    F16,
    Bf16,
    I64,
    U32,
    I32,
    I16,
    U8,
    I8,
    U16,
    U64,
    Bool,
}

use Kind::{Bf16, Bool, F16, F32, I8, I16, I32, I64, U8, U16, U32, U64};

impl Kind {
    pub fn named(name: &str) -> Option<Kind> {
        Some(match name {
            "f32" | "float" | "float32" => F32,
            "f16" | "half" | "float16" | "float16_t" => F16,
            "bf16" | "bfloat" | "bfloat16" | "bfloat16_t" => Bf16,
            "i64" | "int64" => I64,
            "uint64" => U64,
            "uint16" => U16,
            "int8" => I8,
            "u32" | "uint32" => U32,
            "i32" | "int32" => I32,
            "i16" | "int16" => I16,
            "u8" | "uint8" => U8,
            _ => return None,
        })
    }

    pub fn is_float(self) -> bool {
        matches!(self, F32 | F16 | Bf16)
    }

    /// The distance of one from the next number, zero for integers.
    pub fn epsilon(self) -> f64 {
        match self {
            F32 => f64::from(f32::EPSILON),
            F16 => f16::EPSILON.to_f64(),
            Bf16 => bf16::EPSILON.to_f64(),
            _ => 0.0,
        }
    }

    pub fn size(self) -> usize {
        match self {
            I64 | U64 => 8,
            F32 | U32 | I32 => 4,
            F16 | Bf16 | I16 | U16 => 2,
            U8 | I8 | Bool => 1,
        }
    }

    pub fn encode(self, values: &[f64]) -> Vec<u8> {
        let one = |value: f64| match self {
            F32 => (value as f32).to_ne_bytes().to_vec(),
            F16 => f16::from_f64(value).to_ne_bytes().to_vec(),
            Bf16 => bf16::from_f64(value).to_ne_bytes().to_vec(),
            I64 => (value as i64).to_ne_bytes().to_vec(),
            U32 => (value as i64 as u32).to_ne_bytes().to_vec(),
            I32 => (value as i32).to_ne_bytes().to_vec(),
            I16 => (value as i16).to_ne_bytes().to_vec(),
            U8 => vec![value as i64 as u8],
            // These wrap, as sums and products of the kernels do.
            I8 => vec![value as i64 as u8],
            U16 => (value as i64 as u16).to_ne_bytes().to_vec(),
            U64 if value > 0.0 => (value as u64).to_ne_bytes().to_vec(),
            U64 => (value as i64 as u64).to_ne_bytes().to_vec(),
            _ => vec![u8::from(value != 0.0)],
        };
        values.iter().flat_map(|value| one(*value)).collect()
    }

    pub fn decode(self, bytes: &[u8]) -> Vec<f64> {
        let one = |bytes: &[u8]| match (self, bytes) {
            (F32, &[a, b, c, d]) => f64::from(f32::from_ne_bytes([a, b, c, d])),
            (U32, &[a, b, c, d]) => f64::from(u32::from_ne_bytes([a, b, c, d])),
            (I32, &[a, b, c, d]) => f64::from(i32::from_ne_bytes([a, b, c, d])),
            (F16, &[a, b]) => f16::from_ne_bytes([a, b]).to_f64(),
            (Bf16, &[a, b]) => bf16::from_ne_bytes([a, b]).to_f64(),
            (I16, &[a, b]) => f64::from(i16::from_ne_bytes([a, b])),
            (U16, &[a, b]) => f64::from(u16::from_ne_bytes([a, b])),
            (U8 | Bool, &[a]) => f64::from(a),
            (I8, &[a]) => f64::from(a as i8),
            (U64, bytes) => bytes.try_into().map_or(f64::NAN, |bytes| u64::from_ne_bytes(bytes) as f64),
            (_, bytes) => bytes.try_into().map_or(f64::NAN, |bytes| i64::from_ne_bytes(bytes) as f64),
        };
        bytes.chunks_exact(self.size()).map(one).collect()
    }

    /// The nearest number of this type; integers are cut off.
    pub fn round(self, value: f64) -> f64 {
        self.decode(&self.encode(&[value]))[0]
    }

    /// Numbers of this type, the same in every run: between -2 and 2, whole ones from 1 to 15, or zeros and ones.
    pub fn numbers(self, count: usize, seed: u64) -> Vec<f64> {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f64 / (1_u64 << 24) as f64
        };
        let number = |x: f64| match self {
            Bool => f64::from(x < 0.5),
            kind if kind.is_float() => self.round(x * 4.0 - 2.0),
            _ => (x * 15.0).floor() + 1.0,
        };
        (0..count).map(|_| number(next())).collect()
    }
}
