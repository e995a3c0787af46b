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
        (Operation::Permute { order }, &[x], &[result]) => permute(order, x, result),
        (&Operation::Join, &[x, y], &[result]) => join(x, y, result),
        (&Operation::Split, &[x], &[left, right]) => split(x, left, right),
        (&Operation::Concatenate, &[x, y], &[result]) => concatenate(x, y, result),
        (&Operation::Unsplat, &[x], &[result]) => unsplat(x, result),
        (&Operation::Gather { axis }, &[x, indices], &[result]) => gather(axis, x, indices, result),
        (&Operation::Histogram, &[x, ref rest @ ..], &[result]) => histogram(x, rest, result),
        (&Operation::Atomic(operation), &[pointer, x, ref rest @ ..], &[result]) => {
            atomic(operation, pointer, x, rest, result)
        }
        (&Operation::CompareSwap, &[pointer, expected, x], &[result]) => compare_swap(pointer, expected, x, result),
        (&Operation::IntegerToPointer, &[x], &[result]) => address(x, "the operand", result, "the result"),
        (&Operation::PointerToInteger, &[x], &[result]) => address(result, "the result", x, "the operand"),
        (&Operation::MultiplyAdd, &[x, y, z], &[result]) => multiply_add(x, y, z, result),
        (&Operation::Assert { .. }, &[x], _) => same("the operand", x, &x.with_scalar(Scalar::I1)),
        (&Operation::ReduceBlock { axis }, tiles, results) => reduce_block(axis, tiles, results),
        (&Operation::Scan { axis, .. }, tiles, results) => scan(axis, tiles, results),
        (&Operation::If, &[condition], _) => same("the condition", condition, &Type::scalar(Scalar::I1)),
        (&Operation::Condition, &[condition, ..], _) => same("the condition", condition, &Type::scalar(Scalar::I1)),
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
        Permute { .. } | Unsplat | IntegerToPointer | PointerToInteger => (1, 1, 1),
        Split => (1, 1, 2),
        AddPointer | Binary(_) | Compare(_) | Join | Concatenate | Gather { .. } => (2, 2, 1),
        Histogram => (1, 2, 1),
        Load => (1, 3, 1),
        Store => (2, 3, 0),
        Atomic(_) => (2, 3, 1),
        Select | Dot | CompareSwap | MultiplyAdd => (3, 3, 1),
        Assert { .. } => (1, 1, 0),
        Barrier => (0, 0, 0),
        ReduceBlock { .. } | Scan { .. } => (1, usize::MAX, operands),
        If => (1, 1, results),
        While => (0, usize::MAX, results),
        Condition => (1, usize::MAX, 0),
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
        DivideUnsigned | RemainderUnsigned | MinimumUnsigned | MaximumUnsigned | MultiplyHighUnsigned => Class::Integer,
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
    let wide = match x.number() {
        Some(Scalar::I8) => Scalar::I32,
        Some(Scalar::F64) => Scalar::F64,
        _ => {
            Class::Float.require("operand 0", x)?;
            Scalar::F32
        }
    };
    let matrix = |what: &str, ty: &Type| {
        require(what, ty, matches!(ty.dims.len(), 2 | 3), || "a tile of two or three dimensions".to_owned())
    };
    matrix("operand 0", x)?;
    matrix("operand 1", y)?;
    let (batch, [.., rows, depth], [.., columns]) = (&x.dims[..x.dims.len() - 2], &x.dims[..], &y.dims[..]) else {
        return Ok(());
    };
    let with = |rows: usize, columns: usize| [batch, &[rows, columns]].concat();
    same("operand 1", y, &x.with_dims(&with(*depth, *columns)))?;
    same("operand 2", sum, &Type::tile(wide, &with(*rows, *columns)))?;
    same("the result", result, sum)
}

fn permute(order: &Dims, x: &Type, result: &Type) -> Result {
    let mut sorted: Vec<usize> = order.to_vec();
    sorted.sort_unstable();
    let whole = sorted.iter().copied().eq(0..x.dims.len());
    require("the operand", x, whole && !x.is_scalar(), || format!("as many dimensions as the order {order:?}"))?;
    let dims: Vec<usize> = order.iter().map(|&axis| x.dims[axis]).collect();
    same("the result", result, &x.with_dims(&dims))
}

/// The type of two tiles joined along a new last dimension.
fn joined(x: &Type) -> std::result::Result<Type, Problem> {
    let fits = x.dims.len() < MAX_TILE_RANK;
    require("the operand", x, fits, || format!("at most {} dimensions", MAX_TILE_RANK - 1))?;
    let mut dims = x.dims.clone();
    dims.push(2);
    Ok(x.with_dims(&dims))
}

fn join(x: &Type, y: &Type, result: &Type) -> Result {
    same("operand 1", y, x)?;
    same("the result", result, &joined(x)?)
}

fn split(x: &Type, left: &Type, right: &Type) -> Result {
    same("the operand", x, &joined(left)?)?;
    same("the second result", right, left)
}

fn concatenate(x: &Type, y: &Type, result: &Type) -> Result {
    tile("operand 0", x)?;
    same("operand 1", y, x)?;
    let mut dims = x.dims.clone();
    dims[0] = dims[0].saturating_mul(2);
    same("the result", result, &x.with_dims(&dims))
}

fn unsplat(x: &Type, result: &Type) -> Result {
    tile("the operand", x)?;
    require("the operand", x, x.len() == 1, || "one element".to_owned())?;
    same("the result", result, &x.with_dims(&[]))
}

fn gather(axis: usize, x: &Type, indices: &Type, result: &Type) -> Result {
    tile("operand 0", x)?;
    axis_below(axis, x.dims.len())?;
    Class::Offset.require("the indices", indices)?;
    let alike =
        indices.dims.len() == x.dims.len() && (0..x.dims.len()).all(|d| d == axis || indices.dims[d] == x.dims[d]);
    require("the indices", indices, alike, || format!("the dimensions of {x} but for axis {axis}"))?;
    same("the result", result, &x.with_dims(&indices.dims))
}

fn histogram(x: &Type, rest: &[&Type], result: &Type) -> Result {
    let fits = |ty: &Type| ty.number() == Some(Scalar::I32) && ty.dims.len() == 1;
    require("the operand", x, fits(x), || "an i32 tile of one dimension".to_owned())?;
    require("the result", result, fits(result), || "an i32 tile of one dimension".to_owned())?;
    rest.first().map_or(Ok(()), |found| mask(found, x))
}

fn atomic(operation: Atomic, pointers: &Type, x: &Type, rest: &[&Type], result: &Type) -> Result {
    let class = match operation {
        Atomic::AddFloat => Class::Float,
        Atomic::Exchange => Class::Number,
        _ => Class::Integer,
    };
    class.require("the value", x)?;
    store(pointers, x, rest)?;
    same("the result", result, x)
}

fn compare_swap(pointers: &Type, expected: &Type, x: &Type, result: &Type) -> Result {
    store(pointers, x, &[])?;
    same("the expected value", expected, x)?;
    same("the result", result, x)
}

fn address(integer: &Type, what: &str, of: &Type, pointer_what: &str) -> Result {
    pointer(pointer_what, of)?;
    same(what, integer, &of.with_scalar(Scalar::I64))
}

fn multiply_add(x: &Type, y: &Type, z: &Type, result: &Type) -> Result {
    Class::Float.require("operand 0", x)?;
    same("operand 1", y, x)?;
    same("operand 2", z, x)?;
    same("the result", result, x)
}

/// Tiles of the same dimensions, which have the axis.
fn alike(axis: usize, tiles: &[&Type]) -> Result {
    let first = tiles[0];
    tile("operand 0", first)?;
    axis_below(axis, first.dims.len())?;
    for (i, found) in tiles.iter().enumerate() {
        let expected = || format!("the dimensions of {first}");
        require(&format!("operand {i}"), found, found.dims == first.dims, expected)?;
    }
    Ok(())
}

fn reduce_block(axis: usize, tiles: &[&Type], results: &[&Type]) -> Result {
    alike(axis, tiles)?;
    let mut dims = tiles[0].dims.clone();
    dims.remove(axis);
    let mut pairs = results.iter().zip(tiles).enumerate();
    pairs.try_for_each(|(i, (found, x))| same(&format!("result {i}"), found, &x.with_dims(&dims)))
}

fn scan(axis: usize, tiles: &[&Type], results: &[&Type]) -> Result {
    alike(axis, tiles)?;
    let mut pairs = results.iter().zip(tiles).enumerate();
    pairs.try_for_each(|(i, (found, x))| same(&format!("result {i}"), found, x))
}

/// What a block of an instruction must look like.
pub(super) struct BlockRule {
    /// The types of its arguments.
    pub arguments: Vec<Type>,
    /// Whether it ends in `scf.condition`, else in `scf.yield`.
    pub condition: bool,
    /// The types of what it ends with, behind a condition's truth value.
    pub ends_with: Vec<Type>,
}

/// How many blocks an operation has.
pub(super) fn blocks(operation: &Operation) -> usize {
    match operation {
        Operation::For | Operation::ReduceBlock { .. } | Operation::Scan { .. } => 1,
        Operation::If | Operation::While => 2,
        _ => 0,
    }
}

/// The rule of a block; `operands` and `results` have been checked.
pub(super) fn block(operation: &Operation, index: usize, operands: &[&Type], results: &[&Type]) -> BlockRule {
    let owned = |types: &[&Type]| types.iter().map(|&ty| ty.clone()).collect::<Vec<Type>>();
    let (arguments, condition, ends_with) = match (operation, index) {
        (Operation::For, _) => {
            let carried = &operands[3..];
            let arguments = operands.iter().take(1).chain(carried).map(|&ty| ty.clone()).collect();
            (arguments, false, owned(carried))
        }
        (Operation::While, 0) => (owned(operands), true, owned(results)),
        (Operation::While, _) => (owned(results), false, owned(operands)),
        (Operation::ReduceBlock { .. } | Operation::Scan { .. }, _) => {
            let elements: Vec<Type> = operands.iter().map(|ty| ty.with_dims(&[])).collect();
            ([&elements[..], &elements[..]].concat(), false, elements)
        }
        _ => (Vec::new(), false, owned(results)),
    };
    BlockRule { arguments, condition, ends_with }
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
