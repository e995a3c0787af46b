//! The rule of each operation: from the types of its operands to those of its results.

mod elements;
mod memory;
mod shapes;
mod sums;

use super::error::Problem;
use crate::kernel::*;
use crate::types::{Scalar, Type};
use elements::{binary, cast, compare, constant, multiply_add, select, unary};
use memory::{add_pointer, address, atomic, compare_swap, load, store};
use shapes::{
    broadcast, concatenate, expand_dims, gather, join, permute, program_axis, range, reshape, splat, split, unsplat,
};
use sums::{dot, histogram, reduce, reduce_block, scan};

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
        Print(_) => (0, usize::MAX, 0),
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

/// What a block of an instruction must look like.
pub(super) struct BlockRule {
    /// The types of its arguments.
    pub arguments: Vec<Type>,
    /// Whether it ends in `scf.condition`, else in `scf.yield`.
    pub condition: bool,
    /// The types of what it ends with, behind a condition's boolean.
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
