//! `tt.map_elementwise`: what a block says of single elements, done with whole tiles.
//!
//! Both sides of a condition are computed for every element, and each element takes the side that is its own.

use crate::builder::Builder;
use crate::kernel::{Block, Instruction, Operation, Value};
use std::collections::HashMap;

/// The block's results for every element of the operands; why it is refused.
///
/// With a `pack`, the block takes and gives so many neighbours of each tile at a time.
pub fn lower(b: &mut Builder, operands: &[Value], pack: usize, block: &Block) -> Result<Vec<Value>, String> {
    if !pack.is_power_of_two() {
        return Err(format!("{pack} elements at a time"));
    }
    let Some(&first) = operands.first() else { return Err("no operands".to_owned()) };
    let dims = b.type_of(first).dims.clone();
    if dims.iter().product::<usize>() % pack != 0 {
        return Err(format!("{pack} elements at a time of {}", b.type_of(first)));
    }
    let inputs: Vec<Value> = operands.iter().flat_map(|&operand| unpacked(b, operand, pack)).collect();
    let Some(&first) = inputs.first() else { return Err("no operands".to_owned()) };
    let mut spread = Spread { dims: b.type_of(first).dims.to_vec(), tiles: HashMap::new() };
    spread.tiles.extend(block.arguments.iter().copied().zip(inputs));
    let results = spread.block(b, block)?;
    let packed = results.chunks(pack).map(|results| {
        let joined = packed(b, results);
        if b.type_of(joined).dims == dims { joined } else { reshaped(b, joined, &dims) }
    });
    Ok(packed.collect())
}

pub(super) fn reshaped(b: &mut Builder, x: Value, dims: &[usize]) -> Value {
    let ty = b.type_of(x).with_dims(dims);
    b.emit(Operation::Reshape, &[x], ty)
}

/// The first of each `pack` neighbours, the second, and so on.
pub(super) fn unpacked(b: &mut Builder, x: Value, pack: usize) -> Vec<Value> {
    if pack == 1 {
        return vec![x];
    }
    let pairs = b.type_of(x).len() / 2;
    let x = reshaped(b, x, &[pairs, 2]);
    let half = b.type_of(x).with_dims(&[pairs]);
    let halves = b.emit_with_blocks(Operation::Split, &[x], &[half.clone(), half], Vec::new());
    let [even, odd] = [0, 1].map(|side| unpacked(b, halves[side], pack / 2));
    even.into_iter().zip(odd).flat_map(|(even, odd)| [even, odd]).collect()
}

/// The inverse of [`unpacked`], as a tile of one dimension where there are several.
pub(super) fn packed(b: &mut Builder, parts: &[Value]) -> Value {
    if let &[x] = parts {
        return x;
    }
    let side = |b: &mut Builder, side: usize| {
        let every_second: Vec<Value> = parts.iter().copied().skip(side).step_by(2).collect();
        packed(b, &every_second)
    };
    let (even, odd) = (side(b, 0), side(b, 1));
    let pairs = b.type_of(even).len();
    let ty = b.type_of(even).with_dims(&[pairs, 2]);
    let joined = b.emit(Operation::Join, &[even, odd], ty);
    reshaped(b, joined, &[2 * pairs])
}

/// The tiles that a block's values became.
struct Spread {
    dims: Vec<usize>,
    tiles: HashMap<Value, Value>,
}

impl Spread {
    /// Does a block's instructions with tiles; what it ends with.
    fn block(&mut self, b: &mut Builder, block: &Block) -> Result<Vec<Value>, String> {
        for instruction in &block.instructions {
            match instruction.operation {
                Operation::Yield => {}
                Operation::If => self.choose(b, instruction)?,
                _ => self.element(b, instruction)?,
            }
        }
        Ok(block.ends().iter().map(|&value| self.tile(b, value)).collect())
    }

    /// The tile of a value; one from outside the block is the same for every element.
    fn tile(&mut self, b: &mut Builder, value: Value) -> Value {
        let dims = &self.dims;
        *self.tiles.entry(value).or_insert_with(|| if dims.is_empty() { value } else { b.splat(value, dims) })
    }

    /// Both sides, of which each element takes one.
    fn choose(&mut self, b: &mut Builder, instruction: &Instruction) -> Result<(), String> {
        let condition = self.tile(b, instruction.operands[0]);
        let sides = [0, 1].map(|side| self.block(b, &instruction.blocks[side]));
        let [on_true, on_false] = sides;
        for ((&result, on_true), on_false) in instruction.results.iter().zip(on_true?).zip(on_false?) {
            let chosen = b.select(condition, on_true, on_false);
            self.tiles.insert(result, chosen);
        }
        Ok(())
    }

    fn element(&mut self, b: &mut Builder, instruction: &Instruction) -> Result<(), String> {
        use Operation::*;
        let operation = &instruction.operation;
        let others = matches!(
            operation,
            Constant(_) | ProgramId(_) | ProgramCount(_) | AddPointer | PointerToInteger | IntegerToPointer
        );
        let (true, &[result]) = (operation.is_elementwise() || others, &instruction.results[..]) else {
            return Err(format!("{} for single elements", operation.name()));
        };
        let operands: Vec<Value> = instruction.operands.iter().map(|&operand| self.tile(b, operand)).collect();
        let is_number_of_program = matches!(operation, ProgramId(_) | ProgramCount(_));
        let ty = b.type_of(result).clone();
        let ty = if is_number_of_program { ty } else { ty.with_dims(&self.dims) };
        let value = b.emit(operation.clone(), &operands, ty);
        let value = if is_number_of_program && !self.dims.is_empty() { b.splat(value, &self.dims) } else { value };
        self.tiles.insert(result, value);
        Ok(())
    }
}
