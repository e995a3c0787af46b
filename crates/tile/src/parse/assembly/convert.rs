//! Conversions and bounds of PTX: instructions that read one type and give another.

use super::narrow;
use super::registers::{Registers, scalar};
use crate::builder::Builder;
use crate::kernel::{Binary, Cast, Compare, Unary, Value};
use crate::parse::rounding;
use crate::types::Scalar;

/// `cvt`: the words are how it is rounded, what to and what from. None where it is not known.
pub(super) fn converted(
    words: &[&str],
    names: &[&str],
    registers: &Registers,
    b: &mut Builder,
) -> Result<Option<Value>, String> {
    let [modifiers @ .., to, from] = words else { return Ok(None) };
    let modifiers: Vec<&str> = modifiers.iter().copied().filter(|&word| word != "ftz").collect();
    if to.ends_with("x2") {
        return narrow::converted(&modifiers, to, from, names, registers, b);
    }
    let (Some(scalar_from), &[name]) = (scalar(from), names) else { return Ok(None) };
    let x = registers.value(name, scalar_from, b)?;
    if *to == "tf32" {
        return Ok((modifiers == ["rna"]).then(|| ten_bits(x, b)));
    }
    Ok(scalar(to).and_then(|scalar_to| single(&modifiers, (to, scalar_to), (from, scalar_from), x, b)))
}

/// A conversion of one number.
fn single(
    modifiers: &[&str],
    (to, scalar_to): (&str, Scalar),
    (from, scalar_from): (&str, Scalar),
    x: Value,
    b: &mut Builder,
) -> Option<Value> {
    let (bounds, roundings): (Vec<&str>, Vec<&str>) =
        modifiers.iter().copied().partition(|&word| word == "sat" || word == "relu");
    let whole = match roundings[..] {
        ["rni"] => Some(Unary::Round),
        ["rzi"] => Some(Unary::Truncate),
        ["rmi"] => Some(Unary::Floor),
        ["rpi"] => Some(Unary::Ceil),
        [] | ["rn" | "rz"] => None,
        _ => return None,
    };
    let is_to_zero = roundings == ["rz"];
    match (scalar_from.is_float(), scalar_to.is_float()) {
        (true, true) => {
            let x = whole.map_or(x, |whole| b.unary(whole, x));
            let value = b.cast(Cast::Float, x, scalar_to);
            let value = if is_to_zero { rounding::towards_zero(b, x, value) } else { value };
            Some(match bounds[..] {
                [] => value,
                ["sat"] => within_one(value, b),
                ["relu"] => not_below_zero(value, b),
                _ => return None,
            })
        }
        (true, false) if bounds.is_empty() || bounds == ["sat"] => {
            let x = b.unary(whole?, x);
            Some(nearest_integer(x, to, scalar_to, b))
        }
        (false, true) if roundings.is_empty() || roundings == ["rn"] => {
            let cast = if from.starts_with('u') { Cast::UnsignedToFloat } else { Cast::SignedToFloat };
            let value = b.cast(cast, x, scalar_to);
            Some(if bounds == ["sat"] { within_one(value, b) } else { value })
        }
        (false, false) if roundings.is_empty() => {
            let x = if bounds.is_empty() { x } else { within_type(x, to, from, b) };
            // A register of the same size holds the same bits.
            let cast = if from.starts_with('s') || scalar_to.size() < scalar_from.size() {
                Cast::Signed
            } else {
                Cast::Unsigned
            };
            Some(b.cast(cast, x, scalar_to))
        }
        _ => None,
    }
}

/// A float as the integer of the type that is nearest.
fn nearest_integer(x: Value, to: &str, scalar: Scalar, b: &mut Builder) -> Value {
    let cast = if to.starts_with('u') { Cast::FloatToUnsigned } else { Cast::FloatToSigned };
    if scalar.size() >= 4 {
        return b.cast(cast, x, scalar);
    }
    // Conversions to short integers take low bits.
    let wide = b.cast(cast, x, Scalar::I32);
    let bounded = within_type(wide, to, if to.starts_with('u') { "u32" } else { "s32" }, b);
    b.cast(Cast::Signed, bounded, scalar)
}

/// An integer as the one of another type that is nearest to it, still in its own type.
fn within_type(x: Value, to: &str, from: &str, b: &mut Builder) -> Value {
    let bits = |name: &str| name[1..].parse::<u32>().unwrap_or(32);
    let (unsigned_to, unsigned_from) = (to.starts_with('u'), from.starts_with('u'));
    let (width_to, width_from) = (bits(to) - u32::from(!unsigned_to), bits(from) - u32::from(!unsigned_from));
    let mut x = x;
    if !unsigned_from && (unsigned_to || width_to < width_from) {
        let least = b.constant_like(if unsigned_to { 0.0 } else { -2f64.powi(width_to as i32) }, x);
        x = b.binary(Binary::Maximum, x, least);
    }
    if width_to < width_from {
        let most = b.constant_like(2f64.powi(width_to as i32) - 1.0, x);
        x = b.binary(if unsigned_from { Binary::MinimumUnsigned } else { Binary::Minimum }, x, most);
    }
    x
}

/// `.sat` of floats: a number of 0 to 1, and 0 for NaN.
pub(super) fn within_one(x: Value, b: &mut Builder) -> Value {
    let (zero, one) = (b.constant_like(0.0, x), b.constant_like(1.0, x));
    let at_least = b.binary(Binary::MaximumNumber, x, zero);
    b.binary(Binary::MinimumNumber, at_least, one)
}

/// `.relu`: 0 for what is negative; NaN stays.
pub(super) fn not_below_zero(x: Value, b: &mut Builder) -> Value {
    let zero = b.constant_like(0.0, x);
    b.binary(Binary::Maximum, x, zero)
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
