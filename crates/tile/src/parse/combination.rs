//! Reductions and scans, whose block says how two elements become one: by name where that is one operation.

use crate::builder::Builder;
use crate::kernel::{Binary, Block, Cast, Combine, Compare, Instruction, Operation, Value};
use crate::types::{Scalar, Type};

/// A reduction, or a scan from either end.
pub fn lower(b: &mut Builder, operands: &[Value], axis: usize, reverse: Option<bool>, block: Block) -> Vec<Value> {
    let block = with_choices(block);
    let named = named_combination(&block);
    let mut types: Vec<Type> = operands.iter().map(|&operand| b.type_of(operand).clone()).collect();
    match (operands, named, reverse) {
        (&[x], Some(combine), None) => return vec![b.reduce(combine, x, axis)],
        (&[x], Some(combine @ (Combine::Sum | Combine::Product)), Some(reverse)) if is_half(b, x) => {
            return vec![wide_scan(b, x, axis, reverse, combine)];
        }
        (_, _, Some(reverse)) => {
            return b.emit_with_blocks(Operation::Scan { axis, reverse }, operands, &types, vec![block]);
        }
        _ => {}
    }
    let block = if operands.len() == 2 { without_nan(b, block) } else { block };
    for ty in &mut types {
        if axis < ty.dims.len() {
            ty.dims.remove(axis);
        }
    }
    b.emit_with_blocks(Operation::ReduceBlock { axis }, operands, &types, vec![block])
}

/// A block in which elements choose between what both sides of a condition give: a block runs for many elements at once. One whose sides do more than compute
/// stays as it is.
fn with_choices(block: Block) -> Block {
    if !block.instructions.iter().all(only_computes) {
        return block;
    }
    let mut instructions = Vec::new();
    chosen(block.instructions, &mut instructions);
    Block { instructions, ..block }
}

fn only_computes(instruction: &Instruction) -> bool {
    use Operation::*;
    let operation = &instruction.operation;
    let computes =
        operation.is_elementwise() || matches!(operation, Constant(_) | ProgramId(_) | ProgramCount(_) | If | Yield);
    computes && instruction.blocks.iter().all(|block| block.instructions.iter().all(only_computes))
}

/// Appends instructions, a condition as those of both sides and a choice for each result.
fn chosen(instructions: Vec<Instruction>, into: &mut Vec<Instruction>) {
    for mut instruction in instructions {
        if instruction.operation != Operation::If {
            into.push(instruction);
            continue;
        }
        let ends = [0, 1].map(|side| instruction.blocks.get(side).map_or(Vec::new(), |block| block.ends().to_vec()));
        for mut block in std::mem::take(&mut instruction.blocks) {
            block.instructions.pop();
            chosen(block.instructions, into);
        }
        for ((&result, &yes), &no) in instruction.results.iter().zip(&ends[0]).zip(&ends[1]) {
            let (operands, results) = (vec![instruction.operands[0], yes, no], vec![result]);
            let line = instruction.line;
            into.push(Instruction { operation: Operation::Select, operands, results, blocks: Vec::new(), line });
        }
    }
}

fn is_half(b: &Builder, x: Value) -> bool {
    matches!(b.type_of(x).number(), Some(Scalar::F16 | Scalar::BF16))
}

/// Running sums or products of a half type, each rounded once: a GPU combines in a tree, whose errors are few; one element after the other
/// they would add up until a sum no longer grows.
fn wide_scan(b: &mut Builder, x: Value, axis: usize, reverse: bool, combine: Combine) -> Value {
    let narrow = b.scalar_of(x);
    let wide = b.cast(Cast::Float, x, Scalar::F32);
    let element = Type::scalar(Scalar::F32);
    let [so_far, next] = b.begin_block(&[element.clone(), element])[..] else { return x };
    let combined = b.binary(combine.operation(), so_far, next);
    let block = b.end_block(Operation::Yield, &[combined]);
    let ty = b.type_of(wide).clone();
    let results = b.emit_with_blocks(Operation::Scan { axis, reverse }, &[wide], &[ty], vec![block]);
    b.cast(Cast::Float, results[0], narrow)
}

/// The instruction of a block that defines a value.
fn defined(block: &Block, value: Value) -> Option<&Instruction> {
    block.instructions.iter().find(|instruction| instruction.results.contains(&value))
}

/// Lets NaN lose in a block that takes the larger or smaller of two floats and what belongs to it: argmax and argmin pass over NaN
/// as Triton documents, which a comparison alone does only in some orders of the elements, and the order is ours.
fn without_nan(b: &mut Builder, mut block: Block) -> Block {
    let ([x, _, y, _], &[left, right]) = (&block.arguments[..], block.ends()) else { return block };
    let (x, y) = (*x, *y);
    let chosen = |by: Value| {
        let sides = [[block.arguments[0], block.arguments[2]], [block.arguments[1], block.arguments[3]]];
        [left, right].iter().zip(sides).all(|(&end, [first, second])| {
            let select = defined(&block, end);
            select.is_some_and(|select| select.operation == Operation::Select && select.operands == [by, first, second])
        })
    };
    let is_comparison = |value: Value| {
        let of_both = |comparison: &Instruction| comparison.operands == [x, y];
        defined(&block, value).is_some_and(|instruction| {
            matches!(instruction.operation, Operation::Compare(Compare::Greater | Compare::Less))
                && of_both(instruction)
        })
    };
    let Some(condition) = defined(&block, left).and_then(|select| select.operands.first().copied()) else {
        return block;
    };
    let is_either = defined(&block, condition).is_some_and(|either| {
        either.operation == Operation::Binary(Binary::Or) && either.operands.iter().any(|&side| is_comparison(side))
    });
    if !b.scalar_of(x).is_float() || !chosen(condition) || !(is_either || is_comparison(condition)) {
        return block;
    }
    b.begin_block(&[]);
    let is_nan = b.compare(Compare::NotEqual, y, y);
    let either = b.binary(Binary::Or, condition, is_nan);
    let mut added = b.end_block(Operation::Yield, &[]).instructions;
    added.pop();
    let first = block.instructions.iter().position(|instruction| {
        instruction.operands.first() == Some(&condition) && instruction.operation == Operation::Select
    });
    for instruction in &mut block.instructions {
        if instruction.operation == Operation::Select && instruction.operands[0] == condition {
            instruction.operands[0] = either;
        }
    }
    let at = first.unwrap_or(0);
    block.instructions.splice(at..at, added);
    block
}

/// The named combination that a block of one operation on both of its arguments is.
fn named_combination(block: &Block) -> Option<Combine> {
    let ([x, y], [first, end]) = (&block.arguments[..], &block.instructions[..]) else { return None };
    let Operation::Binary(binary) = first.operation else { return None };
    let both = first.operands == [*x, *y] || first.operands == [*y, *x];
    // The difference is not among the combinations, so the order does not matter.
    let is_plain = both && end.operands == first.results && !matches!(binary, Binary::Subtract);
    Combine::ALL.iter().copied().find(|combine| is_plain && combine.operation() == binary)
}
