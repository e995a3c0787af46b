//! What each operation does to one element. Elements are bits, the low ones of a `u64`, and zero above their width.

use crate::kernel::{Binary, Cast, Combine, Compare, Number, Unary};
use crate::types::Scalar;
use crate::{bf16, f16};

/// Bits of one element; a boolean has one.
fn width(scalar: Scalar) -> u32 {
    if scalar == Scalar::I1 { 1 } else { 8 * scalar.size() as u32 }
}

/// The low bits that a number type has: integers wrap.
pub fn wrap(scalar: Scalar, bits: u64) -> u64 {
    bits & (u64::MAX >> (64 - width(scalar)))
}

/// An integer read with its sign.
pub fn signed(scalar: Scalar, bits: u64) -> i64 {
    let unused = 64 - width(scalar);
    (bits << unused) as i64 >> unused
}

/// A float's value, exactly; float64 has the values of all other float types.
pub fn float(scalar: Scalar, bits: u64) -> f64 {
    match scalar {
        Scalar::F16 => f16::from_bits(bits as u16).to_f64(),
        Scalar::BF16 => bf16::from_bits(bits as u16).to_f64(),
        Scalar::F32 => f32::from_bits(bits as u32).into(),
        _ => f64::from_bits(bits),
    }
}

/// The float nearest to a value, halves to even. The half types are reached through float32.
pub fn round(scalar: Scalar, value: f64) -> u64 {
    match scalar {
        Scalar::F64 => value.to_bits(),
        narrower => round_single(narrower, value as f32),
    }
}

fn round_single(scalar: Scalar, value: f32) -> u64 {
    match scalar {
        Scalar::F16 => f16::from_f32(value).to_bits().into(),
        Scalar::BF16 => bf16::from_f32(value).to_bits().into(),
        Scalar::F32 => value.to_bits().into(),
        _ => f64::from(value).to_bits(),
    }
}

/// A constant of the number type.
pub fn constant(number: Number, scalar: Scalar) -> u64 {
    match number {
        Number::Integer(x) => wrap(scalar, x as u64),
        Number::Float(x) => round(scalar, x),
    }
}

/// An operation on one operand.
///
/// Floats compute in float64 and round to float32, and from there to a half type. For arithmetic and the square root this is what
/// arithmetic of float32 gives; of other functions it gives the correctly rounded result as far as float64 can tell.
pub fn unary(operation: Unary, scalar: Scalar, x: u64) -> u64 {
    if scalar.is_float() {
        return round(scalar, unary_float(operation, float(scalar, x)));
    }
    let value = signed(scalar, x);
    let result = match operation {
        Unary::Negate => value.wrapping_neg(),
        Unary::Absolute => value.wrapping_abs(),
        Unary::Not => !value,
        _ => value,
    };
    wrap(scalar, result as u64)
}

fn unary_float(operation: Unary, x: f64) -> f64 {
    match operation {
        Unary::Negate => -x,
        Unary::Absolute => x.abs(),
        Unary::Not => x,
        Unary::Exp => x.exp(),
        Unary::Exp2 => x.exp2(),
        Unary::Expm1 => x.exp_m1(),
        Unary::Log => x.ln(),
        Unary::Log2 => x.log2(),
        Unary::Log1p => x.ln_1p(),
        Unary::Sqrt => x.sqrt(),
        Unary::Rsqrt => 1.0 / x.sqrt(),
        Unary::Sin => x.sin(),
        Unary::Cos => x.cos(),
        Unary::Tan => x.tan(),
        Unary::Asin => x.asin(),
        Unary::Acos => x.acos(),
        Unary::Atan => x.atan(),
        Unary::Sinh => x.sinh(),
        Unary::Cosh => x.cosh(),
        Unary::Tanh => x.tanh(),
        Unary::Erf => libm::erf(x),
        Unary::Floor => x.floor(),
        Unary::Ceil => x.ceil(),
        Unary::Round => x.round_ties_even(),
        Unary::Truncate => x.trunc(),
    }
}

/// An operation on two operands; floats as in [`unary`].
pub fn binary(operation: Binary, scalar: Scalar, x: u64, y: u64) -> u64 {
    if scalar.is_float() {
        return round(scalar, binary_float(operation, float(scalar, x), float(scalar, y)));
    }
    wrap(scalar, binary_integer(operation, scalar, x, y))
}

fn binary_float(operation: Binary, x: f64, y: f64) -> f64 {
    match operation {
        Binary::Add => x + y,
        Binary::Subtract => x - y,
        Binary::Multiply => x * y,
        Binary::Divide => x / y,
        Binary::Remainder => x % y,
        Binary::Minimum => minimum(x, y),
        Binary::Maximum => -minimum(-x, -y),
        Binary::MinimumNumber => number(x, y, minimum),
        Binary::MaximumNumber => number(x, y, |x, y| -minimum(-x, -y)),
        Binary::Power => x.powf(y),
        Binary::Atan2 => x.atan2(y),
        _ => f64::NAN,
    }
}

/// The smaller; NaN when either is; the negative one of two zeros.
fn minimum(x: f64, y: f64) -> f64 {
    if x.is_nan() || x < y || x == y && x.is_sign_negative() { x } else { y }
}

/// The choice between two numbers; the other where one is NaN.
fn number(x: f64, y: f64, choose: impl Fn(f64, f64) -> f64) -> f64 {
    match (x.is_nan(), y.is_nan()) {
        (true, _) => y,
        (_, true) => x,
        _ => choose(x, y),
    }
}

fn binary_integer(operation: Binary, scalar: Scalar, x: u64, y: u64) -> u64 {
    let (a, b) = (signed(scalar, x), signed(scalar, y));
    let in_width = y < width(scalar).into();
    match operation {
        Binary::Add => x.wrapping_add(y),
        Binary::Subtract => x.wrapping_sub(y),
        Binary::Multiply => x.wrapping_mul(y),
        Binary::Divide if b == 0 => 0,
        Binary::Divide => a.wrapping_div(b) as u64,
        Binary::Remainder if b == 0 => 0,
        Binary::Remainder => a.wrapping_rem(b) as u64,
        Binary::DivideUnsigned => x.checked_div(y).unwrap_or(0),
        Binary::RemainderUnsigned => x.checked_rem(y).unwrap_or(0),
        Binary::Minimum => a.min(b) as u64,
        Binary::Maximum => a.max(b) as u64,
        Binary::MinimumUnsigned => x.min(y),
        Binary::MaximumUnsigned => x.max(y),
        Binary::MultiplyHighUnsigned => ((u128::from(x) * u128::from(y)) >> width(scalar)) as u64,
        Binary::And => x & y,
        Binary::Or => x | y,
        Binary::Xor => x ^ y,
        Binary::ShiftLeft if in_width => x << y,
        Binary::ShiftRightUnsigned if in_width => x >> y,
        Binary::ShiftLeft | Binary::ShiftRightUnsigned => 0,
        Binary::ShiftRight => (a >> y.min(63)) as u64,
        Binary::Power | Binary::Atan2 | Binary::MinimumNumber | Binary::MaximumNumber => 0,
    }
}

/// `x * y + z` of floats, rounded once as far as float64 can tell.
pub fn multiply_add(scalar: Scalar, x: u64, y: u64, z: u64) -> u64 {
    round(scalar, float(scalar, x).mul_add(float(scalar, y), float(scalar, z)))
}

/// One term of a product of matrices: `sum` is of the wide type, the factors of the narrow one.
pub fn product(narrow: Scalar, wide: Scalar, sum: u64, x: u64, y: u64) -> u64 {
    if wide.is_float() {
        return round(wide, float(wide, sum) + float(narrow, x) * float(narrow, y));
    }
    wrap(wide, sum.wrapping_add(signed(narrow, x).wrapping_mul(signed(narrow, y)) as u64))
}

/// A comparison; 1 where it holds.
pub fn compare(comparison: Compare, scalar: Scalar, x: u64, y: u64) -> u64 {
    let holds = if scalar.is_float() {
        ordered(comparison, &float(scalar, x), &float(scalar, y))
    } else if is_unsigned(comparison) {
        ordered(comparison, &x, &y)
    } else {
        ordered(comparison, &signed(scalar, x), &signed(scalar, y))
    };
    holds.into()
}

fn is_unsigned(comparison: Compare) -> bool {
    use Compare::*;
    matches!(comparison, LessUnsigned | LessEqualUnsigned | GreaterUnsigned | GreaterEqualUnsigned)
}

fn ordered<T: PartialOrd>(comparison: Compare, x: &T, y: &T) -> bool {
    match comparison {
        Compare::Equal => x == y,
        Compare::NotEqual => x != y,
        Compare::Less | Compare::LessUnsigned => x < y,
        Compare::LessEqual | Compare::LessEqualUnsigned => x <= y,
        Compare::Greater | Compare::GreaterUnsigned => x > y,
        Compare::GreaterEqual | Compare::GreaterEqualUnsigned => x >= y,
    }
}

/// A conversion between number types.
pub fn cast(conversion: Cast, from: Scalar, to: Scalar, x: u64) -> u64 {
    match conversion {
        Cast::Signed => wrap(to, signed(from, x) as u64),
        Cast::Unsigned | Cast::Bits => x,
        Cast::SignedToFloat => integer_to_float(to, signed(from, x).into()),
        Cast::UnsignedToFloat => integer_to_float(to, x.into()),
        Cast::FloatToSigned | Cast::FloatToUnsigned if width(to) < 32 => {
            wrap(to, within_integer(float(from, x)) as u64)
        }
        Cast::FloatToSigned => {
            let limit = i64::MAX >> (64 - width(to));
            wrap(to, (float(from, x) as i64).clamp(-limit - 1, limit) as u64)
        }
        Cast::FloatToUnsigned => (float(from, x) as u64).min(wrap(to, u64::MAX)),
        Cast::Float => round(to, float(from, x)),
    }
}

/// What integers of 8 and 16 bits take the low bits of: 0 for NaN and what int32 does not reach. This is what NumPy, PyTorch and Paddle give on x86.
fn within_integer(x: f64) -> i64 {
    if x.abs() < 2_147_483_648.0 { x as i64 } else { 0 }
}

/// Rounds once to float32 or float64, where [`round`] would go through both.
fn integer_to_float(to: Scalar, x: i128) -> u64 {
    if to == Scalar::F64 { (x as f64).to_bits() } else { round_single(to, x as f32) }
}

/// How a reduction combines what it has so far with the next element.
pub fn combine(combine: Combine, scalar: Scalar, x: u64, y: u64) -> u64 {
    binary(combine.operation(), scalar, x, y)
}
