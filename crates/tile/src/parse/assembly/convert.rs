//! Conversions, comparisons and choices of PTX: instructions that read one type and give another.

use super::scalar;
use crate::builder::Builder;
use crate::kernel::{Binary, Cast, Compare, Unary, Value};
use crate::types::Scalar;

/// `cvt`: the words are how it is rounded, what to and what from. None where it is not known.
pub(super) fn converted(words: &[&str], x: Value, b: &mut Builder) -> Option<Value> {
    let [modifiers @ .., to, from] = words else { return None };
    let modifiers: Vec<&str> = modifiers.iter().copied().filter(|&word| word != "ftz").collect();
    if *to == "tf32" {
        return (modifiers == ["rna"]).then(|| ten_bits(x, b));
    }
    let (scalar_to, scalar_from) = (scalar(to)?, scalar(from)?);
    let (saturates, roundings): (Vec<&str>, Vec<&str>) = modifiers.into_iter().partition(|&word| word == "sat");
    let whole = match roundings[..] {
        [] | ["rn"] => None,
        ["rni"] => Some(Unary::Round),
        ["rzi"] => Some(Unary::Truncate),
        ["rmi"] => Some(Unary::Floor),
        ["rpi"] => Some(Unary::Ceil),
        _ => return None,
    };
    let value = match (scalar_from.is_float(), scalar_to.is_float()) {
        (true, true) => {
            let x = whole.map_or(x, |whole| b.unary(whole, x));
            let value = b.cast(Cast::Float, x, scalar_to);
            return Some(if saturates.is_empty() { value } else { within_one(value, b) });
        }
        (true, false) => {
            let x = b.unary(whole?, x);
            b.cast(if to.starts_with('u') { Cast::FloatToUnsigned } else { Cast::FloatToSigned }, x, scalar_to)
        }
        (false, true) if whole.is_none() => {
            b.cast(if from.starts_with('u') { Cast::UnsignedToFloat } else { Cast::SignedToFloat }, x, scalar_to)
        }
        (false, false) if roundings.is_empty() => {
            b.cast(if from.starts_with('s') { Cast::Signed } else { Cast::Unsigned }, x, scalar_to)
        }
        _ => return None,
    };
    saturates.is_empty().then_some(value)
}

/// `.sat` of floats: a number of 0 to 1, and 0 for NaN.
pub(super) fn within_one(x: Value, b: &mut Builder) -> Value {
    let (zero, one) = (b.constant_like(0.0, x), b.constant_like(1.0, x));
    let at_least = b.binary(Binary::MaximumNumber, x, zero);
    b.binary(Binary::MinimumNumber, at_least, one)
}

/// A float32 rounded to the ten bits of tf32, halves away from zero.
fn ten_bits(x: Value, b: &mut Builder) -> Value {
    let bits = b.cast(Cast::Bits, x, Scalar::I32);
    let (half, mask) = (b.constant_like(f64::from(1 << 12), bits), b.constant_like(-f64::from(1 << 13), bits));
    let sum = b.binary(Binary::Add, bits, half);
    let rounded = b.binary(Binary::And, sum, mask);
    let rounded = b.cast(Cast::Bits, rounded, Scalar::F32);
    // The bits of a NaN would be carried into its sign.
    let is_number = b.compare(Compare::Equal, x, x);
    b.select(is_number, rounded, x)
}

/// `setp`: whether two numbers compare as the first word says. None where it is not known.
pub(super) fn compared(words: &[&str], [x, y]: [Value; 2], b: &mut Builder) -> Option<Value> {
    let [comparison, modifiers @ .., ty] = words else { return None };
    let is_float = scalar(ty)?.is_float();
    if modifiers.iter().any(|&word| word != "ftz") {
        return None;
    }
    let comparison = match (*comparison, is_float, ty.starts_with('u')) {
        ("eq", ..) => Compare::Equal,
        ("ne", false, _) | ("neu", true, _) => Compare::NotEqual,
        ("lt", _, false) => Compare::Less,
        ("le", _, false) => Compare::LessEqual,
        ("gt", _, false) => Compare::Greater,
        ("ge", _, false) => Compare::GreaterEqual,
        ("lt" | "lo", false, true) => Compare::LessUnsigned,
        ("le" | "ls", false, true) => Compare::LessEqualUnsigned,
        ("gt" | "hi", false, true) => Compare::GreaterUnsigned,
        ("ge" | "hs", false, true) => Compare::GreaterEqualUnsigned,
        _ => return None,
    };
    Some(b.compare(comparison, x, y))
}
