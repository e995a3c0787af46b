//! Conversions of floats that round towards zero, made of those that round to the nearest.

use crate::builder::Builder;
use crate::kernel::{Binary, Cast, Compare, Unary, Value};
use crate::types::Scalar;

/// What a float became that was rounded to the nearest of a narrower type, or of the same size: the one below in magnitude where that is
/// larger. Infinity from a number that is finite becomes the largest finite number.
pub fn towards_zero(b: &mut Builder, x: Value, rounded: Value) -> Value {
    let (from, to) = (b.scalar_of(x), b.scalar_of(rounded));
    if from == to || to.size() > from.size() {
        return rounded;
    }
    let bits = b.cast(Cast::Bits, rounded, if to.size() == 4 { Scalar::I32 } else { Scalar::I16 });
    let wide = if from == Scalar::F64 { Scalar::F64 } else { Scalar::F32 };
    let again = b.cast(Cast::Float, rounded, wide);
    let nearer = nearer_to_zero(b, x, again, bits);
    b.cast(Cast::Bits, nearer, to)
}

/// The bits of a number that `x` was rounded to, which is `again` when widened; those of its neighbour where that is larger than `x`.
pub fn nearer_to_zero(b: &mut Builder, x: Value, again: Value, bits: Value) -> Value {
    let x = b.cast(Cast::Float, x, b.scalar_of(again));
    let (magnitude, of_again) = (b.unary(Unary::Absolute, x), b.unary(Unary::Absolute, again));
    let is_larger = b.compare(Compare::Greater, of_again, magnitude);
    let one = b.constant_like(1.0, bits);
    let neighbour = b.binary(Binary::Subtract, bits, one);
    b.select(is_larger, neighbour, bits)
}
