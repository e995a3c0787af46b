//! Floats of 8 bits. In memory they are bytes; what computes with them is arithmetic on wider types, which is exact but for the rounding to
//! 8 bits: to nearest even, with everything too large as the largest finite number.

use crate::builder::Builder;
use crate::kernel::{Binary, Cast, Compare, Number, Value};
use crate::types::Scalar;

/// A float of 8 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Small {
    /// `f8E4M3FN` (`tl.float8e4nv`): no infinities, one NaN of each sign, up to 448.
    E4M3,
    /// `f8E5M2` (`tl.float8e5`): the upper half of a float16.
    E5M2,
}

impl Small {
    /// The type of a name in MLIR.
    pub fn named(name: &str) -> Option<Small> {
        match name {
            "f8E4M3FN" => Some(Small::E4M3),
            "f8E5M2" => Some(Small::E5M2),
            _ => None,
        }
    }

    /// Bits of the fraction, the exponent's bias, and the largest finite number.
    const fn parts(self) -> (i64, i64, i64) {
        match self {
            Small::E4M3 => (3, 7, 0x7e),
            Small::E5M2 => (2, 15, 0x7b),
        }
    }

    /// The number of a byte.
    pub fn value(self, byte: u8) -> f64 {
        let (fraction_bits, bias, largest) = self.parts();
        let sign = if byte & 0x80 == 0 { 1.0 } else { -1.0 };
        let magnitude = i64::from(byte & 0x7f);
        if magnitude > largest {
            let is_infinite = self == Small::E5M2 && magnitude == largest + 1;
            return if is_infinite { sign * f64::INFINITY } else { f64::NAN };
        }
        let (exponent, fraction) = (magnitude >> fraction_bits, magnitude & ((1 << fraction_bits) - 1));
        let whole = if exponent == 0 { fraction } else { fraction | 1 << fraction_bits };
        sign * whole as f64 * 2.0_f64.powi((exponent.max(1) - bias - fraction_bits) as i32)
    }

    /// The byte that is nearest to a number; of two the even one.
    pub fn nearest(self, number: f64) -> u8 {
        let sign = if number.is_sign_negative() { 0x80 } else { 0 };
        if number.is_nan() {
            return 0x7f;
        }
        let largest = self.parts().2 as u8;
        let magnitude = number.abs().min(self.value(largest));
        let distance = |byte: &u8| (self.value(*byte) - magnitude).abs();
        let finite = 0..=largest;
        let order = |x: &u8, y: &u8| distance(x).total_cmp(&distance(y)).then((x & 1).cmp(&(y & 1)));
        sign | finite.min_by(order).unwrap_or(0)
    }

    /// A literal as its byte.
    pub fn literal(self, text: &str) -> Option<Number> {
        let byte = match text.strip_prefix("0x") {
            Some(bits) => u8::from_str_radix(bits, 16).ok()?,
            None => self.nearest(text.parse().ok()?),
        };
        Some(Number::Integer(byte.into()))
    }

    /// Bytes as float32.
    pub fn widened(self, b: &mut Builder, bytes: Value) -> Value {
        let wide = b.cast(Cast::Unsigned, bytes, Scalar::I16);
        if self == Small::E5M2 {
            let bits = shifted(b, Binary::ShiftLeft, wide, 8);
            let half = b.cast(Cast::Bits, bits, Scalar::F16);
            return b.cast(Cast::Float, half, Scalar::F32);
        }
        // As a float16 the exponent is 8 too low, also where the number is subnormal.
        let (low, sign) = (masked(b, wide, 0x7f), masked(b, wide, 0x80));
        let (low_bits, sign) = (shifted(b, Binary::ShiftLeft, low, 7), shifted(b, Binary::ShiftLeft, sign, 8));
        let bits = b.binary(Binary::Or, low_bits, sign);
        let number = scaled_half(b, bits, 256.0);
        let last = b.constant_like(127.0, low);
        let is_nan = b.compare(Compare::Equal, low, last);
        let nan = b.constant_like(f64::NAN, number);
        b.select(is_nan, nan, number)
    }

    /// Float32 as bytes.
    pub fn narrowed(self, b: &mut Builder, x: Value) -> Value {
        let bits = b.cast(Cast::Bits, x, Scalar::I32);
        let sign = shifted(b, Binary::ShiftRightUnsigned, bits, 24);
        let sign = masked(b, sign, 0x80);
        let magnitude = masked(b, bits, 0x7fff_ffff);
        let magnitude = narrowed_magnitude(b, magnitude, self.parts(), 127.0);
        let byte = b.binary(Binary::Or, magnitude, sign);
        b.cast(Cast::Signed, byte, Scalar::I8)
    }
}

/// The bits of a float32 without its sign as those of a shorter float, of which the bits of the fraction, the exponent's bias and the largest finite number
/// are given, and what NaN becomes.
pub(super) fn narrowed_magnitude(
    b: &mut Builder,
    magnitude: Value,
    (fraction_bits, bias, largest): (i64, i64, i64),
    nan: f64,
) -> Value {
    // Rounded to even by adding all but half of what goes, and one more where the last bit that stays is set.
    let gone = 23 - fraction_bits;
    let last = shifted(b, Binary::ShiftRightUnsigned, magnitude, gone);
    let odd = masked(b, last, 1);
    let rounded = plus(b, magnitude, (1 << (gone - 1)) - 1);
    let rounded = b.binary(Binary::Add, rounded, odd);
    let normal = shifted(b, Binary::ShiftRightUnsigned, rounded, gone);
    let normal = plus(b, normal, -((127 - bias) << fraction_bits));
    let most = b.constant_like(largest as f64, normal);
    let normal = b.binary(Binary::Minimum, normal, most);
    // Subnormal numbers are multiples of the smallest: added to 2^23 of it, the sum's last bits count them, rounded to even.
    let unit = 2.0_f64.powi((1 - bias - fraction_bits + 23) as i32);
    let positive = b.cast(Cast::Bits, magnitude, Scalar::F32);
    let base = b.constant_like(unit, positive);
    let sum = b.binary(Binary::Add, positive, base);
    let counted = b.cast(Cast::Bits, sum, Scalar::I32);
    let counted = plus(b, counted, -i64::from((unit as f32).to_bits()));
    let smallest = b.constant_like(f64::from(((127 + 1 - bias) << 23) as u32), magnitude);
    let is_small = b.compare(Compare::Less, magnitude, smallest);
    let finite = b.select(is_small, counted, normal);
    let infinity = b.constant_like(f64::from(0x7f80_0000_u32), magnitude);
    let is_nan = b.compare(Compare::Greater, magnitude, infinity);
    let nan = b.constant_like(nan, finite);
    b.select(is_nan, nan, finite)
}

/// The float of 4 bits in the low bits of an i16, as float32.
pub(super) fn widened_nibble(b: &mut Builder, nibble: Value) -> Value {
    let (low, sign) = (masked(b, nibble, 7), masked(b, nibble, 8));
    let (low, sign) = (shifted(b, Binary::ShiftLeft, low, 9), shifted(b, Binary::ShiftLeft, sign, 12));
    let bits = b.binary(Binary::Or, low, sign);
    scaled_half(b, bits, 16384.0)
}

/// `2^(x - 127)` of bytes; 255 is NaN.
pub(super) fn power(b: &mut Builder, bytes: Value) -> Value {
    let wide = b.cast(Cast::Unsigned, bytes, Scalar::I32);
    let bits = shifted(b, Binary::ShiftLeft, wide, 23);
    let number = b.cast(Cast::Bits, bits, Scalar::F32);
    let [lowest, highest] = [0.0, 255.0].map(|byte| {
        let byte = b.constant_like(byte, wide);
        b.compare(Compare::Equal, wide, byte)
    });
    let smallest = b.constant_like(2.0_f64.powi(-127), number);
    let nan = b.constant_like(f64::NAN, number);
    let number = b.select(lowest, smallest, number);
    b.select(highest, nan, number)
}

/// The bits of a float16 as float32, times a power of two.
pub(super) fn scaled_half(b: &mut Builder, bits: Value, factor: f64) -> Value {
    let half = b.cast(Cast::Bits, bits, Scalar::F16);
    let single = b.cast(Cast::Float, half, Scalar::F32);
    let factor = b.constant_like(factor, single);
    b.binary(Binary::Multiply, single, factor)
}

pub(super) fn shifted(b: &mut Builder, direction: Binary, x: Value, by: i64) -> Value {
    let by = b.constant_like(by as f64, x);
    b.binary(direction, x, by)
}

pub(super) fn masked(b: &mut Builder, x: Value, mask: i64) -> Value {
    let mask = b.constant_like(mask as f64, x);
    b.binary(Binary::And, x, mask)
}

fn plus(b: &mut Builder, x: Value, number: i64) -> Value {
    let number = b.constant_like(number as f64, x);
    b.binary(Binary::Add, x, number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Type;
    use crate::{RawMemory, interpret, verify};

    /// Runs a kernel of 256 elements that turns `x` into `out`.
    fn run<T, U: Copy>(from: Scalar, to: Scalar, x: &[T], out: &mut [U], body: impl Fn(&mut Builder, Value) -> Value) {
        let mut b = Builder::new("convert");
        let [source, target] = [("x", from), ("out", to)].map(|(name, ty)| b.parameter(name, Type::pointer(ty)));
        let places = b.range(256);
        let (source, target) = (b.add_pointer(source, places), b.add_pointer(target, places));
        let loaded = b.load(source, None, None);
        let result = body(&mut b, loaded);
        b.store(target, result, None);
        let kernel = b.finish();
        let verified = verify(&kernel).unwrap_or_else(|error| panic!("{error}"));
        let arguments = [x.as_ptr().expose_provenance() as u64, out.as_mut_ptr().expose_provenance() as u64];
        // SAFETY: both have 256 elements of their parameter's type.
        interpret(verified, [1, 1, 1], &arguments, &mut unsafe { RawMemory::new() })
            .unwrap_or_else(|error| panic!("{error}"));
    }

    #[test]
    fn every_byte_is_widened_exactly() {
        let bytes: Vec<u8> = (0..=255).collect();
        for small in [Small::E4M3, Small::E5M2] {
            let mut found = vec![0.0_f32; 256];
            run(Scalar::I8, Scalar::F32, &bytes, &mut found, |b, x| small.widened(b, x));
            for (byte, found) in found.iter().enumerate() {
                let expected = small.value(byte as u8) as f32;
                let same = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
                assert!(same, "{small:?} {byte:#x}: {found}, expected {expected}");
            }
        }
    }

    #[test]
    fn numbers_are_narrowed_to_the_nearest() {
        for small in [Small::E4M3, Small::E5M2] {
            let finite: Vec<f64> = (0..=small.parts().2 as u8).map(|byte| small.value(byte)).collect();
            // The numbers themselves, what is halfway between two of them and just beside, what is too large, and no number.
            let mut numbers: Vec<f32> = vec![f32::NAN, f32::INFINITY, -f32::INFINITY, 1e9, -0.0, f32::MIN_POSITIVE];
            for pair in finite.windows(2) {
                let middle = ((pair[0] + pair[1]) / 2.0) as f32;
                numbers.extend([pair[0] as f32, -middle, middle, middle.next_up(), -middle.next_down()]);
            }
            numbers.resize(numbers.len().next_multiple_of(256), 1.5);
            for chunk in numbers.chunks(256) {
                let mut found = vec![0_u8; 256];
                run(Scalar::F32, Scalar::I8, chunk, &mut found, |b, x| small.narrowed(b, x));
                for (number, found) in chunk.iter().zip(found) {
                    let expected = small.nearest(f64::from(*number));
                    assert!(
                        found == expected || number.is_nan() && found & 0x7f == 0x7f,
                        "{small:?} {number}: {found:#x}, expected {expected:#x}"
                    );
                }
            }
        }
    }
}
