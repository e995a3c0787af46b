//! The interpreter: the definition of the language, one element at a time.
//!
//! An element may be undefined: what a load gives where its mask is false and no other value is given. Operations on undefined elements give
//! undefined ones; storing one, or letting one decide an address, a mask or a loop's bounds, is an error.

pub mod element;
mod error;
mod memory;
#[cfg(test)]
mod tests;
mod tile;

pub use error::{InterpretError, InterpretProblem};
pub use memory::{HostMemory, Memory, MemoryError, Plain, RawMemory};

use crate::kernel::*;
use crate::place::Place;
use crate::types::{Scalar, Type};
use crate::verify::Verified;
use std::rc::Rc;
use tile::{Bits, Tile};

/// Runs a kernel's programs in the order of the grid, its first axis fastest.
///
/// An argument is the bits of a parameter's value: an address, an integer (bits above its width are ignored), a float in the low bits.
pub fn interpret(
    kernel: Verified<'_>,
    grid: [usize; 3],
    arguments: &[u64],
    memory: &mut dyn Memory,
) -> Result<(), InterpretError> {
    let kernel = kernel.kernel();
    check_launch(kernel, grid, arguments)
        .map_err(|problem| error(kernel, Place::Kernel, [0; 3], Failure { element: None, problem }))?;
    for z in 0..grid[2] {
        for y in 0..grid[1] {
            for x in 0..grid[0] {
                Program::new(kernel, grid, [x, y, z], arguments, memory).block(&kernel.body)?;
            }
        }
    }
    Ok(())
}

fn check_launch(kernel: &Kernel, grid: [usize; 3], arguments: &[u64]) -> Result<(), InterpretProblem> {
    let (found, expected) = (arguments.len(), kernel.parameters.len());
    if found != expected {
        return Err(InterpretProblem::Arguments { found, expected });
    }
    match grid.iter().position(|&size| size > i32::MAX as usize) {
        Some(axis) => Err(InterpretProblem::Grid { axis, size: grid[axis] }),
        None => Ok(()),
    }
}

fn error(kernel: &Kernel, place: Place, program: [usize; 3], failure: Failure) -> InterpretError {
    let Failure { element, problem } = failure;
    InterpretError { kernel: kernel.name.clone(), place, program, element, problem: Box::new(problem) }
}

/// A problem and the element that has it; the place is added where it is known.
struct Failure {
    element: Option<usize>,
    problem: InterpretProblem,
}

impl From<InterpretProblem> for Failure {
    fn from(problem: InterpretProblem) -> Failure {
        Failure { element: None, problem }
    }
}

/// One program of the grid.
struct Program<'a> {
    kernel: &'a Kernel,
    grid: [usize; 3],
    place: [usize; 3],
    memory: &'a mut dyn Memory,
    /// By [`Value`]; empty while not defined, which no verified kernel reads.
    values: Vec<Tile>,
    /// Of the instruction at hand.
    path: Vec<usize>,
}

impl<'a> Program<'a> {
    fn new(
        kernel: &'a Kernel,
        grid: [usize; 3],
        place: [usize; 3],
        arguments: &[u64],
        memory: &'a mut dyn Memory,
    ) -> Program<'a> {
        let mut values: Vec<Tile> = kernel.types.iter().map(|_| Tile::default()).collect();
        for (parameter, &bits) in kernel.parameters.iter().zip(arguments) {
            let bits = kernel.type_of(parameter.value).number().map_or(bits, |scalar| element::wrap(scalar, bits));
            values[parameter.value.0 as usize] = Rc::new([Some(bits)]);
        }
        Program { kernel, grid, place, memory, values, path: Vec::new() }
    }

    /// Runs a block; returns what it yields.
    fn block(&mut self, block: &'a Block) -> Result<Vec<Tile>, InterpretError> {
        for (i, instruction) in block.instructions.iter().enumerate() {
            self.path.push(i);
            match instruction.operation {
                Operation::Yield => {
                    self.path.pop();
                    return Ok(self.tiles(&instruction.operands));
                }
                Operation::For => self.for_loop(instruction)?,
                _ => {
                    let results = self.instruction(instruction).map_err(|failure| self.error(instruction, failure))?;
                    self.define(&instruction.results, results);
                }
            }
            self.path.pop();
        }
        Ok(Vec::new())
    }

    fn error(&self, instruction: &Instruction, failure: Failure) -> InterpretError {
        error(self.kernel, Place::instruction(&self.path, instruction), self.place, failure)
    }

    fn tile(&self, value: Value) -> &Tile {
        &self.values[value.0 as usize]
    }

    fn tiles(&self, values: &[Value]) -> Vec<Tile> {
        values.iter().map(|&value| self.tile(value).clone()).collect()
    }

    fn define(&mut self, values: &[Value], tiles: impl IntoIterator<Item = Tile>) {
        for (value, tile) in values.iter().zip(tiles) {
            self.values[value.0 as usize] = tile;
        }
    }

    fn for_loop(&mut self, instruction: &'a Instruction) -> Result<(), InterpretError> {
        let mut carried = self.tiles(&instruction.operands[3..]);
        let bounds = self.bounds(&instruction.operands).map_err(|failure| self.error(instruction, failure))?;
        let [mut index, upper, step] = bounds;
        let scalar = self.kernel.type_of(instruction.operands[0]).number().unwrap_or(Scalar::I64);
        let block = &instruction.blocks[0];
        while index < upper {
            let index_tile: Tile = Rc::new([Some(element::wrap(scalar, index as u64))]);
            self.define(&block.arguments, std::iter::once(index_tile).chain(carried));
            carried = self.block(block)?;
            index = index.saturating_add(step);
        }
        self.define(&instruction.results, carried);
        Ok(())
    }

    fn bounds(&self, operands: &[Value]) -> Result<[i64; 3], Failure> {
        let bound = |i: usize, what| {
            let scalar = self.kernel.type_of(operands[i]).number().unwrap_or(Scalar::I64);
            let bits = self.tile(operands[i])[0].ok_or(InterpretProblem::Undefined(what))?;
            Ok::<i64, Failure>(element::signed(scalar, bits))
        };
        let bounds = [bound(0, "the lower bound")?, bound(1, "the upper bound")?, bound(2, "the step")?];
        if bounds[2] < 1 { Err(InterpretProblem::Step(bounds[2]).into()) } else { Ok(bounds) }
    }

    /// The result of an instruction without blocks; none of a store.
    fn instruction(&mut self, instruction: &Instruction) -> Result<Option<Tile>, Failure> {
        let operands = self.tiles(&instruction.operands);
        match instruction.operation {
            Operation::Load => self.load(&operands, self.target(instruction)).map(Some),
            Operation::Store => self.store(&operands, self.target(instruction)).map(|()| None),
            _ => Ok(Some(self.pure(instruction, &operands))),
        }
    }

    /// What a load's or store's pointers point to.
    fn target(&self, instruction: &Instruction) -> Scalar {
        self.kernel.type_of(instruction.operands[0]).target().unwrap_or(Scalar::I8)
    }

    /// The result of an instruction that neither touches memory nor fails.
    fn pure(&self, instruction: &Instruction, operands: &[Tile]) -> Tile {
        let result = self.kernel.type_of(instruction.results[0]);
        let fill = |bits: u64| -> Tile { vec![Some(bits); result.len()].into() };
        let operand_type = |i: usize| self.kernel.type_of(instruction.operands[i]);
        let scalar = instruction.operands.first().map_or(Scalar::I8, |&x| number(self.kernel.type_of(x)));
        match (&instruction.operation, operands) {
            (&Operation::Constant(constant), _) => fill(element::constant(constant, number(result))),
            (&Operation::ProgramId(axis), _) => fill(self.place[usize::from(axis)] as u64),
            (&Operation::ProgramCount(axis), _) => fill(self.grid[usize::from(axis)] as u64),
            (&Operation::Range { start }, _) => range(start, result.len()),
            (Operation::Splat, [x]) => vec![x[0]; result.len()].into(),
            (Operation::ExpandDims { .. } | Operation::Reshape, [x]) => x.clone(),
            (Operation::Broadcast, [x]) => tile::broadcast(x, &operand_type(0).dims, &result.dims),
            (Operation::AddPointer, [x, y]) => add_pointer(x, y, operand_type(0), operand_type(1)),
            (&Operation::Unary(operation), [x]) => tile::map(x, |x| element::unary(operation, scalar, x)),
            (&Operation::Binary(operation), [x, y]) => tile::zip(x, y, |x, y| element::binary(operation, scalar, x, y)),
            (&Operation::Compare(compare), [x, y]) => tile::zip(x, y, |x, y| element::compare(compare, scalar, x, y)),
            (Operation::Select, [condition, x, y]) => tile::select(condition, x, y),
            (&Operation::Cast(cast), [x]) => tile::map(x, |x| element::cast(cast, scalar, number(result), x)),
            (&Operation::Reduce { axis, combine }, [x]) => {
                tile::reduce(x, &operand_type(0).dims, axis, |x, y| element::combine(combine, scalar, x, y))
            }
            (Operation::Dot, [x, y, sum]) => {
                let sizes = (operand_type(0).dims[1], operand_type(1).dims[1]);
                let product = |x: u64, y: u64| element::float(scalar, x) * element::float(scalar, y);
                let wide = number(result);
                tile::dot(x, y, sum, sizes, |sum, x, y| element::round(wide, element::float(wide, sum) + product(x, y)))
            }
            // Nothing else has a result in a verified kernel.
            _ => vec![None; result.len()].into(),
        }
    }

    fn load(&mut self, operands: &[Tile], target: Scalar) -> Result<Tile, Failure> {
        let (pointers, mask, other) = (&operands[0], operands.get(1), operands.get(2));
        let mut load = |(i, &pointer): (usize, &Bits)| {
            if !is_on(mask, i)? {
                return Ok(other.and_then(|other| other[i]));
            }
            let address = defined(pointer, "the address", i)?;
            self.memory.read(address, target.size()).map(Some).map_err(|problem| at(i, problem))
        };
        pointers.iter().enumerate().map(&mut load).collect()
    }

    fn store(&mut self, operands: &[Tile], target: Scalar) -> Result<(), Failure> {
        let (pointers, values, mask) = (&operands[0], &operands[1], operands.get(2));
        for (i, &pointer) in pointers.iter().enumerate() {
            if !is_on(mask, i)? {
                continue;
            }
            let address = defined(pointer, "the address", i)?;
            let bits = defined(values[i], "the stored value", i)?;
            self.memory.write(address, target.size(), bits).map_err(|problem| at(i, problem))?;
        }
        Ok(())
    }
}

fn at(element: usize, problem: impl Into<InterpretProblem>) -> Failure {
    Failure { element: Some(element), problem: problem.into() }
}

fn defined(bits: Bits, what: &'static str, element: usize) -> Result<u64, Failure> {
    bits.ok_or_else(|| at(element, InterpretProblem::Undefined(what)))
}

fn is_on(mask: Option<&Tile>, element: usize) -> Result<bool, Failure> {
    mask.map_or(Ok(true), |mask| Ok(defined(mask[element], "the mask", element)? != 0))
}

/// The number type of a value; of no matter for pointers.
fn number(ty: &Type) -> Scalar {
    ty.number().unwrap_or(Scalar::I64)
}

fn range(start: i32, size: usize) -> Tile {
    (0..size as i64).map(|i| Some(element::wrap(Scalar::I32, (i64::from(start) + i) as u64))).collect()
}

/// Addresses wrap; executors need not find out before an access.
fn add_pointer(pointers: &Tile, offsets: &Tile, pointer: &Type, offset: &Type) -> Tile {
    let size = pointer.target().unwrap_or(Scalar::I8).size() as u64;
    let scalar = number(offset);
    tile::zip(pointers, offsets, |address, offset| {
        address.wrapping_add((element::signed(scalar, offset) as u64).wrapping_mul(size))
    })
}
