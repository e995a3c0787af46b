//! The rules of constants and of what is computed element by element.

use super::{Class, Result, same};
use crate::kernel::*;
use crate::types::{Scalar, Type};
use crate::verify::error::Problem;

pub(super) fn constant(number: Number, result: &Type) -> Result {
    Class::NumberOrTruth.require("the result", result)?;
    let expected = result.number().unwrap_or(Scalar::I1);
    let (fits, found) = match number {
        Number::Integer(x) => (integer_fits(x, expected), x.to_string()),
        Number::Float(x) => (expected.is_float(), format!("{x:?}")),
    };
    if fits { Ok(()) } else { Err(Problem::Constant { found, expected }) }
}

/// Whether an integer is one of the type's, read with or without a sign.
fn integer_fits(x: i64, scalar: Scalar) -> bool {
    match scalar {
        Scalar::I1 => (0..=1).contains(&x),
        Scalar::I64 => true,
        scalar if scalar.is_float() => false,
        scalar => {
            let bits = 8 * scalar.size();
            (-(1_i64 << (bits - 1))..1_i64 << bits).contains(&x)
        }
    }
}

pub(super) fn unary(operation: Unary, x: &Type, result: &Type) -> Result {
    let class = match operation {
        Unary::Negate | Unary::Absolute => Class::Number,
        Unary::Not => Class::IntegerOrTruth,
        _ => Class::Float,
    };
    class.require("the operand", x)?;
    same("the result", result, x)
}

pub(super) fn binary(operation: Binary, x: &Type, y: &Type, result: &Type) -> Result {
    use Binary::*;
    let class = match operation {
        Add | Subtract | Multiply | Divide | Remainder | Minimum | Maximum => Class::Number,
        DivideUnsigned | RemainderUnsigned | MinimumUnsigned | MaximumUnsigned | MultiplyHighUnsigned => Class::Integer,
        ShiftLeft | ShiftRight | ShiftRightUnsigned => Class::Integer,
        Power | Atan2 | MinimumNumber | MaximumNumber => Class::Float,
        And | Or | Xor => Class::IntegerOrTruth,
    };
    class.require("operand 0", x)?;
    same("operand 1", y, x)?;
    same("the result", result, x)
}

pub(super) fn compare(comparison: Compare, x: &Type, y: &Type, result: &Type) -> Result {
    use Compare::*;
    let class = match comparison {
        Equal | NotEqual => Class::NumberOrTruth,
        Less | LessEqual | Greater | GreaterEqual => Class::Number,
        LessUnsigned | LessEqualUnsigned | GreaterUnsigned | GreaterEqualUnsigned => Class::Integer,
    };
    class.require("operand 0", x)?;
    same("operand 1", y, x)?;
    same("the result", result, &x.with_scalar(Scalar::I1))
}

pub(super) fn select(condition: &Type, x: &Type, y: &Type, result: &Type) -> Result {
    same("the condition", condition, &x.with_scalar(Scalar::I1))?;
    same("operand 2", y, x)?;
    same("the result", result, x)
}

pub(super) fn multiply_add(x: &Type, y: &Type, z: &Type, result: &Type) -> Result {
    Class::Float.require("operand 0", x)?;
    same("operand 1", y, x)?;
    same("operand 2", z, x)?;
    same("the result", result, x)
}

pub(super) fn cast(conversion: Cast, x: &Type, result: &Type) -> Result {
    Class::NumberOrTruth.require("the operand", x)?;
    Class::NumberOrTruth.require("the result", result)?;
    let (Some(from), Some(to)) = (x.number(), result.number()) else { return Ok(()) };
    same("the result", result, &x.with_scalar(to))?;
    if converts(conversion, from, to) { Ok(()) } else { Err(Problem::Cast { from, to }) }
}

/// Whether a conversion is for a pair of different number types.
fn converts(conversion: Cast, from: Scalar, to: Scalar) -> bool {
    let (integer, truth) = (|x| Class::Integer.has(x), |x| x == Scalar::I1);
    let different = from != to;
    match conversion {
        Cast::Signed => different && integer(from) && (integer(to) || truth(to)),
        Cast::Unsigned => integer(to) && (truth(from) || integer(from) && from.size() < to.size()),
        Cast::SignedToFloat => integer(from) && to.is_float(),
        Cast::UnsignedToFloat => (integer(from) || truth(from)) && to.is_float(),
        Cast::FloatToSigned | Cast::FloatToUnsigned => from.is_float() && integer(to),
        Cast::Float => different && from.is_float() && to.is_float(),
        Cast::Bits => different && !truth(from) && !truth(to) && from.size() == to.size(),
    }
}
