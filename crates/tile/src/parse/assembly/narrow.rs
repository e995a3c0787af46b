//! Conversions of PTX from and to registers with two floats: of 16, 8 or 4 bits, and powers of two.

use super::registers::Registers;
use super::{convert, joined, parted};
use crate::builder::Builder;
use crate::kernel::{Binary, Cast, Compare, Value};
use crate::parse::rounding;
use crate::parse::small::{Small, masked, narrowed_magnitude, power, shifted, widened_nibble};
use crate::types::{Scalar, Type};

/// What a register has two of.
#[derive(Clone, Copy, PartialEq)]
enum Format {
    /// float16 or bfloat16.
    Half(Scalar),
    Small(Small),
    /// Floats of 4 bits.
    E2M1,
    /// The exponents of powers of two.
    Power,
}

impl Format {
    fn named(word: &str) -> Option<Format> {
        Some(match word.strip_suffix("x2")? {
            "f16" => Format::Half(Scalar::F16),
            "bf16" => Format::Half(Scalar::BF16),
            "e4m3" => Format::Small(Small::E4M3),
            "e5m2" => Format::Small(Small::E5M2),
            "e2m1" => Format::E2M1,
            "ue8m0" => Format::Power,
            _ => return None,
        })
    }

    /// The integer that two of them are.
    fn both(self) -> Scalar {
        match self {
            Format::Half(_) => Scalar::I32,
            Format::Small(_) | Format::Power => Scalar::I16,
            Format::E2M1 => Scalar::I8,
        }
    }
}

/// `cvt` to two numbers: of two registers, the first of which is the high one, or of one that has two. None where it is not known.
pub(super) fn converted(
    modifiers: &[&str],
    to: &str,
    from: &str,
    names: &[&str],
    registers: &Registers,
    b: &mut Builder,
) -> Result<Option<Value>, String> {
    let Some(to) = Format::named(to) else { return Ok(None) };
    let numbers = match (names, Format::named(from)) {
        (&[high, low], None) if from == "f32" => {
            [registers.value(low, Scalar::F32, b)?, registers.value(high, Scalar::F32, b)?]
        }
        (&[name], Some(from)) => {
            let both = registers.value(name, from.both(), b)?;
            widened(b, both, from)
        }
        _ => return Ok(None),
    };
    let is_relu = modifiers.contains(&"relu");
    let numbers = numbers.map(|x| if is_relu { convert::not_below_zero(x, b) } else { x });
    let modifiers: Vec<&str> = modifiers.iter().copied().filter(|&word| word != "relu").collect();
    Ok(narrowed(b, numbers, to, &modifiers))
}

/// Two numbers as float32, the low one first.
fn widened(b: &mut Builder, both: Value, format: Format) -> [Value; 2] {
    let mut halves = |scalar| {
        let parts = parted(b, both, &Type::scalar(scalar), 2);
        [parts[0], parts[1]]
    };
    match format {
        Format::Half(scalar) => halves(scalar).map(|x| b.cast(Cast::Float, x, Scalar::F32)),
        Format::Small(small) => halves(Scalar::I8).map(|x| small.widened(b, x)),
        Format::Power => halves(Scalar::I8).map(|x| power(b, x)),
        Format::E2M1 => {
            let low = b.cast(Cast::Unsigned, both, Scalar::I16);
            let high = shifted(b, Binary::ShiftRightUnsigned, low, 4);
            [low, high].map(|nibble| widened_nibble(b, nibble))
        }
    }
}

/// Two float32 in one register. None where the rounding is not known.
fn narrowed(b: &mut Builder, numbers: [Value; 2], format: Format, modifiers: &[&str]) -> Option<Value> {
    let parts = match (format, modifiers) {
        (Format::Half(scalar), ["rn" | "rz"]) => numbers.map(|x| {
            let rounded = b.cast(Cast::Float, x, scalar);
            if modifiers == ["rz"] { rounding::towards_zero(b, x, rounded) } else { rounded }
        }),
        (Format::Small(small), ["rn", "satfinite"]) => numbers.map(|x| small.narrowed(b, x)),
        (Format::Power, ["rp" | "rz"] | ["rp" | "rz", "satfinite"]) => {
            numbers.map(|x| exponent(b, x, modifiers[0] == "rp", modifiers.len() == 2))
        }
        (Format::E2M1, ["rn", "satfinite"]) => {
            let [low, high] = numbers.map(|x| nibble(b, x));
            let high = shifted(b, Binary::ShiftLeft, high, 4);
            let both = b.binary(Binary::Or, low, high);
            return Some(b.cast(Cast::Signed, both, Scalar::I8));
        }
        _ => return None,
    };
    Some(joined(b, &parts))
}

/// A float32 as the nearest float of 4 bits; NaN as the largest.
fn nibble(b: &mut Builder, x: Value) -> Value {
    let bits = b.cast(Cast::Bits, x, Scalar::I32);
    let sign = shifted(b, Binary::ShiftRightUnsigned, bits, 28);
    let sign = masked(b, sign, 8);
    let magnitude = masked(b, bits, 0x7fff_ffff);
    let magnitude = narrowed_magnitude(b, magnitude, (1, 1, 7), 7.0);
    let signed = b.binary(Binary::Or, magnitude, sign);
    let is_number = b.compare(Compare::Equal, x, x);
    b.select(is_number, signed, magnitude)
}

/// The exponent of the power of two that is not below a float32, or not above it, as a byte; 255 for NaN, and for what is too large unless the largest is
/// taken for that.
fn exponent(b: &mut Builder, x: Value, is_up: bool, is_finite: bool) -> Value {
    let bits = b.cast(Cast::Bits, x, Scalar::I32);
    let magnitude = masked(b, bits, 0x7fff_ffff);
    let rounded = if is_up {
        let almost_one = b.constant_like(f64::from(0x7f_ffff), magnitude);
        b.binary(Binary::Add, magnitude, almost_one)
    } else {
        magnitude
    };
    let mut exponent = shifted(b, Binary::ShiftRightUnsigned, rounded, 23);
    let zero = b.constant_like(0.0, exponent);
    if is_up {
        // The smallest power is 2^-127, itself a subnormal number.
        let smallest = b.constant_like(f64::from(1 << 22), magnitude);
        let is_below = b.compare(Compare::LessEqual, magnitude, smallest);
        exponent = b.select(is_below, zero, exponent);
    }
    if is_finite {
        let most = b.constant_like(254.0, exponent);
        exponent = b.binary(Binary::Minimum, exponent, most);
    }
    let (is_number, nan) = (b.compare(Compare::Equal, x, x), b.constant_like(255.0, exponent));
    let exponent = b.select(is_number, exponent, nan);
    b.cast(Cast::Signed, exponent, Scalar::I8)
}
