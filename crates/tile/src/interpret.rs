//! The interpreter: the definition of the language, one element at a time.
//!
//! An element may be undefined: what a load gives where its mask is false and no other value is given. Operations on undefined elements give
//! undefined ones; storing one, or letting one decide an address, a mask or a loop's bounds, is an error.

mod access;
mod control;
pub mod element;
mod error;
mod memory;
#[cfg(test)]
mod tests;
mod tile;

pub use error::{InterpretError, InterpretProblem};
pub use memory::{HostMemory, Memory, MemoryError, Plain, RawMemory};

use crate::kernel::*;
use crate::location::Location;
use crate::types::{Scalar, Type};
use crate::verify::Verified;
use access::{at, defined};
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
        .map_err(|problem| error(kernel, Location::Kernel, [0; 3], Failure { element: None, problem }))?;
    for z in 0..grid[2] {
        for y in 0..grid[1] {
            for x in 0..grid[0] {
                memory.begin_program([x, y, z]);
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

fn error(kernel: &Kernel, place: Location, program: [usize; 3], failure: Failure) -> InterpretError {
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

    /// Runs a block; returns what it ends with.
    fn block(&mut self, block: &'a Block) -> Result<Vec<Tile>, InterpretError> {
        for (i, instruction) in block.instructions.iter().enumerate() {
            self.path.push(i);
            match instruction.operation {
                Operation::Yield | Operation::Condition => {
                    self.path.pop();
                    return Ok(self.tiles(&instruction.operands));
                }
                _ if !instruction.blocks.is_empty() => self.control(instruction)?,
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
        error(self.kernel, Location::instruction(self.kernel, &self.path, instruction), self.place, failure)
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

    /// The result of an instruction without blocks; none of a store.
    fn instruction(&mut self, instruction: &Instruction) -> Result<Vec<Tile>, Failure> {
        let operands = self.tiles(&instruction.operands);
        let one = |tile: Tile| vec![tile];
        match &instruction.operation {
            Operation::Load => self.load(&operands, self.target(instruction)).map(one),
            Operation::Store => self.store(&operands, self.target(instruction)).map(|()| Vec::new()),
            Operation::Atomic(atomic) => self.atomic(*atomic, &operands, self.target(instruction)).map(one),
            Operation::CompareSwap => self.compare_swap(&operands, self.target(instruction)).map(one),
            Operation::Barrier => Ok(Vec::new()),
            Operation::Assert { message } => assert(&operands[0], message).map(|()| Vec::new()),
            Operation::Print(print) => {
                let types = instruction.operands.iter().map(|&operand| self.kernel.type_of(operand));
                let bits: Vec<_> = operands.iter().map(|tile| move |i: usize| tile[i]).collect();
                let elements = bits.iter().map(|bits| bits as &dyn Fn(usize) -> Option<u64>);
                let operands: Vec<_> = types.zip(elements).collect();
                std::print!("{}", print.lines(self.place, &operands));
                Ok(Vec::new())
            }
            Operation::Split => Ok([0, 1].map(|side| tile::every_second(&operands[0], side)).into()),
            Operation::Gather { axis } => {
                let [source, indices] = [0, 1].map(|i| self.kernel.type_of(instruction.operands[i]));
                gather(&operands, source, indices, *axis).map(one)
            }
            _ => Ok(one(self.pure(instruction, &operands))),
        }
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
            (Operation::ExpandDims { .. } | Operation::Reshape | Operation::Unsplat, [x]) => x.clone(),
            (Operation::IntegerToPointer | Operation::PointerToInteger, [x]) => x.clone(),
            (Operation::Permute { order }, [x]) => tile::permute(x, &operand_type(0).dims, order),
            (Operation::Join, [x, y]) => x.iter().zip(y.iter()).flat_map(|(&x, &y)| [x, y]).collect(),
            (Operation::Concatenate, [x, y]) => x.iter().chain(y.iter()).copied().collect(),
            (Operation::Histogram, [x]) => histogram(x, None, result.len()),
            (Operation::Histogram, [x, mask]) => histogram(x, Some(mask), result.len()),
            (Operation::MultiplyAdd, [x, y, z]) => {
                let multiply_add = |x: u64, (y, z): (u64, u64)| element::multiply_add(scalar, x, y, z);
                tile::zip3(x, y, z, |x, y, z| multiply_add(x, (y, z)))
            }
            (Operation::Broadcast, [x]) => tile::broadcast(x, &operand_type(0).dims, &result.dims),
            (Operation::AddPointer, [x, y]) => add_pointer(x, y, operand_type(0), operand_type(1)),
            (&Operation::Unary(operation), [x]) => tile::map(x, |x| element::unary(operation, scalar, x)),
            (Operation::Binary(Binary::And), [x, y]) if scalar == Scalar::I1 => tile::truths(x, y, 0),
            (Operation::Binary(Binary::Or), [x, y]) if scalar == Scalar::I1 => tile::truths(x, y, 1),
            (&Operation::Binary(operation), [x, y]) => tile::zip(x, y, |x, y| element::binary(operation, scalar, x, y)),
            (&Operation::Compare(compare), [x, y]) => tile::zip(x, y, |x, y| element::compare(compare, scalar, x, y)),
            (Operation::Select, [condition, x, y]) => tile::select(condition, x, y),
            (&Operation::Cast(cast), [x]) => tile::map(x, |x| element::cast(cast, scalar, number(result), x)),
            (&Operation::Reduce { axis, combine }, [x]) => {
                tile::reduce(x, &operand_type(0).dims, axis, |x, y| element::combine(combine, scalar, x, y))
            }
            (Operation::Dot, [x, y, sum]) => {
                let (rows, columns) = (&operand_type(0).dims, &operand_type(1).dims);
                let sizes = [rows[rows.len() - 2], rows[rows.len() - 1], columns[columns.len() - 1]];
                let wide = number(result);
                tile::dot(x, y, sum, sizes, |sum, x, y| element::product(scalar, wide, sum, x, y))
            }
            // Nothing else has a result in a verified kernel.
            _ => vec![None; result.len()].into(),
        }
    }
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

/// Fails where a boolean does not hold.
fn assert(x: &Tile, message: &str) -> Result<(), Failure> {
    for (i, &bits) in x.iter().enumerate() {
        if defined(bits, "the asserted value", i)? == 0 {
            return Err(at(i, InterpretProblem::Assert(message.to_owned())));
        }
    }
    Ok(())
}

/// Elements by an index along an axis.
fn gather(operands: &[Tile], source: &Type, indices: &Type, axis: usize) -> Result<Tile, Failure> {
    let (length, inner): (usize, usize) = (source.dims[axis], source.dims[axis + 1..].iter().product());
    let outer_step = indices.dims[axis] * inner;
    let element = |(i, &index): (usize, &Bits)| {
        let index = element::signed(number(indices), defined(index, "the index", i)?);
        let place = usize::try_from(index).ok().filter(|&index| index < length);
        let place = place.ok_or_else(|| at(i, InterpretProblem::Index { index, length }))?;
        Ok(operands[0][(i / outer_step * length + place) * inner + i % inner])
    };
    operands[1].iter().enumerate().map(element).collect()
}

/// How many elements have each value; undefined where an element that counts is.
fn histogram(x: &Tile, mask: Option<&Tile>, bins: usize) -> Tile {
    let counts = |i: usize| mask.is_none_or(|mask| mask[i] != Some(0));
    if (0..x.len()).any(|i| counts(i) && x[i].is_none()) {
        return vec![None; bins].into();
    }
    let count = |bin: usize| (0..x.len()).filter(|&i| counts(i) && x[i] == Some(bin as u64)).count();
    (0..bins).map(|bin| Some(count(bin) as u64)).collect()
}
