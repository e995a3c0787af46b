//! From a kernel to steps: which file makes those of each operation.

use super::compiler::Compiler;
use super::{Whole, combine, control, dot, elementwise, memory, printing, shape};
use crate::error::Error;
use openmps_tile::kernel::Instruction;
use openmps_tile::{Kernel, Operation};

/// The kernel as steps.
pub(super) fn compile(kernel: &Kernel) -> Result<Whole, Error> {
    Compiler::compile(kernel, make_steps)
}

/// The steps of one instruction.
fn make_steps<'k>(c: &mut Compiler<'k>, instruction: &'k Instruction) -> Result<(), Error> {
    use Operation::*;
    if c.lanes > 1 && !is_elementwise(&instruction.operation) {
        let name = instruction.operation.name();
        return Err(c.unsupported(format!("{name} in the block of a reduction or scan")));
    }
    match &instruction.operation {
        Constant(_) | ProgramId(_) | ProgramCount(_) | Range { .. } => shape::source(c, instruction),
        Splat
        | ExpandDims { .. }
        | Broadcast
        | Reshape
        | Permute { .. }
        | Unsplat
        | IntegerToPointer
        | PointerToInteger
        | Join
        | Split
        | Concatenate
        | Gather { .. }
        | Histogram => shape::moved(c, instruction),
        Load | Store | Atomic(_) | CompareSwap => memory::access(c, instruction),
        AddPointer | Unary(_) | Binary(_) | Compare(_) | Select | Cast(_) | MultiplyAdd => {
            elementwise::elementwise(c, instruction)
        }
        Reduce { axis, combine } => combine::reduce(c, instruction, *axis, *combine),
        ReduceBlock { axis } => combine::by_block(c, instruction, *axis, None),
        Scan { axis, reverse } => combine::by_block(c, instruction, *axis, Some(*reverse)),
        Dot => dot::dot(c, instruction),
        For => control::for_loop(c, instruction),
        If => control::if_else(c, instruction),
        While => control::while_loop(c, instruction),
        Assert { message } => control::assert(c, instruction, message),
        Print(print) => {
            printing::print(c, instruction, print);
            Ok(())
        }
        Barrier | Yield | Condition => Ok(()),
    }
}

/// What can be done for many elements at once where a block says it for one.
fn is_elementwise(operation: &Operation) -> bool {
    use Operation::*;
    matches!(operation, Constant(_) | Unary(_) | Binary(_) | Compare(_) | Select | Cast(_) | MultiplyAdd)
}
