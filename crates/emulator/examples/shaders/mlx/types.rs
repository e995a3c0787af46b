//! MLX's element types, and complex numbers in float64 as two neighbours.

use crate::kind::Kind;

/// An element type: as kernels are named after it, as their text has it, and what it is in memory. A complex number is two float.
#[derive(Debug, Clone, Copy)]
pub struct Type {
    pub name: &'static str,
    pub text: &'static str,
    pub kind: Kind,
    pub lanes: usize,
}

const fn of(name: &'static str, text: &'static str, kind: Kind) -> Type {
    Type { name, text, kind, lanes: 1 }
}

pub const BOOL: Type = of("bool_", "bool", Kind::Bool);
pub const COMPLEX: Type = Type { name: "complex64", text: "complex64_t", kind: Kind::F32, lanes: 2 };
pub const FLOATS: [Type; 3] =
    [of("float16", "half", Kind::F16), of("float32", "float", Kind::F32), of("bfloat16", "bfloat16_t", Kind::Bf16)];
pub const WHOLE: [Type; 8] = [
    of("uint8", "uint8_t", Kind::U8),
    of("uint16", "uint16_t", Kind::U16),
    of("uint32", "uint32_t", Kind::U32),
    of("uint64", "uint64_t", Kind::U64),
    of("int8", "int8_t", Kind::I8),
    of("int16", "int16_t", Kind::I16),
    of("int32", "int32_t", Kind::I32),
    of("int64", "int64_t", Kind::I64),
];

impl Type {
    pub fn size(&self) -> usize {
        self.kind.size() * self.lanes
    }

    pub fn is_complex(&self) -> bool {
        self.lanes == 2
    }

    /// How many elements a thread takes where the kernel decides that.
    pub fn per_thread(&self) -> usize {
        8 / self.size()
    }

    pub fn numbers(&self, count: usize, seed: u64) -> Vec<f64> {
        self.kind.numbers(count * self.lanes, seed)
    }
}

/// Real and imaginary part.
pub type Complex = [f64; 2];

pub fn add(a: Complex, b: Complex) -> Complex {
    [a[0] + b[0], a[1] + b[1]]
}

pub fn sub(a: Complex, b: Complex) -> Complex {
    [a[0] - b[0], a[1] - b[1]]
}

pub fn mul(a: Complex, b: Complex) -> Complex {
    [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]]
}

pub fn div(a: Complex, b: Complex) -> Complex {
    let size = b[0] * b[0] + b[1] * b[1];
    [(a[0] * b[0] + a[1] * b[1]) / size, (a[1] * b[0] - a[0] * b[1]) / size]
}

pub fn exp(a: Complex) -> Complex {
    [a[0].exp() * a[1].cos(), a[0].exp() * a[1].sin()]
}

pub fn ln(a: Complex) -> Complex {
    [a[0].hypot(a[1]).ln(), a[1].atan2(a[0])]
}

/// The root with a real part that is not negative.
pub fn sqrt(a: Complex) -> Complex {
    let size = a[0].hypot(a[1]);
    [((size + a[0]) / 2.0).sqrt(), ((size - a[0]) / 2.0).sqrt().copysign(a[1])]
}

/// By the real part, then by the imaginary one.
pub fn is_greater(a: Complex, b: Complex) -> bool {
    a[0] > b[0] || a[0] == b[0] && a[1] > b[1]
}
