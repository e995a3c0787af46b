//! What a kernel is made of: values in static single assignment, instructions, blocks.
//!
//! A tile has at least one dimension and 1 to [`MAX_TILE_ELEMENTS`](crate::verify::MAX_TILE_ELEMENTS) elements. Integers
//! do not include i1 unless it is named, and nothing points to i1. Elements may be undefined (see [`Operation::Load`]).

mod element;
mod operation;
mod printed;

pub use crate::number::Number;
pub use element::{Atomic, Binary, Cast, Combine, Compare, Unary};
pub use operation::{Operation, Print};

use crate::types::{Dims, Scalar, Type};

/// A value: the result of an instruction, a parameter, or a block's argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(pub u32);

/// A kernel: one program, run once for every point of a grid.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Its name in errors, traces and generated text.
    pub name: String,
    /// Its parameters: pointers into device memory, numbers and booleans; scalars with different names.
    pub parameters: Vec<Parameter>,
    /// The type of each [`Value`].
    pub types: Vec<Type>,
    /// What it does; a block without arguments.
    pub body: Block,
    /// Lines of the program that the kernel was made from, as `file:line:column`; instructions name them by index.
    pub lines: Vec<String>,
}

/// A parameter of a kernel.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// Its name in generated text.
    pub name: String,
    /// The value that stands for it.
    pub value: Value,
    /// What divides the number, or the address in bytes, in every launch (`tt.divisibility`); 1 where nothing is known. Devices refuse
    /// others.
    pub divisibility: u32,
}

/// Instructions in order, with the values that enter.
#[derive(Clone, Debug, Default)]
pub struct Block {
    /// Values defined at entry: a loop's induction variable and carried values, a combination's two sides.
    pub arguments: Vec<Value>,
    /// The instructions.
    pub instructions: Vec<Instruction>,
}

impl Block {
    /// What the last instruction hands on: what a loop's block yields, a branch's results.
    pub fn ends(&self) -> &[Value] {
        self.instructions.last().map_or(&[], |last| &last.operands)
    }

    /// Whether an instruction of the block, or one within it, reads a value.
    pub fn reads(&self, value: Value) -> bool {
        let reads = |instruction: &Instruction| {
            instruction.operands.contains(&value) || instruction.blocks.iter().any(|block| block.reads(value))
        };
        self.instructions.iter().any(reads)
    }
}

/// One operation with its operands and results.
#[derive(Clone, Debug)]
pub struct Instruction {
    /// The operation.
    pub operation: Operation,
    /// What it reads.
    pub operands: Vec<Value>,
    /// What it defines.
    pub results: Vec<Value>,
    /// The blocks it contains: a loop's, the two of a condition, a reduction's.
    pub blocks: Vec<Block>,
    /// The line that it was made from, by its index in the kernel's lines.
    pub line: Option<u32>,
}

/// A value that a loop carries: its names at entry, in the block, where the block yields it, and as the loop's result.
#[derive(Clone, Copy, Debug)]
pub struct Carried {
    /// What it is before the first iteration.
    pub initial: Value,
    /// What the block reads.
    pub argument: Value,
    /// What the block hands to the next iteration.
    pub next: Value,
    /// What it is after the last iteration.
    pub result: Value,
}

impl Instruction {
    /// The values that a loop over a range carries.
    pub fn carried(&self) -> impl Iterator<Item = Carried> {
        let block = self.blocks.first().filter(|_| self.operation == Operation::For);
        let (arguments, next) = block.map_or((&[][..], &[][..]), |block| (&block.arguments[1..], block.ends()));
        let initial = self.operands.get(3..).unwrap_or_default();
        let names = initial.iter().zip(arguments).zip(next.iter().zip(&self.results));
        names.map(|((&initial, &argument), (&next, &result))| Carried { initial, argument, next, result })
    }
}

impl Kernel {
    /// The type of a value.
    pub fn type_of(&self, value: Value) -> &Type {
        &self.types[value.0 as usize]
    }

    /// Whether any of its values are numbers of this type, or point to some.
    pub fn has(&self, scalar: Scalar) -> bool {
        self.types.iter().any(|ty| ty.number().or(ty.target()) == Some(scalar))
    }

    /// The dimensions of a value.
    pub fn dims_of(&self, value: Value) -> &Dims {
        &self.type_of(value).dims
    }
}
