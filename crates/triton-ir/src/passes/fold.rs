//! What an operation gives, where its operands say so.

use crate::attribute::{Attribute, Number, wrapped};
use crate::context::{Context, OperationId, ValueId};
use crate::types::{Float, Type};
use half::{bf16, f16};

/// What an operation may become.
#[derive(Debug, PartialEq)]
pub enum Folded {
    /// One of the values that there are.
    Value(ValueId),
    /// A constant of its type.
    Constant(Number),
    /// The same operation on fewer or other operands.
    Operands(Vec<ValueId>),
}

/// What an operation may become; none where it stays what it is.
pub fn fold(context: &Context, id: OperationId) -> Option<Folded> {
    let operation = context.operation(id);
    let &[result] = &operation.results[..] else {
        // A store behind a mask that is always true.
        return (operation.name == "tt.store").then(|| unmasked(context, &operation.operands, 2)).flatten();
    };
    let ty = context.type_of(result);
    match (operation.name, &operation.operands[..]) {
        ("arith.constant", _) => None,
        ("tt.load", operands) => unmasked(context, operands, 1),
        ("arith.bitcast" | "tt.bitcast" | "tt.broadcast" | "tt.reshape", &[x]) if context.type_of(x) == ty => {
            Some(Folded::Value(x))
        }
        ("tt.splat" | "tt.broadcast" | "tt.reshape" | "tt.expand_dims" | "tt.trans", &[x]) => {
            context.number(x).map(Folded::Constant)
        }
        ("arith.select", &[condition, x, y]) => match context.number(condition) {
            Some(Number::Integer(truth)) => Some(Folded::Value(if truth & 1 == 1 { x } else { y })),
            _ if x == y => Some(Folded::Value(x)),
            _ => None,
        },
        ("tt.addptr", &[pointer, offset]) => is_integer(context, offset, 0).then_some(Folded::Value(pointer)),
        ("arith.cmpi", &[x, y]) => compared(context, id, x, y),
        (name, &[x]) => converted(name, context.number(x)?, context.type_of(x), ty).map(Folded::Constant),
        (name, &[x, y]) => computed(context, name, x, y, ty),
        _ => None,
    }
}

/// The integer that is every element of a value, with its sign.
fn integer(context: &Context, value: ValueId) -> Option<i64> {
    match context.number(value)? {
        Number::Integer(integer) => Some(wrapped(integer, context.type_of(value).integer_bits()?)),
        Number::Float(_) => None,
    }
}

fn is_integer(context: &Context, value: ValueId, expected: i64) -> bool {
    integer(context, value) == Some(expected)
}

/// Operands without the mask at an index, if it is always true.
fn unmasked(context: &Context, operands: &[ValueId], at: usize) -> Option<Folded> {
    let is_true = operands.get(at).is_some_and(|&mask| is_integer(context, mask, 1));
    is_true.then(|| Folded::Operands(operands[..at].to_vec()))
}

/// The product of two values that a sum takes with nothing else added to it yet: it may begin with the sum instead.
pub fn bare_product(context: &Context, id: OperationId) -> Option<(OperationId, ValueId)> {
    let operation = context.operation(id);
    let &[x, y] = &operation.operands[..] else { return None };
    let begins_with_zero = |value: ValueId| {
        let product = context.defining(value)?;
        let operands = &context.operation(product).operands;
        let is_zero = matches!(context.number(*operands.get(2)?), Some(Number::Float(zero)) if zero == 0.0);
        (context.operation(product).name == "tt.dot" && is_zero).then_some(product)
    };
    if operation.name != "arith.addf" {
        return None;
    }
    begins_with_zero(x).map(|product| (product, y)).or_else(|| begins_with_zero(y).map(|product| (product, x)))
}

/// Two integers compared.
fn compared(context: &Context, id: OperationId, x: ValueId, y: ValueId) -> Option<Folded> {
    let (left, right) = (integer(context, x)?, integer(context, y)?);
    let bits = context.type_of(x).integer_bits()?;
    let unsigned = |number: i64| if bits == 64 { number as u64 } else { number as u64 & ((1 << bits) - 1) };
    // `i1` has no sign here: its true is 1.
    let Some(Attribute::Word(predicate)) = context.operation(id).attribute("predicate") else { return None };
    let truth = match *predicate {
        "eq" => left == right,
        "ne" => left != right,
        "ult" => unsigned(left) < unsigned(right),
        "ule" => unsigned(left) <= unsigned(right),
        "ugt" => unsigned(left) > unsigned(right),
        "uge" => unsigned(left) >= unsigned(right),
        _ if bits == 1 => return None,
        "slt" => left < right,
        "sle" => left <= right,
        "sgt" => left > right,
        "sge" => left >= right,
        _ => return None,
    };
    Some(Folded::Constant(Number::Integer(truth.into())))
}

/// A constant of another type.
fn converted(name: &str, from: Number, from_ty: &Type, ty: &Type) -> Option<Number> {
    let bits = from_ty.integer_bits();
    Some(match (name, from) {
        ("arith.trunci", Number::Integer(integer)) => Number::Integer(wrapped(integer, ty.integer_bits()?)),
        // A true `i1` with a sign is -1.
        ("arith.extsi", Number::Integer(integer)) if bits != Some(1) => Number::Integer(wrapped(integer, bits?)),
        ("arith.extui", Number::Integer(integer)) if bits? < 64 => Number::Integer(integer & ((1 << bits?) - 1)),
        ("arith.sitofp", Number::Integer(integer)) if bits != Some(1) => {
            // An integer that has more digits than a float64 is left to the conversion that rounds once.
            let integer = wrapped(integer, bits?);
            (integer.unsigned_abs() < 1 << 53).then_some(Number::Float(rounded(integer as f64, ty.float()?)?))?
        }
        ("arith.extf" | "arith.truncf", Number::Float(float)) => {
            Number::Float(rounded(rounded(float, from_ty.float()?)?, ty.float()?)?)
        }
        _ => return None,
    })
}

/// The nearest number of a type; none of the types of 8 bits, whose rules stand elsewhere.
fn rounded(number: f64, ty: Float) -> Option<f64> {
    Some(match ty {
        Float::F64 => number,
        Float::F32 => f64::from(number as f32),
        Float::F16 => f16::from_f64(number).to_f64(),
        Float::BF16 => bf16::from_f64(number).to_f64(),
        _ => return None,
    })
}

/// Integers combined, or an integer that changes nothing.
fn computed(context: &Context, name: &str, x: ValueId, y: ValueId, ty: &Type) -> Option<Folded> {
    let bits = ty.integer_bits()?;
    if let (Some(left), Some(right)) = (integer(context, x), integer(context, y)) {
        return arithmetic(name, left, right, bits)
            .map(|result| Folded::Constant(Number::Integer(wrapped(result, bits))));
    }
    let neutral = match name {
        "arith.addi" | "arith.ori" | "arith.xori" => Some((0, true)),
        "arith.subi" | "arith.shli" | "arith.shrsi" | "arith.shrui" => Some((0, false)),
        "arith.muli" => Some((1, true)),
        "arith.divsi" | "arith.divui" => Some((1, false)),
        "arith.andi" => Some((wrapped(-1, bits), true)),
        _ => None,
    };
    let (neutral, either_side) = neutral?;
    if is_integer(context, y, neutral) {
        return Some(Folded::Value(x));
    }
    (either_side && is_integer(context, x, neutral)).then_some(Folded::Value(y))
}

/// The result of an operation on two integers with a sign, before it is cut to the type; none of what is not defined.
fn arithmetic(name: &str, x: i64, y: i64, bits: u32) -> Option<i64> {
    let shift = u32::try_from(y).ok().filter(|&shift| shift < bits);
    Some(match name {
        "arith.addi" => x.wrapping_add(y),
        "arith.subi" => x.wrapping_sub(y),
        "arith.muli" => x.wrapping_mul(y),
        "arith.andi" => x & y,
        "arith.ori" => x | y,
        "arith.xori" => x ^ y,
        "arith.divsi" if bits > 1 => x.checked_div(y)?,
        "arith.remsi" if bits > 1 => x.checked_rem(y)?,
        "arith.minsi" if bits > 1 => x.min(y),
        "arith.maxsi" if bits > 1 => x.max(y),
        "arith.shli" => x.wrapping_shl(shift?),
        "arith.shrsi" if bits > 1 => x >> shift?,
        _ => return None,
    })
}
