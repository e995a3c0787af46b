//! The rule of each operation: from the types of its operands to those of its results.

use super::error::Problem;
use crate::kernel::*;
use crate::types::{Dims, MAX_TILE_RANK, Scalar, Type};

type Result = std::result::Result<(), Problem>;

/// Checks an instruction whose values have well-formed types; the contents of its blocks are not looked at.
pub(super) fn check(operation: &Operation, operands: &[&Type], results: &[&Type]) -> Result {
    counts(operation, operands.len(), results.len())?;
    match (operation, operands, results) {
        (&Operation::Constant(number), _, &[result]) => constant(number, result),
        (&Operation::ProgramId(axis) | &Operation::ProgramCount(axis), _, &[result]) => program_axis(axis, result),
        (&Operation::Range { start }, _, &[result]) => range(start, result),
        (&Operation::Splat, &[x], &[result]) => splat(x, result),
        (&Operation::ExpandDims { axis }, &[x], &[result]) => expand_dims(axis, x, result),
        (&Operation::Broadcast, &[x], &[result]) => broadcast(x, result),
        (&Operation::Reshape, &[x], &[result]) => reshape(x, result),
        (&Operation::AddPointer, &[pointer, offset], &[result]) => add_pointer(pointer, offset, result),
        (&Operation::Load, &[pointer, ref rest @ ..], &[result]) => load(pointer, rest, result),
        (&Operation::Store, &[pointer, x, ref rest @ ..], _) => store(pointer, x, rest),
        (&Operation::Unary(operation), &[x], &[result]) => unary(operation, x, result),
        (&Operation::Binary(operation), &[x, y], &[result]) => binary(operation, x, y, result),
        (&Operation::Compare(comparison), &[x, y], &[result]) => compare(comparison, x, y, result),
        (&Operation::Select, &[condition, x, y], &[result]) => select(condition, x, y, result),
        (&Operation::Cast(conversion), &[x], &[result]) => cast(conversion, x, result),
        (&Operation::Reduce { axis, combine }, &[x], &[result]) => reduce(axis, combine, x, result),
        (&Operation::Dot, &[x, y, sum], &[result]) => dot(x, y, sum, result),
        (&Operation::For, &[lower, upper, step, ref initial @ ..], results) => {
            for_loop([lower, upper, step], initial, results)
        }
        _ => Ok(()),
    }
}

/// How many operands (at least, at most) and results an operation has; a loop has as many results as carried values.
fn counts(operation: &Operation, operands: usize, results: usize) -> Result {
    use Operation::*;
    let (least, most, expected_results) = match operation {
        Constant(_) | ProgramId(_) | ProgramCount(_) | Range { .. } => (0, 0, 1),
        Splat | ExpandDims { .. } | Broadcast | Reshape | Unary(_) | Cast(_) | Reduce { .. } => (1, 1, 1),
        AddPointer | Binary(_) | Compare(_) => (2, 2, 1),
        Load => (1, 3, 1),
        Store => (2, 3, 0),
        Select | Dot => (3, 3, 1),
        For => (3, usize::MAX, operands.saturating_sub(3)),
        Yield => (0, usize::MAX, 0),
    };
    if operands < least || operands > most {
        let expected = match (least, most) {
            (least, usize::MAX) => format!("at least {least}"),
            (least, most) if least == most => least.to_string(),
            (least, most) => format!("{least} to {most}"),
        };
        return Err(Problem::Count { what: "operands", found: operands, expected });
    }
    count("results", results, expected_results)
}

/// Requires `found` to be `expected`.
pub(super) fn count(what: &'static str, found: usize, expected: usize) -> Result {
    if found == expected { Ok(()) } else { Err(Problem::Count { what, found, expected: expected.to_string() }) }
}

/// Requires a type.
pub(super) fn same(what: &str, found: &Type, expected: &Type) -> Result {
    require(what, found, found == expected, || expected.to_string())
}

fn require(what: &str, found: &Type, holds: bool, expected: impl FnOnce() -> String) -> Result {
    if holds {
        return Ok(());
    }
    Err(Problem::Type { what: what.to_owned(), found: found.clone(), expected: expected() })
}

/// Sets of number types that operations are for.
#[derive(Clone, Copy)]
enum Class {
    Number,
    NumberOrTruth,
    Float,
    Integer,
    IntegerOrTruth,
    Offset,
}

impl Class {
    fn has(self, scalar: Scalar) -> bool {
        match self {
            Class::Number => scalar != Scalar::I1,
            Class::NumberOrTruth => true,
            Class::Float => scalar.is_float(),
            Class::Integer => !scalar.is_float() && scalar != Scalar::I1,
            Class::IntegerOrTruth => !scalar.is_float(),
            Class::Offset => matches!(scalar, Scalar::I32 | Scalar::I64),
        }
    }

    fn text(self) -> &'static str {
        match self {
            Class::Number => "integers or floats",
            Class::NumberOrTruth => "integers, floats or i1",
            Class::Float => "floats",
            Class::Integer => "integers",
            Class::IntegerOrTruth => "integers or i1",
            Class::Offset => "i32 or i64",
        }
    }

    fn require(self, what: &str, found: &Type) -> Result {
        require(what, found, found.number().is_some_and(|x| self.has(x)), || self.text().to_owned())
    }
}

fn tile(what: &str, found: &Type) -> Result {
    require(what, found, !found.is_scalar(), || "a tile".to_owned())
}

fn pointer(what: &str, found: &Type) -> std::result::Result<Scalar, Problem> {
    require(what, found, found.target().is_some(), || "pointers".to_owned())?;
    Ok(found.target().unwrap_or(Scalar::I8))
}

fn axis_below(found: usize, limit: usize) -> Result {
    if found < limit { Ok(()) } else { Err(Problem::Axis { found, limit }) }
}

fn constant(number: Number, result: &Type) -> Result {
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

fn program_axis(axis: u8, result: &Type) -> Result {
    axis_below(axis.into(), 3)?;
    same("the result", result, &Type::scalar(Scalar::I32))
}

fn range(start: i32, result: &Type) -> Result {
    let fits = result.number() == Some(Scalar::I32) && result.dims.len() == 1;
    require("the result", result, fits, || "an i32 tile of one dimension".to_owned())?;
    let size = result.len();
    let last = i64::from(start) + size as i64 - 1;
    if last <= i64::from(i32::MAX) { Ok(()) } else { Err(Problem::Range { start, size }) }
}

fn splat(x: &Type, result: &Type) -> Result {
    require("the operand", x, x.is_scalar(), || "a scalar".to_owned())?;
    tile("the result", result)?;
    same("the result", result, &x.with_dims(&result.dims))
}

fn expand_dims(axis: usize, x: &Type, result: &Type) -> Result {
    tile("the operand", x)?;
    axis_below(axis, x.dims.len() + 1)?;
    let rank_left = x.dims.len() < MAX_TILE_RANK;
    require("the operand", x, rank_left, || format!("at most {} dimensions", MAX_TILE_RANK - 1))?;
    let mut dims = x.dims.clone();
    dims.insert(axis, 1);
    same("the result", result, &x.with_dims(&dims))
}

fn broadcast(x: &Type, result: &Type) -> Result {
    tile("the operand", x)?;
    let repeats = |dims: &Dims| x.dims.iter().zip(dims).all(|(&from, &to)| from == to || from == 1);
    let fits = result.element == x.element && result.dims.len() == x.dims.len() && repeats(&result.dims);
    require("the result", result, fits, || format!("{x} with dimensions of size 1 repeated"))
}

fn reshape(x: &Type, result: &Type) -> Result {
    tile("the operand", x)?;
    tile("the result", result)?;
    let fits = result.element == x.element && result.len() == x.len();
    require("the result", result, fits, || format!("{} elements of {}", x.len(), x.element))
}

fn add_pointer(pointers: &Type, offset: &Type, result: &Type) -> Result {
    pointer("operand 0", pointers)?;
    Class::Offset.require("the offset", offset)?;
    require("the offset", offset, offset.dims == pointers.dims, || format!("the dimensions of {pointers}"))?;
    same("the result", result, pointers)
}

fn mask(found: &Type, like: &Type) -> Result {
    same("the mask", found, &like.with_scalar(Scalar::I1))
}

fn load(pointers: &Type, rest: &[&Type], result: &Type) -> Result {
    let target = pointer("operand 0", pointers)?;
    let loaded = pointers.with_scalar(target);
    if let Some(found) = rest.first() {
        mask(found, pointers)?;
    }
    if let Some(other) = rest.get(1) {
        same("what masked-off elements are", other, &loaded)?;
    }
    same("the result", result, &loaded)
}

fn store(pointers: &Type, x: &Type, rest: &[&Type]) -> Result {
    let target = pointer("operand 0", pointers)?;
    same("the stored value", x, &pointers.with_scalar(target))?;
    rest.first().map_or(Ok(()), |found| mask(found, pointers))
}

fn unary(operation: Unary, x: &Type, result: &Type) -> Result {
    let class = match operation {
        Unary::Negate | Unary::Absolute => Class::Number,
        Unary::Not => Class::IntegerOrTruth,
        _ => Class::Float,
    };
    class.require("the operand", x)?;
    same("the result", result, x)
}

fn binary(operation: Binary, x: &Type, y: &Type, result: &Type) -> Result {
    use Binary::*;
    let class = match operation {
        Add | Subtract | Multiply | Divide | Remainder | Minimum | Maximum => Class::Number,
        DivideUnsigned | RemainderUnsigned | MinimumUnsigned | MaximumUnsigned => Class::Integer,
        ShiftLeft | ShiftRight | ShiftRightUnsigned => Class::Integer,
        Power | Atan2 | MinimumNumber | MaximumNumber => Class::Float,
        And | Or | Xor => Class::IntegerOrTruth,
    };
    class.require("operand 0", x)?;
    same("operand 1", y, x)?;
    same("the result", result, x)
}

fn compare(comparison: Compare, x: &Type, y: &Type, result: &Type) -> Result {
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

fn select(condition: &Type, x: &Type, y: &Type, result: &Type) -> Result {
    same("the condition", condition, &x.with_scalar(Scalar::I1))?;
    same("operand 2", y, x)?;
    same("the result", result, x)
}

fn dot(x: &Type, y: &Type, sum: &Type, result: &Type) -> Result {
    Class::Float.require("operand 0", x)?;
    let matrix =
        |what: &str, ty: &Type| require(what, ty, ty.dims.len() == 2, || "a tile of two dimensions".to_owned());
    matrix("operand 0", x)?;
    matrix("operand 1", y)?;
    same("operand 1", y, &x.with_dims(&[x.dims[1], y.dims[1]]))?;
    let wide = if x.number() == Some(Scalar::F64) { Scalar::F64 } else { Scalar::F32 };
    same("operand 2", sum, &Type::tile(wide, &[x.dims[0], y.dims[1]]))?;
    same("the result", result, sum)
}

fn cast(conversion: Cast, x: &Type, result: &Type) -> Result {
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

fn reduce(axis: usize, combine: Combine, x: &Type, result: &Type) -> Result {
    let class = match combine {
        Combine::Sum | Combine::Product | Combine::Minimum | Combine::Maximum => Class::Number,
        Combine::MinimumNumber | Combine::MaximumNumber => Class::Float,
        Combine::And | Combine::Or => Class::IntegerOrTruth,
    };
    class.require("the operand", x)?;
    tile("the operand", x)?;
    axis_below(axis, x.dims.len())?;
    let mut dims = x.dims.clone();
    dims.remove(axis);
    same("the result", result, &x.with_dims(&dims))
}

fn for_loop([lower, upper, step]: [&Type; 3], initial: &[&Type], results: &[&Type]) -> Result {
    let fits = lower.is_scalar() && lower.number().is_some_and(|x| Class::Integer.has(x));
    require("the lower bound", lower, fits, || "an integer".to_owned())?;
    same("the upper bound", upper, lower)?;
    same("the step", step, lower)?;
    for (i, (found, expected)) in results.iter().zip(initial).enumerate() {
        same(&format!("result {i}"), found, expected)?;
    }
    Ok(())
}
