//! Triton's operations on floats of 8 bits: what only moves them moves bytes; products, conversions and the like compute in wider types.

use super::operations::Simple;
use super::small::{Small, masked};
use super::{rounding, scaled};
use crate::builder::Builder;
use crate::kernel::{Cast, Value};
use crate::types::{Scalar, Type};

/// Operations that only move floats of 8 bits, as the bytes that they are.
const MOVING: [&str; 18] = [
    "tt.load",
    "tt.store",
    "tt.splat",
    "tt.broadcast",
    "tt.reshape",
    "tt.expand_dims",
    "tt.addptr",
    "tt.trans",
    "tt.join",
    "tt.split",
    "tt.cat",
    "tt.gather",
    "tt.unsplat",
    "tt.bitcast",
    "tt.int_to_ptr",
    "tt.ptr_to_int",
    "arith.select",
    "tt.elementwise_inline_asm",
];

/// What an operation on floats of 8 bits stands for; none for what only moves them, or has none.
pub fn lower(operation: &str, simple: &Simple, b: &mut Builder) -> Result<Option<Value>, String> {
    let small = |at: usize| simple.smalls.get(at).copied().flatten();
    let has_small = simple.smalls.iter().any(Option::is_some);
    match (operation, &simple.operands[..]) {
        ("tt.dot_scaled", _) => scaled::dot_scaled(b, simple).map(Some),
        _ if !has_small => Ok(None),
        ("tt.dot", &[x, y, sum]) => Ok(Some(dot(b, [x, y, sum], [small(0), small(1)]))),
        ("tt.fp_to_fp", &[x]) => {
            let to = simple.types.last().ok_or("no type")?;
            let rounded = convert(b, x, small(0), small(1), to)?;
            // A float of 8 bits is exact in each of the other types, and rounded on its way to another one of 8 bits.
            match (small(0), small(1)) {
                (None, Some(small)) if simple.words.contains(&"rtz") => {
                    let again = small.widened(b, rounded);
                    Ok(Some(rounding::nearer_to_zero(b, x, again, rounded)))
                }
                (Some(_), Some(_)) if simple.words.contains(&"rtz") => {
                    Err("rounding towards zero of 8 bits".to_owned())
                }
                _ => Ok(Some(rounded)),
            }
        }
        ("math.absf", &[x]) => Ok(Some(masked(b, x, 0x7f))),
        _ if MOVING.contains(&operation) => Ok(None),
        _ => Err("not covered for floats of 8 bits".to_owned()),
    }
}

/// `tt.fp_to_fp` and the like where one of the types has 8 bits.
pub fn convert(b: &mut Builder, x: Value, from: Option<Small>, to: Option<Small>, ty: &Type) -> Result<Value, String> {
    if from == to {
        return Ok(x);
    }
    let wide = match from {
        Some(small) => small.widened(b, x),
        None => b.cast(Cast::Float, x, Scalar::F32),
    };
    Ok(match (to, ty.number()) {
        (Some(small), _) => small.narrowed(b, wide),
        (None, Some(scalar)) => b.cast(Cast::Float, wide, scalar),
        (None, None) => return Err("a conversion of addresses".to_owned()),
    })
}

/// A product of factors of 8 bits, which float16 holds exactly.
pub fn dot(b: &mut Builder, [x, y, sum]: [Value; 3], [of_x, of_y]: [Option<Small>; 2]) -> Value {
    let half = |b: &mut Builder, value, small: Option<Small>| match small {
        Some(small) => {
            let wide = small.widened(b, value);
            b.cast(Cast::Float, wide, Scalar::F16)
        }
        None => value,
    };
    let (x, y) = (half(b, x, of_x), half(b, y, of_y));
    b.dot(x, y, sum)
}
